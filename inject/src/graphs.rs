//! Whether CUDA graphs go on being recorded as a whole: what only the run can tell.
//!
//! Nodes say more, and cost the launching call [`GRAPH_NODE_NANOS`] each. CUPTI goes over from whole graphs to nodes in mid-run,
//! but crashes the program the other way (docs/OVERHEAD.md), so a run that is to choose begins with whole graphs. Their
//! records do not say how many nodes there are. But most graphs are captured from a stream, and the calls that a capture takes
//! are recorded: a node each. Graphs built node by node are not counted, nor what other threads launch into a
//! capture (a backward pass).
//!
//! What nodes would cost is held against the time that the graphs themselves take, not against that of the run: a server that
//! waits for its first requests would seem to afford anything, and there is no way back.

use profiler_core::attribution::api::ApiClass;
use profiler_core::cost::GRAPH_NODE_NANOS;
use profiler_core::dictionary::Dictionary;
use profiler_core::record::{ApiCall, Kernel, Record, ThreadId, Timestamp};

/// Nodes are recorded when they take less than this part of the time of their graphs.
const CHEAP: f64 = 0.02;
/// Shortest time since the first graph to judge by, nanoseconds: several steps of most programs.
const LEAST_NANOS: u64 = 500_000_000;
/// Fewest launches to judge by.
const LEAST_LAUNCHES: u64 = 16;

/// Counts graphs that ran as a whole, and what captures took.
#[derive(Debug, Default)]
pub struct Census {
    /// Nodes are recorded when they take less than this part of the time of their graphs.
    cheap: f64,
    /// By function.
    classes: Vec<Option<ApiClass>>,
    /// Threads that are capturing.
    capturing: Vec<ThreadId>,
    /// Captures that have ended, and launching calls that all captures took.
    captures: u64,
    captured: u64,
    /// Graphs that ran, how long in all, and when the first of them began.
    graphs: u64,
    graphs_ns: u64,
    first: Option<Timestamp>,
}

impl Census {
    /// Has counted nothing. `budget`: the part of the time that tracing may take in all, where there is one.
    pub fn new(budget: Option<f64>) -> Self {
        Self { cheap: budget.map_or(CHEAP, |budget| budget.min(CHEAP)), ..Self::default() }
    }

    /// Has counted nothing, and never finds nodes cheap: whole graphs were asked for.
    pub fn of_whole_graphs() -> Self {
        Self::default()
    }

    /// A record came. Calls of one thread come in order.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Api(call) => self.call(call, dictionary),
            Record::Kernel(kernel) if kernel.graph_id != 0 => self.graph(kernel),
            _ => {}
        }
    }

    fn call(&mut self, call: &ApiCall, dictionary: &Dictionary) {
        let succeeded = call.return_value == 0;
        match self.class(call, dictionary) {
            ApiClass::CaptureBegin if succeeded => self.capturing.push(call.thread),
            ApiClass::CaptureEnd => {
                self.capturing.retain(|&thread| thread != call.thread);
                self.captures += u64::from(succeeded);
            }
            class if class.launches() && succeeded => {
                self.captured += u64::from(self.capturing.contains(&call.thread));
            }
            _ => {}
        }
    }

    /// One without times says nothing: there is no way back from what is read off here.
    fn graph(&mut self, graph: &Kernel) {
        if graph.start == Timestamp::ZERO || graph.end <= graph.start {
            return;
        }
        self.graphs += 1;
        self.graphs_ns = self.graphs_ns.saturating_add(graph.end.since(graph.start));
        self.first.get_or_insert(graph.start);
    }

    fn class(&mut self, call: &ApiCall, dictionary: &Dictionary) -> ApiClass {
        let place = call.function.0 as usize;
        if let Some(&Some(class)) = self.classes.get(place) {
            return class;
        }
        let function = dictionary.api_function(call.function);
        let class = function.map_or(ApiClass::Other, |function| ApiClass::of(dictionary.name(function.name)));
        self.classes.resize(self.classes.len().max(place + 1), None);
        self.classes[place] = Some(class);
        class
    }

    /// What recording the nodes of all graphs so far would have cost, nanoseconds; 0 when how many they have is not known.
    /// Captured graphs are taken to be launched equally often.
    pub fn nodes_ns(&self) -> u64 {
        let nodes = u128::from(self.captured) * u128::from(self.graphs);
        let nanos = nodes.saturating_mul(GRAPH_NODE_NANOS.into()) / u128::from(self.captures.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Whether enough graphs ran up to `at` to say that their nodes are cheap.
    pub fn nodes_are_cheap(&self, at: Timestamp) -> bool {
        let nanos = self.nodes_ns();
        nanos > 0
            && self.graphs >= LEAST_LAUNCHES
            && self.first.is_some_and(|first| at.since(first) >= LEAST_NANOS)
            && (nanos as f64) < self.cheap * self.graphs_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::record::{ApiDomain, ApiFunction};

    use super::*;

    struct Program {
        dictionary: Dictionary,
        census: Census,
        now: u64,
    }

    impl Program {
        fn new() -> Self {
            Self { dictionary: Dictionary::new(), census: Census::new(Some(0.1)), now: 1_000_000_000 }
        }

        fn call(&mut self, thread: u32, name: &str, return_value: u32) {
            let id = self.dictionary.intern_name(name);
            let callback_id = name.bytes().map(u32::from).sum();
            let function =
                self.dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name: id });
            let call = ApiCall { thread: ThreadId(thread), function, return_value, ..ApiCall::default() };
            self.census.record(&Record::Api(call), &self.dictionary);
        }

        /// A graph of so many nodes is captured, while another thread launches.
        fn capture(&mut self, nodes: u32) {
            self.call(1, "cudaStreamBeginCapture", 0);
            for _ in 0..nodes {
                self.call(1, "cudaMemcpyAsync", 0);
                self.call(2, "cudaLaunchKernel", 0);
            }
            self.call(1, "cudaStreamEndCapture", 0);
        }

        /// Graphs run, one each millisecond.
        fn run(&mut self, graphs: u64, nanos: u64) {
            for _ in 0..graphs {
                let [start, end] = [self.now, self.now + nanos].map(Timestamp::from_nanos);
                let graph = Kernel { start, end, graph_id: 7, ..Kernel::default() };
                self.census.record(&Record::Kernel(graph), &self.dictionary);
                self.now += 1_000_000;
            }
        }

        fn of(nodes: u32, graphs: u64, nanos: u64) -> Self {
            let mut program = Self::new();
            program.capture(nodes);
            program.run(graphs, nanos);
            program
        }

        fn is_cheap(&self) -> bool {
            self.census.nodes_are_cheap(Timestamp::from_nanos(self.now))
        }
    }

    #[test]
    fn nodes_are_cheap_below_two_percent_of_their_graphs() {
        // 12 nodes of 831 ns are 2 % of 498.6 us.
        assert!(Program::of(12, 600, 499_000).is_cheap());
        assert!(!Program::of(12, 600, 498_000).is_cheap());
        assert_eq!(Program::of(12, 600, 1).census.nodes_ns(), 7_200 * GRAPH_NODE_NANOS);
        let mut frugal = Program::of(12, 600, 499_000);
        frugal.census.cheap = Census::new(Some(0.01)).cheap;
        assert!(!frugal.is_cheap(), "beyond what may be taken");
    }

    #[test]
    fn an_idle_program_is_not_taken_for_a_cheap_one() {
        let mut program = Program::of(1_000, 20, 900_000);
        program.now += 60_000_000_000;
        assert!(!program.is_cheap());
    }

    #[test]
    fn too_little_says_nothing() {
        let mut few = Program::of(1, 15, 900_000);
        few.now += 1_000_000_000;
        assert!(!few.is_cheap(), "too few graphs");
        assert!(!Program::of(1, 400, 900_000).is_cheap(), "too short a time");
        assert!(!Program::of(0, 600, 900_000).is_cheap(), "built node by node: how many is not known");
        assert!(!Program::new().is_cheap(), "no graphs");
    }

    #[test]
    fn a_graph_without_times_makes_nothing_cheap() {
        let mut program = Program::of(12, 600, 498_000);
        let graph = Kernel { end: Timestamp::from_nanos(program.now), graph_id: 7, ..Kernel::default() };
        program.census.record(&Record::Kernel(graph), &program.dictionary);
        assert!(!program.is_cheap());
    }

    #[test]
    fn graphs_of_several_captures_count_by_their_mean() {
        let mut program = Program::new();
        program.capture(10);
        program.capture(30);
        program.run(1, 1);
        assert_eq!(program.census.nodes_ns(), 20 * GRAPH_NODE_NANOS);
    }

    #[test]
    fn a_capture_that_fails_takes_no_more_launches() {
        let mut program = Program::new();
        program.capture(10);
        program.call(1, "cudaStreamBeginCapture", 0);
        program.call(1, "cudaStreamEndCapture", 901);
        program.call(1, "cudaLaunchKernel", 0);
        program.run(1, 1);
        assert_eq!(program.census.nodes_ns(), 10 * GRAPH_NODE_NANOS);
    }
}
