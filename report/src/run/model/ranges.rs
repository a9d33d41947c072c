//! Ranges that the program named.

use profiler_core::attribution::statistics::Durations;
use profiler_core::attribution::{RangeCounts, RangeStyle, Spread};
use profiler_core::counters::roofs::LimitTimes;
use profiler_core::leaf::Leaves;

/// Ranges of a run.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RangesReport {
    /// Ranges that started and have not ended.
    pub open: u64,
    /// Counts of unmatched data.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub counts: RangeCounts,
    /// Rows by name; those with the most projected time first, then those with the most host time.
    pub rows: Vec<RangeRow>,
}

/// Ranges of one name.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// Domain; empty for the default one.
    pub domain: String,
    /// Message, with `*` in place of a counter.
    pub message: String,
    /// How the ranges are delimited.
    pub style: RangeStyle,
    /// Host duration of the completed instances.
    pub host: Spread,
    /// For each instance with device work: the time from the start of its first operation to the end of its
    /// last.
    pub projected: Spread,
    /// Number of operations in those instances.
    pub operations: u64,
    /// Mean number of enclosing ranges per instance.
    pub mean_level: f64,
    /// Mean number of directly nested ranges per instance.
    pub mean_children: f64,
    /// Total duration of the operations, nanoseconds.
    pub device_ns: u64,
    /// Idle device time within the ranges, by leaf, nanoseconds.
    pub idle: Leaves,
    /// Kernels by total time, the largest first.
    pub kernels: Vec<(String, Durations)>,
    /// Time of the non-communication kernels by limit, nanoseconds; `None` if hardware counters were not
    /// sampled.
    pub limits: Option<LimitTimes>,
}
