//! Whether CUDA graphs go on being recorded as a whole: what only the run can tell.
//!
//! Nodes say more, and cost the launching call [`GRAPH_NODE_NANOS`] each. CUPTI goes over from whole graphs to nodes in
//! mid-run, but crashes the program the other way (docs/design/overhead.md), so a run that is to choose begins with
//! whole graphs. Their records do not say how many nodes there are; CUPTI's callbacks do, when a graph is instantiated.
//!
//! What nodes would cost is held against the time that the graphs themselves take, not against that of the run: a
//! server that waits for its first requests would seem to afford anything, and there is no way back.

use std::collections::HashMap;

use gpuwhy_trace::cost::GRAPH_NODE_NANOS;
use gpuwhy_trace::record::{Kernel, Timestamp};

/// Nodes are recorded when they take less than this part of the time of their graphs.
const CHEAP: f64 = 0.02;
/// Shortest time since the first graph to judge by, nanoseconds: several steps of most programs.
const LEAST_NANOS: u64 = 500_000_000;
/// Fewest launches to judge by.
const LEAST_LAUNCHES: u64 = 16;
/// Most graphs whose nodes are remembered: some 2 MiB. A program that makes more is not known.
const MOST_GRAPHS: usize = 100_000;

/// Counts graphs that ran as a whole, and their nodes.
#[derive(Debug, Default)]
pub struct GraphNodeBudget {
    /// Nodes are recorded when they take less than this part of the time of their graphs.
    cheap: f64,
    /// Nodes by graph. Nodes of a graph that was copied or made part of another one before count twice.
    nodes: HashMap<u32, u32>,
    /// Graphs that ran, of these ones whose nodes are not known, the nodes of the others, how long all took, and when
    /// the first began.
    graphs: u64,
    unknown: u64,
    nodes_ran: u64,
    graphs_ns: u64,
    first: Option<Timestamp>,
}

impl GraphNodeBudget {
    /// Has counted nothing. `budget`: the part of the time that tracing may take in all, where there is one.
    pub fn new(budget: Option<f64>) -> Self {
        Self { cheap: budget.map_or(CHEAP, |budget| budget.min(CHEAP)), ..Self::default() }
    }

    /// Has counted nothing, and never finds nodes cheap: whole graphs were asked for.
    pub fn of_whole_graphs() -> Self {
        Self::default()
    }

    /// A graph of so many nodes is ready to run.
    pub fn instantiated(&mut self, graph: u32, nodes: u32) {
        if self.nodes.len() < MOST_GRAPHS {
            self.nodes.insert(graph, nodes);
        }
    }

    /// A kernel ran, or a whole graph. One without times says nothing: there is no way back from what is read off here.
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

    /// What recording the nodes of all graphs so far would have cost, nanoseconds; 0 when those of a graph are not
    /// known.
    pub fn nodes_ns(&self) -> u64 {
        if self.unknown > 0 { 0 } else { self.nodes_ran.saturating_mul(GRAPH_NODE_NANOS) }
    }

    /// Whether enough graphs ran up to `at` to say that their nodes are cheap.
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
        /// Graph 7 has so many nodes, and runs so often, once each millisecond.
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
