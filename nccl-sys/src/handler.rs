//! Interface that a tool implements.

/// Version of the plugin that NCCL selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// NCCL 2.27: no launches.
    V4,
    /// NCCL 2.28.
    V5,
    /// NCCL 2.29 and later: copy engine operations.
    V6,
}

/// A new communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator<'a> {
    /// Id, equal on all of its ranks.
    pub id: u64,
    /// Name from the program; empty if there is none.
    pub name: &'a [u8],
    /// Number of its hosts.
    pub nodes: u32,
    /// Number of its ranks.
    pub ranks: u32,
    /// Rank of this process in it.
    pub rank: u32,
    /// The version that NCCL selected.
    pub version: Version,
}

/// Kind of event that reported an [`NcclOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A queued collective.
    Collective,
    /// A queued send or receive.
    PointToPoint,
    /// A queued collective on copy engines, without a kernel.
    CopyEngine,
    /// A call during graph capture; not queued.
    Captured,
}

/// An operation of a communicator. Texts have at most [`MAX_TEXT`](crate::plugin::MAX_TEXT) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclOperation<'a> {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// `AllReduce` and others.
    pub function: &'a [u8],
    /// Number of elements, as the program passed it.
    pub count: u64,
    /// `ncclFloat32` and others.
    pub data_type: &'a [u8],
    /// Number of earlier operations of this function in this communicator; `None` if NCCL does not count
    /// them.
    pub sequence: Option<u64>,
    /// Rank of the root, or of the peer of a send or receive; 0 if there is none.
    pub root_or_peer: i32,
    /// `RING` and others; empty if not reported.
    pub algorithm: &'a [u8],
    /// `LL` and others; empty if not reported.
    pub protocol: &'a [u8],
    /// Number of channels; 0 if not reported.
    pub channels: u8,
}

/// Receives NCCL's profiler events.
///
/// The functions run on the program's threads and on NCCL's, in the middle of their work and several at a
/// time, also within CUDA host functions. They must be quick, and must not call CUDA or NCCL. Contexts may be
/// unknown to the handler, or have ended.
pub trait Handler: 'static {
    /// A communicator is being created. Returns its context, from 1 on; `None` if it is not tracked.
    fn begin(communicator: &Communicator<'_>) -> Option<u32>;
    /// A communicator was destroyed.
    fn end(context: u32);
    /// An operation was queued, or captured. Called after the launch of its kernel, except for captured
    /// operations.
    fn operation(context: u32, operation: &NcclOperation<'_>);
    /// A kernel is about to be launched. Never with version 4.
    fn launch_begin(context: u32);
    /// The kernel was launched. May be called twice, or on another thread.
    fn launch_end(context: u32);
}
