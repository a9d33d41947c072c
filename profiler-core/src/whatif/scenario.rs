//! Kinds of scenarios: the real run, the run without tracing, and one for each additional cost that can be
//! removed.
//!
//! A scenario is only a set of weights that become zero in the recurrence
//! ([`Removed`](super::variants::Removed)). So every edge that is not named there stays, and the result is
//! monotone: a max-plus system with smaller weights cannot end later.

use super::input::{MOST_BYTES, OperationClass, READBACK_BYTES};
use crate::leaf::Cause;
use gpuwhy_trace::named;

/// Number of scenarios, including the base.
pub const SCENARIO_COUNT: usize = ScenarioKind::ALL.len();

named! {
    /// A scenario to simulate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum ScenarioKind: name {
        /// No change: shows how well the simulation reproduces the real run.
        Base "base",
        /// No tracing: its overhead on calls and on the gaps of the device is removed, as in all following
        /// scenarios.
        Untraced "untraced",
        /// The host never waits for an input batch.
        DataReady "data_ready",
        /// Launching costs the host nothing: no call time, no short host gaps between calls, no launch
        /// latency; and kernels follow each other on the device like those of a CUDA graph.
        LaunchesFree "launches_free",
        /// The host never waits for the device.
        NoSyncs "no_syncs",
        /// Memory is neither allocated nor freed: those calls take no time and never wait.
        NoAllocations "no_allocations",
        /// Copies use pinned memory and run in parallel with everything else: they delay only each other and
        /// the host threads that wait for them. Their speed is known if the link is.
        CopiesOverlapped "copies_overlapped",
        /// Communication runs in parallel with everything else on its stream.
        CommunicationHidden "communication_hidden",
        /// Equal kernels with small grids, launched consecutively, are one launch of all their blocks, up to
        /// one block per multiprocessor.
        GridsFilled "grids_filled",
        /// The host reads no small values back: copies to the host of at most
        /// [`READBACK_BYTES`], the calls that make them, the waits after them
        /// and the short host gaps before both are removed; so are kernels that only find the size of a
        /// selection, which the host reads (boolean indexing, `nonzero`).
        NoReadbacks "no_readbacks",
        /// Consecutive small copies in one direction are one copy: all but the first of their calls, the
        /// waits directly after them and the host gaps between them are removed; their bytes still cross the
        /// link.
        CopiesJoined "copies_joined",
        /// Larger copies to the host are as short as small ones, because their data was reduced on the
        /// device; so the host's work directly after them, with their data, is gone too.
        ReadsReduced "reads_reduced",
        /// There are no large copies within the device: those of at least [`MOST_BYTES`],
        /// the calls that make them, and the short host gaps before those are removed.
        DeviceCopiesGone "device_copies_gone",
        /// The host does no work between launches that takes longer than a framework's work for one
        /// operation.
        NoHostWork "no_host_work",
        /// The host costs no time: only the device's own time remains.
        DeviceOnly "device_only",
        /// Each kernel uses 90 % of its nearest roofline ([`REACHABLE`](crate::counters::roofs::REACHABLE)),
        /// if hardware counters show which that is; faster ones stay unchanged.
        KernelsAtRoof "kernels_at_roof",
    }
}

impl ScenarioKind {
    /// Scenarios that remove one cost that a fix can remove.
    pub const FIXES: [Self; 12] = [
        Self::DataReady,
        Self::LaunchesFree,
        Self::NoSyncs,
        Self::NoAllocations,
        Self::CopiesOverlapped,
        Self::CommunicationHidden,
        Self::GridsFilled,
        Self::NoReadbacks,
        Self::CopiesJoined,
        Self::ReadsReduced,
        Self::DeviceCopiesGone,
        Self::NoHostWork,
    ];

    /// Scenario without the cost of `cause`; `None` if that cannot be simulated.
    #[must_use]
    pub const fn without(cause: Cause) -> Option<Self> {
        match cause {
            Cause::DataLoading => Some(Self::DataReady),
            Cause::Launch => Some(Self::LaunchesFree),
            Cause::Sync => Some(Self::NoSyncs),
            Cause::Copy => Some(Self::CopiesOverlapped),
            Cause::Communication => Some(Self::CommunicationHidden),
            Cause::Allocator => Some(Self::NoAllocations),
            Cause::HostCpu | Cause::KernelBuild => Some(Self::NoHostWork),
            Cause::GpuCompute | Cause::OtherProcess | Cause::NoWork | Cause::CannotTell => None,
        }
    }

    /// Scenarios whose costs are also removed in this one, so that its gain is at least theirs.
    pub(super) const fn contained(self) -> &'static [Self] {
        match self {
            Self::DeviceOnly => {
                &[Self::DataReady, Self::LaunchesFree, Self::NoSyncs, Self::NoAllocations, Self::NoHostWork]
            }
            _ => &[],
        }
    }

    /// True if it removes a cost of the program, and not only tracing.
    pub const fn is_change(self) -> bool {
        !matches!(self, Self::Base | Self::Untraced)
    }
}

/// Scenario in which an operation of this class does not delay later ones of its stream.
pub(super) const fn beside(class: OperationClass) -> Option<ScenarioKind> {
    match class {
        OperationClass::CopyFromHost
        | OperationClass::CopyToHost
        | OperationClass::CopyWithin
        | OperationClass::CopyOther => Some(ScenarioKind::CopiesOverlapped),
        OperationClass::Communication => Some(ScenarioKind::CommunicationHidden),
        OperationClass::Compute | OperationClass::Selection | OperationClass::Memset => None,
    }
}

/// Scenario in which an operation of this class that copies this many bytes does not exist.
pub(crate) const fn removed_in(class: OperationClass, bytes: u16) -> Option<ScenarioKind> {
    match class {
        OperationClass::CopyToHost if bytes <= READBACK_BYTES => Some(ScenarioKind::NoReadbacks),
        OperationClass::Selection => Some(ScenarioKind::NoReadbacks),
        OperationClass::CopyWithin if bytes == MOST_BYTES => Some(ScenarioKind::DeviceCopiesGone),
        _ => None,
    }
}
