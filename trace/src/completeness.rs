//! What a report rests on: how many records came, and what is missing or doubtful.

use crate::process_info::End;
use crate::record::{Loss, Timestamp};

/// How much of the truth the report rests on. Every counter is a number of records unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Kernels received.
    pub kernels: u64,
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
    /// Begins and ends of ranges, and marks, received.
    pub ranges: u64,
    /// Host samples at host threads received.
    pub samples: u64,
    /// Allocations, releases and changes of memory pools received.
    pub memory_events: u64,
    /// Migrations and page faults of managed memory received.
    pub managed_events: u64,
    /// What never became a record.
    pub loss: Loss,
    /// Records whose begin or end is zero or far in the future; not on the timeline.
    pub bad_timestamps: u64,
    /// Kernel launches for which no kernel came.
    pub launches_without_activity: u64,
    /// Device operations whose launching call was not seen.
    pub activities_without_launch: u64,
    /// Operations that begin before their launching call, or end before they begin.
    pub clamped_clocks: u64,
    /// Device time that arrived after its place on the timeline was final, nanoseconds.
    pub late_ns: u64,
    /// The part of `late_ns` that was corrected afterwards, nanoseconds.
    pub late_corrected_ns: u64,
    /// Distinct kernels whose statistics were merged into one row because the table was full.
    pub kernel_table_overflow: u64,
    /// After an abrupt end: the newest flush mark, before which everything that was complete is here, and the
    /// nanoseconds between it and the one before.
    pub whole_until: Option<(Timestamp, u64)>,
    /// How the trace ended.
    pub end: End,
    /// Damage that the reader of the trace met, one sentence each.
    pub damage: Vec<String>,
}

impl Completeness {
    /// Records received, of all kinds.
    pub fn records(&self) -> u64 {
        let work = self.kernels + self.copies + self.memsets + self.api_calls + self.syncs + self.events;
        work + self.overheads + self.ranges + self.samples + self.memory_events + self.managed_events
    }
}
