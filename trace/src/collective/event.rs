//! What NCCL tells: communicators and the operations that were queued in them.

use super::{Algorithm, DataType, Function, Protocol};
use crate::record::{NameId, ThreadId, Timestamp};

/// A communicator of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Its number in this process, from 1 on.
    pub number: u32,
    /// Equal on all of its ranks.
    pub id: u64,
    /// What the program calls it; an empty name without.
    pub name: NameId,
    /// Its hosts.
    pub nodes: u32,
    /// Its ranks.
    pub ranks: u32,
    /// The rank of this process in it; not below `ranks` where it is not known.
    pub rank: u32,
}

/// An operation as NCCL told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedOperation {
    /// Number of the [`Communicator`] in this process; 0 when it is not known.
    pub communicator: u32,
    /// The thread that told it.
    pub thread: ThreadId,
    /// When it was told: after the launch of its kernel.
    pub at: Timestamp,
    /// When the launch of its kernel began; zero when that is not known.
    pub launch_begin: Timestamp,
    /// When it ended; zero when that is not known.
    pub launch_end: Timestamp,
    /// What is done.
    pub function: Function,
    /// Type of the elements.
    pub data_type: DataType,
    /// How it is done.
    pub algorithm: Algorithm,
    /// With which protocol.
    pub protocol: Protocol,
    /// With how many channels; 0 when that is not known.
    pub channels: u8,
    /// Elements, as the program gave them.
    pub count: u64,
    /// Operations of this function in this communicator before it; `None` where NCCL does not count.
    pub sequence: Option<u64>,
    /// Root, or the other rank of a send or receive.
    pub root_or_peer: i32,
    /// What became of it.
    pub way: Way,
    /// An NVTX range of NCCL or PyTorch's profiler told it, and not the plugin. `count` is then the size of the buffer
    /// in bytes, the launch is the range or the call, and algorithm and sequence are not known.
    pub by_range: bool,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// A kernel was launched for it, perhaps for several at once.
    #[default]
    Kernel,
    /// It went into a CUDA graph that is being captured. Nothing is queued.
    Captured,
    /// Copy engines do it, without a kernel.
    CopyEngine,
}

/// What a trace says of collectives, apart from records. Small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveEvent {
    /// A communicator was made; before its operations.
    Communicator(Communicator),
    /// An operation was queued.
    Operation(QueuedOperation),
}

impl CollectiveEvent {
    /// When an operation was told; `None` for what belongs to no moment.
    pub const fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Communicator(_) => None,
            Self::Operation(operation) => Some(operation.at),
        }
    }
}
