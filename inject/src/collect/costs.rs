//! Cost of tracing, and its consequence: nodes of CUDA graphs are recorded if they cost little.

use gpuwhy_trace::record::{Record, Timestamp};

use crate::capture::controller::CaptureController;
use crate::config::{Graphs, Settings};
use crate::cost::{CallbackTimer, CostTracker};
use crate::cupti::graphs::GraphNodeBudget;

/// See the [module](self).
pub struct Costs {
    pub account: CostTracker,
    /// Counts CUDA graphs while each is a single record.
    graph_nodes: Option<GraphNodeBudget>,
}

impl Costs {
    /// Creates an account without any cost.
    pub fn new(settings: &Settings, whole_graphs: bool) -> Self {
        let graph_nodes = match settings.graphs {
            Graphs::Auto => GraphNodeBudget::new(settings.max_overhead),
            Graphs::Whole | Graphs::Nodes => GraphNodeBudget::of_whole_graphs(),
        };
        Self {
            account: CostTracker::new(settings.mode, whole_graphs, settings.max_overhead),
            graph_nodes: whole_graphs.then_some(graph_nodes),
        }
    }

    /// Counts a record of CUPTI.
    #[inline]
    pub fn record(&mut self, record: &Record) {
        self.account.record(record);
        if let (Some(graph_nodes), Record::Kernel(kernel)) = (&mut self.graph_nodes, record) {
            graph_nodes.ran(kernel);
        }
    }

    /// Notes a CUDA graph that has been instantiated.
    pub fn instantiated(&mut self, graph: u32, nodes: u32) {
        if let Some(graph_nodes) = &mut self.graph_nodes {
            graph_nodes.instantiated(graph, nodes);
        }
    }

    /// Enables records of CUDA graph nodes if they cost little. Notes that they are enabled once CUPTI was
    /// left to other tools.
    pub fn choose_graph_records(&mut self, at: Timestamp, controller: &CaptureController) {
        self.count_nodes();
        let Some(graph_nodes) = &self.graph_nodes else { return };
        let left = !controller.holds_slot();
        if (left || graph_nodes.nodes_are_cheap(at)) && !controller.is_watching() && controller.ask_for_nodes() {
            if left {
                // Their cost was not the reason.
                self.account.unrecorded_nodes(0);
            }
            self.graph_nodes = None;
            self.account.record_nodes(at);
            let why = if left { "CUPTI was left to other tools" } else { "they cost little here" };
            tracing::info!("nodes of CUDA graphs are recorded from now on: {why}");
        }
    }

    /// Notes what records of nodes would have cost.
    fn count_nodes(&mut self) {
        if let Some(graph_nodes) = &self.graph_nodes {
            self.account.unrecorded_nodes(graph_nodes.nodes_ns());
        }
    }

    /// Brings the totals up to `at`, the end of the run.
    pub fn finish(&mut self, at: Timestamp, meters: &CallbackTimer) {
        self.count_nodes();
        self.account.finish(at, meters);
    }
}
