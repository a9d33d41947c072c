//! Ranges that the program named.

use profiler_core::attribution::leaf::Leaves;
use profiler_core::attribution::statistics::Durations;
use profiler_core::attribution::{RangeCounts, RangeStyle, Spread};
use profiler_core::counters::roofs::LimitTimes;

/// What is known of the ranges.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RangesReport {
    /// Ranges that began and have not ended.
    pub open: u64,
    /// What could not be placed.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub counts: RangeCounts,
    /// By name; those with the most projected time first, then those with the most host time.
    pub rows: Vec<RangeRow>,
}

/// Ranges of one name.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// Domain; empty for the default one.
    pub domain: String,
    /// The message, with `*` for a counter.
    pub message: String,
    /// How it is delimited.
    pub style: RangeStyle,
    /// Duration on the host of the instances that are over.
    pub host: Spread,
    /// For each instance in which something ran: from the begin of its first operation to the end of its last.
    pub projected: Spread,
    /// Operations in those.
    pub operations: u64,
    /// Mean number of ranges around one of those.
    pub mean_level: f64,
    /// Mean number of ranges directly within one of those.
    pub mean_children: f64,
    /// Sum of the durations of operations, nanoseconds.
    pub device_ns: u64,
    /// Idle device time within, by leaf, nanoseconds.
    pub idle: Leaves,
    /// Kernels by total time, the largest first.
    pub kernels: Vec<(String, Durations)>,
    /// Time of those that do not communicate by what limits them, nanoseconds; `None` where hardware counters were not
    /// sampled.
    pub limits: Option<LimitTimes>,
}
