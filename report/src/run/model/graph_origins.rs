//! Where the work of CUDA graphs comes from.

use profiler_core::attribution::{GraphOriginCounts, GraphWork};

use crate::launch_site::LaunchSite;
use crate::library::Library;

/// Work of CUDA graphs by the place that added its nodes. Exact: each record names its node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphOrigins {
    /// Operations with and without an origin.
    pub counts: GraphOriginCounts,
    /// Idle time between nodes of one replay, before a node whose place is unknown, nanoseconds.
    pub unplaced_idle_before_ns: u64,
    /// By module, the largest time first.
    pub modules: Vec<GraphModuleRow>,
    /// In one replay, by module, the largest time first; at most 256. A module includes those that it calls.
    pub per_replay: Vec<ModuleTime>,
    /// Number of captured graphs that are left out of modules in `per_replay`, because it is not known of all of their
    /// nodes which modules captured them.
    pub partial_graphs: u64,
    /// By kernel and place, the largest time first; at most 1,024.
    pub rows: Vec<GraphOriginRow>,
    /// Number of pairs of kernel and place, including those not in `rows`.
    pub distinct_rows: u64,
    /// Work whose nodes were added where no interpreter ran, by thread, the largest time first: a backward pass, or a
    /// program in another language.
    pub threads: Vec<GraphThreadRow>,
    /// By the ranges that were open when the nodes were added; `None` if no range was.
    pub ranges: Option<GraphRangeTable>,
    /// Graphs that were recorded as a whole, the largest time first; at most 64.
    pub whole: Vec<WholeGraphRow>,
    /// Number of graphs that were recorded as a whole, including those not in `whole`.
    pub distinct_whole: u64,
}

/// Work of graphs by the ranges that were open on the thread that added its nodes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphRangeTable {
    /// By path of ranges, the largest time first; at most 128. An operation is in the row of the innermost pushed
    /// range of each domain, and of each started one.
    pub rows: Vec<GraphRangeRow>,
    /// Number of paths, including those not in `rows`.
    pub distinct_rows: u64,
    /// Operations whose nodes were added outside ranges.
    pub outside: GraphWork,
    /// Operations of which that is unknown.
    pub unknown: GraphWork,
}

/// Work of graphs whose nodes were added in one path of ranges.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphRangeRow {
    /// Domain; empty for the default one.
    pub domain: String,
    /// Messages, outermost first, with `*` in place of a counter.
    pub path: Vec<String>,
    /// Its operations.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub work: GraphWork,
}

/// A graph that was recorded as a whole, with the places that added its nodes. How its time is divided among them is
/// not known.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WholeGraphRow {
    /// CUPTI's id of the executable graph.
    pub graph: u32,
    /// Place of the innermost frame that the stacks of all its nodes have in common.
    pub place: Option<LaunchSite>,
    /// Number of its nodes.
    pub nodes: u64,
    /// Number of nodes without an origin.
    pub unknown_nodes: u64,
    /// Nodes by origin, most nodes first; at most 16.
    pub parts: Vec<GraphPartRow>,
    /// Number of origins, including those not in `parts`.
    pub distinct_parts: u64,
    /// Its launches.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub work: GraphWork,
}

/// Nodes of a graph with one origin.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphPartRow {
    /// Module, or outside modules line, or thread without a line.
    pub captured_in: String,
    /// Number of nodes.
    pub nodes: u64,
}

/// Work of graphs whose nodes one module added.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphModuleRow {
    /// Class of the innermost module whose `forward` was running; `None` outside modules.
    pub module: Option<String>,
    /// Class of the module that called it.
    pub parent: Option<String>,
    /// In code of Inductor, the operators that were fused, without those that only change the view of a tensor.
    pub operators: Option<String>,
    /// Its operations.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub work: GraphWork,
    /// Share of the time of all operations of graphs, 0 to 1.
    pub share: f64,
    /// Number of times that the device was idle between one of its operations and the one before it in the same
    /// replay.
    pub idle_before_count: u64,
    /// Sum of that time, nanoseconds.
    pub idle_before_ns: u64,
}

/// What a module and the modules that it called captured, in one replay of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ModuleTime {
    /// Class whose `forward` was running.
    pub module: String,
    /// Number of replays, of graphs that it captured a part of, whose nodes were recorded.
    pub replays: u64,
    /// Mean sum of the durations of its operations in one of them, nanoseconds.
    pub mean_ns: u64,
}

/// A kernel of graphs whose nodes were added at one place.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphOriginRow {
    /// Demangled name; `None` for copies and memsets.
    pub kernel: Option<String>,
    /// Library derived from the name.
    pub library: Option<Library>,
    /// The place.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: LaunchSite,
    /// Its operations.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub work: GraphWork,
}

/// Work of graphs whose nodes a thread added without an interpreter.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GraphThreadRow {
    /// Kernel id of the thread.
    pub thread: u32,
    /// Its name, if known: `pt_autograd_0` for a backward pass of PyTorch.
    pub name: Option<String>,
    /// Its operations.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub work: GraphWork,
}
