//! Origins of the nodes of CUDA graphs.
//!
//! The driver replays a graph without any call by which its kernels could be found in the program. But each
//! record of device work names its node, and the program created that node at a place of its own.

use crate::record::{StackId, ThreadId, Timestamp};

/// A node that was added to a graph, or copied into another graph.
///
/// Instantiating a graph copies its nodes, and records name the copies. A node precedes its copies and the
/// records that name it. An id that occurs again belongs to a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// Its id, as in [`Kernel::graph_node_id`](crate::record::Kernel::graph_node_id).
    pub node: u64,
    /// Node that it was copied from; 0 if the program added it, [`UNKNOWN`](Self::UNKNOWN) if that is not known.
    pub original: u64,
    /// Time at which it was added or copied.
    pub at: Timestamp,
    /// Thread that added or copied it.
    pub thread: ThreadId,
    /// Stack of that thread; [`StackId::NONE`] if unknown, and for a copy.
    pub stack: StackId,
}

impl GraphNode {
    /// [`original`](Self::original) of a copy of an unknown node, which no node has as its id.
    pub const UNKNOWN: u64 = u64::MAX;
}

impl Default for GraphNode {
    fn default() -> Self {
        Self { node: 0, original: 0, at: Timestamp::ZERO, thread: ThreadId(0), stack: StackId::NONE }
    }
}
