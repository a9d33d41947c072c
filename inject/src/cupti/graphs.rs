//! Decides when to record the nodes of CUDA graphs instead of whole graphs, which only the run can show.
//!
//! Nodes are more informative, and cost the launching call [`GRAPH_NODE_NANOS`] each. CUPTI can change from
//! whole graphs to nodes in mid-run, but crashes the program the other way (docs/design/overhead.md), so a
//! run that has to choose starts with whole graphs. Their records lack the number of nodes; CUPTI's callbacks
//! report it when a graph is instantiated.
//!
//! The cost of nodes is compared with the time that the graphs themselves take, not with the time of the run:
//! for a server that waits for its first requests, any cost would seem acceptable, and the change is
//! irreversible.

use std::collections::HashMap;

use gpuwhy_trace::cost::GRAPH_NODE_NANOS;
use gpuwhy_trace::record::{Kernel, Timestamp};

/// Nodes are recorded if they take less than this fraction of the time of their graphs.
const CHEAP: f64 = 0.02;
/// Minimum time since the first graph for a decision, nanoseconds: several steps of most programs.
const LEAST_NANOS: u64 = 500_000_000;
/// Minimum number of launches for a decision.
const LEAST_LAUNCHES: u64 = 16;
/// Maximum number of graphs whose node counts are kept: some 2 MiB. No known program makes more.
const MOST_GRAPHS: usize = 100_000;

/// Counts graphs that ran as whole graphs, and their nodes.
#[derive(Debug, Default)]
pub struct GraphNodeBudget {
    /// Nodes are recorded if they take less than this fraction of the time of their graphs.
    cheap: f64,
    /// Number of nodes by graph. Nodes of a graph that was first cloned or embedded in another one count
    /// twice.
    nodes: HashMap<u32, u32>,
    /// Graphs that ran, those with an unknown number of nodes, the nodes of the others, the time of all, and
    /// the start of the first one.
    graphs: u64,
    unknown: u64,
    nodes_ran: u64,
    graphs_ns: u64,
    first: Option<Timestamp>,
}

impl GraphNodeBudget {
    /// Creates an empty budget. `budget`: fraction of the time that tracing may take in total, if limited.
    pub fn new(budget: Option<f64>) -> Self {
        Self { cheap: budget.map_or(CHEAP, |budget| budget.min(CHEAP)), ..Self::default() }
    }

    /// Creates an empty budget that never finds nodes cheap: the user requested whole graphs.
    pub fn of_whole_graphs() -> Self {
        Self::default()
    }

    /// Notes the number of nodes of an instantiated graph.
    pub fn instantiated(&mut self, graph: u32, nodes: u32) {
        if self.nodes.len() < MOST_GRAPHS {
            self.nodes.insert(graph, nodes);
        }
    }

    /// Counts a kernel or a whole graph. Ignores records without times: the decision is irreversible.
    #[inline]
    pub fn ran(&mut self, kernel: &Kernel) {
        if kernel.graph_id == 0 || kernel.start == Timestamp::ZERO || kernel.end <= kernel.start {
            return;
        }
        match self.nodes.get(&kernel.graph_id) {
            Some(&nodes) => self.nodes_ran += u64::from(nodes),
            None => self.unknown += 1,
        }
        self.graphs += 1;
        self.graphs_ns = self.graphs_ns.saturating_add(kernel.end.since(kernel.start));
        self.first.get_or_insert(kernel.start);
    }

    /// Cost of recording the nodes of all graphs up to now, nanoseconds; 0 if the number of nodes of a graph
    /// is unknown.
    pub fn nodes_ns(&self) -> u64 {
        if self.unknown > 0 { 0 } else { self.nodes_ran.saturating_mul(GRAPH_NODE_NANOS) }
    }

    /// True if enough graphs ran up to `at` to show that their nodes are cheap.
    pub fn nodes_are_cheap(&self, at: Timestamp) -> bool {
        self.unknown == 0
            && self.graphs >= LEAST_LAUNCHES
            && self.first.is_some_and(|first| at.since(first) >= LEAST_NANOS)
            && (self.nodes_ns() as f64) < self.cheap * self.graphs_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Program {
        graph_nodes: GraphNodeBudget,
        now: u64,
    }

    impl Program {
        /// Runs graph 7, with a number of nodes, a number of times, once per millisecond.
        fn of(nodes: u32, launches: u64, nanos: u64) -> Self {
            let mut program = Self { graph_nodes: GraphNodeBudget::new(Some(0.1)), now: 1_000_000_000 };
            program.graph_nodes.instantiated(7, nodes);
            program.run(7, launches, nanos);
            program
        }

        fn run(&mut self, graph_id: u32, launches: u64, nanos: u64) {
            for _ in 0..launches {
                let [start, end] = [self.now, self.now + nanos].map(Timestamp::from_nanos);
                self.graph_nodes.ran(&Kernel { start, end, graph_id, ..Kernel::default() });
                self.now += 1_000_000;
            }
        }

        fn is_cheap(&self) -> bool {
            self.graph_nodes.nodes_are_cheap(Timestamp::from_nanos(self.now))
        }
    }

    #[test]
    fn nodes_are_cheap_below_two_percent_of_their_graphs() {
        // 12 nodes of 831 ns are 2 % of 498.6 us.
        assert!(Program::of(12, 600, 499_000).is_cheap());
        assert!(!Program::of(12, 600, 498_000).is_cheap());
        assert_eq!(Program::of(12, 600, 1).graph_nodes.nodes_ns(), 7_200 * GRAPH_NODE_NANOS);
        let mut frugal = Program::of(12, 600, 499_000);
        frugal.graph_nodes.cheap = GraphNodeBudget::new(Some(0.01)).cheap;
        assert!(!frugal.is_cheap(), "beyond what may be taken");
    }

    #[test]
    fn a_graph_counts_as_often_as_it_ran() {
        let mut program = Program::of(10, 3, 1);
        program.graph_nodes.instantiated(8, 1_000);
        program.run(8, 1, 1);
        assert_eq!(program.graph_nodes.nodes_ns(), 1_030 * GRAPH_NODE_NANOS);
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
        assert!(!Program::of(1, 0, 0).is_cheap(), "no graphs");
    }

    #[test]
    fn a_graph_of_unknown_size_is_not_taken_for_a_small_one() {
        let mut program = Program::of(1, 600, 900_000);
        assert!(program.is_cheap());
        program.run(8, 1, 900_000);
        assert!(!program.is_cheap());
        assert_eq!(program.graph_nodes.nodes_ns(), 0, "not known");
    }

    #[test]
    fn more_graphs_than_are_remembered_are_not_known() {
        let mut program = Program::of(1, 600, 900_000);
        (0..MOST_GRAPHS as u32).for_each(|graph| program.graph_nodes.instantiated(100 + graph, 1));
        assert_eq!(program.graph_nodes.nodes.len(), MOST_GRAPHS);
        program.run(99 + MOST_GRAPHS as u32, 1, 900_000);
        assert!(!program.is_cheap());
    }

    #[test]
    fn a_graph_without_times_makes_nothing_cheap() {
        let mut program = Program::of(12, 600, 498_000);
        let graph = Kernel { end: Timestamp::from_nanos(program.now), graph_id: 7, ..Kernel::default() };
        program.graph_nodes.ran(&graph);
        assert!(!program.is_cheap());
    }
}
