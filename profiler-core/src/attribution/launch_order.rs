//! Passes the operations of one device to the step detector in the order in which the host launched them.
//!
//! Operations become final in the order of their start, which on several streams is not the order of their
//! launches, and a launch record arrives only when the call is over. So each operation has a position in
//! launch order (the end of its call) and is shown once the watermark has passed that position; the timeline
//! takes no operation that was not shown. None of this depends on flush boundaries.

use std::cmp::Ordering;
use std::collections::VecDeque;

use gpuwhy_trace::record::{ApiFunctionId, CorrelationId, StreamId, ThreadId, Timestamp};
use rustc_hash::FxHashMap;

use super::operation::{DeviceOperation, LaunchStatus};
use super::step_sequence::{StepCalls, StepSequence};
use crate::collections::slab::Slab;
use crate::collections::sorted_runs::InOrder;
use crate::leaf::Leaf;
use crate::steps::{Cut, Cuts, IterationCut, IterationLaunch, Iterations, LaunchKind, PeriodFacts, StepDetector};
use crate::thresholds::CLOCK_SLACK_NANOS;

/// Marks that are remembered: number of steps that a program can be ahead of its device.
const MARK_LIMIT: usize = 65_536;

/// Host times at which named steps start, in order.
#[derive(Debug, Default)]
pub(super) struct StepMarks {
    /// The thread that marks the steps of the process: the first one that did. Marks of others would split
    /// its steps.
    thread: Option<ThreadId>,
    times: VecDeque<u64>,
    pub(super) waits: HostWaits,
    /// Calls that allocated memory.
    pub(super) allocations: HostWaits,
}

impl StepMarks {
    pub(super) fn push(&mut self, thread: ThreadId, at: Timestamp) {
        if at == Timestamp::ZERO || *self.thread.get_or_insert(thread) != thread {
            return;
        }
        let index = self.times.partition_point(|&time| time < at.nanos());
        self.times.insert(index, at.nanos());
        if self.times.len() > MARK_LIMIT {
            self.times.pop_front();
        }
    }

    /// Waits and allocations that ended up to `at`.
    fn calls_until(&self, at: u64) -> StepCalls {
        let [synchronizations, allocations] = [&self.waits, &self.allocations].map(|calls| calls.until(at));
        StepCalls { synchronizations, allocations, ..StepCalls::default() }
    }

    /// The newest mark after `seen` and not after `launch`.
    fn passed(&self, seen: u64, launch: u64) -> Option<u64> {
        let newest = *self.times.back()?;
        if newest <= seen {
            return None;
        }
        let index = self.times.partition_point(|&time| time <= launch);
        self.times.get(index.checked_sub(1)?).copied().filter(|&time| time > seen)
    }
}

/// Position of the host in launch order for one device.
#[derive(Debug, Default)]
pub(super) struct LaunchOrder {
    detector: StepDetector,
    iterations: Iterations,
    /// Newest mark that started a step.
    mark: u64,
    /// Start and thread of the newest graph launch: its operations are one launch.
    graph: Option<(u64, u32)>,
    sequence: StepSequence,
    /// True if steps are those that the program names.
    named: bool,
    /// Return time of the newest launch.
    returned: u64,
    /// Time up to which the host's waits were examined, and the end of the next one.
    waited: u64,
    next_wait: u64,
    /// Operations that were not shown: position in launch order, and index in the slab.
    hidden: InOrder<(u64, u32)>,
    /// Step cuts of the operations that were shown but do not run yet, by slab index. Few operations cause
    /// one.
    cuts: FxHashMap<u32, Cut>,
    iteration_cuts: FxHashMap<u32, IterationCut>,
}

impl LaunchOrder {
    /// Adds an operation at slab index `index` that waits to be shown.
    pub(super) fn push(&mut self, operation: &DeviceOperation, index: u32) {
        self.hidden.push((order_of(operation), index));
    }

    /// Sorts the pushed operations by launch order.
    pub(super) fn sort(&mut self, pending: &Slab<DeviceOperation>) {
        self.hidden.sort(|a, b| match a.0.cmp(&b.0) {
            Ordering::Equal => between_equals(&pending[a.1]).cmp(&between_equals(&pending[b.1])),
            unequal => unequal,
        });
    }

    /// Shows the operations before `watermark` in launch order.
    pub(super) fn show(&mut self, pending: &mut Slab<DeviceOperation>, watermark: u64, marks: &StepMarks) {
        self.next_wait = marks.waits.next_after(self.waited);
        let mut hidden = std::mem::take(&mut self.hidden);
        for &(_, index) in hidden.take_while(|&(order, _)| order < watermark || watermark == u64::MAX) {
            let operation = &mut pending[index];
            let (status, cuts) = self.status(operation, marks);
            operation.status = status;
            self.cuts.extend(cuts.step.map(|cut| (index, cut)));
            self.iteration_cuts.extend(cuts.iteration.map(|cut| (index, cut)));
        }
        self.hidden = hidden;
    }

    /// Removes the step cuts caused by the operation at slab index `index`; to be called before the index is
    /// reused.
    #[inline]
    pub(super) fn take_cuts(&mut self, index: u32, status: &LaunchStatus) -> Cuts {
        if !status.cuts {
            return Cuts::default();
        }
        Cuts { step: self.cuts.remove(&index), iteration: self.iteration_cuts.remove(&index) }
    }

    /// Launch sequence of the steps; see [`StepSequence`].
    pub(super) fn sequence(&self) -> &StepSequence {
        &self.sequence
    }

    #[inline]
    fn status(&mut self, operation: &DeviceOperation, marks: &StepMarks) -> (LaunchStatus, Cuts) {
        let (called, returned) = operation.launch.map_or((operation.start, operation.start), |l| (l.start, l.end));
        let passed = marks.passed(self.mark, called);
        self.mark = passed.unwrap_or(self.mark);
        let marked = passed.is_some();
        if marked {
            self.named = true;
            self.sequence.begin(marks.calls_until(self.mark));
        }
        let graph = operation.launch.filter(|_| operation.graph).map(|launch| (launch.start, launch.thread));
        if graph.is_some() && graph == self.graph {
            self.follow_step(operation, false);
            return (LaunchStatus { shown: true, marked, first: false, cuts: false }, Cuts::default());
        }
        self.graph = graph.or(self.graph);
        let pause = u32::try_from(called.saturating_sub(self.returned)).unwrap_or(u32::MAX);
        self.returned = self.returned.max(returned);
        let kind = match (graph, operation.leaf) {
            (Some(_), _) => LaunchKind::Graph,
            (None, Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther) => LaunchKind::Input,
            (None, leaf) if leaf.is_host_copy() => LaunchKind::HostCopy,
            (None, _) if operation.optimizer => LaunchKind::Optimizer,
            (None, _) => LaunchKind::Other,
        };
        if called >= self.next_wait {
            self.look_at_waits(operation, called, &marks.waits);
        }
        let cut = self.detector.push(operation.symbol, pause, kind);
        match cut {
            Some(Cut::Begin(_)) if !self.named => self.sequence.begin(marks.calls_until(called)),
            Some(Cut::Lost) if !self.named => self.sequence.lose(),
            _ => {}
        }
        self.follow_step(operation, graph.is_some() || matches!(operation.leaf, Leaf::Compute | Leaf::Communication));
        let cuts = Cuts { step: cut, iteration: self.iterations.push(iteration_launch(operation, kind)) };
        (LaunchStatus { shown: true, marked, first: true, cuts: cuts != Cuts::default() }, cuts)
    }

    #[inline]
    fn follow_step(&mut self, operation: &DeviceOperation, launches: bool) {
        let DeviceOperation { leaf, subject, start, end, bytes, .. } = *operation;
        self.sequence.push(leaf, subject, end - start, bytes, launches);
    }

    /// Passes to the detector the function in which the launching thread waited last before its call at
    /// `called`.
    #[inline(never)]
    fn look_at_waits(&mut self, operation: &DeviceOperation, called: u64, waits: &HostWaits) {
        let newest = operation.launch.and_then(|launch| waits.newest(launch.thread, self.waited, called));
        if let Some(function) = newest {
            self.detector.waited(function.0);
        }
        (self.waited, self.next_wait) = (called, waits.next_after(called));
    }

    /// Known facts about steps of `period` launches.
    pub(super) fn facts(&self, period: u32) -> PeriodFacts {
        self.detector.facts(period)
    }
}

/// A launch of this kind, as the iterations of a server see it.
#[inline]
fn iteration_launch(operation: &DeviceOperation, kind: LaunchKind) -> IterationLaunch {
    match kind {
        LaunchKind::Graph => IterationLaunch::Graph,
        LaunchKind::Input => IterationLaunch::FromHost(operation.bytes),
        LaunchKind::HostCopy => IterationLaunch::ToHost(operation.bytes),
        LaunchKind::Optimizer => IterationLaunch::Optimizer,
        LaunchKind::Other if operation.is_kernel() => IterationLaunch::Kernel(operation.tokens),
        LaunchKind::Other => IterationLaunch::Other,
    }
}

/// Position in launch order. Operations unknown at a watermark come after it, because an unknown call has not
/// returned and its work has not started.
fn order_of(operation: &DeviceOperation) -> u64 {
    let latest = operation.start.saturating_add(CLOCK_SLACK_NANOS);
    operation.launch.map_or(operation.start, |launch| launch.end.min(latest))
}

/// Order of operations that share a position in launch order.
fn between_equals(operation: &DeviceOperation) -> (u64, CorrelationId, u64, StreamId, u64) {
    let called = operation.launch.map_or(operation.start, |launch| launch.start);
    (called, operation.correlation, operation.start, operation.stream, operation.end)
}

/// Waits that are remembered: number of launches that a program can be ahead of its device, and more.
const WAIT_LIMIT: usize = 65_536;
/// Maximum waits examined per launch.
const NEAR: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Wait {
    end: u64,
    thread: u32,
    function: ApiFunctionId,
}

/// Times at which host threads waited for a device, the newest ones, ordered by end. A program that
/// synchronizes once per step thereby shows where a step starts. Only calls that only wait count. A copy that
/// waits is a launch itself.
#[derive(Debug, Default)]
pub(super) struct HostWaits {
    newest: VecDeque<Wait>,
    forgotten: u64,
}

impl HostWaits {
    /// The thread with this index waited in `function` up to `end`.
    pub(super) fn push(&mut self, thread: u32, function: ApiFunctionId, end: u64) {
        let index = match self.newest.back() {
            Some(newest) if newest.end > end => self.newest.partition_point(|wait| wait.end <= end),
            _ => self.newest.len(),
        };
        self.newest.insert(index, Wait { end, thread, function });
        if self.newest.len() > WAIT_LIMIT {
            self.newest.pop_front();
            self.forgotten += 1;
        }
    }

    /// Number of waits of any thread that ended up to `at`.
    fn until(&self, at: u64) -> u64 {
        self.forgotten + self.newest.partition_point(|wait| wait.end <= at) as u64
    }

    /// End of the first wait after `at`; the end of time if none is known.
    pub(super) fn next_after(&self, at: u64) -> u64 {
        let newest = self.newest.back().map_or(0, |wait| wait.end);
        if newest <= at {
            return u64::MAX;
        }
        self.newest.get(self.newest.partition_point(|wait| wait.end <= at)).map_or(u64::MAX, |wait| wait.end)
    }

    /// Function in which `thread` waited last after `from` and up to `to`.
    pub(super) fn newest(&self, thread: u32, from: u64, to: u64) -> Option<ApiFunctionId> {
        let until = self.newest.partition_point(|wait| wait.end <= to);
        let near = self.newest.range(until.saturating_sub(NEAR)..until).rev().take_while(|wait| wait.end > from);
        near.filter(|wait| wait.thread == thread).map(|wait| wait.function).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(thread: u32, times: &[u64], marks: &mut StepMarks) {
        for &at in times {
            marks.push(ThreadId(thread), Timestamp::from_nanos(at));
        }
    }

    #[test]
    fn the_newest_mark_before_a_launch_counts_once() {
        let mut all = StepMarks::default();
        marks(1, &[300, 100, 200], &mut all);
        marks(2, &[150], &mut all);
        assert_eq!(all.passed(0, 99), None);
        assert_eq!(all.passed(0, 160), Some(100), "thread 2 marks nothing");
        assert_eq!(all.passed(100, 199), None);
        assert_eq!(all.passed(100, 900), Some(300), "two steps without any launch are one");
        assert_eq!(all.passed(300, 900), None);
    }

    #[test]
    fn marks_are_bounded() {
        let mut all = StepMarks::default();
        marks(1, &(1..=MARK_LIMIT as u64 + 5).collect::<Vec<_>>(), &mut all);
        assert_eq!((all.times.len(), all.times[0]), (MARK_LIMIT, 6));
    }

    #[test]
    fn the_newest_wait_of_the_thread_counts() {
        let mut waits = HostWaits::default();
        for (thread, function, end) in [(1, 7, 300), (1, 8, 100), (2, 9, 200)] {
            waits.push(thread, ApiFunctionId(function), end);
        }
        assert_eq!([0, 100, 250, 300].map(|at| waits.next_after(at)), [100, 200, 300, u64::MAX]);
        assert_eq!(waits.newest(1, 0, 250), Some(ApiFunctionId(8)));
        assert_eq!(waits.newest(1, 100, 250), None, "another thread's");
        assert_eq!(waits.newest(1, 0, 900), Some(ApiFunctionId(7)));
    }

    #[test]
    fn waits_are_bounded() {
        let mut waits = HostWaits::default();
        (0..WAIT_LIMIT as u64 + 9).for_each(|end| waits.push(1, ApiFunctionId(1), end));
        assert_eq!((waits.newest.len(), waits.next_after(0)), (WAIT_LIMIT, 9));
        assert_eq!([9, 12].map(|at| waits.until(at)), [10, 13], "the forgotten ones count");
    }
}
