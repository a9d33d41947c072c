//! Where the operations of CUDA graphs come from: the place in the program that added their nodes.
//!
//! A replay makes one call, however many kernels it runs, so no sample and no call shows the line of a kernel.
//! But its record names its node. [`GraphNode`] events name the stack that added a node, and the node that
//! another one was copied from; they precede the records, so that a lookup by id is enough.
//!
//! **Limits.** After `cuGraphExecUpdate` an executable graph keeps the ids of its nodes, while what they run may
//! come from another captured graph of the same shape: the origin stays that of the first. In most programs both
//! were captured by the same lines. The calls are counted, so that a report can say so. An operation whose node
//! was not reported (a graph from before measuring began, a lost node, an update in place) has no origin, which
//! is counted too.
//!
//! [`origins`] leads from the id of a node to its origin. [`captures`] has the ranges that were open at a place,
//! [`whole`] the graphs that were recorded as one piece.

mod captures;
mod origins;
mod whole;
mod work;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::{DeviceWork, Kernel, NameId, ThreadId};
use rustc_hash::FxHashMap;

use self::captures::Captures;
pub use self::captures::{AddedNode, GraphRanges};
pub use self::origins::{Common, NodeOrigins};
use self::whole::WholeGraphs;
pub use self::whole::{NodeSource, WholeGraph};
pub use self::work::GraphWork;
use self::work::{Source, add};
use super::Attributor;
use super::host_cause::GapTotals;
use super::launch_places::{LaunchPlace, PlaceId, Places};
use super::operation::is_no_time;
use super::ranges::Ranges;
use crate::api::without_suffix;

/// Rows by kernel and place, 28 bytes each with their index.
const ROW_LIMIT: usize = 1 << 16;
/// Threads that added nodes without a stack.
const THREAD_LIMIT: usize = 1 << 10;

/// Operations whose record names a node of a graph, by what is known of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphOriginCounts {
    /// Nodes that were reported, copies included. Without any nothing can be known: the trace is older, or
    /// graphs were recorded as a whole.
    pub nodes: u64,
    /// The place that added the node is known.
    pub with_place: GraphWork,
    /// Only the thread that added the node is known.
    pub without_place: GraphWork,
    /// The node was not reported.
    pub unknown: GraphWork,
    /// Nodes and operations that got no row because a table is full. Operations are also counted above.
    pub overflow: u64,
    /// Calls of `cuGraphExecUpdate`, which put other nodes into an executable graph: its origins stay those of the
    /// first.
    pub updates: u64,
}

/// Origin of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    source: Source,
    /// Index in [`Captures`].
    capture: u32,
}

impl Common for Origin {
    fn common(self, other: Self) -> Option<Self> {
        // The ranges of embedded nodes are those of one of them only if all are the same node.
        let capture = if self.capture == other.capture { self.capture } else { captures::UNKNOWN };
        (self.source == other.source).then_some(Self { capture, ..self })
    }
}

/// Origins of nodes of CUDA graphs, and sums of the operations that joined them.
#[derive(Debug, Default)]
pub struct GraphNodes {
    places: Places,
    origins: NodeOrigins<Origin>,
    captures: Captures,
    whole: WholeGraphs,
    by_place: FxHashMap<(Option<NameId>, PlaceId), GraphWork>,
    by_thread: FxHashMap<ThreadId, GraphWork>,
    counts: GraphOriginCounts,
}

impl GraphNodes {
    /// A node was added or copied. Before the records that name it. `thread`: index of the thread that added it, and
    /// the time, if known.
    pub fn push(&mut self, node: &GraphNode, thread: Option<(u32, u64)>, dictionary: &Dictionary) {
        self.counts.nodes += 1;
        if node.original == 0 {
            let place = self.places.get(node.stack, dictionary);
            let source = place.map_or(Source::Thread(node.thread), Source::Place);
            let origin = Origin { source, capture: self.captures.add(node, thread) };
            self.counts.overflow += u64::from(!self.origins.added(node.node, origin));
            return;
        }
        let (origin, has_room) = self.origins.copied(node);
        let of_graph = origin.map(|Origin { source, capture }| (source, self.captures.stack(capture)));
        let is_counted = self.whole.copied(node.node, of_graph, dictionary);
        self.counts.overflow += u64::from(!has_room) + u64::from(!is_counted);
    }

    /// Place that added a node; `None` if the node was not reported, or only its thread is known.
    pub fn place(&self, node: u64) -> Option<&LaunchPlace> {
        self.places.place(self.place_id(node)?)
    }

    /// Index of a place.
    #[inline]
    pub(super) fn place_id(&self, node: u64) -> Option<PlaceId> {
        if node == 0 {
            return None;
        }
        match self.origins.get(node)?.source {
            Source::Place(place) => Some(place),
            Source::Thread(_) => None,
        }
    }

    /// A kernel ran.
    #[inline]
    pub(super) fn kernel(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        if kernel.graph_node_id != 0 {
            self.whole.check(kernel.graph_node_id, kernel.graph_id);
            self.joined(Some(dictionary.launch_config(kernel.config).name), &kernel.into());
        } else if kernel.graph_id != 0 {
            let nanos = duration(&kernel.into());
            self.counts.overflow += u64::from(!self.whole.ran(kernel.graph_id, nanos));
        }
    }

    /// A copy or a memset ran.
    #[inline]
    pub(super) fn transfer(&mut self, work: &DeviceWork) {
        if work.graph_node_id != 0 {
            self.joined(None, work);
        }
    }

    #[inline(never)]
    fn joined(&mut self, kernel: Option<NameId>, work: &DeviceWork) {
        let nanos = duration(work);
        let counts = &mut self.counts;
        let origin = self.origins.get(work.graph_node_id);
        self.captures.ran(origin.map(|origin| origin.capture), nanos);
        let (all, has_row) = match origin.map(|origin| origin.source) {
            Some(Source::Place(place)) => {
                (&mut counts.with_place, add(&mut self.by_place, ROW_LIMIT, (kernel, place), nanos))
            }
            Some(Source::Thread(thread)) => {
                (&mut counts.without_place, add(&mut self.by_thread, THREAD_LIMIT, thread, nanos))
            }
            None => (&mut counts.unknown, true),
        };
        all.add(nanos);
        counts.overflow += u64::from(!has_row);
    }

    /// The ranges up to `horizon` are placed.
    pub(super) fn place_ranges(&mut self, horizon: u64, ranges: &Ranges) {
        self.captures.place(horizon, ranges);
    }
}

/// Duration of an operation, nanoseconds; 0 if a time is missing.
fn duration(work: &DeviceWork) -> u64 {
    let has_times = !is_no_time(work.start.nanos()) && !is_no_time(work.end.nanos());
    if has_times { work.end.since(work.start) } else { 0 }
}

impl Attributor {
    /// A node of a CUDA graph was added or copied. Before the records that name it.
    pub fn push_graph_node(&mut self, node: &GraphNode, dictionary: &Dictionary) {
        let at = node.at.nanos();
        let is_known = node.original == 0 && !is_no_time(at);
        let thread = is_known.then(|| (self.host.push_added_node(node.thread, at, &self.delivery), at));
        self.graph_nodes.push(node, thread, dictionary);
    }

    /// Nodes that were lost before they got here.
    pub fn add_dropped_graph_nodes(&mut self, nodes: u64) {
        self.graph_nodes.counts.overflow += nodes;
    }

    /// Operations of graphs by the kernel's name (`None`: copies and memsets) and the place that added their
    /// nodes: count and nanoseconds. In no particular order.
    pub fn graph_origins(&self) -> impl Iterator<Item = (Option<NameId>, &LaunchPlace, u64, u64)> {
        let GraphNodes { places, by_place, .. } = &self.graph_nodes;
        by_place
            .iter()
            .filter_map(|(&(kernel, place), work)| Some((kernel, places.place(place)?, work.count, work.total_ns)))
    }

    /// Idle time between nodes of one replay, by the place that captured the node after it (`None`: unknown): number
    /// and sum of the gaps. In no particular order; a place occurs once for each device.
    pub fn graph_gaps(&self) -> impl Iterator<Item = (Option<&LaunchPlace>, GapTotals)> {
        let rows = self.devices.timelines.iter().flat_map(|timeline| timeline.node_gaps.rows());
        rows.map(|(place, gaps)| (place.and_then(|place| self.graph_nodes.places.place(place)), gaps))
    }

    /// Operations of graphs whose nodes have no place, by the thread that added these: count and nanoseconds.
    /// In no particular order.
    pub fn graph_threads(&self) -> impl Iterator<Item = (ThreadId, u64, u64)> {
        self.graph_nodes.by_thread.iter().map(|(&thread, work)| (thread, work.count, work.total_ns))
    }

    /// Operations of graphs by the ranges that were open when their nodes were added, largest first.
    pub fn graph_ranges(&self) -> GraphRanges {
        self.graph_nodes.captures.by_range(&self.ranges)
    }

    /// Nodes that the program added and that ran, in that order. Without nodes of graphs that another graph embeds,
    /// unless these are copies of one.
    pub fn ran_nodes(&self) -> impl Iterator<Item = AddedNode> {
        self.graph_nodes.captures.ran_nodes()
    }

    /// Graphs that were recorded as a whole and whose nodes were reported, largest first.
    pub fn whole_graphs(&self, dictionary: &Dictionary) -> Vec<WholeGraph<'_>> {
        self.graph_nodes.whole.rows(&self.graph_nodes.places, dictionary)
    }

    /// How many operations of graphs have an origin.
    pub fn graph_origin_counts(&self, dictionary: &Dictionary) -> GraphOriginCounts {
        let is_update = |function| {
            let name = dictionary.api_function(function).map_or("", |function| dictionary.name(function.name));
            matches!(without_suffix(name), "cudaGraphExecUpdate" | "cuGraphExecUpdate")
        };
        let updates = self.api_statistics().filter(|&(function, _)| is_update(function)).map(|(_, calls)| calls.calls);
        GraphOriginCounts { updates: updates.sum(), ..self.graph_nodes.counts }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{
        ApiCall, ApiDomain, ApiFunction, ApiFunctionId, Copy, Frame, LaunchConfig, LaunchConfigId, Record, StackId,
        Timestamp,
    };

    use super::*;

    const BACKWARD: ThreadId = ThreadId(8);

    fn added(node: u64, stack: StackId) -> GraphNode {
        GraphNode { node, stack, thread: BACKWARD, ..GraphNode::default() }
    }

    fn copied(node: u64, original: u64) -> GraphNode {
        GraphNode { node, original, ..GraphNode::default() }
    }

    fn stack(line: u32, dictionary: &mut Dictionary) -> StackId {
        let (function, file) = (dictionary.intern_name("Block.forward"), dictionary.intern_name("/home/u/model.py"));
        dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line })
    }

    fn kernel_in(node: u64, config: LaunchConfigId, nanos: u64) -> Record {
        let [start, end] = [1_000, 1_000 + nanos].map(Timestamp::from_nanos);
        Record::Kernel(Kernel { start, end, config, graph_id: 1, graph_node_id: node, ..Kernel::default() })
    }

    fn kernel(name: &str, dictionary: &mut Dictionary) -> LaunchConfigId {
        let name = dictionary.intern_name(name);
        dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
    }

    /// Kernel, line, count and nanoseconds.
    fn rows(attributor: &Attributor, dictionary: &Dictionary) -> Vec<(String, u32, u64, u64)> {
        let name = |kernel: Option<NameId>| kernel.map_or("-", |kernel| dictionary.name(kernel)).to_owned();
        let row = |(kernel, place, count, nanos): (_, &LaunchPlace, _, _)| (name(kernel), place.line, count, nanos);
        let mut rows: Vec<_> = attributor.graph_origins().map(row).collect();
        rows.sort();
        rows
    }

    #[test]
    fn an_operation_leads_to_the_place_that_added_its_node_also_through_copies_of_copies() {
        let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
        let (first, second) = (stack(31, &mut dictionary), stack(32, &mut dictionary));
        let (gemm, add) = (kernel("gemm", &mut dictionary), kernel("add", &mut dictionary));
        let nodes = [added(1, first), added(2, second), added(3, StackId::NONE), copied(11, 1), copied(12, 2)];
        let later = [copied(13, 3), copied(21, 11), copied(22, 12), copied(99, GraphNode::UNKNOWN)];
        nodes.iter().chain(&later).for_each(|node| attributor.push_graph_node(node, &dictionary));
        let copy = Copy {
            start: Timestamp::from_nanos(5),
            end: Timestamp::from_nanos(12),
            graph_node_id: 12,
            ..Copy::default()
        };
        let records = [
            kernel_in(11, gemm, 100),
            kernel_in(11, gemm, 50),
            kernel_in(21, gemm, 1),
            kernel_in(22, add, 10),
            kernel_in(13, add, 4),
            kernel_in(99, add, 2),
            kernel_in(500, add, 3),
            kernel_in(0, add, 1_000),
            Record::Copy(copy),
        ];
        records.iter().for_each(|record| attributor.push(record, &dictionary));
        let row = |kernel: &str, line, count, nanos| (kernel.to_owned(), line, count, nanos);
        assert_eq!(
            rows(&attributor, &dictionary),
            [row("-", 32, 1, 7), row("add", 32, 1, 10), row("gemm", 31, 3, 151)]
        );
        assert_eq!(attributor.graph_threads().collect::<Vec<_>>(), [(BACKWARD, 1, 4)]);
        let counts = attributor.graph_origin_counts(&dictionary);
        let work = |count, total_ns| GraphWork { count, total_ns };
        assert_eq!((counts.nodes, counts.overflow, counts.updates), (9, 0, 0));
        assert_eq!([counts.with_place, counts.without_place, counts.unknown], [work(5, 168), work(1, 4), work(2, 5)]);
    }

    #[test]
    fn an_id_that_is_used_again_loses_its_old_origin() {
        let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
        let (first, second) = (stack(31, &mut dictionary), stack(32, &mut dictionary));
        let gemm = kernel("gemm", &mut dictionary);
        for node in [added(1, first), copied(5, 1), added(1, second), copied(6, 1), copied(5, 404)] {
            attributor.push_graph_node(&node, &dictionary);
        }
        [5, 6].into_iter().for_each(|node| attributor.push(&kernel_in(node, gemm, 1), &dictionary));
        assert_eq!(rows(&attributor, &dictionary), [("gemm".to_owned(), 32, 1, 1)]);
        assert_eq!(attributor.graph_origin_counts(&dictionary).unknown.count, 1);
    }

    #[test]
    fn times_that_were_not_recorded_count_nothing() {
        let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
        let stack = stack(31, &mut dictionary);
        attributor.push_graph_node(&added(1, stack), &dictionary);
        let end = Timestamp::from_nanos(u64::MAX);
        for start in [0, 7].map(Timestamp::from_nanos) {
            let kernel = Kernel { start, end, graph_node_id: 1, ..Kernel::default() };
            attributor.push(&Record::Kernel(kernel), &dictionary);
        }
        let counts = attributor.graph_origin_counts(&dictionary);
        assert_eq!(counts.with_place, GraphWork { count: 2, total_ns: 0 });
    }

    #[test]
    fn nodes_and_rows_are_bounded_and_the_rest_is_counted() {
        let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
        let nodes = origins::NODE_LIMIT as u64 + 5;
        (1..=nodes).for_each(|node| attributor.push_graph_node(&added(node, StackId::NONE), &dictionary));
        assert_eq!(attributor.graph_nodes.origins.len(), origins::NODE_LIMIT);
        // A known one is still replaced.
        attributor.push_graph_node(&GraphNode { thread: ThreadId(9), ..added(1, StackId::NONE) }, &dictionary);
        attributor.push(&kernel_in(1, LaunchConfigId(0), 1), &dictionary);
        attributor.push(&kernel_in(nodes, LaunchConfigId(0), 1), &dictionary);
        attributor.add_dropped_graph_nodes(2);
        assert_eq!(attributor.graph_threads().collect::<Vec<_>>(), [(ThreadId(9), 1, 1)]);
        let counts = attributor.graph_origin_counts(&dictionary);
        assert_eq!((counts.nodes, counts.overflow, counts.unknown.count), (nodes + 1, 7, 1));

        let mut rows = FxHashMap::default();
        assert!(add(&mut rows, 1, 7, 1) && add(&mut rows, 1, 7, 1) && !add(&mut rows, 1, 8, 1));
        assert_eq!(rows[&7], GraphWork { count: 2, total_ns: 2 });
    }

    #[test]
    fn updates_of_executable_graphs_are_counted() {
        let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
        let mut function = |name: &str, callback_id| -> ApiFunctionId {
            let name = dictionary.intern_name(name);
            dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name })
        };
        let functions = [function("cudaGraphExecUpdate_v10020", 1), function("cudaGraphLaunch_v10000", 2)];
        for (index, &function) in functions.iter().cycle().take(5).enumerate() {
            let start = Timestamp::from_nanos(1_000 + 100 * index as u64);
            let end = Timestamp::from_nanos(start.nanos() + 50);
            let call = ApiCall { start, end, thread: ThreadId(1), function, ..ApiCall::default() };
            attributor.push(&Record::Api(call), &dictionary);
        }
        attributor.finish(Timestamp::from_nanos(10_000), &dictionary);
        assert_eq!(attributor.graph_origin_counts(&dictionary).updates, 3);
    }
}
