//! Calls that allocate or release memory of a device, by function: their number, time and failures, and the newest
//! ones, among which the calls of a jump are found.
//!
//! Calls do not name a device, so in a process with several devices their counts belong to all of them together.

use std::cmp::Reverse;
use std::collections::VecDeque;

use gpuwhy_trace::record::{ApiFunctionId, HostSample, StackId, ThreadId};
use rustc_hash::FxHashMap;

/// Newest calls that are remembered, 32 bytes each: a reading arrives every 100 ms.
const NEWEST_CALLS: usize = 8_192;
/// Newest samples that are remembered, 24 bytes each: some seconds of a few threads.
const NEWEST_SAMPLES: usize = 8_192;
/// Functions with a row, and threads whose newest call is remembered.
const ROW_LIMIT: usize = 1_024;
/// Calls of a jump whose line is looked for.
const LINES_SOUGHT: usize = 256;
/// A sample this far from a call may still be of the same line, nanoseconds: the longest interval between two samples
/// of a thread that runs.
const NEAR_NANOS: u64 = 25_000_000;
/// `cudaErrorMemoryAllocation` and `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Calls of one function that allocates or releases memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCalls {
    /// True if it allocates.
    pub allocates: bool,
    /// Number of calls, failed ones included.
    pub calls: u64,
    /// Those that failed for lack of memory.
    pub failed: u64,
    /// Those that failed for lack of memory, alone, and whose thread's next allocation succeeded: caches are emptied
    /// when a call fails, and it is repeated. After a second failure the program has run out of memory, so a later
    /// success is another allocation.
    pub retried: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
}

/// A placed call.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryCall {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) thread: ThreadId,
    pub(super) function: ApiFunctionId,
}

/// Allocations of a jump; see [`Calls::of_jump`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JumpCalls {
    pub(super) functions: Vec<(ApiFunctionId, u64)>,
    /// Function and end.
    pub(super) longest: Option<(ApiFunctionId, u64)>,
    pub(super) near: Option<StackId>,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    rows: FxHashMap<ApiFunctionId, MemoryCalls>,
    /// Function of each thread's last allocation if that failed for lack of memory, and whether the one before did too.
    failed: FxHashMap<ThreadId, (ApiFunctionId, bool)>,
    /// Allocations, nearly in the order of their ends.
    newest: VecDeque<MemoryCall>,
    samples: VecDeque<(u64, ThreadId, StackId)>,
    /// Latest end of the allocations that are forgotten.
    forgotten: u64,
    /// Starts and ends of calls that load code, nearly in order.
    loads: VecDeque<(u64, u64)>,
}

impl Calls {
    pub(super) fn add(&mut self, call: MemoryCall, allocates: bool, result: u32) {
        let nanos = call.end - call.start;
        if self.rows.len() >= ROW_LIMIT && !self.rows.contains_key(&call.function) {
            return;
        }
        let row = self.rows.entry(call.function).or_default();
        row.allocates = allocates;
        row.calls += 1;
        row.total_ns = row.total_ns.saturating_add(nanos);
        if !allocates {
            return;
        }
        let fails = result == OUT_OF_MEMORY;
        row.failed += u64::from(fails);
        let before = self.failed.remove(&call.thread);
        if let Some((function, false)) = before.filter(|_| result == 0)
            && let Some(row) = self.rows.get_mut(&function)
        {
            row.retried += 1;
        }
        if fails && self.failed.len() < ROW_LIMIT {
            self.failed.insert(call.thread, (call.function, before.is_some()));
        }
        if result == 0 {
            let forgotten = bounded(&mut self.newest, call, NEWEST_CALLS);
            self.forgotten = self.forgotten.max(forgotten.map_or(0, |call| call.end));
        }
    }

    pub(super) fn loaded(&mut self, start: u64, end: u64) {
        bounded(&mut self.loads, (start, end), NEWEST_CALLS);
    }

    pub(super) fn sampled(&mut self, sample: &HostSample) {
        if sample.stack != StackId::NONE {
            bounded(&mut self.samples, (sample.at.nanos(), sample.thread, sample.stack), NEWEST_SAMPLES);
        }
    }

    /// True if an allocation was in progress between two times.
    pub(super) fn any(&self, from: u64, to: u64) -> bool {
        self.forgotten > from || self.within(from, to).next().is_some()
    }

    /// True if code was being loaded between two times.
    pub(super) fn loads(&self, from: u64, to: u64) -> bool {
        self.loads.iter().any(|&(start, end)| start <= to && end > from)
    }

    /// Allocations between two times by function, most time first; the one that took more time than all others, if any,
    /// and if it is the only one of its function; and the stack of the sample nearest to the longest one, if it took
    /// that much time, or else to most of them.
    pub(super) fn of_jump(&self, from: u64, to: u64) -> JumpCalls {
        let mut found = JumpCalls::default();
        let mut functions = FxHashMap::<ApiFunctionId, (u64, u64)>::default();
        let mut stacks = FxHashMap::<StackId, u64>::default();
        let (mut all_ns, mut longest) = (0, None::<(u64, &MemoryCall)>);
        for (index, call) in self.within(from, to).enumerate() {
            let nanos = call.end - call.start;
            let (spent, calls) = functions.entry(call.function).or_default();
            (*spent, *calls) = (*spent + nanos, *calls + 1);
            if let Some(stack) = (index < LINES_SOUGHT).then(|| self.near(call)).flatten() {
                *stacks.entry(stack).or_default() += 1;
            }
            all_ns += nanos;
            longest = longest.filter(|&(most, _)| most >= nanos).or(Some((nanos, call)));
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_unstable_by_key(|&(function, (nanos, _))| (Reverse(nanos), function));
        found.functions = functions.into_iter().map(|(function, (_, calls))| (function, calls)).collect();
        let longest = longest.filter(|&(nanos, _)| 2 * nanos > all_ns).map(|(_, call)| call);
        // Of several calls of one function none stands for all.
        let single = |call: &&MemoryCall| found.functions.contains(&(call.function, 1));
        found.longest = longest.filter(single).map(|call| (call.function, call.end));
        let of_most = stacks.into_iter().max_by_key(|&(stack, calls)| (calls, Reverse(stack))).map(|row| row.0);
        found.near = longest.map_or(of_most, |call| self.near(call));
        found
    }

    /// Calls that overlap the time from `from` to `to`.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &MemoryCall> {
        self.newest.iter().filter(move |call| call.start <= to && call.end > from)
    }

    /// Stack of the sample of the thread that is nearest to the call.
    fn near(&self, call: &MemoryCall) -> Option<StackId> {
        let of_thread = self.samples.iter().filter(|sample| sample.1 == call.thread);
        let distances = of_thread.map(|&(at, _, stack)| {
            // Either is 0 during the call.
            (call.start.saturating_sub(at) + at.saturating_sub(call.end), stack)
        });
        distances.min().filter(|&(nanos, _)| nanos <= NEAR_NANOS).map(|(_, stack)| stack)
    }

    /// All functions with their calls, those that allocate first.
    pub(super) fn rows(&self) -> Vec<(ApiFunctionId, MemoryCalls)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(&function, &calls)| (function, calls)).collect();
        rows.sort_unstable_by_key(|&(function, row)| (!row.allocates, Reverse(row.total_ns), function));
        rows
    }
}

/// Adds a value to the newest ones, and returns the one that is forgotten.
fn bounded<T>(newest: &mut VecDeque<T>, value: T, limit: usize) -> Option<T> {
    newest.push_back(value);
    if newest.len() > limit { newest.pop_front() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;

    const MALLOC: ApiFunctionId = ApiFunctionId(1);
    const FREE: ApiFunctionId = ApiFunctionId(2);

    fn call(start: u64, thread: u32, function: ApiFunctionId) -> MemoryCall {
        MemoryCall { start, end: start + 10, thread: ThreadId(thread), function }
    }

    #[test]
    fn a_failure_counts_as_retried_if_it_is_alone_and_the_threads_next_allocation_succeeds() {
        let mut calls = Calls::default();
        for (start, thread, function, result) in [
            (0, 1, MALLOC, 2),
            (20, 2, MALLOC, 0),
            (40, 1, FREE, 0),
            (60, 1, MALLOC, 0),
            (80, 1, MALLOC, 2),
            (100, 1, MALLOC, 2),
            (120, 3, MALLOC, 1),
            (140, 1, MALLOC, 0),
        ] {
            calls.add(call(start, thread, function), function == MALLOC, result);
        }
        let expected = MemoryCalls { allocates: true, calls: 7, failed: 3, retried: 1, total_ns: 70 };
        assert_eq!(calls.rows()[0], (MALLOC, expected));
        assert_eq!(calls.rows()[1].1, MemoryCalls { calls: 1, total_ns: 10, ..MemoryCalls::default() });
        assert!(!calls.any(79, 139) && calls.any(60, 61), "a failed call takes no memory");
    }

    #[test]
    fn the_line_of_a_jump_is_the_one_that_most_of_its_calls_are_near() {
        let mut calls = Calls::default();
        let sampled = |at, thread, stack| HostSample {
            at: Timestamp::from_nanos(at),
            thread: ThreadId(thread),
            stack: StackId(stack),
            ..HostSample::default()
        };
        for sample in [(90, 1, 3), (112, 1, 4), (115, 2, 5), (300, 1, 6), (60_000_000, 2, 7)] {
            calls.sampled(&sampled(sample.0, sample.1, sample.2));
        }
        for (start, thread) in [(100, 1), (111, 1), (105, 2), (250, 1), (30_000_000, 2)] {
            calls.add(call(start, thread, MALLOC), true, 0);
        }
        let found = |functions, longest, near| JumpCalls { functions, longest, near };
        assert_eq!(calls.of_jump(95, 140), found(vec![(MALLOC, 3)], None, Some(StackId(4))));
        let longest = Some((MALLOC, 260));
        assert_eq!(calls.of_jump(200, 300), found(vec![(MALLOC, 1)], longest, Some(StackId(6))));
        let far = found(vec![(MALLOC, 1)], Some((MALLOC, 30_000_010)), None);
        assert_eq!(calls.of_jump(29_000_000, 31_000_000), far, "too far from any sample");
        assert_eq!(calls.of_jump(600, 700), JumpCalls::default());
    }
}
