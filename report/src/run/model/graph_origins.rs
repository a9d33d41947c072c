//! Where the work of CUDA graphs comes from.

use profiler_core::attribution::{GraphOriginCounts, GraphWork};

use super::LaunchSite;
use crate::run::library::Library;

/// Work of CUDA graphs by the place that added its nodes. Exact: each record names its node.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphOrigins {
    /// Operations with and without an origin.
    pub counts: GraphOriginCounts,
    /// By module, the largest time first.
    pub modules: Vec<GraphModuleRow>,
    /// By kernel and place, the largest time first; at most 1,024.
    pub rows: Vec<GraphOriginRow>,
    /// Number of pairs of kernel and place, including those not in `rows`.
    pub distinct_rows: u64,
    /// Work whose nodes were added where no interpreter ran, by thread, the largest time first: a backward pass, or a
    /// program in another language.
    pub threads: Vec<GraphThreadRow>,
}

/// Work of graphs whose nodes one module added.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
}

/// A kernel of graphs whose nodes were added at one place.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
