//! What the simulation is told: calls, operations, and nothing that it could work out itself; and the queue that puts
//! it in the order of time.
//!
//! These are the attributor's own notions with everything removed that a max-plus recurrence does not need, so that
//! the simulation can be driven by the attributor, by an importer of other traces, or by a test that writes a program
//! down in ten lines. Times are nanoseconds on the clock of the trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};

use crate::attribution::api::ApiClass;
use crate::attribution::leaf::Leaf;
use crate::collections::sorted_runs::InOrder;
use crate::steps::StepSeries;

/// What a call does to the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// Launches a kernel, a graph, a copy or a memset. It waits when the queue is full or memory is pageable.
    Launch,
    /// Waits for the device, or may: synchronizes, copies and returns when done.
    Wait,
    /// Allocates or frees memory, and may wait for the device as well.
    Memory,
    /// Anything else: its time is the host's own.
    Other,
}

impl From<ApiClass> for CallClass {
    fn from(class: ApiClass) -> Self {
        match class {
            ApiClass::KernelLaunch | ApiClass::GraphLaunch | ApiClass::Copy | ApiClass::Memset => Self::Launch,
            ApiClass::BlockingCopy | ApiClass::Synchronize => Self::Wait,
            ApiClass::Memory => Self::Memory,
            ApiClass::Query
            | ApiClass::Load
            | ApiClass::GraphBuild
            | ApiClass::CaptureBegin
            | ApiClass::CaptureEnd
            | ApiClass::Other => Self::Other,
        }
    }
}

/// One outermost API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Calling thread.
    pub thread: ThreadId,
    /// Entry.
    pub start: u64,
    /// Return. A call that returns before its entry is taken to have no length.
    pub end: u64,
    /// What it does to the host's clock.
    pub class: CallClass,
    /// Joins to the operations it launches.
    pub correlation: CorrelationId,
    /// What tracing added to it if it waited for nothing, nanoseconds.
    pub tracing_ns: u32,
}

impl Call {
    /// How long it lasts, nanoseconds.
    pub(super) const fn lasted(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// How long it lasts without tracing if it waits for nothing, nanoseconds.
    pub(super) const fn untraced(&self) -> u64 {
        self.lasted().saturating_sub(self.tracing_ns as u64)
    }
}

/// What an operation does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationClass {
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates.
    Communication,
    /// A copy from the host: needs nothing that the device computed.
    CopyFromHost,
    /// A copy to the host: carries what the device computed.
    CopyToHost,
    /// Any other copy.
    CopyOther,
    /// A memset.
    Memset,
}

impl OperationClass {
    /// The class of an operation with this leaf; `None` for the leaves of idle time.
    pub const fn of(leaf: Leaf) -> Option<Self> {
        match leaf {
            Leaf::Compute => Some(Self::Compute),
            Leaf::Communication => Some(Self::Communication),
            Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther => Some(Self::CopyFromHost),
            Leaf::CopyD2hPageable | Leaf::CopyD2hPinned | Leaf::CopyD2hOther => Some(Self::CopyToHost),
            Leaf::Memset => Some(Self::Memset),
            _ if leaf.is_busy() => Some(Self::CopyOther),
            _ => None,
        }
    }

    /// Whether it moves data from or to the host, or on the device.
    pub(super) const fn is_copy(self) -> bool {
        matches!(self, Self::CopyFromHost | Self::CopyToHost | Self::CopyOther)
    }
}

/// The call that launched an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedBy {
    /// Its correlation id, or that of a call nested in it that was entered as well.
    pub correlation: CorrelationId,
    /// Its entry. Clocks differ a little, so an operation may seem to begin before it.
    pub start: u64,
}

/// A kernel whose grid has fewer blocks than half of the device's multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallGrid {
    /// Where it runs.
    pub device: DeviceId,
    /// Stream it runs on.
    pub stream: StreamId,
    /// Equal for the same kernel and grid.
    pub kernel: u32,
    /// How many such grids run at once with a block to a multiprocessor: 2 or more.
    pub fit: u32,
}

impl SmallGrid {
    /// How many grids of `blocks` run at once on a device of so many multiprocessors with a block to each, if that is
    /// more than one.
    pub const fn fit(blocks: u32, multiprocessors: u32) -> Option<u32> {
        match multiprocessors.checked_div(blocks) {
            Some(fit) if fit >= 2 => Some(fit),
            _ => None,
        }
    }
}

/// One kernel, copy or memset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Begin on the device.
    pub start: u64,
    /// End on the device. An end before the begin is taken to be the begin.
    pub end: u64,
    /// Where it ran.
    pub device: DeviceId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// What it did.
    pub class: OperationClass,
    /// Who launched it; `None` when that is not known.
    pub launch: Option<LaunchedBy>,
    /// What a copy from or to ordinary memory takes longer than from page-locked memory, or a kernel longer than at its
    /// nearest roof, nanoseconds; 0 when not known.
    pub excess: u32,
    /// What tracing added to the gap before it if it was queued behind another operation, nanoseconds.
    pub tracing_ns: u16,
    /// Whether a graph launched it.
    pub node: bool,
    /// How much a copy moves, bytes; [`MOST_BYTES`] stands for more as well. 0 for what is no copy.
    pub bytes: u16,
    /// Tells kernels apart: the number of the launch configuration. Means nothing for what is no kernel.
    pub kernel: u32,
}

/// A copy of so many bytes or more is not told apart from a larger one.
pub const MOST_BYTES: u16 = u16::MAX;
/// A copy to the host of at most so many bytes, a page, is one that the host waits for to read a value or a few:
/// `.item()` copies 1 to 8 bytes, a vector of losses some hundred.
pub const READBACK_BYTES: u16 = 4_096;

/// A copy between host and device that a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where it runs.
    pub device: DeviceId,
    /// Stream it runs on.
    pub stream: StreamId,
    /// Whether it goes to the host, and not from it.
    pub to_host: bool,
    /// As [`Operation::bytes`].
    pub bytes: u16,
}

impl Transfer {
    /// Whether the host reads no more than a few values with it.
    pub(super) const fn is_readback(&self) -> bool {
        self.to_host && self.bytes <= READBACK_BYTES
    }

    /// Whether it reads more than that.
    pub(super) const fn is_large_read(&self) -> bool {
        self.to_host && self.bytes > READBACK_BYTES
    }
}

/// What a call launches, as far as a scenario must know it when the call is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// A kernel with a small grid.
    Grid(SmallGrid),
    /// A copy to the host, or a small one from it.
    Copy(Transfer),
}

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

/// Puts what is told in any order into the order of time, up to the watermark.
///
/// The recurrence only looks back, and everything it looks back at lies earlier in real time: a launch before its
/// operation, the end of an operation before the return of the call that waited for it. So one queue by time is all
/// the graph there is. It is bounded: when more waits than [`PENDING_LIMIT`], the oldest goes on without waiting.
///
/// Calls, operations and marks of steps wait in lines of their own, since each comes nearly in order by itself; the
/// returns of the calls that were entered, which are few at a time, in a heap.
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
