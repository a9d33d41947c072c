//! Puts what is told in any order into the order of time, up to the watermark.
//!
//! The recurrence only looks back, and everything it looks back at lies earlier in real time: a launch before its
//! operation, the end of an operation before the return of the call that waited for it. So one queue by time is all
//! the graph there is. It is bounded: when more waits than [`PENDING_LIMIT`], the oldest goes on without waiting.
//!
//! Calls, operations and marks of steps wait in lines of their own, since each comes nearly in order by itself; the
//! returns of the calls that were entered, which are few at a time, in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::input::{Call, Operation};
use crate::collections::sorted_runs::InOrder;
use crate::record::{DeviceId, ThreadId};
use crate::steps::StepSeries;

/// What may wait for the watermark (at most 64 bytes each): several seconds of the densest programs measured.
const PENDING_LIMIT: usize = 500_000;

/// Something that happens at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    /// A step of this device begins, or is none.
    Step(DeviceId, StepMark),
    /// The outermost call of this thread returns.
    Return(ThreadId),
    /// A call is entered.
    Enter(&'a Call),
    /// An operation begins.
    Operation(&'a Operation),
}

/// What happens to the steps of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepMark {
    /// One of these begins.
    Begin(StepSeries),
    /// The one that it is in is none.
    Break,
}

/// Events that wait for the watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    calls: InOrder<Call>,
    /// Ends and threads of the calls that were entered.
    returns: BinaryHeap<Reverse<(u64, ThreadId)>>,
    /// Each with the time at which it counts as beginning.
    operations: InOrder<(u64, Operation)>,
    steps: InOrder<(u64, StepMark, DeviceId)>,
    /// Events that go on without waiting.
    excess: usize,
}

impl Queue {
    /// A call is entered and returns.
    pub(super) fn push_call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// An operation counts as beginning at `at`.
    pub(super) fn push_operation(&mut self, at: u64, operation: Operation) {
        self.operations.push((at, operation));
    }

    /// Something happens to the steps of `device`.
    pub(super) fn push_step(&mut self, at: u64, device: DeviceId, mark: StepMark) {
        self.steps.push((at, mark, device));
    }

    /// Puts in order what was told. What is equal is told apart by what it is, so that the order of delivery does not
    /// show.
    pub(super) fn sort(&mut self) {
        // Of two calls entered at once, the longer one is the outer one.
        let place = |call: &Call| (call.start, call.thread, Reverse(call.end));
        self.calls.sort(|a, b| place(a).cmp(&place(b)));
        let place = |&(at, operation): &(u64, Operation)| (at, operation.device, operation.stream, operation.end);
        self.operations.sort(|a, b| place(a).cmp(&place(b)));
        self.steps.sort(Ord::cmp);
        self.excess = self.beyond_limit();
    }

    /// Drops all events before `at`, as far as they are in order.
    pub(super) fn skip_before(&mut self, at: u64) {
        self.calls.skip_while(|call| call.start < at);
        self.operations.skip_while(|&(begin, _)| begin < at);
        self.steps.skip_while(|&(begin, ..)| begin < at);
        while self.returns.peek().is_some_and(|&Reverse((end, _))| end < at) {
            self.returns.pop();
        }
        self.excess = self.excess.min(self.beyond_limit());
    }

    fn beyond_limit(&self) -> usize {
        // A call that waits is entered and returns.
        let waiting = 2 * self.calls.waiting().len() + self.operations.waiting().len() + self.steps.waiting().len();
        (waiting + self.returns.len()).saturating_sub(PENDING_LIMIT)
    }

    /// The next event before `watermark`, or the oldest one while too much waits. What was told since
    /// [`sort`](Self::sort) is not looked at.
    #[inline]
    pub(super) fn next(&mut self, watermark: u64) -> Option<(u64, Event<'_>)> {
        let step = self.steps.waiting().first().map_or(u64::MAX, |&(at, ..)| at);
        let back = self.returns.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let call = self.calls.waiting().first().map_or(u64::MAX, |call| call.start);
        let operation = self.operations.waiting().first().map_or(u64::MAX, |&(at, _)| at);
        let at = step.min(back).min(call).min(operation);
        if at >= watermark && self.excess == 0 {
            return None;
        }
        self.excess = self.excess.saturating_sub(1);
        // At one instant, what ends comes before what begins, and a mark before the operation that made it one.
        let event = if step == at {
            let &(_, mark, device) = self.steps.take()?;
            Event::Step(device, mark)
        } else if back == at {
            let Reverse((_, thread)) = self.returns.pop()?;
            Event::Return(thread)
        } else if call == at {
            let call = self.calls.take()?;
            // One that returns at once is over when the next thing happens.
            if call.end > call.start {
                self.returns.push(Reverse((call.end, call.thread)));
            }
            Event::Enter(call)
        } else {
            let (_, operation) = self.operations.take()?;
            Event::Operation(operation)
        };
        Some((at, event))
    }
}
