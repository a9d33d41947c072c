//! Collective operations: requests of the program to a communicator, and the kernels that performed them.
//!
//! NCCL's profiler plugin reports the queued operations ([`gpuwhy_trace::collective`]): communicator,
//! function, bytes, algorithm. Without the plugin, NCCL's NVTX ranges report some of this. CUPTI reports when
//! a kernel ran. [`Joiner`] joins the two and records the basis of each row ([`Basis`]). [`CollectiveTable`]
//! sums the rows of a run, with bandwidths.
//!
//! Reading order: this file, `arithmetic`, `overlap`, `join`, `table`, `engine` (all of these for one
//! capture).

pub mod arithmetic;
mod engine;
mod join;
mod overlap;
mod pending;
mod table;
#[cfg(test)]
mod tests;

use gpuwhy_trace::collective::{Algorithm, DataType, Function, Protocol};
use gpuwhy_trace::named;
use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, Timestamp};

pub use engine::{CollectiveEngine, CollectivesReport, NamedRow};
pub use join::{Joiner, Unjoined};
pub use overlap::Overlap;
pub use pending::Pending;
pub use table::{CollectiveRow, CollectiveTable, FunctionTotal, ROW_LIMIT};

named! {
    /// Basis of a row of [`Collective`], best first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Basis: name {
        /// The profiler plugin: the launch of the kernel was within the launch reported by NCCL.
        Plugin "plugin",
        /// The profiler plugin without the launch: the last launch of the thread before the operation was
        /// reported, or the order of operations and kernels.
        Order "order",
        /// An NVTX range of NCCL: the only launch of the thread within it. Or the kernel's metadata from
        /// PyTorch's profiler. Communicator and bytes, no algorithm.
        Range "nvtx",
        /// Only the name of the kernel: no communicator, bytes or algorithm.
        #[default]
        KernelName "kernel_name",
    }
}

/// One operation and the kernel that performed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// [`Communicator::id`](gpuwhy_trace::collective::Communicator::id), equal on all ranks; 0 if unknown.
    pub communicator: u64,
    /// Number of ranks of the communicator; 0 if unknown.
    pub ranks: u32,
    /// Operation performed.
    pub function: Function,
    /// NCCL's sequence number, equal on all ranks; `None` if NCCL does not count this operation.
    pub sequence: Option<u64>,
    /// Number of previous rows of this communicator and function in this trace.
    pub ordinal: u64,
    /// Size as nccl-tests counts it (`PERFORMANCE.md` there), bytes; 0 if unknown.
    pub bytes: u64,
    /// Type of the elements.
    pub data_type: DataType,
    /// Algorithm used.
    pub algorithm: Algorithm,
    /// Protocol used.
    pub protocol: Protocol,
    /// Number of channels; 0 if unknown.
    pub channels: u8,
    /// Root, or the other rank of a send or receive.
    pub root_or_peer: i32,
    /// Number of operations performed by the same kernel, including this one; 0 if unknown.
    pub operations_in_kernel: u32,
    /// Time at which the program queued it; zero if unknown.
    pub queued: Timestamp,
    /// Start of its kernel.
    pub start: Timestamp,
    /// End of its kernel.
    pub end: Timestamp,
    /// Part of the kernel's time in which no other kernel computed on the device, nanoseconds.
    pub exposed_ns: u64,
    /// Device that ran it.
    pub device: DeviceId,
    /// Stream of the kernel.
    pub stream: StreamId,
    /// The launching call of the kernel.
    pub correlation: CorrelationId,
    /// The executable graph that launched the kernel, or 0.
    pub graph: u32,
    /// Node in that graph, or 0.
    pub graph_node: u64,
    /// Basis of all these values.
    pub basis: Basis,
}

impl Collective {
    /// Duration of its kernel, nanoseconds. On a single rank this includes waiting for other ranks as well as
    /// moving data.
    pub const fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }
}
