//! What a tool implements.

/// Version of the plugin that NCCL took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// NCCL 2.27: no launches.
    V4,
    /// NCCL 2.28.
    V5,
    /// NCCL 2.29 and later: operations of copy engines.
    V6,
}

/// A communicator that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator<'a> {
    /// Equal on all of its ranks.
    pub id: u64,
    /// What the program calls it; empty without.
    pub name: &'a [u8],
    /// Its hosts.
    pub nodes: u32,
    /// Its ranks.
    pub ranks: u32,
    /// The rank of this process in it.
    pub rank: u32,
    /// The version that NCCL took.
    pub version: Version,
}

/// What an [`Operation`] was told as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A collective, queued.
    Collective,
    /// A send or receive, queued.
    PointToPoint,
    /// A collective of copy engines, queued; no kernel does it.
    CopyEngine,
    /// A call while a graph is captured; nothing is queued.
    Captured,
}

/// An operation of a communicator. Texts are at most [`MAX_TEXT`](crate::plugin::MAX_TEXT) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// What it is.
    pub kind: OperationKind,
    /// `AllReduce` and others.
    pub function: &'a [u8],
    /// Elements, as the program gave them.
    pub count: u64,
    /// `ncclFloat32` and others.
    pub data_type: &'a [u8],
    /// Operations of this function in this communicator before it; `None` where NCCL does not count.
    pub sequence: Option<u64>,
    /// Root, or the other rank of a send or receive; 0 where there is none.
    pub root_or_peer: i32,
    /// `RING` and others; empty where it is not told.
    pub algorithm: &'a [u8],
    /// `LL` and others; empty where it is not told.
    pub protocol: &'a [u8],
    /// Channels; 0 where it is not told.
    pub channels: u8,
}

/// Receives what NCCL does.
///
/// The functions run on the program's threads and on NCCL's, in the middle of their work and several at a time, also
/// within host functions of CUDA. They must be quick, and must not call CUDA or NCCL. Contexts may be ones that the
/// handler never gave, or that have ended.
pub trait Handler: 'static {
    /// A communicator is made. Answers its context, from 1 on; `None` when it is not followed.
    fn begin(communicator: &Communicator<'_>) -> Option<u32>;
    /// A communicator is gone.
    fn end(context: u32);
    /// An operation was queued, or captured. After the launch of the kernel that does it, but for those captured.
    fn operation(context: u32, operation: &Operation<'_>);
    /// A kernel is about to be launched. Never with version 4.
    fn launch_begin(context: u32);
    /// It was launched. Perhaps twice, or on another thread.
    fn launch_end(context: u32);
}
