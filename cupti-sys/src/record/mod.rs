//! One activity record, read by kind and size.
//!
//! CUPTI writes the newest layout of the loaded library. Between 11.7 and 13.4 every layout read here is
//! append-only, so a field has one offset, and it exists when the record is long enough. Each offset is written down
//! once, in the `layout!` tables of this module's files: the accessors and the check against other sources read the
//! same table.
//!
//! Kinds that gpuwhy-like tools have no use for (SASS, PC sampling, OpenACC, NVLink) have no accessors; their
//! records are still walked over and can be counted.

mod device_work;
mod host;
mod memory;
mod objects;

pub use device_work::{GraphTraceRecord, KernelRecord, MemcpyP2pRecord, MemcpyRecord, MemsetRecord};
pub use host::{ApiRecord, CudaEventRecord, OverheadRecord, SyncRecord};
pub use memory::{MemoryPoolRecord, MemoryRecord, UnifiedMemoryRecord};
pub use objects::{ContextRecord, DeviceRecord, PcieRecord};

use crate::abi::Kind;
use std::ffi::{CStr, c_char};

/// A field of a C record: what the layout check compares with other sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the C struct.
    pub name: &'static str,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Bytes.
    pub width: usize,
}

/// Whether the addresses of strings in a record can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strings {
    /// CUPTI of this process wrote them.
    Readable,
    /// From another process or a file: numbers only.
    Foreign,
}

/// One record of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    kind: Kind,
    bytes: &'a [u8],
    strings: Strings,
}

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
    Pcie(PcieRecord<'a>),
    /// [`Kind::MEMORY2`].
    Memory(MemoryRecord<'a>),
    /// [`Kind::MEMORY_POOL`].
    MemoryPool(MemoryPoolRecord<'a>),
    /// [`Kind::UNIFIED_MEMORY_COUNTER`].
    UnifiedMemory(UnifiedMemoryRecord<'a>),
    /// Another kind, or a record shorter than CUDA 11.7 wrote it.
    Other,
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) const fn new(kind: Kind, bytes: &'a [u8], strings: Strings) -> Self {
        Self { kind, bytes, strings }
    }

    /// What the record describes.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The whole record, kind included.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The record with the accessors of its kind.
    #[must_use]
    #[inline]
    pub fn activity(self) -> Activity<'a> {
        let activity = match self.kind {
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
            Kind::PCIE => PcieRecord::of(self).map(Activity::Pcie),
            Kind::MEMORY2 => MemoryRecord::of(self).map(Activity::Memory),
            Kind::MEMORY_POOL => MemoryPoolRecord::of(self).map(Activity::MemoryPool),
            Kind::UNIFIED_MEMORY_COUNTER => UnifiedMemoryRecord::of(self).map(Activity::UnifiedMemory),
            _ => None,
        };
        activity.unwrap_or(Activity::Other)
    }

    /// A number of this record, or `None` when it lies behind the record's end.
    #[inline]
    fn read<T: Number>(&self, offset: usize) -> Option<T> {
        T::read(self.bytes.get(offset..)?)
    }

    /// Address of the string whose pointer is at `offset`; 0 when there is none.
    #[must_use]
    #[inline]
    pub fn string_address(&self, offset: usize) -> u64 {
        self.read(offset).unwrap_or(0)
    }

    /// The string whose pointer is at `offset`, one of [`string_offsets`] of this kind. `None` without a string, and
    /// for records that did not come from the CUPTI of this process.
    ///
    /// It is valid as long as the buffer is held: copy or intern it while walking.
    #[must_use]
    #[inline]
    pub fn string(&self, offset: usize) -> Option<&'a CStr> {
        let address = self.string_address(offset);
        if self.strings == Strings::Foreign || address == 0 || !string_offsets(self.kind).contains(&offset) {
            return None;
        }
        // SAFETY: `Readable` records were written by the CUPTI of this process, which stores at this offset NULL or
        // the address of a NUL-terminated string that lives at least until the buffer is given back.
        Some(unsafe { CStr::from_ptr(address as usize as *const c_char) })
    }
}

/// Where a record of this kind holds addresses of strings.
#[must_use]
#[inline]
pub const fn string_offsets(kind: Kind) -> &'static [usize] {
    match kind {
        Kind::CONCURRENT_KERNEL | Kind::KERNEL => &[KernelRecord::NAME_OFFSET],
        Kind::DEVICE => &[DeviceRecord::NAME_OFFSET],
        Kind::MEMORY2 => &[MemoryRecord::NAME_OFFSET],
        _ => &[],
    }
}

/// A number as it lies in a record: little-endian, perhaps unaligned.
trait Number: Sized {
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|&bytes| Self::from_le_bytes(bytes))
            }
        }
    )*};
}

numbers!(u8, u16, u32, i32, u64);

impl<const N: usize> Number for [u8; N] {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied()
    }
}

/// Defines a view of a record: its least size, its fields, and one accessor a field.
///
/// Fields under `always` exist in every record of at least the least size, which is that of CUDA 11.7; fields under
/// `since` answer `None` in records that end before them. All of it is inlined into the caller's crate, where the one
/// comparison of the size then serves every field.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $view:ident, at least $least:literal bytes
        always { $($(#[$always_doc:meta])* $always:ident: $always_type:ty = $always_name:literal @ $always_offset:literal;)* }
        since { $($(#[$since_doc:meta])* $since:ident: $since_type:ty = $since_name:literal @ $since_offset:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(crate::record::Record<'a>);

        impl<'a> $view<'a> {
            /// Size of the record in CUDA 11.7, the smallest that is read.
            pub const LEAST_BYTES: usize = $least;

            /// Every field that an accessor reads.
            pub const FIELDS: &'static [crate::record::Field] = &[
                $(crate::record::Field { name: $always_name, offset: $always_offset, width: size_of::<$always_type>() },)*
                $(crate::record::Field { name: $since_name, offset: $since_offset, width: size_of::<$since_type>() },)*
            ];

            /// The view of a record of this kind, unless it is too short.
            #[inline]
            pub(super) fn of(record: crate::record::Record<'a>) -> Option<Self> {
                const { $(assert!($always_offset + size_of::<$always_type>() <= $least);)* }
                (record.bytes().len() >= $least).then_some(Self(record))
            }

            /// The record itself.
            #[must_use]
            #[inline]
            pub const fn record(&self) -> crate::record::Record<'a> {
                self.0
            }

            $($(#[$always_doc])* #[must_use] #[inline] pub fn $always(&self) -> $always_type {
                self.0.read($always_offset).unwrap_or_default()
            })*

            $($(#[$since_doc])* #[must_use] #[inline] pub fn $since(&self) -> Option<$since_type> {
                self.0.read($since_offset)
            })*
        }
    };
}
use layout;

#[cfg(test)]
mod tests;
