//! Ranges named by the program: which were open at a launch, and how much time they cost.
//!
//! A device operation belongs to the ranges that were open on its launching thread when it was launched: in
//! each domain the innermost one and all enclosing ones. Idle time up to that launch belongs to the ranges in
//! which the thread spent it, so a range is charged for the host's activity in it and not for earlier
//! activity; idle time after the launch belongs to the ranges of the launch. Events are sorted at each flush,
//! so the result does not depend on the order of delivery.
//!
//! This module also finds ranges that name steps, and those in which a data loader is at work. Late
//! operations, and the idle time they claim, are not recorded again.

mod messages;
mod table;

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{NameId, RangeEvent, RangeEventKind, ThreadId};
use rustc_hash::FxHashMap;

use self::messages::{MessageClass, Messages};
pub use self::messages::{is_layer, is_step, template};
use self::table::{Instance, RangeTable};
pub use self::table::{RangeKey, RangeStyle, RangeTotals, Spread};
use super::host_cause::HostCause;
use super::statistics::Durations;
use crate::leaf::{LEAF_COUNT, Leaf, Leaves};

/// Maximum nesting depth of ranges on one thread and domain.
const DEPTH_LIMIT: usize = 64;
/// Threads times domains, and lanes for started ranges.
const LANE_LIMIT: usize = 64;
/// Maximum started ranges open at once on one thread and domain.
const STARTED_LIMIT: u8 = 8;
/// Maximum started ranges open at once in the process.
const OPEN_LIMIT: usize = 4_096;
/// A range name is accepted as the step from this occurrence on: a single range around the entire training is
/// not a step.
const BELIEVED: u64 = 3;
/// Changes remembered per lane (24 bytes each, 768 KiB): far more than the device lags the host by.
const CHANGE_LIMIT: usize = 32_768;

/// Counts of events that arrived and that could not be placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RangeCounts {
    /// Ends without an observed start.
    pub unmatched: u64,
    /// Ranges without a row: beyond 1,024 names, 4,096 paths, 64 lanes, 64 levels or 8 started at once.
    pub table_overflow: u64,
    /// Kernels beyond the 4,096 rows of kernels by path.
    pub kernel_overflow: u64,
    /// Operations whose ranges were forgotten already.
    pub evicted: u64,
}

/// Device work and idle time in ranges of one name, including nested ranges.
#[derive(Clone, Debug)]
pub struct RangeInside {
    /// Sum of the durations of operations, nanoseconds.
    pub device_ns: u64,
    /// Idle time by leaf, nanoseconds. Busy leaves stay zero.
    pub idle: Leaves,
    /// Kernels by name.
    pub kernels: FxHashMap<NameId, Durations>,
}

#[derive(Clone, Copy, Debug)]
struct PairedEvent {
    at: u64,
    id: ThreadId,
    /// Index of the thread.
    thread: u32,
    kind: RangeEventKind,
    domain: NameId,
    range_id: u64,
    class: MessageClass,
}

/// Fact derived from a range for the rest of the engine; times on the clock of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeFact {
    /// A step starts on this thread.
    Step { thread: ThreadId, at: u64 },
    /// This thread enters a data loader or a compiler.
    Begins { thread: u32, at: u64, cause: HostCause },
    /// This thread leaves the one that it entered last.
    Ends { thread: u32, at: u64, cause: HostCause },
}

#[derive(Debug, Default)]
pub(super) struct Ranges {
    pending: Vec<PairedEvent>,
    messages: Messages,
    lanes: Vec<OpenRangeStack>,
    /// By thread and domain; lane 0 is the stack.
    lane_ids: FxHashMap<(u32, NameId, u8), usize>,
    of_thread: FxHashMap<u32, Vec<usize>>,
    /// Stack of each open started range; `None` if it has none.
    started: FxHashMap<u64, Option<usize>>,
    /// Stacks of open ranges per thread, with the activity in those of loaders and compilers. Only threads with such
    /// ranges have entries.
    activities: FxHashMap<(u32, NameId), Vec<Option<HostCause>>>,
    /// Name and domain accepted as the step, and its number of occurrences.
    step: Option<(NameId, NameId, u64)>,
    table: RangeTable,
    counts: RangeCounts,
}

impl Ranges {
    /// True if any range was placed; otherwise no time needs recording.
    pub(super) fn any(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Sets aside an event of the thread with this index.
    pub(super) fn push(&mut self, event: &RangeEvent, thread: u32, dictionary: &Dictionary) {
        if matches!(event.kind, RangeEventKind::Unknown | RangeEventKind::Mark) {
            return;
        }
        let class = self.messages.get(event.message, dictionary);
        let (kind, domain, range_id) = (event.kind, event.domain, event.range_id);
        let (at, id) = (event.at.nanos(), event.thread);
        self.pending.push(PairedEvent { at, id, thread, kind, domain, range_id, class });
    }

    /// Times of the events that wait for a flush.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|event| event.at)
    }

    /// Places the events up to `horizon`; no earlier ones will come. Returns the findings for the rest of the
    /// engine, in order.
    pub(super) fn advance(&mut self, horizon: u64) -> Vec<RangeFact> {
        // Stable: events of one thread and time keep the order in which they were made.
        self.pending.sort_by_key(|event| (event.at, event.id));
        let count = self.pending.partition_point(|event| event.at <= horizon);
        let mut findings = Vec::new();
        let pending = std::mem::take(&mut self.pending);
        for event in &pending[..count] {
            self.place(event, &mut findings);
        }
        self.pending = pending;
        self.pending.drain(..count);
        findings
    }

    fn place(&mut self, event: &PairedEvent, findings: &mut Vec<RangeFact>) {
        let &PairedEvent { at, id, thread, kind, domain, range_id, class } = event;
        match kind {
            RangeEventKind::Push => {
                self.begin_activity(event, findings);
                let lane = self.lane(thread, domain, 0);
                self.begin(lane, event, RangeStyle::PushPop);
            }
            RangeEventKind::Pop => {
                self.end_activity(event, findings);
                match self.lane_ids.get(&(thread, domain, 0)).copied() {
                    Some(lane) => self.end(lane, at),
                    None => self.counts.unmatched += 1,
                }
            }
            RangeEventKind::Start => {
                let place = (1..=STARTED_LIMIT).find(|&place| {
                    let lane = self.lane_ids.get(&(thread, domain, place));
                    lane.is_none_or(|&lane| self.lanes[lane].stack.is_empty())
                });
                let lane = place.and_then(|place| self.lane(thread, domain, place));
                self.begin(lane, event, RangeStyle::StartEnd);
                if self.started.len() < OPEN_LIMIT {
                    self.started.insert(range_id, lane);
                }
            }
            RangeEventKind::End => match self.started.remove(&range_id) {
                Some(Some(lane)) => self.end(lane, at),
                Some(None) => {}
                None => self.counts.unmatched += 1,
            },
            RangeEventKind::Mark | RangeEventKind::Unknown => {}
        }
        if class.step && matches!(kind, RangeEventKind::Push | RangeEventKind::Start) {
            let (name, of, count) = self.step.get_or_insert((class.name, domain, 0));
            if (*name, *of) == (class.name, domain) {
                *count += 1;
                if *count >= BELIEVED {
                    findings.push(RangeFact::Step { thread: id, at });
                }
            }
        }
    }

    fn begin(&mut self, lane: Option<usize>, event: &PairedEvent, style: RangeStyle) {
        let Some(lane) = lane.map(|lane| &mut self.lanes[lane]) else {
            self.counts.table_overflow += 1;
            return;
        };
        if lane.stack.len() >= DEPTH_LIMIT {
            lane.too_deep += 1;
            self.counts.table_overflow += 1;
            return;
        }
        let around = lane.innermost();
        let key = RangeKey { style, domain: event.domain, message: event.class.name };
        let node = self.table.node(around.map(|open| open.node), key);
        let open = node
            .map(|node| OpenRow { node, instance: self.table.open(node, around.map(|open| open.instance), event.at) });
        lane.stack.push(open);
        lane.changed(event.at);
    }

    fn end(&mut self, lane: usize, at: u64) {
        let lane = &mut self.lanes[lane];
        if lane.too_deep > 0 {
            lane.too_deep -= 1;
            return;
        }
        match lane.stack.pop() {
            None => self.counts.unmatched += 1,
            Some(open) => {
                if let Some(open) = open {
                    self.table.close(open.instance, at);
                }
                lane.changed(at);
            }
        }
    }

    /// Loaders are identified among the ranges of their stack by position, so that a pop is known to end one.
    fn begin_activity(&mut self, event: &PairedEvent, findings: &mut Vec<RangeFact>) {
        let key = (event.thread, event.domain);
        if let Some(cause) = event.class.activity {
            let known = self.activities.len() < LANE_LIMIT || self.activities.contains_key(&key);
            if !known {
                return;
            }
            self.activities.entry(key).or_default().push(Some(cause));
            findings.push(RangeFact::Begins { thread: event.thread, at: event.at, cause });
        } else if let Some(open) = self.activities.get_mut(&key).filter(|open| !open.is_empty()) {
            open.push(None);
            // Ranges that are never popped: it is no longer known which of these are of interest.
            if open.len() > OPEN_LIMIT {
                open.clear();
            }
        }
    }

    fn end_activity(&mut self, event: &PairedEvent, findings: &mut Vec<RangeFact>) {
        let open = self.activities.get_mut(&(event.thread, event.domain));
        if let Some(cause) = open.and_then(Vec::pop).flatten() {
            findings.push(RangeFact::Ends { thread: event.thread, at: event.at, cause });
        }
    }

    fn lane(&mut self, thread: u32, domain: NameId, place: u8) -> Option<usize> {
        if let Some(&known) = self.lane_ids.get(&(thread, domain, place)) {
            return Some(known);
        }
        if self.lanes.len() >= LANE_LIMIT {
            return None;
        }
        self.lanes.push(OpenRangeStack::default());
        let lane = self.lanes.len() - 1;
        self.lane_ids.insert((thread, domain, place), lane);
        self.of_thread.entry(thread).or_default().push(lane);
        Some(lane)
    }

    /// Message of the range that was open on `thread` at a time; with several domains, the one that opened
    /// last.
    pub(super) fn innermost(&self, thread: u32, at: u64) -> Option<NameId> {
        let lanes = self.of_thread.get(&thread)?.iter();
        let open = lanes.filter_map(|&lane| self.lanes[lane].at(at).ok().flatten());
        let newest = open.max_by_key(|open| self.table.begin(open.instance))?;
        self.table.message(newest.node)
    }

    /// Paths of the ranges that were open on `thread` at a time: the innermost of each domain, in order. `None` if that
    /// was forgotten.
    pub(super) fn paths_at(&self, thread: u32, at: u64) -> Option<Vec<u32>> {
        let lanes = self.of_thread.get(&thread).into_iter().flatten();
        let open: Result<Vec<_>, _> = lanes.map(|&lane| self.lanes[lane].at(at)).collect();
        let mut paths: Vec<u32> = open.ok()?.into_iter().flatten().map(|open| open.node).collect();
        paths.sort_unstable();
        paths.dedup();
        Some(paths)
    }

    /// Ranges of a path, outermost first.
    pub(super) fn path(&self, path: u32) -> Vec<RangeKey> {
        let node = |path: u32| self.table.nodes.get(path as usize);
        let inward = std::iter::successors(node(path), |inner| node(inner.parent?));
        let mut keys: Vec<_> = inward.filter_map(|node| self.table.key(node)).collect();
        keys.reverse();
        keys
    }

    /// Records an operation from `start` to `end` that `thread` launched at `launched`; `kernel` is its name
    /// if it is a kernel.
    pub(super) fn operation(&mut self, thread: u32, launched: u64, (start, end): (u64, u64), kernel: Option<NameId>) {
        for &lane in self.of_thread.get(&thread).into_iter().flatten() {
            match self.lanes[lane].at(launched) {
                Ok(Some(open)) => self.table.operation(open.node, open.instance, (start, end), kernel),
                Ok(None) => {}
                Err(Forgotten) => self.counts.evicted += 1,
            }
        }
    }

    /// Records idle time from `from` to `to`, before an operation that `thread` launched at `launched`.
    pub(super) fn idle(&mut self, thread: u32, launched: u64, leaf: Leaf, from: u64, to: u64) {
        for &lane in self.of_thread.get(&thread).into_iter().flatten() {
            let lane = &self.lanes[lane];
            for (open, from, to) in lane.between(from, to.min(launched)) {
                self.table.idle(open.node, leaf, to - from);
            }
            if to > launched
                && let Ok(Some(open)) = lane.at(launched)
            {
                self.table.idle(open.node, leaf, to - from.max(launched));
            }
        }
    }

    /// Counts of events that could not be placed.
    pub(super) fn counts(&self) -> RangeCounts {
        RangeCounts {
            table_overflow: self.counts.table_overflow + self.table.beyond,
            kernel_overflow: self.table.kernel_overflow,
            ..self.counts
        }
    }

    /// Ranges that started and have not ended.
    pub(super) fn open(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.stack.len() as u64 + lane.too_deep).sum()
    }

    /// Ranges by name, with the device work and idle time in them.
    pub(super) fn rows(&self) -> Vec<(RangeTotals, RangeInside)> {
        let inside = || RangeInside { device_ns: 0, idle: [0; LEAF_COUNT], kernels: FxHashMap::default() };
        let mut rows: Vec<_> = self.table.all_totals().into_iter().map(|totals| (totals, inside())).collect();
        for (node, own) in self.table.nodes.iter().enumerate() {
            for name in self.names_around(node as u32) {
                let (_, inside) = &mut rows[name as usize];
                inside.device_ns = inside.device_ns.saturating_add(own.device_ns);
                for (sum, nanos) in inside.idle.iter_mut().zip(own.idle) {
                    *sum += nanos;
                }
            }
        }
        for (&(node, kernel), durations) in &self.table.kernels {
            for name in self.names_around(node) {
                rows[name as usize].1.kernels.entry(kernel).or_default().merge(durations);
            }
        }
        rows
    }

    /// Names on a path, each once.
    fn names_around(&self, node: u32) -> Vec<u32> {
        let mut names = Vec::new();
        let mut around = Some(node);
        while let Some(node) = around.and_then(|node| self.table.nodes.get(node as usize)) {
            if !names.contains(&node.name) {
                names.push(node.name);
            }
            around = node.parent;
        }
        names
    }
}

/// An open range with a row.
#[derive(Clone, Copy, Debug)]
struct OpenRow {
    node: u32,
    instance: Instance,
}

/// From `at` on, `open` is the innermost range.
#[derive(Clone, Copy, Debug)]
struct RangeChange {
    at: u64,
    open: Option<OpenRow>,
}

/// The stack of one thread and domain, or one lane for a range that is started and ended. Device work comes
/// long after its launch, and idle time is explained later still, so each change of the innermost range is
/// remembered with its time.
#[derive(Debug, Default)]
struct OpenRangeStack {
    /// Open ranges, innermost last; `None` for one without a row.
    stack: Vec<Option<OpenRow>>,
    /// Number of pushes beyond the maximum depth.
    too_deep: u64,
    changes: VecDeque<RangeChange>,
    /// True if changes were forgotten.
    forgot: bool,
}

impl OpenRangeStack {
    /// Innermost open range with a row.
    fn innermost(&self) -> Option<OpenRow> {
        self.stack.iter().rev().find_map(|open| *open)
    }

    /// The stack changed at `at`, which is not before the previous change.
    fn changed(&mut self, at: u64) {
        let open = self.innermost();
        self.changes.push_back(RangeChange { at, open });
        if self.changes.len() > CHANGE_LIMIT {
            self.changes.pop_front();
            self.forgot = true;
        }
    }

    /// Innermost range at `time`; an error if that was forgotten.
    fn at(&self, time: u64) -> Result<Option<OpenRow>, Forgotten> {
        let index = self.changes.partition_point(|change| change.at <= time);
        match index.checked_sub(1).and_then(|index| self.changes.get(index)) {
            Some(change) => Ok(change.open),
            None if self.forgot => Err(Forgotten),
            None => Ok(None),
        }
    }

    /// Innermost ranges between `from` and `to` with their times; intervals without one are left out.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (OpenRow, u64, u64)> {
        let index = self.changes.partition_point(|change| change.at <= from).saturating_sub(1);
        let ends = self
            .changes
            .range((index + 1).min(self.changes.len())..)
            .map(|next| next.at)
            .chain(std::iter::once(u64::MAX));
        let parts = self.changes.range(index.min(self.changes.len())..).zip(ends);
        parts.take_while(move |(change, _)| change.at < to).filter_map(move |(change, end)| {
            let (from, to) = (change.at.max(from), end.min(to));
            change.open.filter(|_| from < to).map(|open| (open, from, to))
        })
    }
}

/// The ranges open at that time are no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forgotten;
