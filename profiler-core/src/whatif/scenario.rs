//! The worlds that are simulated side by side: the real one, the one without tracing, and eight more in which one cost
//! is gone besides.
//!
//! A scenario is nothing but a set of weights that become zero in the recurrence. That keeps it honest (every edge
//! that is not named here stays) and makes it monotone: a max-plus system with smaller weights cannot end later.

use super::input::{CallClass, OperationClass};
use crate::attribution::leaf::Group;
use crate::thresholds::DISPATCH_NANOS;

/// Number of scenarios, the base included.
pub const SCENARIO_COUNT: usize = ScenarioKind::ALL.len();

/// One clock in every scenario, nanoseconds since the [`Origin`]. Floating point because every x86-64 processor adds
/// and compares two of those at once, and no 64-bit integers; whole nanoseconds are exact for 104 days (2^53).
pub(super) type Clocks = [f64; SCENARIO_COUNT];

/// A clock for every scenario.
#[inline]
pub(super) fn each(clock: impl Fn(ScenarioKind) -> f64) -> Clocks {
    let mut clocks = [0.0; SCENARIO_COUNT];
    for kind in ScenarioKind::ALL {
        clocks[kind as usize] = clock(kind);
    }
    clocks
}

/// Every clock later by `nanos`.
#[inline]
pub(super) fn plus(clocks: &Clocks, nanos: u64) -> Clocks {
    let (mut sums, nanos) = (*clocks, as_clock(nanos));
    for sum in &mut sums {
        *sum += nanos;
    }
    sums
}

/// The later one in every scenario.
#[inline]
pub(super) fn latest(a: &Clocks, b: &Clocks) -> Clocks {
    let mut latest = *a;
    for (clock, &other) in latest.iter_mut().zip(b) {
        *clock = later(*clock, other);
    }
    latest
}

/// Not `f64::max`, which has to look for what is no number.
#[inline]
pub(super) const fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// A length in nanoseconds as clocks have it.
#[inline]
pub(super) const fn as_clock(nanos: u64) -> f64 {
    // Signed: processors convert that in one step.
    nanos as i64 as f64
}

/// The zero of all clocks: the first time that the simulation was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin(Option<u64>);

impl Origin {
    /// `at` is told.
    pub(super) fn tell(&mut self, at: u64) {
        self.0.get_or_insert(at);
    }

    /// A real time as a clock in any scenario.
    pub(super) fn clock(self, at: u64) -> f64 {
        as_clock(at.wrapping_sub(self.0.unwrap_or(0)))
    }

    /// The real time that a clock stands for.
    pub(super) fn time(self, clock: f64) -> u64 {
        self.0.unwrap_or(0).wrapping_add(clock as i64 as u64)
    }
}

/// A world to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ScenarioKind {
    /// Nothing is changed: shows how well the simulation reproduces what happened.
    Base,
    /// Nothing is traced: what tracing adds to calls and to the gaps of the device is gone, as it is in all that
    /// follow.
    Untraced,
    /// The host never waits for an input batch.
    DataReady,
    /// Launching costs the host nothing: no call time, no short host gaps between calls, no launch latency; and kernels
    /// follow each other on the device as those of a CUDA graph do.
    LaunchesFree,
    /// The host never waits for the device.
    NoSyncs,
    /// Memory is neither allocated nor freed: those calls take no time and wait for nothing.
    NoAllocations,
    /// Copies use page-locked memory and run beside everything else: they only delay each other and whoever waits for
    /// them on the host. How fast they are then is known where the link is.
    CopiesOverlapped,
    /// Communication runs beside everything else on its stream.
    CommunicationHidden,
    /// Equal kernels with small grids, launched one after the other, are one launch of all their blocks, up to a block
    /// for each multiprocessor.
    GridsFilled,
    /// The host costs nothing at all: what the device alone needs.
    DeviceOnly,
}

impl ScenarioKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Base,
        Self::Untraced,
        Self::DataReady,
        Self::LaunchesFree,
        Self::NoSyncs,
        Self::NoAllocations,
        Self::CopiesOverlapped,
        Self::CommunicationHidden,
        Self::GridsFilled,
        Self::DeviceOnly,
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

    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Untraced => "untraced",
            Self::DataReady => "data_ready",
            Self::LaunchesFree => "launches_free",
            Self::NoSyncs => "no_syncs",
            Self::NoAllocations => "no_allocations",
            Self::CopiesOverlapped => "copies_overlapped",
            Self::CommunicationHidden => "communication_hidden",
            Self::GridsFilled => "grids_filled",
            Self::DeviceOnly => "device_only",
        }
    }

    /// The condition, to follow "if".
    #[must_use]
    pub const fn condition(self) -> &'static str {
        match self {
            Self::Base => "nothing changed",
            Self::Untraced => "nothing were traced",
            Self::DataReady => "data were always ready",
            Self::LaunchesFree => "launches cost no time (CUDA graphs, larger kernels)",
            Self::NoSyncs => "the CPU never waited for the GPU",
            Self::NoAllocations => "memory were kept instead of freed and allocated again",
            Self::CopiesOverlapped => "copies used pinned memory and ran beside the kernels",
            Self::CommunicationHidden => "communication ran beside the kernels",
            Self::GridsFilled => "equal small kernels in a row were one",
            Self::DeviceOnly => "the CPU cost no time at all",
        }
    }

    /// Whether it has the time that tracing takes.
    pub(super) const fn is_traced(self) -> bool {
        matches!(self, Self::Base)
    }

    /// Host time of a host gap of `nanos` between two calls, of which `input` was a wait for data.
    pub(super) const fn host_gap(self, nanos: u64, input: u64) -> u64 {
        match self {
            Self::DataReady => nanos.saturating_sub(input),
            Self::LaunchesFree if nanos <= DISPATCH_NANOS => 0,
            Self::DeviceOnly => 0,
            _ => nanos,
        }
    }

    /// Whether entering and returning from a launching call, and the latency behind it, cost nothing.
    pub(super) const fn launches_free(self) -> bool {
        matches!(self, Self::LaunchesFree | Self::DeviceOnly)
    }

    /// Host time of a call of `nanos` that waited for nothing. Short calls that do not launch (event record, attribute
    /// queries) are part of what a framework does for one launch.
    pub(super) const fn call(self, nanos: u64, class: CallClass) -> u64 {
        match self {
            Self::LaunchesFree if matches!(class, CallClass::Launch) || nanos <= DISPATCH_NANOS => 0,
            Self::NoAllocations if matches!(class, CallClass::Memory) => 0,
            Self::DeviceOnly => 0,
            _ => nanos,
        }
    }

    /// Host time of `nanos` from the end of what a call of `class` waited for to its return.
    pub(super) const fn wake_up(self, nanos: u64, class: CallClass) -> u64 {
        match self {
            Self::NoAllocations if matches!(class, CallClass::Memory) => 0,
            Self::DeviceOnly => 0,
            _ => nanos,
        }
    }

    /// Whether the host goes on where it really waited for the device in a call of `class`.
    pub(super) const fn never_waits(self, class: CallClass) -> bool {
        matches!(self, Self::NoSyncs | Self::DeviceOnly)
            || (matches!(self, Self::NoAllocations) && matches!(class, CallClass::Memory))
    }

    /// Whether a call that stages a copy from ordinary memory returns at once, as it does for page-locked memory.
    pub(super) const fn stages_nothing(self) -> bool {
        matches!(self, Self::CopiesOverlapped | Self::DeviceOnly)
    }
}

impl OperationClass {
    /// The scenario in which such an operation does not keep later ones of its stream waiting.
    pub(super) const fn beside(self) -> Option<ScenarioKind> {
        match self {
            Self::CopyFromHost | Self::CopyOther => Some(ScenarioKind::CopiesOverlapped),
            Self::Communication => Some(ScenarioKind::CommunicationHidden),
            Self::Compute | Self::Memset => None,
        }
    }
}
