//! Bursts of a run in mode auto: what was recorded while samples divided the whole run.

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::attribution::leaf::Group;
use profiler_core::monitoring::Change;

/// The bursts of a run, and its bottlenecks.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BurstTable {
    /// One row for each of the first [`ROW_LIMIT`](crate::capture::ROW_LIMIT) bursts that have ended.
    pub rows: Vec<BurstRow>,
    /// The bottlenecks in their order, by samples and bursts; the newest 64.
    pub changes: Vec<Change>,
    /// Earlier ones that are not kept.
    pub earlier_changes: u64,
}

/// A burst.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstRow {
    /// The number of its capture.
    pub number: u32,
    /// Why it began.
    pub trigger: Trigger,
    /// When it began.
    pub begin: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Kernels in it.
    pub kernels: u64,
    /// Its bottleneck.
    pub group: Group,
    /// The bottleneck's share of its steps or time, 0 to 1.
    pub share: f64,
    /// Device time, nanoseconds, of all devices together.
    pub window_ns: u64,
    /// How that divides: nanoseconds by group, those without any left out.
    pub groups: Vec<(Group, u64)>,
    /// Steps, and the median of their durations in nanoseconds; 0 where none were found.
    pub steps: (u64, u64),
}

impl BurstTable {
    /// The bottleneck of now, for displays of a run that is still going, and its share.
    pub(crate) fn live(&self) -> (Group, f64) {
        self.changes.last().map_or((Group::CannotTell, 0.0), |change| (change.group, change.share))
    }

    /// The bottleneck that held longest in a run until `end`, the newest time of it, and how long it held in
    /// nanoseconds.
    pub(crate) fn longest(&self, end: Timestamp) -> Option<(Change, u64)> {
        let ends = self.changes.iter().skip(1).map(|change| change.at).chain([end]);
        let spans: Vec<_> =
            self.changes.iter().zip(ends).map(|(change, end)| (*change, end.since(change.at))).collect();
        let total = |group: Group| spans.iter().filter(|(change, _)| change.group == group).map(|(_, ns)| ns).sum();
        spans.iter().map(|(change, _)| (*change, total(change.group))).max_by_key(|&(_, held)| held)
    }
}
