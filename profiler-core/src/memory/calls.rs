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
/// A sample this long after a call may still be of the same line, nanoseconds: the longest interval between two samples
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
    /// Those that failed for lack of memory and whose thread's next allocation succeeded.
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

#[derive(Debug, Default)]
pub(super) struct Calls {
    rows: FxHashMap<ApiFunctionId, MemoryCalls>,
    /// Function of each thread's last allocation, if that failed for lack of memory.
    failed: FxHashMap<ThreadId, ApiFunctionId>,
    /// Allocations, nearly in the order of their ends.
    newest: VecDeque<MemoryCall>,
    samples: VecDeque<(u64, ThreadId, StackId)>,
    /// Starts of calls that load code, nearly in order.
    loads: VecDeque<u64>,
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
        if let Some(function) = self.failed.remove(&call.thread).filter(|_| result == 0)
            && let Some(row) = self.rows.get_mut(&function)
        {
            row.retried += 1;
        }
        if fails && self.failed.len() < ROW_LIMIT {
            self.failed.insert(call.thread, call.function);
        }
        if result == 0 {
            bounded(&mut self.newest, call, NEWEST_CALLS);
        }
    }

    pub(super) fn loaded(&mut self, start: u64) {
        bounded(&mut self.loads, start, NEWEST_CALLS);
    }

    pub(super) fn sampled(&mut self, sample: &HostSample) {
        if sample.stack != StackId::NONE {
            bounded(&mut self.samples, (sample.at.nanos(), sample.thread, sample.stack), NEWEST_SAMPLES);
        }
    }

    /// True if an allocation was in progress between two times.
    pub(super) fn any(&self, from: u64, to: u64) -> bool {
        self.within(from, to).next().is_some()
    }

    /// True if code was loaded between two times.
    pub(super) fn loads(&self, from: u64, to: u64) -> bool {
        self.loads
            .iter()
            .rev()
            .take_while(|&&start| start + NEAR_NANOS > from)
            .any(|&start| start > from && start <= to)
    }

    /// Allocations between two times by function, most time first, and the stack that most of them are near.
    pub(super) fn of_jump(&self, from: u64, to: u64) -> (Vec<(ApiFunctionId, u64)>, Option<StackId>) {
        let mut functions = FxHashMap::<ApiFunctionId, (u64, u64)>::default();
        let mut stacks = FxHashMap::<StackId, u64>::default();
        for (index, call) in self.within(from, to).enumerate() {
            let (nanos, calls) = functions.entry(call.function).or_default();
            *nanos += call.end - call.start;
            *calls += 1;
            if let Some(stack) = (index < LINES_SOUGHT).then(|| self.near(call)).flatten() {
                *stacks.entry(stack).or_default() += 1;
            }
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_unstable_by_key(|&(function, (nanos, _))| (Reverse(nanos), function));
        let functions = functions.into_iter().map(|(function, (_, calls))| (function, calls)).collect();
        (functions, stacks.into_iter().max_by_key(|&(stack, calls)| (calls, Reverse(stack))).map(|row| row.0))
    }

    /// Calls that overlap the time from `from` to `to`.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &MemoryCall> {
        self.newest.iter().filter(move |call| call.start <= to && call.end > from)
    }

    /// Stack of the first sample of the thread during the call or soon after it.
    fn near(&self, call: &MemoryCall) -> Option<StackId> {
        let until = call.end + NEAR_NANOS;
        let near =
            self.samples.iter().find(|&&(at, thread, _)| thread == call.thread && at >= call.start && at <= until);
        near.map(|sample| sample.2)
    }

    /// All functions with their calls.
    pub(super) fn rows(&self) -> Vec<(ApiFunctionId, MemoryCalls)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(&function, &calls)| (function, calls)).collect();
        rows.sort_unstable_by_key(|&(function, calls)| (Reverse(calls.total_ns), function));
        rows
    }
}

fn bounded<T>(newest: &mut VecDeque<T>, value: T, limit: usize) {
    if newest.len() >= limit {
        newest.pop_front();
    }
    newest.push_back(value);
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
    fn a_failure_counts_as_retried_if_the_threads_next_allocation_succeeds() {
        let mut calls = Calls::default();
        for (start, thread, function, result) in [
            (0, 1, MALLOC, 2),
            (20, 2, MALLOC, 0),
            (40, 1, FREE, 0),
            (60, 1, MALLOC, 0),
            (80, 1, MALLOC, 2),
            (100, 1, MALLOC, 2),
            (120, 3, MALLOC, 1),
        ] {
            calls.add(call(start, thread, function), function == MALLOC, result);
        }
        let expected = MemoryCalls { allocates: true, calls: 6, failed: 3, retried: 1, total_ns: 60 };
        assert_eq!(calls.rows()[0], (MALLOC, expected));
        assert_eq!(calls.rows()[1].1, MemoryCalls { calls: 1, total_ns: 10, ..MemoryCalls::default() });
        assert!(!calls.any(79, 200) && calls.any(60, 61), "a failed call takes no memory");
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
        for sample in [(90, 1, 3), (112, 1, 4), (115, 2, 5), (300, 1, 6), (40_000_000, 2, 7)] {
            calls.sampled(&sampled(sample.0, sample.1, sample.2));
        }
        for (start, thread) in [(100, 1), (111, 1), (105, 2), (250, 1), (400, 2)] {
            calls.add(call(start, thread, MALLOC), true, 0);
        }
        assert_eq!(calls.of_jump(95, 140), (vec![(MALLOC, 3)], Some(StackId(4))));
        assert_eq!(calls.of_jump(200, 300), (vec![(MALLOC, 1)], Some(StackId(6))));
        assert_eq!(calls.of_jump(390, 500), (vec![(MALLOC, 1)], None), "too late");
        assert_eq!(calls.of_jump(600, 700), (vec![], None));
    }
}
