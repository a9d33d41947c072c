//! Input of the simulation: calls and operations, without any data that it can compute itself; and the queue
//! that sorts them by time.
//!
//! These are the attributor's own types reduced to the input of a max-plus recurrence, so that the simulation
//! can be driven by the attributor, by an importer of other traces, or by a test that defines a program in
//! ten lines. Times are nanoseconds on the clock of the trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};

use super::scenario::ScenarioKind;
use crate::api::ApiClass;
use crate::collections::sorted_runs::InOrder;
use crate::leaf::Leaf;
use crate::steps::StepSeries;

/// Effect of a call on the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// Launches a kernel, a graph, a copy or a memset. It waits if the queue is full or memory is pageable.
    Launch,
    /// Waits for the device, or may wait: synchronizes, or copies and returns when done.
    Wait,
    /// Allocates or frees memory, and may wait for the device as well.
    Memory,
    /// Any other call: its time is the host's own.
    Other,
}

impl From<ApiClass> for CallClass {
    fn from(class: ApiClass) -> Self {
        match class {
            ApiClass::KernelLaunch | ApiClass::GraphLaunch | ApiClass::Copy | ApiClass::Memset => Self::Launch,
            ApiClass::BlockingCopy | ApiClass::Synchronize => Self::Wait,
            ApiClass::Memory => Self::Memory,
            ApiClass::Query
            | ApiClass::LoadCode
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
    /// Return. A return before the entry counts as zero duration.
    pub end: u64,
    /// Effect on the host's clock.
    pub class: CallClass,
    /// Joins the call to the operations it launches.
    pub correlation: CorrelationId,
    /// Tracing overhead if it did not wait, nanoseconds.
    pub tracing_ns: u32,
}

impl Call {
    /// Duration, nanoseconds.
    pub(super) const fn lasted(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Duration without tracing if it does not wait, nanoseconds.
    pub(super) const fn untraced(&self) -> u64 {
        self.lasted().saturating_sub(self.tracing_ns as u64)
    }
}

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationClass {
    /// A kernel that computes.
    Compute,
    /// A kernel that only finds how many elements a selection has, and where they are.
    Selection,
    /// A kernel that communicates.
    Communication,
    /// A copy from the host: does not depend on computed data.
    CopyFromHost,
    /// A copy to the host: depends on computed data.
    CopyToHost,
    /// A copy within the device.
    CopyWithin,
    /// Any other copy, such as one between devices.
    CopyOther,
    /// A memset.
    Memset,
}

impl OperationClass {
    /// Class of an operation with this leaf; `None` for idle leaves.
    pub const fn of(leaf: Leaf) -> Option<Self> {
        match leaf {
            Leaf::Compute => Some(Self::Compute),
            Leaf::Communication => Some(Self::Communication),
            Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther => Some(Self::CopyFromHost),
            Leaf::CopyD2hPageable | Leaf::CopyD2hPinned | Leaf::CopyD2hOther => Some(Self::CopyToHost),
            Leaf::CopyD2d => Some(Self::CopyWithin),
            Leaf::Memset => Some(Self::Memset),
            _ if leaf.is_busy() => Some(Self::CopyOther),
            _ => None,
        }
    }

    /// True for copies from or to the host, or on the device.
    pub(super) const fn is_copy(self) -> bool {
        matches!(self, Self::CopyFromHost | Self::CopyToHost | Self::CopyWithin | Self::CopyOther)
    }
}

/// The call that launched an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedBy {
    /// Its correlation id, or that of a nested call that was added as well.
    pub correlation: CorrelationId,
    /// Its entry. Clocks differ a little, so an operation may seem to start before it.
    pub start: u64,
}

/// A kernel whose grid has fewer blocks than half of the device's multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallGrid {
    /// Device that runs it.
    pub device: DeviceId,
    /// Stream it runs on.
    pub stream: StreamId,
    /// Equal for the same kernel and grid.
    pub kernel: u32,
    /// Number of such grids that run at once with one block per multiprocessor: 2 or more.
    pub fit: u32,
}

impl SmallGrid {
    /// Number of grids of `blocks` that run at once on a device with `multiprocessors`, one block on each, if
    /// that is more than one.
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
    /// Start on the device.
    pub start: u64,
    /// End on the device. An end before the start counts as the start.
    pub end: u64,
    /// Device that ran it.
    pub device: DeviceId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// Kind of operation.
    pub class: OperationClass,
    /// Call that launched it; `None` if unknown.
    pub launch: Option<LaunchedBy>,
    /// Extra time of a copy from or to pageable memory compared to pinned memory, or of a kernel compared to
    /// its nearest roofline, nanoseconds; 0 if unknown.
    pub excess: u32,
    /// Tracing overhead in the gap before it if it was queued after another operation, nanoseconds.
    pub tracing_ns: u16,
    /// True if a graph launched it.
    pub node: bool,
    /// Size of a copy in bytes; [`MOST_BYTES`] also represents larger ones. 0 for other operations.
    pub bytes: u16,
    /// Identifies the kernel: the number of its launch configuration. Unused for other operations.
    pub kernel: u32,
}

/// Copies of at least this many bytes are not distinguished from larger ones.
pub const MOST_BYTES: u16 = u16::MAX;
/// Maximum size of a readback, one page: a copy to the host that the host waits for to read one or a few
/// values. `.item()` copies 1 to 8 bytes, a vector of losses some hundred.
pub const READBACK_BYTES: u16 = 4_096;

/// A copy between host and device made by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Device that runs it.
    pub device: DeviceId,
    /// Stream it runs on.
    pub stream: StreamId,
    /// True for a copy to the host, false for one from it.
    pub to_host: bool,
    /// Like [`Operation::bytes`].
    pub bytes: u16,
}

impl Transfer {
    /// True if the host reads at most a few values with it.
    pub(super) const fn is_readback(&self) -> bool {
        self.to_host && self.bytes <= READBACK_BYTES
    }

    /// True if it reads more than that.
    pub(super) const fn is_large_read(&self) -> bool {
        self.to_host && self.bytes > READBACK_BYTES
    }
}

/// Work launched by a call, as far as a scenario must know it when the call is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// A kernel with a small grid.
    Grid(SmallGrid),
    /// A copy to the host, or a small one from it.
    Copy(Transfer),
    /// Another operation that does not exist in this scenario.
    RemovedIn(ScenarioKind),
}

/// Maximum events that wait for the watermark (at most 64 bytes each): several seconds of the densest
/// programs measured.
const PENDING_LIMIT: usize = 500_000;

/// Event at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum InputEvent<'a> {
    /// A step of this device starts, or the current one is discarded.
    Step(DeviceId, StepMark),
    /// The outermost call of this thread returns.
    Return(ThreadId),
    /// A call is entered.
    Enter(&'a Call),
    /// An operation starts.
    Operation(&'a Operation),
}

/// Event in the steps of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepMark {
    /// A step of this series starts.
    Begin(StepSeries),
    /// The current step is discarded.
    Break,
}

/// Sorts input that arrives in any order by time, up to the watermark.
///
/// The recurrence depends only on earlier real times: the launch before its operation, the end of an
/// operation before the return of the call that waited for it. So one queue by time replaces a dependency
/// graph. It is bounded: with more than [`PENDING_LIMIT`] waiting events, the oldest is processed without
/// waiting.
///
/// Calls, operations and step marks wait in separate queues, since each arrives nearly in order; the returns
/// of entered calls, which are few at a time, wait in a heap.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    calls: InOrder<Call>,
    /// End and thread of each entered call.
    returns: BinaryHeap<Reverse<(u64, ThreadId)>>,
    /// Each with the time at which it counts as started.
    operations: InOrder<(u64, Operation)>,
    steps: InOrder<(u64, StepMark, DeviceId)>,
    /// Number of events that are processed without waiting.
    excess: usize,
}

impl Queue {
    /// Adds the entry and return of a call.
    pub(super) fn push_call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Adds an operation that counts as started at `at`.
    pub(super) fn push_operation(&mut self, at: u64, operation: Operation) {
        self.operations.push((at, operation));
    }

    /// Adds an event in the steps of `device`.
    pub(super) fn push_step(&mut self, at: u64, device: DeviceId, mark: StepMark) {
        self.steps.push((at, mark, device));
    }

    /// Sorts the input. Events at the same time are ordered by their contents, so that the order of delivery
    /// has no effect.
    pub(super) fn sort(&mut self) {
        // Of two calls entered at once, the longer one is the outer one.
        let place = |call: &Call| (call.start, call.thread, Reverse(call.end));
        self.calls.sort(|a, b| place(a).cmp(&place(b)));
        let place = |&(at, operation): &(u64, Operation)| (at, operation.device, operation.stream, operation.end);
        self.operations.sort(|a, b| place(a).cmp(&place(b)));
        self.steps.sort(Ord::cmp);
        self.excess = self.beyond_limit();
    }

    /// Drops all sorted events before `at`.
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
        // A waiting call counts twice: entry and return.
        let waiting = 2 * self.calls.waiting().len() + self.operations.waiting().len() + self.steps.waiting().len();
        (waiting + self.returns.len()).saturating_sub(PENDING_LIMIT)
    }

    /// Next event before `watermark`, or the oldest one while too many wait. Input added since
    /// [`sort`](Self::sort) is ignored.
    #[inline]
    pub(super) fn next(&mut self, watermark: u64) -> Option<(u64, InputEvent<'_>)> {
        let step = self.steps.waiting().first().map_or(u64::MAX, |&(at, ..)| at);
        let back = self.returns.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let call = self.calls.waiting().first().map_or(u64::MAX, |call| call.start);
        let operation = self.operations.waiting().first().map_or(u64::MAX, |&(at, _)| at);
        let at = step.min(back).min(call).min(operation);
        if at >= watermark && self.excess == 0 {
            return None;
        }
        self.excess = self.excess.saturating_sub(1);
        // At one instant, ends come before starts, and a mark comes before the operation that caused it.
        let event = if step == at {
            let &(_, mark, device) = self.steps.take()?;
            InputEvent::Step(device, mark)
        } else if back == at {
            let Reverse((_, thread)) = self.returns.pop()?;
            InputEvent::Return(thread)
        } else if call == at {
            let call = self.calls.take()?;
            // A call that returns immediately is over at the next event.
            if call.end > call.start {
                self.returns.push(Reverse((call.end, call.thread)));
            }
            InputEvent::Enter(call)
        } else {
            let (_, operation) = self.operations.take()?;
            InputEvent::Operation(operation)
        };
        Some((at, event))
    }
}
