//! The kinds of scenarios: the real run, the one without tracing, and one for each cost that can be gone besides.
//!
//! A scenario is nothing but a set of weights that become zero in the recurrence ([`Removed`](super::worlds::Removed)).
//! That keeps it honest (every edge that is not named there stays) and makes it monotone: a max-plus system with
//! smaller weights cannot end later.

use super::input::OperationClass;
use crate::attribution::leaf::Group;
use gpuwhy_trace::named;

/// Number of scenarios, the base included.
pub const SCENARIO_COUNT: usize = ScenarioKind::ALL.len();

named! {
    /// A world to simulate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum ScenarioKind: name {
        /// Nothing is changed: shows how well the simulation reproduces what happened.
        Base "base",
        /// Nothing is traced: what tracing adds to calls and to the gaps of the device is gone, as it is in all that
        /// follow.
        Untraced "untraced",
        /// The host never waits for an input batch.
        DataReady "data_ready",
        /// Launching costs the host nothing: no call time, no short host gaps between calls, no launch latency; and
        /// kernels follow each other on the device as those of a CUDA graph do.
        LaunchesFree "launches_free",
        /// The host never waits for the device.
        NoSyncs "no_syncs",
        /// Memory is neither allocated nor freed: those calls take no time and wait for nothing.
        NoAllocations "no_allocations",
        /// Copies use page-locked memory and run beside everything else: they only delay each other and whoever waits
        /// for them on the host. How fast they are then is known where the link is.
        CopiesOverlapped "copies_overlapped",
        /// Communication runs beside everything else on its stream.
        CommunicationHidden "communication_hidden",
        /// Equal kernels with small grids, launched one after the other, are one launch of all their blocks, up to a
        /// block for each multiprocessor.
        GridsFilled "grids_filled",
        /// The host reads no small values back: copies to the host of at most
        /// [`READBACK_BYTES`](super::input::READBACK_BYTES), the calls that make them, the waits behind them and the short
        /// host gaps before both are gone.
        NoReadbacks "no_readbacks",
        /// Small copies in one direction, one after the other, are one copy: their calls, the waits right behind them
        /// and the host gaps between them are gone but for the first; their bytes still cross the link.
        CopiesJoined "copies_joined",
        /// The larger copies to the host are as short as small ones, because what they carry was reduced on the device.
        ReadsReduced "reads_reduced",
        /// The host does nothing between launches that takes longer than the work of a framework for one operation.
        NoHostWork "no_host_work",
        /// The host costs nothing at all: what the device alone needs.
        DeviceOnly "device_only",
        /// Each kernel uses 90 % of its nearest roof ([`REACHABLE`](crate::counters::roofs::REACHABLE)), where hardware
        /// counters tell which that is; those beyond stay as they are.
        KernelsAtRoof "kernels_at_roof",
    }
}

impl ScenarioKind {
    /// Those without one cost that a fix can take away.
    pub const FIXES: [Self; 11] = [
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
        Self::NoHostWork,
    ];

    /// The scenario in which what `group` stands for is gone; `None` where that is not a matter of simulation.
    #[must_use]
    pub const fn without(group: Group) -> Option<Self> {
        match group {
            Group::DataLoading => Some(Self::DataReady),
            Group::Launch => Some(Self::LaunchesFree),
            Group::Sync => Some(Self::NoSyncs),
            Group::Copy => Some(Self::CopiesOverlapped),
            Group::Communication => Some(Self::CommunicationHidden),
            Group::Allocator => Some(Self::NoAllocations),
            Group::HostCpu => Some(Self::DeviceOnly),
            Group::GpuCompute | Group::NoWork | Group::CannotTell => None,
        }
    }

    /// The scenarios whose costs are gone in this one as well, so that it cannot gain less than they do.
    pub(super) const fn contained(self) -> &'static [Self] {
        match self {
            Self::DeviceOnly => {
                &[Self::DataReady, Self::LaunchesFree, Self::NoSyncs, Self::NoAllocations, Self::NoHostWork]
            }
            _ => &[],
        }
    }

    /// Whether a cost of the program is gone in it, and not only tracing.
    pub const fn is_change(self) -> bool {
        !matches!(self, Self::Base | Self::Untraced)
    }
}

/// The scenario in which an operation of this class does not keep later ones of its stream waiting.
pub(super) const fn beside(class: OperationClass) -> Option<ScenarioKind> {
    match class {
        OperationClass::CopyFromHost | OperationClass::CopyToHost | OperationClass::CopyOther => {
            Some(ScenarioKind::CopiesOverlapped)
        }
        OperationClass::Communication => Some(ScenarioKind::CommunicationHidden),
        OperationClass::Compute | OperationClass::Memset => None,
    }
}
