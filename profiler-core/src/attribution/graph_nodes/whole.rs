//! Graphs that were recorded as a whole: where their nodes come from.
//!
//! Such a record names no node, only its graph. The upper half of the id of a node is the id of its graph: so in all
//! 23,226 records of nodes of three programs with CUPTI 13.0, which a test checks. A record that contradicts it makes
//! its graph unknown.
//!
//! **Limits.** The time of a graph cannot be divided among its nodes, of which only the number is known. Nodes of
//! graphs embedded in another one may have an id of their own graph, and are then not counted.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{StackId, ThreadId};
use rustc_hash::FxHashMap;

use super::super::launch_places::{LaunchPlace, Places};
use super::origins::parts;
use super::work::{GraphWork, Source, add};
use crate::sorting::SortRows as _;

/// Graphs whose nodes are counted, 40 bytes each.
const GRAPH_LIMIT: usize = 1 << 14;
/// Rows by graph and origin, 32 bytes each.
const ROW_LIMIT: usize = 1 << 16;

/// What added nodes of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSource<'a> {
    /// The program, at this place.
    Place(&'a LaunchPlace),
    /// This thread, at an unknown place.
    Thread(ThreadId),
}

/// A graph that was recorded as a whole.
#[derive(Clone, Debug)]
pub struct WholeGraph<'a> {
    /// CUPTI's id of the executable graph.
    pub graph: u32,
    /// Its launches.
    pub work: GraphWork,
    /// Number of its nodes.
    pub nodes: u64,
    /// Number of those that were copied from an unknown one, or that have no row because a table is full.
    pub unknown: u64,
    /// Place of the innermost frame that is common to the stacks of all nodes that have one.
    pub place: Option<LaunchPlace>,
    /// Number of nodes by origin, in no particular order.
    pub sources: Vec<(NodeSource<'a>, u64)>,
}

/// Nodes of an executable graph.
#[derive(Clone, Copy, Debug, Default)]
struct Nodes {
    count: u64,
    unknown: u64,
    /// Innermost common frame of the stacks up to now.
    common: Option<StackId>,
    contradicted: bool,
}

/// Nodes and launches by graph.
#[derive(Debug, Default)]
pub(super) struct WholeGraphs {
    nodes: FxHashMap<u32, Nodes>,
    sources: FxHashMap<(u32, Source), u64>,
    launches: FxHashMap<u32, GraphWork>,
}

impl WholeGraphs {
    /// A node was copied from one with this origin and stack. False if there is no room for it.
    pub(super) fn copied(&mut self, node: u64, origin: Option<(Source, StackId)>, dictionary: &Dictionary) -> bool {
        let graph = parts(node).0;
        if !self.nodes.contains_key(&graph) && self.nodes.len() >= GRAPH_LIMIT {
            return false;
        }
        let nodes = self.nodes.entry(graph).or_default();
        nodes.count += 1;
        let full = self.sources.len() >= ROW_LIMIT;
        let row = match origin {
            Some((source, _)) if !full || self.sources.contains_key(&(graph, source)) => {
                Some(self.sources.entry((graph, source)).or_default())
            }
            _ => None,
        };
        match row {
            Some(count) => *count += 1,
            None => nodes.unknown += 1,
        }
        if let Some((_, stack)) = origin.filter(|&(_, stack)| stack != StackId::NONE) {
            nodes.common = Some(nodes.common.map_or(stack, |common| common_frame(common, stack, dictionary)));
        }
        true
    }

    /// The record of a node says to which graph it belongs.
    #[inline]
    pub(super) fn check(&mut self, node: u64, graph: u32) {
        if parts(node).0 != graph
            && let Some(nodes) = self.nodes.get_mut(&graph)
        {
            nodes.contradicted = true;
        }
    }

    /// A graph ran as a whole. False if there is no room for it.
    pub(super) fn ran(&mut self, graph: u32, nanos: u64) -> bool {
        add(&mut self.launches, GRAPH_LIMIT, graph, nanos)
    }

    /// Graphs that ran as a whole and whose nodes were reported, largest first.
    pub(super) fn rows<'a>(&self, places: &'a Places, dictionary: &Dictionary) -> Vec<WholeGraph<'a>> {
        let mut rows: Vec<WholeGraph<'a>> = Vec::new();
        for (&graph, &work) in &self.launches {
            let Some(nodes) = self.nodes.get(&graph).filter(|nodes| !nodes.contradicted) else { continue };
            let mut common = Places::default();
            let place = nodes.common.and_then(|stack| common.get(stack, dictionary));
            let place = place.and_then(|id| common.place(id)).copied();
            let (nodes, unknown) = (nodes.count, nodes.unknown);
            rows.push(WholeGraph { graph, work, nodes, unknown, place, sources: Vec::new() });
        }
        rows.sort_rows_by_key(|row| (std::cmp::Reverse(row.work.total_ns), row.graph));
        let index: FxHashMap<u32, usize> = rows.iter().enumerate().map(|(index, row)| (row.graph, index)).collect();
        let source = |source| match source {
            Source::Place(id) => places.place(id).map(NodeSource::Place),
            Source::Thread(thread) => Some(NodeSource::Thread(thread)),
        };
        for (&(graph, of), &count) in &self.sources {
            if let (Some(&index), Some(source)) = (index.get(&graph), source(of)) {
                rows[index].sources.push((source, count));
            }
        }
        rows
    }
}

/// Innermost frame that both stacks go through, [`StackId::NONE`] if there is none. A caller's id is smaller.
fn common_frame(mut a: StackId, mut b: StackId, dictionary: &Dictionary) -> StackId {
    while a != b && a != StackId::NONE && b != StackId::NONE {
        let inner = if a > b { &mut a } else { &mut b };
        let caller = dictionary.frames().get(inner.0 as usize).map(|frame| frame.caller);
        *inner = caller.filter(|caller| caller < inner).unwrap_or(StackId::NONE);
    }
    if a == b { a } else { StackId::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Frame;

    const GRAPH: u64 = 5 << 32;

    #[test]
    fn the_common_frame_is_the_innermost_one() {
        let mut dictionary = Dictionary::new();
        let name = dictionary.intern_name("f");
        let mut frame = |caller, line| dictionary.intern_frame(Frame { caller, function: name, file: name, line });
        let main = frame(StackId::NONE, 1);
        let other = frame(StackId::NONE, 2);
        let step = frame(main, 3);
        let [a, b] = [4, 5].map(|line| frame(step, line));
        let deep = frame(b, 6);
        for (x, y, common) in [
            (a, deep, step),
            (deep, a, step),
            (a, a, a),
            (deep, main, main),
            (a, other, StackId::NONE),
            (StackId::NONE, a, StackId::NONE),
            (StackId(1_000), a, StackId::NONE),
        ] {
            assert_eq!(common_frame(x, y, &dictionary), common, "{x:?} {y:?}");
        }
    }

    #[test]
    fn graphs_and_rows_are_bounded_and_the_rest_is_counted() {
        let (mut graphs, dictionary) = (WholeGraphs::default(), Dictionary::new());
        let origin = |thread| Some((Source::Thread(ThreadId(thread)), StackId::NONE));
        for graph in 0..GRAPH_LIMIT as u64 {
            assert!(graphs.copied(graph << 32 | 1, origin(1), &dictionary));
            assert!(graphs.ran(graph as u32, 1));
        }
        let beyond = GRAPH_LIMIT as u64;
        assert!(!graphs.copied(beyond << 32 | 1, origin(1), &dictionary));
        assert!(!graphs.ran(beyond as u32, 1));
        (0..ROW_LIMIT as u32).for_each(|thread| _ = graphs.copied(GRAPH | 1, origin(thread), &dictionary));
        assert_eq!(graphs.sources.len(), ROW_LIMIT);
        let places = Places::default();
        let rows = graphs.rows(&places, &dictionary);
        assert_eq!((rows.len(), rows[5].nodes, rows[5].unknown), (GRAPH_LIMIT, ROW_LIMIT as u64 + 1, 16_383));
    }

    #[test]
    fn a_record_that_contradicts_the_id_makes_its_graph_unknown() {
        let (mut graphs, dictionary) = (WholeGraphs::default(), Dictionary::new());
        for graph in [5, 6] {
            graphs.copied(u64::from(graph) << 32 | 1, None, &dictionary);
            graphs.ran(graph, 1);
        }
        graphs.ran(7, 1);
        graphs.check(GRAPH | 1, 5);
        let ids = |graphs: &WholeGraphs| -> Vec<u32> {
            graphs.rows(&Places::default(), &dictionary).iter().map(|row| row.graph).collect()
        };
        assert_eq!(ids(&graphs), [5, 6], "the nodes of 7 were not reported");
        graphs.check(GRAPH | 1, 6);
        assert_eq!(ids(&graphs), [5]);
    }
}
