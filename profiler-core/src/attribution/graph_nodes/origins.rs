//! Origins of nodes by their id: that of a copy is the one of its original.
//!
//! **Embedded graphs.** When CUDA instantiates a graph that contains others, it copies the contained ones too, between
//! two copies of nodes of the outer one, and then numbers their nodes in the executable graph after those of the outer
//! one. CUPTI does not report these numbers (CUPTI 13.0, XLA's command buffers: 15 of 61 nodes). Such a node has the
//! origin that all embedded nodes of its graph share; if they have several, it is unknown.

use std::collections::VecDeque;

use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxHashMap;

/// Nodes with a known origin, 16 bytes each: a preamble has an eighth.
pub(super) const NODE_LIMIT: usize = 1 << 20;
/// Graphs whose embedded ones are known.
const GRAPH_LIMIT: usize = 1 << 14;
/// The newest copies, among which are those of embedded graphs.
const NEWEST: usize = 1 << 12;

/// Something that nodes of a graph may have in common.
pub trait Common: Copy {
    /// What both have in common.
    fn common(self, other: Self) -> Option<Self>;
}

/// Origins by node.
#[derive(Debug)]
pub struct NodeOrigins<T> {
    known: FxHashMap<u64, T>,
    graphs: FxHashMap<u32, Graph<T>>,
    /// Thread, graph and origin of the newest copies, and the number of those before them.
    newest: VecDeque<(ThreadId, u32, Option<T>)>,
    before: u64,
}

/// An executable graph, or one that is embedded.
#[derive(Debug)]
struct Graph<T> {
    /// Numbers of the first copy into it, and of the newest.
    first: u64,
    last: u64,
    /// Highest number of a reported node.
    highest: u32,
    /// Number of embedded nodes, and what they have in common.
    embedded: u32,
    common: Option<T>,
}

impl<T> Default for NodeOrigins<T> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), graphs: FxHashMap::default(), newest: VecDeque::new(), before: 0 }
    }
}

/// Id of the graph of a node, and the node's number in it.
pub(super) fn parts(node: u64) -> (u32, u32) {
    ((node >> 32) as u32, node as u32)
}

impl<T: Common> NodeOrigins<T> {
    /// A node was added. False if there is no room for it.
    pub fn added(&mut self, node: u64, origin: T) -> bool {
        self.set(node, Some(origin))
    }

    /// A node that is a copy. Returns its origin, and false if there is no room for it.
    pub fn copied(&mut self, node: &GraphNode) -> (Option<T>, bool) {
        // The original is known by its own origin, so that copies of copies need no search.
        let origin = self.known.get(&node.original).copied();
        self.note(node, origin);
        (origin, self.set(node.node, origin))
    }

    fn set(&mut self, node: u64, origin: Option<T>) -> bool {
        match origin {
            Some(origin) if self.known.len() < NODE_LIMIT || self.known.contains_key(&node) => {
                self.known.insert(node, origin);
            }
            Some(_) => return false,
            // An id that is used again must not keep its old origin.
            None => drop(self.known.remove(&node)),
        }
        true
    }

    /// Origin of a node; `None` if it was not reported.
    #[inline]
    pub fn get(&self, node: u64) -> Option<T> {
        self.known.get(&node).copied().or_else(|| self.embedded(node))
    }

    #[cold]
    fn embedded(&self, node: u64) -> Option<T> {
        let (graph, number) = parts(node);
        let graph = self.graphs.get(&graph)?;
        let after = number.checked_sub(graph.highest)?;
        graph.common.filter(|_| (1..=graph.embedded).contains(&after))
    }

    /// Notes a copy, and those since the last one into this graph that were made for graphs inside it.
    fn note(&mut self, copy: &GraphNode, origin: Option<T>) {
        let (id, number) = parts(copy.node);
        let now = self.before + self.newest.len() as u64;
        if let Some(graph) = self.graphs.get(&id) {
            let (first, from) = (graph.first, (graph.last + 1).saturating_sub(self.before));
            let (mut embedded, mut common) = (graph.embedded, graph.common);
            for &(thread, inner, origin) in self.newest.iter().skip(from as usize) {
                // Other threads may instantiate graphs at the same time.
                if thread == copy.thread && self.graphs.get(&inner).is_some_and(|inner| inner.first > first) {
                    common = match origin {
                        Some(origin) if embedded == 0 => Some(origin),
                        Some(origin) => common.and_then(|common| common.common(origin)),
                        None => None,
                    };
                    embedded += 1;
                }
            }
            if let Some(graph) = self.graphs.get_mut(&id) {
                (graph.embedded, graph.common, graph.last) = (embedded, common, now);
                graph.highest = graph.highest.max(number);
            }
        } else if self.graphs.len() < GRAPH_LIMIT {
            let graph = Graph { first: now, last: now, highest: number, embedded: 0, common: None };
            self.graphs.insert(id, graph);
        }
        if self.newest.len() >= NEWEST {
            self.newest.pop_front();
            self.before += 1;
        }
        self.newest.push_back((copy.thread, id, origin));
    }

    /// Number of nodes with a known origin.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Common for u32 {
        fn common(self, other: Self) -> Option<Self> {
            (self == other).then_some(self)
        }
    }

    fn node(graph: u64, number: u64) -> u64 {
        graph << 32 | number
    }

    fn copy(node: u64, original: u64) -> GraphNode {
        GraphNode { node, original, ..GraphNode::default() }
    }

    /// Graph 1 has nodes 0, 2 and 3, and embeds graph 2 with two nodes as its node 1. Instantiates it as graph 5, in
    /// which 6 is the copy of graph 2.
    fn instantiated(line: impl Fn(u64) -> u32) -> NodeOrigins<u32> {
        let mut origins = NodeOrigins::default();
        for (node, line) in
            [(node(1, 0), 10), (node(1, 2), 11), (node(1, 3), 12), (node(2, 0), line(0)), (node(2, 1), line(1))]
        {
            assert!(origins.added(node, line));
        }
        for (to, from) in [
            (node(5, 0), node(1, 0)),
            (node(6, 0), node(2, 0)),
            (node(6, 1), node(2, 1)),
            (node(5, 2), node(1, 2)),
            (node(5, 3), node(1, 3)),
        ] {
            assert!(origins.copied(&copy(to, from)).1);
        }
        origins
    }

    #[test]
    fn embedded_nodes_have_the_origin_that_they_share() {
        let origins = instantiated(|_| 20);
        let found = |number| origins.get(node(5, number));
        assert_eq!([0, 2, 3, 4, 5].map(found), [Some(10), Some(11), Some(12), Some(20), Some(20)]);
        // 1 is the embedded graph, and there are two nodes in it.
        assert_eq!([1, 6, 7].map(found), [None; 3]);
        assert_eq!([node(6, 2), node(9, 0)].map(|node| origins.get(node)), [None, None]);
    }

    #[test]
    fn embedded_nodes_of_several_places_are_unknown() {
        let origins = instantiated(|number| 20 + number as u32);
        assert_eq!([4, 5].map(|number| origins.get(node(5, number))), [None, None]);
        let mut origins = instantiated(|_| 20);
        // The next graph is not inside the one before.
        for (to, from) in [(node(7, 0), node(1, 0)), (node(7, 2), node(1, 2))] {
            origins.copied(&copy(to, from));
        }
        assert_eq!([node(7, 3), node(5, 6)].map(|node| origins.get(node)), [None, None]);
        origins.copied(&copy(node(5, 4), node(404, 0)));
        assert_eq!(origins.get(node(5, 4)), None, "its original is unknown");
    }

    #[test]
    fn graphs_that_two_threads_copy_at_once_are_not_embedded() {
        let mut origins = instantiated(|_| 20);
        let other = GraphNode { thread: ThreadId(9), ..copy(node(8, 0), node(2, 0)) };
        for copied in [copy(node(7, 0), node(1, 0)), other, copy(node(7, 1), node(1, 2))] {
            origins.copied(&copied);
        }
        assert_eq!(origins.get(node(7, 2)), None);
        origins.copied(&copy(node(9, 0), node(2, 0)));
        origins.copied(&copy(node(7, 2), node(1, 3)));
        assert_eq!(origins.get(node(7, 3)), Some(20), "the same thread");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut origins = instantiated(|_| 20);
        for number in 0..2 * NEWEST as u64 {
            origins.copied(&copy(node(8, number), node(1, 0)));
        }
        assert_eq!(origins.newest.len(), NEWEST);
        (0..GRAPH_LIMIT as u64 + 9).for_each(|graph| _ = origins.copied(&copy(node(100 + graph, 0), node(1, 0))));
        assert_eq!(origins.graphs.len(), GRAPH_LIMIT);
        assert_eq!(origins.get(node(5, 4)), Some(20));
    }
}
