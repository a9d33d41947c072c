//! Captures of a run, and in mode auto its bursts: recordings while samples cover the complete run.

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::leaf::Cause;
use profiler_core::monitoring::BottleneckChange;

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

/// Bursts of a run and its bottlenecks.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BurstTable {
    /// One row for each of the first [`ROW_LIMIT`](crate::capture::ROW_LIMIT) bursts that have ended.
    pub rows: Vec<BurstRow>,
    /// Bottlenecks in chronological order, from samples and bursts; the newest 64.
    pub changes: Vec<BottleneckChange>,
    /// Number of earlier changes that were dropped.
    pub earlier_changes: u64,
}

/// A burst.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BurstRow {
    /// Number of its capture.
    pub number: u32,
    /// Reason for its start.
    pub trigger: Trigger,
    /// Start time.
    pub begin: Timestamp,
    /// End time.
    pub end: Timestamp,
    /// Number of kernels.
    pub kernels: u64,
    /// Its bottleneck.
    pub cause: Cause,
    /// The bottleneck's share of its steps or time, 0 to 1.
    pub share: f64,
    /// Total device time of all devices, nanoseconds.
    pub window_ns: u64,
    /// The same divided by cause, nanoseconds; causes without time are omitted.
    pub causes: Vec<(Cause, u64)>,
    /// Number of steps and their median duration in nanoseconds; 0 if none were found.
    pub steps: (u64, u64),
}

impl BurstTable {
    /// Current bottleneck and its share, for displays of a run that is still going.
    pub(crate) fn live(&self) -> (Cause, f64) {
        self.changes.last().map_or((Cause::CannotTell, 0.0), |change| (change.cause, change.share))
    }

    /// The bottleneck that held longest up to `end`: its newest occurrence, and its total duration in
    /// nanoseconds.
    pub(crate) fn longest(&self, end: Timestamp) -> Option<(BottleneckChange, u64)> {
        let ends = self.changes.iter().skip(1).map(|change| change.at).chain([end]);
        let spans: Vec<_> =
            self.changes.iter().zip(ends).map(|(change, end)| (*change, end.since(change.at))).collect();
        let total = |cause: Cause| spans.iter().filter(|(change, _)| change.cause == cause).map(|(_, ns)| ns).sum();
        spans.iter().map(|(change, _)| (*change, total(change.cause))).max_by_key(|&(_, held)| held)
    }
}
