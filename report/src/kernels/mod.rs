//! Profiles of single kernels: which ones are worth it, what to measure, and what the measured values mean.
//!
//! A profile holds the hardware counters of one kernel, measured over several launches of the same shape, one pass of
//! the counters at each launch ([`KernelProfile`](gpuwhy_trace::kernels::KernelProfile)). Reading order: `sets` (what
//! is measured), `choice` (of which kernels), `figures` (what it means), `roofline`, `rules` (what to do about
//! it), `text`, `svg`, `csv` and `json` (how it is shown). `source` has where in a kernel warps wait.
//!
//! Metric names are those of NVIDIA's profiling libraries, so that results can be compared with those of Nsight
//! Compute. Nothing here has heard of the library that counts.

mod axes;
mod candidates;
mod choice;
mod csv;
mod figures;
mod gains;
#[cfg(feature = "serde")]
pub mod json;
mod occupancy;
mod peaks;
mod roofline;
pub mod rules;
pub mod sets;
pub mod source;
mod svg;
mod text;
mod view;

pub use axes::{DataType, Level};
pub use candidates::{candidates, has_run_enough};
pub use choice::{Candidate, Choice, Excluded, choose};
pub use csv::{Page as CsvPage, csv};
pub use figures::{Figures, MemoryTable, Pipe, Roof, StallReason};
pub use gains::{KernelGains, Shorter, StepGain, bottleneck_then};
pub use occupancy::{Reduction, Resource, reductions};
pub use peaks::Peaks;
pub use roofline::{Point, Roofline};
pub use svg::svg;
pub use text::text;
pub use view::{KernelView, KernelsReport, Unmeasured};

#[cfg(test)]
mod page_tests;
