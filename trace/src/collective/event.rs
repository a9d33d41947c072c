//! Data from NCCL: communicators and the operations queued in them.

use super::{Algorithm, DataType, Function, Protocol};
use crate::record::{NameId, ThreadId, Timestamp};

/// A communicator of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Its number in this process, starting at 1.
    pub number: u32,
    /// Identifier that is equal on all ranks.
    pub id: u64,
    /// Name given by the program; empty if it has none.
    pub name: NameId,
    /// Number of nodes (hosts).
    pub nodes: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Rank of this process; `ranks` or above if unknown.
    pub rank: u32,
}

/// An operation reported by NCCL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedOperation {
    /// Number of the [`Communicator`] in this process; 0 if unknown.
    pub communicator: u32,
    /// Thread that reported the operation.
    pub thread: ThreadId,
    /// Time of the report, after the kernel launch.
    pub at: Timestamp,
    /// Start of the kernel launch; zero if unknown.
    pub launch_begin: Timestamp,
    /// End of the kernel launch; zero if unknown.
    pub launch_end: Timestamp,
    /// Collective function.
    pub function: Function,
    /// Type of the elements.
    pub data_type: DataType,
    /// Algorithm chosen by NCCL.
    pub algorithm: Algorithm,
    /// Protocol chosen by NCCL.
    pub protocol: Protocol,
    /// Number of channels; 0 if unknown.
    pub channels: u8,
    /// Number of elements, as passed by the program.
    pub count: u64,
    /// Number of earlier operations of this function in this communicator; `None` if NCCL does not count
    /// them.
    pub sequence: Option<u64>,
    /// Root rank, or the peer of a send or receive.
    pub root_or_peer: i32,
    /// How the operation is executed.
    pub way: Execution,
    /// True if the operation was reported by an NVTX range of NCCL or PyTorch's profiler instead of the
    /// plugin. `count` is then the buffer size in bytes, the launch is the range or the call, and algorithm
    /// and sequence are unknown.
    pub by_range: bool,
}

/// How an operation is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Execution {
    /// A kernel was launched, possibly for several operations at once.
    #[default]
    Kernel,
    /// The operation was captured into a CUDA graph; nothing is queued.
    Captured,
    /// Copy engines execute it, without a kernel.
    CopyEngine,
}

/// Collective events of a trace other than records. Small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveEvent {
    /// A communicator was created; precedes its operations.
    Communicator(Communicator),
    /// An operation was queued.
    Operation(QueuedOperation),
}

impl CollectiveEvent {
    /// Time at which the operation was reported; `None` for events without a time.
    pub const fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Communicator(_) => None,
            Self::Operation(operation) => Some(operation.at),
        }
    }
}
