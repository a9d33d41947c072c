//! One activity record, read by kind and size.
//!
//! CUPTI writes the newest layout of the loaded library. Between 11.7 and 13.4 every layout that is read here
//! is append-only, so a field has one offset, and it exists if the record is long enough. Each offset is
//! written once, in the `layout!` tables (`view.rs`) of this module's files: the accessors and the check
//! against other sources read the same table.
//!
//! Kinds that gpuwhy-like tools do not need (SASS, PC sampling, OpenACC, NVLink) have no accessors; the walk
//! still steps over their records, and they can be counted.

mod device_work;
mod host;
mod memory;
mod objects;
pub(crate) mod view;

pub use device_work::{GraphTraceRecord, KernelRecord, MemcpyP2pRecord, MemcpyRecord, MemsetRecord};
pub use host::{ApiRecord, CudaEventRecord, OverheadRecord, SyncRecord};
pub use memory::{MemoryPoolRecord, MemoryRecord, UnifiedMemoryRecord};
pub use objects::{ContextRecord, DeviceRecord};
pub use view::{Field, Record};

use crate::abi::Kind;
use std::ffi::{CStr, c_char};
use view::Strings;

/// A record of a kind that has accessors.
#[derive(Clone, Copy, Debug)]
pub enum Activity<'a> {
    /// [`Kind::KERNEL`] or [`Kind::CONCURRENT_KERNEL`].
    Kernel(KernelRecord<'a>),
    /// [`Kind::MEMCPY`].
    Memcpy(MemcpyRecord<'a>),
    /// [`Kind::MEMCPY2`].
    MemcpyP2p(MemcpyP2pRecord<'a>),
    /// [`Kind::MEMSET`].
    Memset(MemsetRecord<'a>),
    /// [`Kind::GRAPH_TRACE`].
    GraphTrace(GraphTraceRecord<'a>),
    /// [`Kind::DRIVER`], [`Kind::RUNTIME`] or [`Kind::INTERNAL_LAUNCH_API`].
    Api(ApiRecord<'a>),
    /// [`Kind::SYNCHRONIZATION`].
    Sync(SyncRecord<'a>),
    /// [`Kind::CUDA_EVENT`].
    CudaEvent(CudaEventRecord<'a>),
    /// [`Kind::OVERHEAD`].
    Overhead(OverheadRecord<'a>),
    /// [`Kind::DEVICE`].
    Device(DeviceRecord<'a>),
    /// [`Kind::CONTEXT`].
    Context(ContextRecord<'a>),
    /// [`Kind::PCIE`].
    Pcie,
    /// [`Kind::MEMORY2`].
    Memory(MemoryRecord<'a>),
    /// [`Kind::MEMORY_POOL`].
    MemoryPool(MemoryPoolRecord<'a>),
    /// [`Kind::UNIFIED_MEMORY_COUNTER`].
    UnifiedMemory(UnifiedMemoryRecord<'a>),
    /// Another kind, or a record shorter than that of CUDA 11.7.
    Other,
}

impl<'a> Record<'a> {
    /// The record with the accessors of its kind.
    #[inline]
    pub fn activity(self) -> Activity<'a> {
        let activity = match self.kind() {
            Kind::CONCURRENT_KERNEL | Kind::KERNEL => KernelRecord::of(self).map(Activity::Kernel),
            Kind::DRIVER | Kind::RUNTIME | Kind::INTERNAL_LAUNCH_API => ApiRecord::of(self).map(Activity::Api),
            Kind::MEMCPY => MemcpyRecord::of(self).map(Activity::Memcpy),
            Kind::MEMSET => MemsetRecord::of(self).map(Activity::Memset),
            Kind::SYNCHRONIZATION => SyncRecord::of(self).map(Activity::Sync),
            Kind::CUDA_EVENT => CudaEventRecord::of(self).map(Activity::CudaEvent),
            Kind::OVERHEAD => OverheadRecord::of(self).map(Activity::Overhead),
            Kind::MEMCPY2 => MemcpyP2pRecord::of(self).map(Activity::MemcpyP2p),
            Kind::GRAPH_TRACE => GraphTraceRecord::of(self).map(Activity::GraphTrace),
            Kind::DEVICE => DeviceRecord::of(self).map(Activity::Device),
            Kind::CONTEXT => ContextRecord::of(self).map(Activity::Context),
            Kind::PCIE => Some(Activity::Pcie),
            Kind::MEMORY2 => MemoryRecord::of(self).map(Activity::Memory),
            Kind::MEMORY_POOL => MemoryPoolRecord::of(self).map(Activity::MemoryPool),
            Kind::UNIFIED_MEMORY_COUNTER => UnifiedMemoryRecord::of(self).map(Activity::UnifiedMemory),
            _ => None,
        };
        activity.unwrap_or(Activity::Other)
    }

    /// The string whose address is at `offset`, one of [`string_offsets`] of this kind. `None` without a
    /// string, and for records that did not come from the CUPTI of this process.
    ///
    /// It is valid while the buffer is held: copy or intern it during the walk.
    #[inline]
    pub fn string(&self, offset: usize) -> Option<&'a CStr> {
        let address = self.string_address(offset);
        if self.strings == Strings::Foreign || address == 0 || !string_offsets(self.kind()).contains(&offset) {
            return None;
        }
        // SAFETY: `Readable` records were written by the CUPTI of this process, which stores at this offset
        // NULL or the address of a NUL-terminated string that lives at least until the buffer is released.
        Some(unsafe { CStr::from_ptr(address as usize as *const c_char) })
    }
}

/// Offsets of string addresses in a record of this kind.
#[inline]
pub const fn string_offsets(kind: Kind) -> &'static [usize] {
    match kind {
        Kind::CONCURRENT_KERNEL | Kind::KERNEL => &[KernelRecord::NAME_OFFSET],
        Kind::DEVICE => &[DeviceRecord::NAME_OFFSET],
        Kind::MEMORY2 => &[MemoryRecord::NAME_OFFSET],
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
