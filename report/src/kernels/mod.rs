//! Profiles of single kernels: the choice of kernels, the metrics to measure, and the meaning of the values.
//!
//! A profile holds the hardware counters of one kernel, measured over several launches of the same shape, one
//! counter pass per launch ([`KernelProfile`](gpuwhy_trace::kernels::KernelProfile)). Reading order: `sets`
//! (metrics), `choice` (kernels), `figures` (meaning), `roofline`, `rules` (remedies), `text`, `svg`, `csv`
//! and `json` (output).
//!
//! Metric names are those of NVIDIA's profiling libraries, so that results can be compared with Nsight
//! Compute. This module does not depend on the library that counts.

mod axes;
mod candidates;
mod choice;
mod csv;
mod figures;
mod gains;
mod in_graphs;
#[cfg(feature = "serde")]
mod json;
mod metrics;
mod occupancy;
mod peaks;
mod roofline;
pub mod rules;
pub mod sets;
mod svg;
mod text;
mod view;

pub use axes::{DataType, Level};
pub use candidates::{candidates, has_run_enough};
pub use choice::{Choice, Excluded, LaunchConfiguration, choose};
pub use csv::{CsvKind as CsvPage, csv};
pub use figures::{Figures, MemoryTable, Pipe, Roof, StallReason};
pub use gains::{KernelGains, Shorter, StepGain, bottleneck_then};
pub use in_graphs::{InGraphs, InGraphsPart};
pub use metrics::Chosen;
pub use occupancy::{Reduction, Resource, reductions};
pub use peaks::Peaks;
pub use roofline::{Point, Roofline};
pub use svg::svg;
pub(crate) use text::best_advice;
pub use text::text;
pub use view::{KernelView, KernelsReport, Unmeasured};

#[cfg(test)]
mod page_tests;
