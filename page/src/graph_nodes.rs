//! Nodes of CUDA graphs, by what captured them.

use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::{StackId, ThreadId};
use profiler_core::attribution::{Common, NodeOrigins};

/// Stack and thread that added a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeOrigin {
    pub(crate) stack: StackId,
    pub(crate) thread: ThreadId,
}

impl Common for NodeOrigin {
    fn common(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct GraphNodes(NodeOrigins<NodeOrigin>);

impl GraphNodes {
    /// A node was added or copied. Before the records that name it. Nodes beyond the limit are unknown; the report
    /// counts them.
    pub(crate) fn push(&mut self, node: &GraphNode) {
        if node.original == 0 {
            let _ = self.0.added(node.node, NodeOrigin { stack: node.stack, thread: node.thread });
        } else {
            let _ = self.0.copied(node);
        }
    }

    /// What captured a node; `None` if it is unknown.
    pub(crate) fn captured(&self, node: u64) -> Option<NodeOrigin> {
        self.0.get(node)
    }
}
