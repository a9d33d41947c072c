//! Counts of trace data without a place in the timeline of its page.

use serde::Serialize;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Lost {
    /// Records with times outside the run, mostly host samples from before the first work.
    pub(crate) outside: u64,
    /// Records of streams, threads and ranges without a row.
    pub(crate) without_row: u64,
    /// Starts of ranges while too many were open.
    pub(crate) ranges_too_many: u64,
    /// Starts or ends of ranges without the other, and range events of an unknown kind.
    pub(crate) ranges_unmatched: u64,
    /// Steps after the last one that the page holds.
    pub(crate) steps: u64,
    /// Gaps with an unknown end.
    pub(crate) gap_ends: u64,
    /// Gaps that the page shows as two or more, because they have too many parts.
    pub(crate) gaps_split: u64,
    /// Operations with an unknown launching call, which are missing in the row of launches that have not
    /// started.
    pub(crate) launches_unknown: u64,
}

impl Lost {
    /// Sum of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            outside: self.outside + other.outside,
            without_row: self.without_row + other.without_row,
            ranges_too_many: self.ranges_too_many + other.ranges_too_many,
            ranges_unmatched: self.ranges_unmatched + other.ranges_unmatched,
            steps: self.steps + other.steps,
            gap_ends: self.gap_ends + other.gap_ends,
            gaps_split: self.gaps_split + other.gaps_split,
            launches_unknown: self.launches_unknown + other.launches_unknown,
        }
    }

    /// A sentence for each nonzero kind. Records outside the run are only counted.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let reported = [
            (self.without_row, "records have no row: the timeline has 64 of each kind, those that come first"),
            (self.ranges_too_many, "ranges began while 4,096 were open and are not shown"),
            (self.ranges_unmatched, "begins or ends of ranges have no counterpart and are not shown"),
            (self.steps, "steps are not listed: the list has the first 131,072"),
            (self.gap_ends, "gaps do not show what ended them"),
            (self.gaps_split, "gaps have too many parts and are shown as several"),
            (self.launches_unknown, "operations have no launch and are not among those that have not begun"),
        ];
        let met = reported.into_iter().filter(|&(count, _)| count > 0);
        met.map(|(count, what)| format!("In the timeline, {count} {what}.")).collect()
    }
}
