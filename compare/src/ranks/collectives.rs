//! Collectives of one rank, collected from its records.
//!
//! CUPTI does not report the communicator of a kernel. So a kernel is identified by its name and its index
//! among the kernels of that name; the comparison checks that all ranks ran equally many. Groups of fewer
//! ranks may look the same; their operations do not overlap in time, which the comparison checks too. If
//! NCCL's profiler plugin named the communicator, its rows replace those.

use gpuwhy_trace::collective::Function;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{DeviceId, Kernel, NameId};
use profiler_core::attribution::is_communication;
use profiler_core::attribution::segments::Segment;
use profiler_core::collective::{Basis, Collective};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::Hasher as _;

use super::rows::{CollectiveRow, LeafTime, RankRows, RowGroup, needs_everybody};
use super::summary::RankSummary;
use gpuwhy_report::run::Report;

/// Maximum number of rows, the first ones: 32 bytes each, and as much again for the time between them.
const ROWS_LIMIT: usize = 1 << 20;
/// Maximum number of distinct names; a program has a dozen.
const NAMES_LIMIT: usize = 32;
/// Maximum number of times by leaf, the first ones: 32 bytes each.
const TIMES_LIMIT: usize = 1 << 22;

/// Collective operations of one rank, and its time by leaf.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    places: FxHashMap<NameId, CollectiveClass>,
    groups: Vec<RowGroup>,
    rows: Vec<CollectiveRow>,
    devices: Vec<(DeviceId, u64)>,
    times: FxHashMap<DeviceId, Vec<LeafTime>>,
    times_kept: usize,
    others: u64,
    times_lost: u64,
    /// Rows of the profiler plugin and their groups.
    reported: Vec<CollectiveRow>,
    reported_groups: Vec<RowGroup>,
}

#[derive(Clone, Copy, Debug)]
enum CollectiveClass {
    /// Not a communication kernel.
    Nowhere,
    /// A communication kernel, but not a collective of all ranks.
    Others,
    Group(u32),
}

impl Collectives {
    /// Adds a kernel; kernels other than communication are ignored.
    pub fn push(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        let name = dictionary.launch_config(kernel.config).name;
        let place = match self.places.get(&name) {
            Some(&place) => place,
            None => {
                let place = self.place(dictionary.name(name));
                self.places.insert(name, place);
                place
            }
        };
        match place {
            CollectiveClass::Nowhere => {}
            CollectiveClass::Others => self.others += 1,
            CollectiveClass::Group(group) => {
                let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
                let (start, end) = (nanos(kernel.start.nanos()), nanos(kernel.end.nanos()));
                self.groups[group as usize].count += 1;
                if self.rows.len() < ROWS_LIMIT {
                    self.rows.push(CollectiveRow { group, sequence: 0, start, end });
                }
                match self.devices.iter_mut().find(|(device, _)| *device == kernel.device) {
                    Some((_, count)) => *count += 1,
                    None => self.devices.push((kernel.device, 1)),
                }
            }
        }
    }

    /// Adds an operation with a known communicator; others are ignored. Its kernel must be passed to
    /// [`push`](Self::push) as well.
    pub fn operation(&mut self, of: &Collective) {
        if of.basis == Basis::KernelName || of.communicator == 0 || self.reported.len() >= ROWS_LIMIT {
            return;
        }
        let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let (start, end) = (nanos(of.start.nanos()), nanos(of.end.nanos()));
        // One kernel can do several operations, the same on all ranks: the first represents it.
        if self.reported.last().is_some_and(|last| (last.start, last.end) == (start, end)) {
            return;
        }
        let is_group = |group: &RowGroup| (group.communicator, group.function) == (of.communicator, of.function);
        let place = self.reported_groups.iter().position(is_group).unwrap_or_else(|| {
            let (communicator, function, size) = (of.communicator, of.function, of.ranks);
            self.reported_groups.push(RowGroup { communicator, function, size, count: 0, basis: of.basis });
            self.reported_groups.len() - 1
        });
        let group = &mut self.reported_groups[place];
        (group.count, group.basis) = (group.count + 1, group.basis.max(of.basis));
        // Operations that NCCL does not count are identified by their order alone.
        let sequence = of.sequence.unwrap_or(of.ordinal);
        self.reported.push(CollectiveRow { group: place as u32, sequence, start, end });
    }

    /// Adds device time as returned by [`Captures::take`](gpuwhy_report::capture::Captures::take).
    pub fn segments(&mut self, segments: &[(u32, DeviceId, Vec<Segment>)]) {
        for (_, device, segments) in segments {
            let times = self.times.entry(*device).or_default();
            let before = times.len();
            for segment in segments {
                let nanos = |at: gpuwhy_trace::record::Timestamp| i64::try_from(at.nanos()).unwrap_or(i64::MAX);
                match *segment {
                    Segment::Time(time) => {
                        let (from, to, leaf) = (nanos(time.from), nanos(time.to), time.leaf);
                        match times.last_mut() {
                            Some(last) if last.to == from && last.leaf == leaf && !last.taken => last.to = to,
                            _ => times.push(LeafTime { from, to, leaf, taken: false }),
                        }
                    }
                    Segment::Moved { was, leaf, from, to } => {
                        let (from, to) = (nanos(from), nanos(to));
                        times.push(LeafTime { from, to, leaf: was, taken: true });
                        times.push(LeafTime { from, to, leaf, taken: false });
                    }
                    Segment::Gap(_) => {}
                }
            }
            let room = TIMES_LIMIT.saturating_sub(self.times_kept) + before;
            self.times_lost += times.len().saturating_sub(room) as u64;
            times.truncate(room);
            self.times_kept += times.len() - before;
        }
    }

    fn place(&mut self, name: &str) -> CollectiveClass {
        let function = Function::of_kernel(name);
        match (is_communication(name), needs_everybody(function) && self.groups.len() < NAMES_LIMIT) {
            (false, _) => CollectiveClass::Nowhere,
            (true, false) => CollectiveClass::Others,
            (true, true) => {
                let mut hasher = FxHasher::default();
                hasher.write(name.as_bytes());
                let group = RowGroup { communicator: hasher.finish(), function, ..RowGroup::default() };
                self.groups.push(group);
                CollectiveClass::Group((self.groups.len() - 1) as u32)
            }
        }
    }

    /// Returns the summary of the rank with this report and these [`rows`](Self::rows).
    pub fn summary(&self, rank: u32, report: &Report, rows: &RankRows) -> RankSummary {
        let groups = rows.groups.clone();
        RankSummary { groups, others: self.others, lost_times: self.times_lost, ..RankSummary::new(rank, report) }
    }

    /// Returns the rows: those of the profiler plugin, and kernels unknown to the plugin, numbered by their
    /// start. Includes the time of the device that ran most of these kernels.
    pub fn rows(&self) -> RankRows {
        let mut rows = self.rows.clone();
        let mut groups = self.groups.clone();
        if !self.reported.is_empty() {
            let reported: FxHashSet<(i64, i64)> = self.reported.iter().map(|row| (row.start, row.end)).collect();
            rows.retain(|row| {
                let is_reported = reported.contains(&(row.start, row.end));
                groups[row.group as usize].count -= u64::from(is_reported);
                !is_reported
            });
        }
        rows.sort_unstable_by_key(|row| (row.start, row.end));
        let mut next = vec![0; groups.len()];
        for row in &mut rows {
            let next = &mut next[row.group as usize];
            row.sequence = *next;
            *next += 1;
        }
        let first = groups.len() as u32;
        rows.extend(self.reported.iter().map(|row| CollectiveRow { group: first + row.group, ..*row }));
        groups.extend(&self.reported_groups);
        let device = self.devices.iter().max_by_key(|&&(device, count)| (count, std::cmp::Reverse(device.0)));
        let times = device.and_then(|(device, _)| self.times.get(device)).map(Vec::as_slice);
        RankRows::new(groups, rows, times.unwrap_or_default())
    }
}
