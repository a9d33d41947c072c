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

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::{DeviceWork, Kernel, NameId, ThreadId};
use rustc_hash::FxHashMap;

use super::Attributor;
use super::api::without_suffix;
use super::host::launch_places::{LaunchPlace, PlaceId, Places};
use super::operation::is_no_time;

/// Nodes with a known origin, 17 bytes each: eight times as many as `libprof.so` reports of one process.
const NODE_LIMIT: usize = 1 << 20;
/// Rows by kernel and place, 28 bytes each with their index.
const ROW_LIMIT: usize = 1 << 16;
/// Threads that added nodes without a stack.
const THREAD_LIMIT: usize = 1 << 10;

/// Operations of graphs, and their time on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GraphWork {
    /// Number of operations.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

impl GraphWork {
    fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(nanos);
    }
}

/// Operations whose record names a node of a graph, by what is known of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
enum Origin {
    Place(PlaceId),
    /// Nothing but the thread that added it.
    Thread(ThreadId),
}

/// Origins of nodes, and sums of the operations that joined them. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct GraphNodes {
    places: Places,
    origins: FxHashMap<u64, Origin>,
    by_place: FxHashMap<(Option<NameId>, PlaceId), GraphWork>,
    by_thread: FxHashMap<ThreadId, GraphWork>,
    counts: GraphOriginCounts,
}

impl GraphNodes {
    /// A node was added or copied.
    pub(super) fn push(&mut self, node: &GraphNode, dictionary: &Dictionary) {
        self.counts.nodes += 1;
        let origin = if node.original == 0 {
            let place = self.places.get(node.stack, dictionary);
            Some(place.map_or(Origin::Thread(node.thread), Origin::Place))
        } else {
            // The original is known by its own origin, so that copies of copies need no search.
            self.origins.get(&node.original).copied()
        };
        match origin {
            Some(origin) if self.origins.len() < NODE_LIMIT || self.origins.contains_key(&node.node) => {
                self.origins.insert(node.node, origin);
            }
            Some(_) => self.counts.overflow += 1,
            // An id that is used again must not keep its old origin.
            None => {
                self.origins.remove(&node.node);
            }
        }
    }

    /// A kernel ran.
    #[inline]
    pub(super) fn kernel(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        if kernel.graph_node_id != 0 {
            self.joined(Some(dictionary.launch_config(kernel.config).name), &kernel.into());
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
        let has_times = !is_no_time(work.start.nanos()) && !is_no_time(work.end.nanos());
        let nanos = if has_times { work.end.since(work.start) } else { 0 };
        let counts = &mut self.counts;
        let (all, has_row) = match self.origins.get(&work.graph_node_id) {
            Some(&Origin::Place(place)) => {
                (&mut counts.with_place, add(&mut self.by_place, ROW_LIMIT, (kernel, place), nanos))
            }
            Some(&Origin::Thread(thread)) => {
                (&mut counts.without_place, add(&mut self.by_thread, THREAD_LIMIT, thread, nanos))
            }
            None => (&mut counts.unknown, true),
        };
        all.add(nanos);
        counts.overflow += u64::from(!has_row);
    }
}

/// Adds to a row. False if there is none and the table is full.
fn add<K: Eq + std::hash::Hash>(rows: &mut FxHashMap<K, GraphWork>, limit: usize, key: K, nanos: u64) -> bool {
    let full = rows.len() >= limit;
    match rows.get_mut(&key) {
        Some(row) => row.add(nanos),
        None if full => return false,
        None => {
            rows.insert(key, GraphWork { count: 1, total_ns: nanos });
        }
    }
    true
}

impl Attributor {
    /// A node of a CUDA graph was added or copied. Before the records that name it.
    pub fn push_graph_node(&mut self, node: &GraphNode, dictionary: &Dictionary) {
        self.graph_nodes.push(node, dictionary);
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

    /// Operations of graphs whose nodes have no place, by the thread that added these: count and nanoseconds.
    /// In no particular order.
    pub fn graph_threads(&self) -> impl Iterator<Item = (ThreadId, u64, u64)> {
        self.graph_nodes.by_thread.iter().map(|(&thread, work)| (thread, work.count, work.total_ns))
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
        let later = [copied(13, 3), copied(21, 11), copied(22, 12), copied(99, 77)];
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
        let nodes = NODE_LIMIT as u64 + 5;
        (1..=nodes).for_each(|node| attributor.push_graph_node(&added(node, StackId::NONE), &dictionary));
        assert_eq!(attributor.graph_nodes.origins.len(), NODE_LIMIT);
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
