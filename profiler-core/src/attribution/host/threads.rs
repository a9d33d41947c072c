//! Activity of each host thread: its outermost API calls in order, and the time that tracing took from it.
//!
//! Records of one thread arrive in any order within a flush. A call is placed only once it ended before the
//! horizon and no unfinished call started before it, because an enclosing call ends (and is delivered) after
//! those inside it. Nested calls are recognized by containment, not by correlation id: only in some versions
//! does the tracing library assign the same id to a runtime call and the driver call inside it.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::VecDeque;

use gpuwhy_trace::record::{ApiCall, ApiFunctionId};

use super::launch_lines::LaunchSamples;
use super::samples::HostSamples;
use crate::api::ApiClass;
use crate::attribution::operation::WAITING_LIMIT;
use crate::collections::queue::Queue;
use crate::collections::sorted_runs::InOrder;
use crate::thresholds::LAUNCHING_THREAD;

/// Total calls kept for all threads (24 bytes each, 24 MiB), split equally, but at least [`FEWEST_CALLS`] per
/// thread. Calls older than an open gap are dropped sooner; only a device that went idle keeps a gap open for
/// that many.
const CALL_LIMIT: usize = 1_048_576;
const FEWEST_CALLS: usize = 1_024;
/// Overhead intervals kept per thread (16 bytes each), and for all together, as for calls.
const OVERHEADS_OF_THREAD: usize = 16_384;
const OVERHEAD_LIMIT: usize = 64 * OVERHEADS_OF_THREAD;
/// Times of added nodes kept for all threads (8 bytes each), split as for calls. A thread adds a node in 4 us or more,
/// and they are needed until the next flush.
const ADDED_LIMIT: usize = 1 << 18;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) function: ApiFunctionId,
    pub(crate) class: ApiClass,
}

/// Relation of a call to the previous ones on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    Outermost,
    /// Made by the newest outermost call, which has these bounds.
    Within {
        start: u64,
        end: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct HostThread {
    pending: InOrder<ApiCall>,
    calls: Queue<Call>,
    /// Where the last search in `calls` ended: gaps come in order, so the next search ends nearby.
    searched: Cell<usize>,
    overheads: VecDeque<(u64, u64)>,
    /// True between the start and the end of a stream capture.
    pub(crate) capturing: bool,
    /// Times at which it added nodes to a graph, in order.
    added: VecDeque<u64>,
    /// Number of launching calls.
    pub(super) launches: u64,
    /// End of the launching call from which on it can hand over to another thread.
    hands_over_from: Option<u64>,
    pub(crate) samples: HostSamples,
    pub(crate) launch_samples: LaunchSamples,
}

impl HostThread {
    /// A launching call has ended at `end`. True if the thread hands over to others from here on.
    #[must_use]
    pub(crate) fn launched(&mut self, end: u64) -> bool {
        self.launches += 1;
        let hands_over = self.launches == LAUNCHING_THREAD;
        if hands_over {
            self.hands_over_from = Some(end);
        }
        hands_over
    }

    /// It added a node to a graph.
    pub(crate) fn added_node(&mut self, at: u64) {
        let index = match self.added.back() {
            Some(&newest) if newest > at => self.added.partition_point(|&time| time <= at),
            _ => self.added.len(),
        };
        self.added.insert(index, at);
        if self.added.len() > ADDED_LIMIT {
            self.added.pop_front();
        }
    }

    /// True if a launching call of this thread runs nothing, because the launch is captured. The thread that began
    /// the capture is known, but launches of others are captured too, such as those of PyTorch's backward pass:
    /// theirs are recognized by the node that they add. A graph that is launched need not leave a record anyway.
    pub(crate) fn is_captured(&self, start: u64, end: u64, class: ApiClass) -> bool {
        self.capturing
            || class != ApiClass::GraphLaunch && {
                let first = self.added.partition_point(|&at| at < start);
                self.added.get(first).is_some_and(|&at| at <= end)
            }
    }

    pub(crate) fn push(&mut self, call: ApiCall) {
        self.pending.push(call);
    }

    /// Adds time that tracing took from this thread. Kept sorted and disjoint.
    pub(crate) fn push_overhead(&mut self, start: u64, end: u64) {
        let index = self.overheads.partition_point(|&(begin, _)| begin < start);
        let start = index.checked_sub(1).and_then(|i| self.overheads.get(i)).map_or(start, |&(_, e)| start.max(e));
        let end = self.overheads.get(index).map_or(end, |&(next, _)| end.min(next));
        if start < end {
            self.overheads.insert(index, (start, end));
        }
        if self.overheads.len() > OVERHEADS_OF_THREAD {
            self.overheads.pop_front();
        }
    }

    /// Sorts pending calls by start, enclosing before enclosed.
    pub(crate) fn sort_pending(&mut self) {
        self.pending.sort(|a, b| (a.start, Reverse(a.end)).cmp(&(b.start, Reverse(b.end))));
    }

    /// Takes the next pending call if it can be placed. A call that ends after `latest` is damaged and must
    /// not hold up the others; it is passed along with them.
    #[inline]
    pub(crate) fn take_ready(&mut self, horizon: u64, latest: u64) -> Option<ApiCall> {
        let end = self.pending.waiting().first()?.end.nanos();
        if end > horizon && end <= latest { None } else { self.pending.take().copied() }
    }

    /// Like [`take_ready`](Self::take_ready), but does not wait for calls that started up to `begun`.
    #[inline]
    pub(crate) fn take_next(&mut self, horizon: u64, latest: u64, begun: u64) -> Option<ApiCall> {
        if self.earliest_pending()? <= begun { self.pending.take().copied() } else { self.take_ready(horizon, latest) }
    }

    /// Start times of the calls that are not placed yet.
    pub(crate) fn pending_begins(&self) -> impl Iterator<Item = u64> {
        self.pending.waiting().iter().map(|call| call.start.nanos())
    }

    /// Start of the earliest call that is not placed yet; the calls are in order.
    pub(crate) fn earliest_pending(&self) -> Option<u64> {
        self.pending.waiting().first().map(|call| call.start.nanos())
    }

    /// Places a call; calls come in the order of [`take_ready`](Self::take_ready).
    pub(crate) fn place(&mut self, start: u64, end: u64, function: ApiFunctionId, class: ApiClass) -> Nesting {
        // An enclosing call arrived a flush late: the calls inside it counted as outermost until now.
        while self.calls.last().is_some_and(|last| start < last.start && last.end <= end) {
            self.calls.pop();
        }
        // A call is almost always the newest one; the full search is for late ones.
        let newest = self.calls.last().is_none_or(|last| last.start <= start);
        let index = if newest { self.calls.len() } else { self.calls.partition_point(|call| call.start <= start) };
        if let Some(before) = index.checked_sub(1).and_then(|i| self.calls.get(i))
            && start < before.end
        {
            return Nesting::Within { start: before.start, end: before.end };
        }
        match self.calls.get(index) {
            Some(next) => {
                let end = end.min(next.start);
                self.calls.insert(index, Call { start, end, function, class });
            }
            None => self.calls.push(Call { start, end, function, class }),
        }
        Nesting::Outermost
    }

    /// Limits all records to this thread's share among `threads`.
    pub(crate) fn limit(&mut self, threads: usize) {
        self.limit_calls(threads);
        self.samples.limit(threads);
        self.launch_samples.limit(threads);
        let waiting = (WAITING_LIMIT / threads.max(1)).max(FEWEST_CALLS);
        self.pending.keep_room_for(waiting);
        let overheads = (OVERHEAD_LIMIT / threads.max(1)).max(FEWEST_CALLS);
        let added = (ADDED_LIMIT / threads.max(1)).max(FEWEST_CALLS);
        if self.added.len() > added {
            self.added.drain(..self.added.len() - added);
            self.added.shrink_to(2 * added);
        }
        if self.overheads.len() > overheads {
            self.overheads.drain(..self.overheads.len() - overheads);
            self.overheads.shrink_to(2 * overheads);
        }
    }

    /// Limits the calls to this thread's share among `threads`.
    pub(crate) fn limit_calls(&mut self, threads: usize) {
        let limit = (CALL_LIMIT / threads.max(1)).max(FEWEST_CALLS);
        if self.calls.len() > limit {
            self.calls.skip_first(self.calls.len() - limit);
            self.calls.shrink_to(2 * limit);
            self.searched.set(0);
        }
    }

    /// End of the newest placed call; 0 without any.
    pub(crate) fn newest_end(&self) -> u64 {
        self.calls.last().map_or(0, |call| call.end)
    }

    /// True if every delivered call is placed.
    pub(crate) fn is_placed(&self) -> bool {
        self.pending.waiting().is_empty()
    }

    /// True if the thread called CUDA.
    pub(crate) fn calls_cuda(&self) -> bool {
        self.newest_end() > 0 || !self.is_placed()
    }

    /// Calls that end after `at`, oldest first, preceded by the last one that does not.
    pub(crate) fn calls_after(&self, at: u64) -> (Option<&Call>, &[Call]) {
        let (before, after) = self.calls.split_at(self.first_ending_after(at));
        (before.last(), after)
    }

    /// End of the last call of a launching thread that ended at or before `at`.
    pub(super) fn handed_over_until(&self, at: u64) -> Option<u64> {
        let from = self.hands_over_from.filter(|&from| from <= at)?;
        let (before, _) = self.calls_after(at);
        before.map(|call| call.end).filter(|&end| end >= from)
    }

    /// Index of the first call that ends after `at`, found by galloping from where the last search ended.
    fn first_ending_after(&self, at: u64) -> usize {
        let ended = |index: usize| self.calls[index].end <= at;
        let hint = self.searched.get().min(self.calls.len());
        // The next gap mostly follows the next call.
        if let Some(next) = self.calls.get(hint + 1)
            && next.end > at
            && ended(hint)
        {
            self.searched.set(hint + 1);
            return hint + 1;
        }
        // All calls before `low` have ended; none from `high` on has.
        let (mut low, mut high) = (0, self.calls.len());
        let mut step = 1;
        if hint < high && ended(hint) {
            low = hint + 1;
            while low + step < high {
                if !ended(low + step) {
                    high = low + step;
                    break;
                }
                low += step + 1;
                step *= 2;
            }
        } else {
            high = hint;
            while let Some(probe) = high.checked_sub(step) {
                if ended(probe) {
                    low = probe + 1;
                    break;
                }
                high = probe;
                step *= 2;
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            if ended(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.searched.set(low);
        low
    }

    /// True if tracing is known to have taken any of the time that gaps still need.
    #[inline]
    pub(crate) fn has_overheads(&self) -> bool {
        !self.overheads.is_empty()
    }

    /// Time that tracing took between `from` and `to`, as intervals clipped to that range.
    pub(crate) fn overheads_within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let index = self.overheads.partition_point(|&(_, end)| end <= from);
        self.overheads
            .range(index..)
            .take_while(move |&&(start, _)| start < to)
            .map(move |&(start, end)| (start.max(from), end.min(to)))
    }

    /// Drops calls that no gap can need: all that ended before `keep_from`, except the last one.
    pub(crate) fn forget_before(&mut self, keep_from: u64) {
        let old = self.calls.iter().skip(1).take_while(|second| second.end < keep_from).count();
        self.calls.skip_first(old);
        *self.searched.get_mut() = self.searched.get().saturating_sub(old);
        while self.overheads.front().is_some_and(|&(_, end)| end < keep_from) {
            self.overheads.pop_front();
        }
        // A host gap may have started before the gap that needs it.
        let gap_from = self.calls.first().map_or(keep_from, |call| call.end.min(keep_from));
        self.samples.forget_before(gap_from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiClass;
    use gpuwhy_trace::record::{ApiCall, ApiFunctionId, Timestamp};

    fn call(start: u64, end: u64) -> ApiCall {
        ApiCall { start: Timestamp::from_nanos(start), end: Timestamp::from_nanos(end), ..ApiCall::default() }
    }

    #[test]
    fn a_call_waits_for_the_one_around_it() {
        let mut thread = HostThread::default();
        thread.push(call(12, 18));
        thread.push(call(10, 120));
        thread.sort_pending();
        assert_eq!(thread.take_ready(100, 1_000), None);
        assert_eq!(thread.earliest_pending(), Some(10));
        let placed = std::iter::from_fn(|| thread.take_ready(200, 1_000));
        assert_eq!(placed.map(|call| call.start.nanos()).collect::<Vec<_>>(), [10, 12]);
    }

    #[test]
    fn a_damaged_call_holds_up_nothing() {
        let mut thread = HostThread::default();
        thread.push(call(10, u64::MAX));
        thread.push(call(20, 30));
        thread.sort_pending();
        assert_eq!(std::iter::from_fn(|| thread.take_ready(100, 1_000)).count(), 2);
        assert!(thread.is_placed());
    }

    #[test]
    fn calls_are_kept_in_equal_parts() {
        let mut thread = HostThread::default();
        for start in (0..50_000).step_by(10) {
            thread.place(start, start + 5, ApiFunctionId(0), ApiClass::Other);
        }
        thread.limit_calls(512);
        assert_eq!((thread.calls.len(), thread.newest_end()), (CALL_LIMIT / 512, 49_995));
        thread.limit_calls(100_000);
        assert_eq!(thread.calls.len(), FEWEST_CALLS);
    }

    #[test]
    fn a_call_in_which_a_node_was_added_is_captured() {
        let mut thread = HostThread::default();
        [40, 20, 60].into_iter().for_each(|at| thread.added_node(at));
        let calls = [(10, 19), (10, 20), (21, 39), (30, 50), (60, 60), (61, 90)];
        let captured = calls.map(|(start, end)| thread.is_captured(start, end, ApiClass::KernelLaunch));
        assert_eq!(captured, [false, true, false, true, true, false]);
        assert!(!thread.is_captured(10, 20, ApiClass::GraphLaunch));
        thread.capturing = true;
        assert!(thread.is_captured(61, 90, ApiClass::GraphLaunch));
    }

    #[test]
    fn of_added_nodes_the_newest_are_kept_in_equal_parts() {
        let mut thread = HostThread::default();
        (1..=ADDED_LIMIT as u64 + 5).for_each(|at| thread.added_node(at));
        assert_eq!((thread.added.len(), thread.added[0]), (ADDED_LIMIT, 6));
        thread.limit(64);
        assert_eq!(thread.added.len(), ADDED_LIMIT / 64);
        let is_captured = |start, end| thread.is_captured(start, end, ApiClass::Copy);
        assert!(is_captured(ADDED_LIMIT as u64, u64::MAX) && !is_captured(6, 7));
    }

    #[test]
    fn nesting_is_containment() {
        let mut thread = HostThread::default();
        let mut place = |start, end| thread.place(start, end, ApiFunctionId(0), ApiClass::Other);
        assert_eq!(place(10, 20), Nesting::Outermost);
        assert_eq!(place(12, 18), Nesting::Within { start: 10, end: 20 });
        assert_eq!(place(20, 30), Nesting::Outermost);
        assert_eq!(place(19, 31), Nesting::Within { start: 10, end: 20 }, "overlap counts as containment");
    }

    #[test]
    fn calls_are_found_from_wherever_the_last_search_ended() {
        let mut thread = HostThread::default();
        for start in (0..1_000).step_by(10) {
            thread.place(start, start + 5, ApiFunctionId(0), ApiClass::Other);
        }
        for at in [0, 999, 500, 5, 4, 505, 504, 515, 516, 990, 994, 995, 400, 300, 301, 600] {
            let (before, after) = thread.calls_after(at);
            assert_eq!(before.map(|call| call.end), (5..=at).rev().find(|end| end % 10 == 5), "{at}");
            assert_eq!(after.first().map(|call| call.end), (at + 1..1_000).find(|end| end % 10 == 5), "{at}");
        }
    }

    #[test]
    fn overheads_stay_disjoint() {
        let mut thread = HostThread::default();
        thread.push_overhead(50, 60);
        thread.push_overhead(10, 20);
        thread.push_overhead(15, 55);
        assert_eq!(thread.overheads_within(0, 100).collect::<Vec<_>>(), [(10, 20), (20, 50), (50, 60)]);
        assert_eq!(thread.overheads_within(18, 52).collect::<Vec<_>>(), [(18, 20), (20, 50), (50, 52)]);
    }
}
