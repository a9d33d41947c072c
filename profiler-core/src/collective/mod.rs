//! Collective operations: what a program asked of a communicator, and the kernel that did it.
//!
//! NCCL's profiler plugin says what was queued ([`gpuwhy_trace::collective`]): communicator, function, bytes,
//! algorithm; without it NCCL's NVTX ranges say some of this. CUPTI says when a kernel ran. [`Joiner`] brings the two
//! together, and says of each row what it rests on ([`Basis`]). [`CollectiveTable`] adds up the rows of a run, with
//! bandwidths.
//!
//! Reading order: here, `arithmetic`, `overlap`, `join`, `table`, `engine` (all of it, of one capture).

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
    /// What a row of [`Collective`] rests on, the best first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Basis: name {
        /// The profiler plugin: the launch of the kernel lay in the launch that NCCL told.
        Plugin "plugin",
        /// The profiler plugin, without the launch: the last launch of the thread before the operation was told, or the
        /// order of operations and kernels.
        Order "order",
        /// An NVTX range of NCCL: the one launch of the thread within it. Or what PyTorch's profiler says of the
        /// kernel. Communicator and bytes, no algorithm.
        Range "nvtx",
        /// The name of the kernel alone: no communicator, bytes or algorithm.
        #[default]
        KernelName "kernel_name",
    }
}

/// One operation and the kernel that did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// [`Communicator::id`](gpuwhy_trace::collective::Communicator::id), equal on all ranks; 0 when it is not known.
    pub communicator: u64,
    /// Ranks of the communicator; 0 when they are not known.
    pub ranks: u32,
    /// What was done.
    pub function: Function,
    /// As NCCL counts, equal on all ranks; `None` where it does not.
    pub sequence: Option<u64>,
    /// Rows of this communicator and function before it in this trace.
    pub ordinal: u64,
    /// Size as nccl-tests counts it (`PERFORMANCE.md` there), bytes; 0 when it is not known.
    pub bytes: u64,
    /// Type of the elements.
    pub data_type: DataType,
    /// How it was done.
    pub algorithm: Algorithm,
    /// With which protocol.
    pub protocol: Protocol,
    /// With how many channels; 0 when that is not known.
    pub channels: u8,
    /// Root, or the other rank of a send or receive.
    pub root_or_peer: i32,
    /// Operations that the same kernel did, this one included; 0 when that is not known.
    pub operations_in_kernel: u32,
    /// When the program queued it; zero when that is not known.
    pub queued: Timestamp,
    /// Begin of its kernel.
    pub start: Timestamp,
    /// End of its kernel.
    pub end: Timestamp,
    /// The part of the kernel's time in which no other kernel computed on the device, nanoseconds.
    pub exposed_ns: u64,
    /// Where it ran.
    pub device: DeviceId,
    /// Stream of the kernel.
    pub stream: StreamId,
    /// The launching call of the kernel.
    pub correlation: CorrelationId,
    /// The executable graph that launched the kernel, or 0.
    pub graph: u32,
    /// The node of that graph, or 0.
    pub graph_node: u64,
    /// What all this rests on.
    pub basis: Basis,
}

impl Collective {
    /// How long its kernel ran, nanoseconds. With one rank alone: waiting for other ranks and moving data.
    pub const fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }
}
