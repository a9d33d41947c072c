//! Captures of a run.

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::leaf::Cause;

/// List of captures to choose from.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CaptureTable {
    /// Number of the capture that the report covers; `None` when the run was not split into captures or the
    /// requested capture does not exist.
    pub shown: Option<u32>,
    /// One row per capture, in order of their ends.
    pub rows: Vec<CaptureRow>,
    /// Number of captures without a row, because there were too many.
    pub beyond_rows: u64,
}

/// One capture.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CaptureRow {
    /// Counts from 1.
    pub number: u32,
    /// Reason for its start.
    pub trigger: Trigger,
    /// Start time; 0 if it started with the trace.
    pub begin: Timestamp,
    /// End time of its range; `None` while it is running.
    pub end: Option<Timestamp>,
    /// Number of kernels.
    pub kernels: u64,
    /// Its bottleneck and share, 0 to 1, once it has ended.
    pub bottleneck: Option<(Cause, f64)>,
}
