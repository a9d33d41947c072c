//! What recording CUDA graphs costs the threads that launch them.
//!
//! CUPTI works inside the launching call, for each node, also if it records the graph as a whole: a call that takes 5
//! to 7 us alone takes 300 us with 300 nodes, more or less by process and CUPTI (docs/design/overhead.md). So the cost
//! is taken from the recorded calls themselves. A call may also wait for room in the device's queue, which limits the
//! cost to the highest that a node was seen to cost.
//!
//! Records of whole graphs lack the number of nodes; CUPTI's callbacks report it when a graph is instantiated.

use std::collections::HashMap;

use gpuwhy_trace::cost::{GRAPH_LAUNCH_NANOS, GRAPH_NODE_NANOS, MOST_GRAPH_NODE_NANOS};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiCall, ApiFunctionId, CorrelationId, Kernel, Record, Timestamp};

/// Maximum number of graphs whose node counts are kept: some 2 MiB. No known program makes more.
const MOST_GRAPHS: usize = 100_000;

/// Counts launches of CUDA graphs, and their nodes.
#[derive(Debug, Default)]
pub struct GraphCost {
    /// True while a graph is a single record.
    whole: bool,
    /// Number of nodes by graph. Nodes of a graph that was first cloned or embedded in another one count twice.
    sizes: HashMap<u32, u32>,
    /// The whole graphs that ran: their nodes, and the number of those of unknown size.
    unrecorded: u64,
    unknown: u64,
    /// Recorded nodes.
    nodes: u64,
    /// Launching calls, without those that another one made, and their time beyond that of a bare one.
    launches: u64,
    excess_ns: u64,
    /// The newest one: its start and its id, and its time beyond that of a bare one.
    newest: (Timestamp, CorrelationId),
    newest_ns: u64,
    /// By number: whether a function launches graphs.
    functions: Vec<Option<bool>>,
}

impl GraphCost {
    /// Creates an empty account. `whole`: a graph is a single record.
    pub fn new(whole: bool) -> Self {
        Self { whole, ..Self::default() }
    }

    /// Notes that nodes are recorded from now on.
    pub fn record_nodes(&mut self) {
        self.whole = false;
    }

    /// True while a graph is a single record.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Notes the number of nodes of an instantiated graph.
    pub fn instantiated(&mut self, graph: u32, nodes: u32) {
        if self.sizes.len() < MOST_GRAPHS {
            self.sizes.insert(graph, nodes);
        }
    }

    /// Counts a record.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Kernel(kernel) if kernel.graph_id != 0 => self.ran(kernel),
            Record::Copy(copy) if copy.graph_id != 0 => self.nodes += 1,
            Record::Memset(memset) if memset.graph_id != 0 => self.nodes += 1,
            Record::Api(call) if self.launches_graph(call.function, dictionary) => self.launched(call),
            _ => {}
        }
    }

    fn ran(&mut self, kernel: &Kernel) {
        if !self.whole {
            self.nodes += 1;
        } else if kernel.start != Timestamp::ZERO && kernel.end > kernel.start {
            match self.sizes.get(&kernel.graph_id) {
                Some(&nodes) => self.unrecorded += u64::from(nodes),
                None => self.unknown += 1,
            }
        }
    }

    /// A runtime call and the driver call in it have one correlation id, and the outer one, whose record comes later,
    /// is longer.
    fn launched(&mut self, call: &ApiCall) {
        let excess = call.end.since(call.start).saturating_sub(GRAPH_LAUNCH_NANOS);
        let (start, id) = self.newest;
        let is_outer = self.launches > 0 && call.correlation == id && call.start <= start;
        let counted = if is_outer { self.newest_ns } else { 0 };
        self.excess_ns = self.excess_ns.saturating_add(excess.saturating_sub(counted));
        self.launches += u64::from(!is_outer);
        self.newest = (call.start, call.correlation);
        self.newest_ns = excess.max(counted);
    }

    fn launches_graph(&mut self, id: ApiFunctionId, dictionary: &Dictionary) -> bool {
        let index = id.0 as usize;
        if let Some(&Some(known)) = self.functions.get(index) {
            return known;
        }
        let Some(function) = dictionary.api_function(id) else { return false };
        let launches = crate::cupti::kinds::launches_graph(dictionary.name(function.name));
        if self.functions.len() <= index {
            self.functions.resize(index + 1, None);
        }
        self.functions[index] = Some(launches);
        launches
    }

    /// Time for which recording held up launching threads, nanoseconds.
    pub fn taken_ns(&self) -> u64 {
        let nodes = self.nodes + self.unrecorded;
        if self.launches == 0 {
            // No calls are recorded.
            return self.nodes.saturating_mul(GRAPH_NODE_NANOS);
        }
        self.excess_ns.min(nodes.saturating_mul(MOST_GRAPH_NODE_NANOS))
    }

    /// Cost of recording the nodes of the graphs that were recorded as a whole, nanoseconds; 0 if the number of nodes
    /// of one is unknown.
    pub fn unrecorded_ns(&self) -> u64 {
        if self.unknown > 0 { 0 } else { self.unrecorded.saturating_mul(GRAPH_NODE_NANOS) }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{ApiDomain, ApiFunction};

    use super::*;

    struct Program {
        cost: GraphCost,
        dictionary: Dictionary,
        functions: [ApiFunctionId; 3],
        launches: u32,
    }

    impl Program {
        fn new(whole: bool) -> Self {
            let mut dictionary = Dictionary::new();
            let names = [("cudaGraphLaunch_v10000", 1), ("cuGraphLaunch", 2), ("cudaLaunchKernel_v7000", 3)];
            let functions = names.map(|(name, callback_id)| {
                let domain = if callback_id == 2 { ApiDomain::Driver } else { ApiDomain::Runtime };
                let name = dictionary.intern_name(name);
                dictionary.intern_api_function(ApiFunction { domain, callback_id, name })
            });
            Self { cost: GraphCost::new(whole), dictionary, functions, launches: 0 }
        }

        fn call(&mut self, function: usize, nanos: u64) {
            let [start, end] = [1_000, 1_000 + nanos].map(Timestamp::from_nanos);
            let correlation = CorrelationId(self.launches);
            let call = ApiCall { start, end, correlation, function: self.functions[function], ..ApiCall::default() };
            self.cost.record(&Record::Api(call), &self.dictionary);
        }

        /// Launches graph 7 with this number of nodes once; the call takes `nanos`.
        fn launch(&mut self, nodes: u32, nanos: u64) {
            self.launches += 1;
            self.call(1, nanos.saturating_sub(500));
            self.call(0, nanos);
            let records = if self.cost.is_whole() { 1 } else { nodes };
            for _ in 0..records {
                let [start, end] = [1_000, 2_000].map(Timestamp::from_nanos);
                let kernel = Kernel { start, end, graph_id: 7, ..Kernel::default() };
                self.cost.record(&Record::Kernel(kernel), &self.dictionary);
            }
        }
    }

    #[test]
    fn the_cost_is_what_the_calls_took_more_than_a_bare_launch() {
        let mut program = Program::new(false);
        (0..10).for_each(|_| program.launch(336, 290_000));
        program.call(2, 1_000_000);
        assert_eq!(program.cost.taken_ns(), 10 * (290_000 - GRAPH_LAUNCH_NANOS));
        assert_eq!((program.cost.nodes, program.cost.unrecorded_ns()), (3_360, 0));
    }

    #[test]
    fn cheap_launches_do_not_hide_costly_ones() {
        let mut program = Program::new(false);
        program.launch(100, GRAPH_LAUNCH_NANOS + 100_000);
        (0..25).for_each(|_| program.launch(1, 3_000));
        assert_eq!(program.cost.taken_ns(), 100_000);
    }

    #[test]
    fn whole_graphs_cost_the_launching_call_too() {
        let mut program = Program::new(true);
        program.cost.instantiated(7, 336);
        (0..10).for_each(|_| program.launch(336, 130_000));
        assert_eq!(program.cost.taken_ns(), 10 * (130_000 - GRAPH_LAUNCH_NANOS));
        assert_eq!(program.cost.unrecorded_ns(), 3_360 * GRAPH_NODE_NANOS);
        program.cost.record_nodes();
        assert!(!program.cost.is_whole());
    }

    #[test]
    fn a_call_that_waits_for_the_device_costs_no_more_than_its_nodes_can() {
        let mut program = Program::new(false);
        program.launch(100, 80_000_000);
        assert_eq!(program.cost.taken_ns(), 100 * MOST_GRAPH_NODE_NANOS);
    }

    #[test]
    fn a_short_call_costs_nothing_and_without_calls_nodes_are_counted() {
        let mut program = Program::new(false);
        program.launch(2, GRAPH_LAUNCH_NANOS - 1);
        assert_eq!(program.cost.taken_ns(), 0);
        let mut program = Program::new(false);
        let kernel = Kernel { graph_id: 7, ..Kernel::default() };
        (0..5).for_each(|_| program.cost.record(&Record::Kernel(kernel), &program.dictionary));
        assert_eq!(program.cost.taken_ns(), 5 * GRAPH_NODE_NANOS);
    }

    #[test]
    fn the_size_of_a_graph_that_is_not_remembered_is_unknown() {
        let mut program = Program::new(true);
        (0..MOST_GRAPHS as u32).for_each(|graph| program.cost.instantiated(100 + graph, 1));
        program.cost.instantiated(7, 40);
        program.launch(40, 50_000);
        assert_eq!((program.cost.sizes.len(), program.cost.unrecorded_ns()), (MOST_GRAPHS, 0));
        assert_eq!(program.cost.taken_ns(), 0, "not known");
    }
}
