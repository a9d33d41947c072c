//! The captures of a run.

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::attribution::leaf::Group;

/// What there is to choose from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureTable {
    /// Number of the capture that the report is about; `None` when the run was not cut into captures, or when the
    /// capture that was asked for does not exist.
    pub shown: Option<u32>,
    /// One row for each capture, in the order in which they ended.
    pub rows: Vec<CaptureRow>,
    /// Captures that got no row, because there were too many.
    pub beyond_rows: u64,
}

/// One capture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureRow {
    /// Counts from 1.
    pub number: u32,
    /// Why it began.
    pub trigger: Trigger,
    /// When it began; 0 when it began with the trace.
    pub begin: Timestamp,
    /// When its range ended; `None` while it is being taken.
    pub end: Option<Timestamp>,
    /// Kernels in it.
    pub kernels: u64,
    /// Its verdict and the share, 0 to 1, once it has ended.
    pub verdict: Option<(Group, f64)>,
}
