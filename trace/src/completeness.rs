//! Basis of a report: the number of records received, and what is missing or doubtful.

use crate::process_info::End;
use crate::record::{Loss, Timestamp};

/// Completeness of the data in a report. Every counter is a number of records unless noted otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Kernels received.
    pub kernels: u64,
    /// Launches of CUDA graphs received that were recorded without their nodes.
    pub graphs: u64,
    /// Copies received.
    pub copies: u64,
    /// Memsets received.
    pub memsets: u64,
    /// API calls received, nested ones included.
    pub api_calls: u64,
    /// API calls made by another API call on the same thread; left out of the API statistics.
    pub nested_api_calls: u64,
    /// Synchronizations received.
    pub syncs: u64,
    /// Event recordings received.
    pub events: u64,
    /// Overhead records received.
    pub overheads: u64,
    /// Range starts, range ends and marks received.
    pub ranges: u64,
    /// Samples of host threads received.
    pub samples: u64,
    /// Allocations, releases and memory pool changes received.
    pub memory_events: u64,
    /// Migrations and page faults of managed memory received.
    pub managed_events: u64,
    /// Losses before records were written.
    pub loss: Loss,
    /// Records whose start or end is zero or far in the future; excluded from the timeline.
    pub bad_timestamps: u64,
    /// Kernel launches without a kernel record.
    pub launches_without_activity: u64,
    /// Device operations without a record of their launching call.
    pub activities_without_launch: u64,
    /// Launches whose correlation id a launch shortly before had, so that their operations cannot be told apart.
    pub shared_ids: u64,
    /// Launches with the correlation id of the launch before them on their thread, which were joined with operations
    /// in order.
    pub ordered_launches: u64,
    /// Operations that start before their launching call, or end before they start.
    pub clamped_clocks: u64,
    /// Device time that arrived after its part of the timeline was final, nanoseconds.
    pub late_ns: u64,
    /// Part of `late_ns` that was corrected afterwards, nanoseconds.
    pub late_corrected_ns: u64,
    /// Distinct kernels merged into one row of statistics because the table was full.
    pub kernel_table_overflow: u64,
    /// After an abrupt end: time of the newest flush mark and the nanoseconds since the one before it.
    /// Everything that completed before the newest mark is present.
    pub complete_until: Option<(Timestamp, u64)>,
    /// How the trace ended.
    pub end: End,
    /// Damage found by the reader of the trace, one sentence each.
    pub damage: Vec<String>,
}

impl Completeness {
    /// Records received, of all kinds.
    pub fn records(&self) -> u64 {
        let work = self.kernels + self.graphs + self.copies + self.memsets + self.api_calls + self.syncs + self.events;
        work + self.overheads + self.ranges + self.samples + self.memory_events + self.managed_events
    }
}
