//! Ranges that were open on a thread when it added a node.
//!
//! A range event may come after the node, so a node waits for the flush that passes its time. Its operations are
//! summed by node until then, and by range when they are requested.

use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::{StackId, ThreadId};
use rustc_hash::FxHashMap;

use super::super::ranges::{RangeKey, Ranges};
use super::origins::parts;
use super::work::GraphWork;
use crate::sorting::SortRows as _;

/// Added nodes with ranges and stack, 32 bytes each: as many as `libprof.so` reads stacks of.
const LIMIT: usize = 1 << 17;
/// Distinct sets of paths of ranges.
const SET_LIMIT: usize = 4_096;
/// The ranges are not known.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Work of graphs by the ranges that were open when its nodes were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphRanges {
    /// By path of ranges, outermost first. An operation belongs to the innermost pushed range of each domain,
    /// and to each started one.
    pub rows: Vec<(Vec<RangeKey>, GraphWork)>,
    /// No range was open.
    pub outside: GraphWork,
    /// The node was not reported, or its ranges are forgotten or beyond a table.
    pub unknown: GraphWork,
}

/// A node that the program added, with the operations of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedNode {
    /// CUPTI's id of the graph that was captured; its executable copies have other ids.
    pub graph: u32,
    /// Thread that added it.
    pub thread: ThreadId,
    /// Stack of that thread; [`StackId::NONE`] if unknown.
    pub stack: StackId,
    /// Operations. A replay of a copy of the graph runs one.
    pub work: GraphWork,
}

#[derive(Clone, Copy, Debug)]
struct Capture {
    node: AddedNode,
    /// Index in `sets`.
    ranges: u32,
}

/// Added nodes, by index.
#[derive(Debug, Default)]
pub(super) struct Captures {
    rows: Vec<Capture>,
    /// Index of the node, index of its thread, and time, of the nodes that wait for a flush.
    waiting: Vec<(u32, u32, u64)>,
    /// Paths of ranges, by index; and the reverse.
    sets: Vec<Vec<u32>>,
    set_ids: FxHashMap<Vec<u32>, u32>,
    /// Operations of nodes without a row.
    unknown: GraphWork,
}

impl Captures {
    /// A thread, by its index, added a node. `None`: the thread or the time is unknown. Returns the index of the node,
    /// which leads to nothing if there is no room.
    pub(super) fn add(&mut self, node: &GraphNode, thread: Option<(u32, u64)>) -> u32 {
        if self.rows.len() >= LIMIT {
            return UNKNOWN;
        }
        let index = self.rows.len() as u32;
        let (graph, work) = (parts(node.node).0, GraphWork::default());
        let node = AddedNode { graph, thread: node.thread, stack: node.stack, work };
        self.rows.push(Capture { node, ranges: UNKNOWN });
        self.waiting.extend(thread.map(|(thread, at)| (index, thread, at)));
        index
    }

    /// Stack of a node, [`StackId::NONE`] if unknown.
    pub(super) fn stack(&self, index: u32) -> StackId {
        self.rows.get(index as usize).map_or(StackId::NONE, |capture| capture.node.stack)
    }

    /// The nodes that ran.
    pub(super) fn ran_nodes(&self) -> impl Iterator<Item = AddedNode> {
        self.rows.iter().map(|capture| capture.node).filter(|node| node.work.count > 0)
    }

    /// An operation ran; `None`: its node is unknown.
    #[inline]
    pub(super) fn ran(&mut self, index: Option<u32>, nanos: u64) {
        let capture = index.and_then(|index| self.rows.get_mut(index as usize));
        capture.map_or(&mut self.unknown, |capture| &mut capture.node.work).add(nanos);
    }

    /// The ranges up to `horizon` are placed.
    pub(super) fn place(&mut self, horizon: u64, ranges: &Ranges) {
        let Self { rows, waiting, sets, set_ids, .. } = self;
        waiting.retain(|&(index, thread, at)| {
            let ready = at <= horizon;
            if let Some(open) = ranges.paths_at(thread, at).filter(|_| ready) {
                let known = set_ids.get(&open).copied();
                rows[index as usize].ranges = known.unwrap_or_else(|| {
                    if sets.len() >= SET_LIMIT {
                        return UNKNOWN;
                    }
                    let id = sets.len() as u32;
                    sets.push(open.clone());
                    set_ids.insert(open, id);
                    id
                });
            }
            !ready
        });
    }

    /// Sums by path, largest first.
    pub(super) fn by_range(&self, ranges: &Ranges) -> GraphRanges {
        let mut sums: FxHashMap<u32, GraphWork> = FxHashMap::default();
        let (mut outside, mut unknown) = (GraphWork::default(), self.unknown);
        for capture in &self.rows {
            match self.sets.get(capture.ranges as usize).map(Vec::as_slice) {
                None => unknown.merge(capture.node.work),
                Some([]) => outside.merge(capture.node.work),
                Some(open) => open.iter().for_each(|&path| sums.entry(path).or_default().merge(capture.node.work)),
            }
        }
        let ran = sums.into_iter().filter(|(_, work)| work.count > 0);
        let mut rows: Vec<_> = ran.map(|(path, work)| (ranges.path(path), work)).collect();
        rows.sort_rows_by(|a, b| (b.1.total_ns, &a.0).cmp(&(a.1.total_ns, &b.0)));
        GraphRanges { rows, outside, unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_unknown() {
        let mut captures = Captures::default();
        let node = GraphNode { node: 9 << 32 | 1, thread: ThreadId(3), stack: StackId(7), ..GraphNode::default() };
        let indices: Vec<u32> = (0..LIMIT + 2).map(|_| captures.add(&node, Some((0, 5)))).collect();
        assert_eq!(indices[LIMIT - 1..], [LIMIT as u32 - 1, UNKNOWN, UNKNOWN]);
        assert_eq!([indices[0], UNKNOWN].map(|index| captures.stack(index)), [StackId(7), StackId::NONE]);
        captures.place(4, &Ranges::default());
        assert_eq!(captures.waiting.len(), LIMIT);
        captures.ran(Some(indices[0]), 10);
        captures.ran(Some(UNKNOWN), 3);
        captures.ran(None, 2);
        let work = |count, total_ns| GraphWork { count, total_ns };
        let sums = |captures: &Captures| {
            let sums = captures.by_range(&Ranges::default());
            (sums.outside, sums.unknown, sums.rows.len())
        };
        assert_eq!(sums(&captures), (work(0, 0), work(3, 15), 0), "not known yet");
        captures.place(5, &Ranges::default());
        assert_eq!((captures.waiting.len(), captures.sets.len()), (0, 1));
        assert_eq!(sums(&captures), (work(1, 10), work(2, 5), 0));
        let ran = AddedNode { graph: 9, thread: ThreadId(3), stack: StackId(7), work: work(1, 10) };
        assert_eq!(captures.ran_nodes().collect::<Vec<_>>(), [ran]);
    }
}
