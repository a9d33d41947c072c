//! Collective instances across all ranks of a communicator, without keeping the ranks' rows.
//!
//! Rows are read rank by rank, as often as needed. Each instance keeps only a summary of all ranks: the
//! first, last and second-to-last start with their ranks, and its end.

use std::collections::hash_map::Entry;

use gpuwhy_trace::collective::Function;
use profiler_core::collective::Basis;
use profiler_core::thresholds::CLOCK_SLACK_NANOS;
use rustc_hash::FxHashMap;

use super::clocks::{ClockGraph, HostClock};
use super::rows::{CollectiveRow, RankRows, RowGroup, needs_everybody};
use super::summary::RankSummary;

/// Maximum number of collectives compared, the first ones found: about 130 bytes each.
const LIMIT: usize = 1 << 22;
/// Minimum share of a kernel name's operations whose times show that all ranks take part; below it, they are
/// assumed to be those of groups of ranks. Less than 1, since a clock may be stepped during the run.
const TOGETHER_SHARE: f64 = 0.9;
/// Lateness below this many times the error of the clocks is unresolved: three standard errors are exceeded
/// by chance once in 370 times (normal distribution).
const ERRORS: u64 = 3;
/// No collective.
pub(super) const NONE: u32 = u32::MAX;

/// Source of a rank's rows, readable repeatedly.
pub trait RowSource {
    /// Reason why rows are unavailable.
    type Error;

    /// Passes the rows of the rank at `place` to `visit`.
    ///
    /// # Errors
    /// If they are unavailable.
    fn rows(&mut self, place: usize, visit: &mut dyn FnMut(&RankRows)) -> Result<(), Self::Error>;
}

/// Assessment of a collective instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgment {
    /// The waiting is resolved by rank.
    Resolved,
    /// Ranks are missing.
    Missing,
    /// A rank finished before another one started, so that the ranks did not all wait for each other.
    NotSynchronized,
    /// The clocks are not exact enough.
    TooClose,
    /// Clocks that cannot be aligned.
    UnknownClocks,
}

/// One collective instance; times are on the common clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub(super) group: u32,
    pub(super) ranks: u32,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) last_rank: u32,
    pub(super) last_end: i64,
    pub(super) last_end_rank: u32,
    first_end: i64,
    /// Sum of the start delays relative to the first rank found.
    sum: i64,
    base: i64,
    /// Host of all ranks, or `NONE`.
    host: u32,
    pub(super) judgment: Judgment,
    /// The collective that is the root cause of the lateness.
    pub(super) because_of: u32,
    /// The previous collective on the rank that started last, and its end there.
    pub(super) before: u32,
    pub(super) before_end: i64,
    /// Total waiting of all ranks, nanoseconds.
    pub(super) waited: u64,
}

impl Instance {
    fn new(group: u32, place: u32, host: u32, (start, end): (i64, i64)) -> Self {
        Self {
            group,
            ranks: 0,
            first: start,
            last: start,
            last_rank: place,
            last_end: end,
            last_end_rank: place,
            first_end: end,
            sum: 0,
            base: start,
            host,
            judgment: Judgment::Missing,
            because_of: NONE,
            before: NONE,
            before_end: 0,
            waited: 0,
        }
    }

    fn add(&mut self, place: u32, host: u32, (start, end): (i64, i64)) {
        self.ranks += 1;
        self.first = self.first.min(start);
        if start > self.last {
            (self.last, self.last_rank) = (start, place);
        }
        if end > self.last_end {
            (self.last_end, self.last_end_rank) = (end, place);
        }
        self.first_end = self.first_end.min(end);
        self.sum = self.sum.saturating_add(start.saturating_sub(self.base));
        if host != self.host {
            self.host = NONE;
        }
    }

    /// Delay of the last rank's start relative to the mean of the others, nanoseconds.
    pub(super) fn lateness(&self) -> u64 {
        let others = i64::from(self.ranks.saturating_sub(1)).max(1);
        let own = self.last.saturating_sub(self.base);
        own.saturating_sub(self.sum.saturating_sub(own) / others).max(0).unsigned_abs()
    }

    /// Waiting of a rank with these start and end times, nanoseconds.
    pub(super) fn waiting(&self, start: i64, end: i64) -> u64 {
        self.last.min(end).saturating_sub(start).max(0).unsigned_abs()
    }
}

/// Rows of one communicator and function on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceGroup {
    size: u32,
    basis: Basis,
    count: u64,
    members: u32,
    is_uneven: bool,
}

#[derive(Debug, Default)]
pub(super) struct Instances {
    numbers: FxHashMap<(u64, Function), u32>,
    pub(super) groups: Vec<InstanceGroup>,
    index: FxHashMap<(u32, u64), u32>,
    pub(super) all: Vec<Instance>,
    pub(super) hosts: Vec<usize>,
    /// Number of rows whose collective had no room.
    pub(super) overflow: u64,
}

impl Instances {
    /// Creates the groups of these ranks.
    pub(super) fn new(ranks: &[RankSummary], hosts: Vec<usize>) -> Self {
        let mut instances = Self { hosts, ..Self::default() };
        for group in ranks.iter().flat_map(|rank| &rank.groups) {
            let number = match instances.numbers.entry((group.communicator, group.function)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let (size, basis) = (group.size, group.basis);
                    let new = InstanceGroup { size, basis, count: group.count, members: 0, is_uneven: false };
                    instances.groups.push(new);
                    *entry.insert(instances.groups.len() as u32 - 1)
                }
            };
            let known = &mut instances.groups[number as usize];
            known.members += 1;
            known.size = known.size.max(group.size);
            known.is_uneven |= known.count != group.count;
        }
        for group in &mut instances.groups {
            if group.basis == Basis::KernelName {
                group.size = ranks.len() as u32;
            } else if group.size == 0 {
                group.size = group.members;
            }
        }
        instances
    }

    /// Number of the group of a row; `None` when kernels of a name cannot be matched by order.
    pub(super) fn group(&self, rows: &RankRows, row: &CollectiveRow) -> Option<u32> {
        let group = rows.groups.get(row.group as usize)?;
        let number = *self.numbers.get(&(group.communicator, group.function))?;
        let known = &self.groups[number as usize];
        let is_paired = known.basis != Basis::KernelName || (!known.is_uneven && known.members == known.size);
        is_paired.then_some(number)
    }

    /// Index of the collective of a row.
    pub(super) fn of(&self, rows: &RankRows, row: &CollectiveRow) -> Option<u32> {
        self.index.get(&(self.group(rows, row)?, row.sequence)).copied()
    }

    /// Collects the clock differences of hosts from the ends of collectives.
    pub(super) fn gather_ends<S: RowSource>(&self, source: &mut S) -> Result<ClockGraph, S::Error> {
        let mut graph = ClockGraph::default();
        // First and newest rank found in each collective.
        let mut met: FxHashMap<(u32, u64), [(u32, i64); 2]> = FxHashMap::default();
        for (place, &host) in self.hosts.iter().enumerate() {
            source.rows(place, &mut |rows| {
                for row in &rows.rows {
                    // Sends and broadcasts end on each rank at its own time, which says nothing of clocks.
                    let ends_together = |group: &RowGroup| needs_everybody(group.function);
                    if !rows.groups.get(row.group as usize).is_some_and(ends_together) {
                        continue;
                    }
                    let Some(group) = self.group(rows, row) else { continue };
                    let room = met.len() < LIMIT;
                    match met.entry((group, row.sequence)) {
                        Entry::Vacant(entry) if room => drop(entry.insert([(host as u32, row.end); 2])),
                        Entry::Vacant(_) => {}
                        Entry::Occupied(mut entry) => {
                            let [first, newest] = *entry.get();
                            graph.ended((newest.0 as usize, newest.1), (host, row.end));
                            if first.0 != newest.0 {
                                graph.ended((first.0 as usize, first.1), (host, row.end));
                            }
                            entry.get_mut()[1] = (host as u32, row.end);
                        }
                    }
                }
            })?;
        }
        Ok(graph)
    }

    /// Adds the rows of all ranks, on the common clock.
    pub(super) fn add_all<S: RowSource>(&mut self, source: &mut S, clocks: &[HostClock]) -> Result<(), S::Error> {
        for place in 0..self.hosts.len() {
            let host = self.hosts[place];
            source.rows(place, &mut |rows| {
                for row in &rows.rows {
                    let Some(group) = self.group(rows, row) else { continue };
                    let span = (clocks[host].common(row.start), clocks[host].common(row.end));
                    let room = self.all.len() < LIMIT;
                    let number = match self.index.entry((group, row.sequence)) {
                        Entry::Occupied(entry) => *entry.get(),
                        Entry::Vacant(_) if !room => {
                            self.overflow += 1;
                            continue;
                        }
                        Entry::Vacant(entry) => {
                            self.all.push(Instance::new(group, place as u32, host as u32, span));
                            *entry.insert(self.all.len() as u32 - 1)
                        }
                    };
                    self.all[number as usize].add(place as u32, host as u32, span);
                }
            })?;
        }
        self.judge(clocks);
        Ok(())
    }

    /// Assesses each collective.
    fn judge(&mut self, clocks: &[HostClock]) {
        let error = clocks.iter().filter_map(|clock| clock.error_ns).max().unwrap_or(0);
        let has_unknown = clocks.iter().any(|clock| clock.offset_ns.is_none());
        let mut together = vec![(0_u64, 0_u64); self.groups.len()];
        for instance in &mut self.all {
            let group = self.groups[instance.group as usize];
            let of_group = &mut together[instance.group as usize];
            of_group.1 += 1;
            let spread = instance.last.saturating_sub(instance.first).unsigned_abs();
            instance.judgment = match () {
                () if instance.ranks < group.size || instance.ranks < 2 => Judgment::Missing,
                () if instance.host == NONE && has_unknown => Judgment::UnknownClocks,
                () if instance.last > instance.first_end.saturating_add(CLOCK_SLACK_NANOS.cast_signed()) => {
                    Judgment::NotSynchronized
                }
                () if instance.host == NONE && spread < ERRORS * error => Judgment::TooClose,
                () => Judgment::Resolved,
            };
            of_group.0 += u64::from(matches!(instance.judgment, Judgment::Resolved | Judgment::TooClose));
        }
        for instance in &mut self.all {
            let (fitting, of) = together[instance.group as usize];
            let by_order = self.groups[instance.group as usize].basis == Basis::KernelName;
            if by_order
                && (fitting as f64) < of as f64 * TOGETHER_SHARE
                && matches!(instance.judgment, Judgment::Resolved | Judgment::TooClose)
            {
                instance.judgment = Judgment::NotSynchronized;
            }
        }
    }

    /// True if there are collectives of unnamed groups of ranks.
    pub(super) fn has_unknown_groups(&self) -> bool {
        let is_unknown = |instance: &Instance| self.groups[instance.group as usize].basis == Basis::KernelName;
        self.all.iter().any(|instance| instance.judgment == Judgment::NotSynchronized && is_unknown(instance))
    }

    pub(super) fn count(&self, judgment: Judgment) -> u64 {
        self.all.iter().filter(|instance| instance.judgment == judgment).count() as u64
    }
}
