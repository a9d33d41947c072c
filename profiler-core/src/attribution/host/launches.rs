//! Joins device operations to the calls that launched them, and determines up to when the timeline can be
//! final.
//!
//! An undelivered operation cannot start before the call that launches it. So nothing can change before the
//! oldest launch that still waits for its record: that time, less the clock slack, is the watermark. Most
//! launches resolve exactly (one kernel, one record). Three kinds do not: a zero-byte copy or memset leaves
//! no record, a graph leaves an unknown number of them, and a record can be lost. Each has a rule below that
//! lets the watermark advance; records that arrive afterwards are counted as late by the timeline.
//!
//! A launch stays in its thread's queue as long as a record is outstanding. The map by correlation id holds
//! only queue positions: small ones, since all launches of a flush go through it. Few launches are needed
//! after they leave the queue, and those are stored separately.

use std::collections::VecDeque;

use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId};
use rustc_hash::FxHashMap;

use super::lost_launches::LostLaunches;
use crate::api::ApiClass;
use crate::attribution::operation::LaunchCall;
use crate::collections::correlation_map::Correlated;
use crate::collections::queue::Queue;

/// A launch without record is abandoned once it is older than this and [`GIVE_UP_FLUSHES`] have passed:
/// longer than almost every kernel and every delivery delay, and short enough for a live display. A longer
/// kernel is late.
const GIVE_UP_NANOS: u64 = 2_000_000_000;
const GIVE_UP_FLUSHES: u64 = 3;
/// A blocking copy has ended when its call returns (small pageable ones: shortly afterwards), so its record
/// comes with the first or second flush, or never.
const BLOCKING_GIVE_UP_NANOS: u64 = 100_000_000;
/// A graph is considered complete when no record has arrived for this long and in this many flushes.
const GRAPH_QUIET_NANOS: u64 = 200_000_000;
const GRAPH_QUIET_FLUSHES: u64 = 2;
/// Resolved launches that are remembered, so that a late record still finds its call.
const REMEMBERED: usize = 65_536;
/// Launches that may wait (32 bytes each): one second of the densest programs measured. Beyond that, each
/// thread keeps an equal share.
const WAITING_LIMIT: usize = 1 << 20;
/// Launches per thread for which memory stays allocated.
const FEWEST_WAITING: usize = 1_024;
/// Ids do not wrap around this fast: that would take 70 million calls a second.
const FASTEST_WRAP_NANOS: u64 = 60_000_000_000;
/// Streams whose newest graph is remembered.
const GRAPH_STREAM_LIMIT: usize = 4_096;

/// Queue position of a waiting launch. The lower half of its sequence number is enough, as fewer launches
/// wait than it can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueSlot {
    thread: u32,
    sequence: u32,
}

impl QueueSlot {
    fn new(thread: u32, sequence: u64) -> Self {
        Self { thread, sequence: sequence as u32 }
    }
}

/// A launch that has left its queue, or that a call inside it refers to by a separate id.
#[derive(Clone, Copy, Debug)]
struct DequeuedLaunch {
    launch: LaunchCall,
    /// Sequence number in the thread's queue, which may have dropped it.
    sequence: u64,
    /// True if counted as a launch without activity.
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct QueuedCall {
    start: u64,
    end: u64,
    correlation: u32,
    class: ApiClass,
    resolved: bool,
    /// Lower half of the number of the newest flush that concerned it: its own, or that of a graph's newest
    /// record. No launch waits long enough for this to wrap.
    flush: u32,
    has_record: bool,
    /// True if it must stay available after it leaves the queue.
    remembered: bool,
    sampled: bool,
}

impl QueuedCall {
    fn launch(&self, thread: u32) -> LaunchCall {
        LaunchCall { start: self.start, end: self.end, thread, class: self.class, sampled: self.sampled }
    }
}

#[derive(Debug, Default)]
struct LaunchQueue {
    /// Sequence number of the front.
    base: u64,
    waiting: Queue<QueuedCall>,
}

impl LaunchQueue {
    fn get_mut(&mut self, sequence: u64) -> Option<&mut QueuedCall> {
        self.waiting.get_mut(usize::try_from(sequence.checked_sub(self.base)?).ok()?)
    }

    fn sequence(&self, slot: QueueSlot) -> u64 {
        self.base + u64::from(slot.sequence.wrapping_sub(self.base as u32))
    }

    /// Releases memory far beyond that for `count` launches, unless more wait.
    fn keep_room_for(&mut self, count: usize) {
        if self.waiting.capacity() / 4 > count.max(self.waiting.len()) {
            self.waiting.shrink_to(count);
        }
    }

    /// Drops resolved launches from the front of the queue, up to one that waits or is to be remembered.
    fn drop_resolved(&mut self) {
        let done = |waiting: &&QueuedCall| waiting.resolved && !waiting.remembered;
        let count = self.waiting.iter().take_while(done).count();
        self.waiting.skip_first(count);
        self.base += count as u64;
    }
}

/// Launches by correlation id, and the queues of waiting ones by thread.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    slots: Correlated<QueueSlot>,
    queues: Vec<LaunchQueue>,
    /// By correlation id, which then has no queue position.
    kept: FxHashMap<u32, DequeuedLaunch>,
    /// Launches that are or will be in `kept`: id, thread and sequence, oldest first.
    remembered: VecDeque<(u32, u32, u64)>,
    newest_graph: FxHashMap<(DeviceId, StreamId), (u32, u64)>,
    lost: LostLaunches,
    flush: u64,
    /// The newest graph node joined during this flush: later nodes need only its launch.
    newest_node: Option<(CorrelationId, DeviceId, StreamId, LaunchCall)>,
    pub(crate) without_activity: u64,
    /// Launches with the id of one shortly before.
    pub(crate) shared_ids: u64,
}

impl Launches {
    /// Adds a successful launching call. `captured` means into a graph, so no record has to follow. Returns
    /// its sequence number.
    #[inline]
    pub(crate) fn insert(&mut self, correlation: CorrelationId, launch: LaunchCall, captured: bool) -> u64 {
        self.newest_node = None;
        let thread = launch.thread as usize;
        if self.queues.len() <= thread {
            self.queues.resize_with(thread + 1, LaunchQueue::default);
        }
        let queue = &mut self.queues[thread];
        let sequence = queue.base + queue.waiting.len() as u64;
        queue.waiting.push(QueuedCall {
            start: launch.start,
            end: launch.end,
            correlation: correlation.0,
            class: launch.class,
            resolved: captured,
            flush: self.flush as u32,
            has_record: false,
            remembered: false,
            sampled: launch.sampled,
        });
        let before = self.slots.insert(correlation.0, QueueSlot::new(launch.thread, sequence));
        if before.is_some() || !self.kept.is_empty() {
            self.replaced(correlation.0, before, &launch);
        }
        if captured {
            self.remember(correlation.0, launch.thread, sequence);
        }
        sequence
    }

    /// The id wrapped around, and the call that used it four billion calls ago is over; or CUPTI gave it twice.
    #[cold]
    fn replaced(&mut self, correlation: u32, before: Option<QueueSlot>, launch: &LaunchCall) {
        let queued = before.and_then(|before| {
            let queue = &mut self.queues[before.thread as usize];
            let sequence = queue.sequence(before);
            queue.get_mut(sequence).map(|call| (call.launch(before.thread), sequence))
        });
        let dequeued = self.kept.remove(&correlation).map(|DequeuedLaunch { launch, sequence, .. }| (launch, sequence));
        for (old, sequence) in queued.into_iter().chain(dequeued) {
            // Calls within one another may have one id.
            let apart = old.thread != launch.thread || old.end <= launch.start || launch.end <= old.start;
            let is_recent = launch.start.abs_diff(old.start) < FASTEST_WRAP_NANOS;
            self.shared_ids += u64::from(apart && is_recent);
            self.resolve(old.thread, sequence);
        }
    }

    /// A launching call inside the launch `sequence`: its own id, if any, maps to the same launch.
    pub(crate) fn alias(&mut self, correlation: CorrelationId, launch: LaunchCall, sequence: u64) {
        if self.slots.get(correlation.0).is_none() && !self.kept.contains_key(&correlation.0) {
            self.kept.insert(correlation.0, DequeuedLaunch { launch, sequence, lost: false });
            self.remember(correlation.0, launch.thread, sequence);
        }
    }

    /// Finds the launch of an operation on `stream`. A kernel launch is found once; a graph launch any number
    /// of times.
    #[inline]
    pub(crate) fn join(
        &mut self,
        correlation: CorrelationId,
        device: DeviceId,
        stream: StreamId,
    ) -> Option<LaunchCall> {
        // Fast path for all nodes of a graph after the first.
        if let Some((newest, on, of, launch)) = self.newest_node
            && (newest, on, of) == (correlation, device, stream)
        {
            return Some(launch);
        }
        self.newest_node = None;
        let Some(slot) = self.slots.remove(correlation.0) else {
            return self.join_kept(correlation, device, stream);
        };
        let queue = self.queues.get_mut(slot.thread as usize)?;
        let sequence = queue.sequence(slot);
        let waiting = queue.get_mut(sequence)?;
        let launch = waiting.launch(slot.thread);
        if launch.class == ApiClass::GraphLaunch {
            (waiting.has_record, waiting.flush) = (true, self.flush as u32);
            self.slots.insert(correlation.0, slot);
            self.newest_node = Some((correlation, device, stream, launch));
        } else {
            waiting.resolved = true;
        }
        if !self.newest_graph.is_empty() || launch.class == ApiClass::GraphLaunch {
            self.close_older_graph(&launch, sequence, device, stream);
        }
        Some(launch)
    }

    #[cold]
    fn join_kept(&mut self, correlation: CorrelationId, device: DeviceId, stream: StreamId) -> Option<LaunchCall> {
        let &DequeuedLaunch { launch, sequence, lost } = self.kept.get(&correlation.0)?;
        if launch.class == ApiClass::GraphLaunch {
            let flush = self.flush as u32;
            if let Some(waiting) = self.queues[launch.thread as usize].get_mut(sequence) {
                (waiting.has_record, waiting.flush) = (true, flush);
            }
            self.newest_node = Some((correlation, device, stream, launch));
        } else {
            self.kept.remove(&correlation.0);
            self.resolve(launch.thread, sequence);
            self.without_activity -= u64::from(lost);
        }
        self.lost.remove(&launch);
        self.close_older_graph(&launch, sequence, device, stream);
        Some(launch)
    }

    /// A stream runs in order, so an operation of a later launch means that the graph before it is complete.
    fn close_older_graph(&mut self, launch: &LaunchCall, sequence: u64, device: DeviceId, stream: StreamId) {
        let graph = launch.class == ApiClass::GraphLaunch;
        let key = (device, stream);
        if let Some(&(thread, older)) = self.newest_graph.get(&key) {
            if (thread, older) == (launch.thread, sequence) {
                return;
            }
            let waiting = self.queues[thread as usize].get_mut(older);
            match waiting.map(|waiting| waiting.start) {
                Some(start) if start > launch.start => return,
                Some(_) => self.resolve(thread, older),
                None => {}
            }
            self.newest_graph.remove(&key);
        }
        if graph {
            if self.newest_graph.len() >= GRAPH_STREAM_LIMIT {
                self.newest_graph.clear();
            }
            self.newest_graph.insert(key, (launch.thread, sequence));
        }
    }

    fn resolve(&mut self, thread: u32, sequence: u64) {
        let Some(waiting) = self.queues.get_mut(thread as usize).and_then(|queue| queue.get_mut(sequence)) else {
            return;
        };
        if !waiting.resolved {
            waiting.resolved = true;
            let correlation = waiting.correlation;
            self.remember(correlation, thread, sequence);
        }
    }

    /// A node was added at `at` on `thread`: if that was within a known launch, no record has to follow.
    pub(crate) fn captured(&mut self, thread: u32, at: u64) {
        let Some(queue) = self.queues.get(thread as usize) else { return };
        // Mostly the launch is not known yet.
        if queue.waiting.last().is_some_and(|newest| at <= newest.end) {
            let after = queue.waiting.partition_point(|waiting| waiting.start <= at);
            let around = after
                .checked_sub(1)
                .filter(|&index| at <= queue.waiting[index].end && queue.waiting[index].class != ApiClass::GraphLaunch);
            if let Some(sequence) = around.map(|index| queue.base + index as u64) {
                return self.resolve(thread, sequence);
            }
        }
        if let Some(lost) = self.lost.take_at(thread, at) {
            self.without_activity -= 1;
            if let Some(kept) = self.kept.get_mut(&lost.correlation) {
                kept.lost &= (kept.launch.thread, kept.launch.start) != (thread, lost.start);
            }
        }
    }

    /// Keeps a resolved launch available until enough newer ones are remembered.
    fn remember(&mut self, correlation: u32, thread: u32, sequence: u64) {
        if let Some(waiting) = self.queues[thread as usize].get_mut(sequence) {
            waiting.remembered = true;
        }
        self.remembered.push_back((correlation, thread, sequence));
        if self.remembered.len() > REMEMBERED
            && let Some((old, thread, sequence)) = self.remembered.pop_front()
        {
            if self.slots.get(old) == Some(&QueueSlot::new(thread, sequence)) {
                self.slots.remove(old);
            }
            let same = |kept: &DequeuedLaunch| kept.launch.thread == thread && kept.sequence == sequence;
            if self.kept.get(&old).is_some_and(same) {
                self.kept.remove(&old);
            }
        }
    }

    /// After the records of a flush at `at` were joined: start of the oldest waiting launch.
    pub(crate) fn oldest_waiting(&mut self, at: u64) -> Option<u64> {
        self.flush += 1;
        self.newest_node = None;
        let mut oldest: Option<u64> = None;
        self.queues.iter_mut().for_each(LaunchQueue::drop_resolved);
        let threads = self.queues.len();
        let waiting: usize = self.queues.iter().map(|queue| queue.waiting.len()).sum();
        let part = if waiting > WAITING_LIMIT { WAITING_LIMIT / threads } else { WAITING_LIMIT };
        for thread in 0..threads {
            while let Some(front) = self.queues[thread].waiting.first() {
                let full = self.queues[thread].waiting.len() > part;
                if !front.resolved && !full && !gives_up(front, at, self.flush) {
                    oldest = Some(oldest.map_or(front.start, |time| time.min(front.start)));
                    break;
                }
                self.drop_front(thread);
            }
            self.queues[thread].keep_room_for((WAITING_LIMIT / threads).max(FEWEST_WAITING));
        }
        oldest
    }

    /// True if a launch with this id waits for its operation.
    pub(crate) fn waits(&self, correlation: u32) -> bool {
        self.slots.get(correlation).is_some()
    }

    /// True if no launch of `thread` waits.
    pub(crate) fn is_idle(&self, thread: usize) -> bool {
        self.queues.get(thread).is_none_or(|queue| queue.waiting.is_empty())
    }

    /// No more records will come: all waiting launches are lost.
    pub(crate) fn give_up_all(&mut self) {
        for thread in 0..self.queues.len() {
            while !self.queues[thread].waiting.is_empty() {
                self.drop_front(thread);
            }
        }
    }

    fn drop_front(&mut self, thread: usize) {
        let queue = &mut self.queues[thread];
        let Some(&front) = queue.waiting.take() else { return };
        let sequence = queue.base;
        queue.base += 1;
        let thread = thread as u32;
        let lost = !front.resolved && front.class == ApiClass::KernelLaunch;
        if !front.resolved {
            self.remember(front.correlation, thread, sequence);
        }
        if (front.remembered || !front.resolved)
            && self.slots.get(front.correlation) == Some(&QueueSlot::new(thread, sequence))
        {
            self.slots.remove(front.correlation);
            self.kept.insert(front.correlation, DequeuedLaunch { launch: front.launch(thread), sequence, lost });
        }
        self.without_activity += u64::from(lost);
        // A graph need not leave a record: it may have no node, or nodes of the host alone.
        let graph = !front.resolved && front.class == ApiClass::GraphLaunch && !front.has_record;
        if lost || graph {
            self.lost.push(&front.launch(thread), front.correlation, lost);
        }
    }

    /// The work of this launch has no usable times.
    pub(crate) fn untimed(&mut self, launch: &LaunchCall, correlation: CorrelationId) {
        self.lost.push(launch, correlation.0, false);
    }

    /// End of the first lost launch by `thread` that returned within `from..to`.
    pub(crate) fn lost_within(&self, thread: u32, from: u64, to: u64) -> Option<u64> {
        self.lost.within(thread, from, to)
    }
}

fn gives_up(waiting: &QueuedCall, at: u64, flush: u64) -> bool {
    let age = at.saturating_sub(waiting.start);
    let flushes = u64::from((flush as u32).wrapping_sub(waiting.flush));
    match waiting.class {
        ApiClass::GraphLaunch if waiting.has_record => age > GRAPH_QUIET_NANOS && flushes > GRAPH_QUIET_FLUSHES,
        ApiClass::BlockingCopy => at.saturating_sub(waiting.end) > BLOCKING_GIVE_UP_NANOS && flushes >= 2,
        _ => age > GIVE_UP_NANOS && flushes >= GIVE_UP_FLUSHES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_turns_out_to_be_captured_whether_it_waits_or_is_given_up() {
        let mut launches = Launches::default();
        let launch =
            |start, thread| LaunchCall { start, end: start + 5, thread, class: ApiClass::KernelLaunch, sampled: false };
        for (id, start, thread) in [(1, 10, 0), (2, 20, 0), (3, 10, 1), (4, 30, 0)] {
            launches.insert(CorrelationId(id), launch(start, thread), false);
        }
        for at in [9, 16, 22, 40] {
            launches.captured(0, at);
        }
        assert_eq!(launches.oldest_waiting(50), Some(10));
        launches.give_up_all();
        assert_eq!(launches.without_activity, 3, "all but the one at 20");
        launches.captured(0, 12);
        launches.captured(0, 12);
        launches.captured(7, 12);
        assert_eq!((launches.without_activity, launches.lost.len()), (2, 2));
        // A record that comes after all finds its launch, and is not subtracted twice.
        let mut join = |id| launches.join(CorrelationId(id), DeviceId(0), StreamId(7)).map(|launch| launch.start);
        assert_eq!([1, 2, 4].map(&mut join), [Some(10), Some(20), Some(30)]);
        assert_eq!(launches.without_activity, 1);
    }

    #[test]
    fn launches_with_one_id_are_counted_unless_the_id_may_have_wrapped_or_one_made_the_other() {
        let mut launches = Launches::default();
        let calls =
            [(10, 15, 0), (20, 25, 0), (20, 25, 0), (18, 30, 0), (18, 30, 1), (40 + FASTEST_WRAP_NANOS, u64::MAX, 1)];
        let counts = calls.map(|(start, end, thread)| {
            let launch = LaunchCall { start, end, thread, class: ApiClass::GraphLaunch, sampled: false };
            launches.insert(CorrelationId(7), launch, false);
            launches.shared_ids
        });
        assert_eq!(counts, [0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn what_waits_is_bounded_over_all_threads() {
        let mut launches = Launches::default();
        for id in 0..WAITING_LIMIT as u32 + 4 {
            let launch = LaunchCall { start: 1, end: 2, thread: id % 4, class: ApiClass::KernelLaunch, sampled: false };
            launches.insert(CorrelationId(id), launch, false);
        }
        assert_eq!(launches.oldest_waiting(3), Some(1));
        let waiting: usize = launches.queues.iter().map(|queue| queue.waiting.len()).sum();
        assert_eq!((waiting, launches.without_activity), (WAITING_LIMIT, 4), "those that go are counted");
    }
}
