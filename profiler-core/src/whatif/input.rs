//! What the simulation is told: calls, operations, and nothing that it could work out itself.
//!
//! These are the attributor's own notions with everything removed that a max-plus recurrence does not need, so that
//! the simulation can be driven by the attributor, by an importer of other traces, or by a test that writes a program
//! down in ten lines. Times are nanoseconds on the clock of the trace.

use crate::attribution::api::ApiClass;
use crate::attribution::leaf::Leaf;
use crate::record::{CorrelationId, DeviceId, StreamId, ThreadId};

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
    /// Any other copy: carries what the device computed.
    CopyOther,
    /// A memset.
    Memset,
}

impl OperationClass {
    /// The class of an operation with this leaf; `None` for the leaves of idle time.
    #[must_use]
    pub const fn of(leaf: Leaf) -> Option<Self> {
        match leaf {
            Leaf::Compute => Some(Self::Compute),
            Leaf::Communication => Some(Self::Communication),
            Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther => Some(Self::CopyFromHost),
            Leaf::Memset => Some(Self::Memset),
            _ if leaf.is_busy() => Some(Self::CopyOther),
            _ => None,
        }
    }

    /// Whether it moves data from or to the host, or on the device.
    pub(super) const fn is_copy(self) -> bool {
        matches!(self, Self::CopyFromHost | Self::CopyOther)
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
    #[must_use]
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
    /// What a copy from or to ordinary memory takes longer than from page-locked memory, nanoseconds; 0 when not known.
    pub excess: u32,
    /// What tracing added to the gap before it if it was queued behind another operation, nanoseconds.
    pub tracing_ns: u16,
    /// Whether a graph launched it.
    pub node: bool,
}
