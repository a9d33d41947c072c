//! Scenarios that are simulated in parallel, and the costs removed in each.
//!
//! Each named scenario removes one cost. The base is the real run; no other scenario includes tracing. A few
//! additional scenarios remove a set of costs that is chosen during the run (`combinations`): they show the
//! gain of a second and a third fix after a first one. The named ones are constants, so that the compiler
//! computes their weights; those of the others are looked up.

use super::input::CallClass;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use crate::thresholds::DISPATCH_NANOS;

/// Number of scenarios whose set of removed costs is chosen during the run.
pub(super) const CHOSEN_COUNT: usize = 3;
pub(super) const VARIANT_COUNT: usize = SCENARIO_COUNT + CHOSEN_COUNT;

/// A set of removed costs, each identified by the scenario that removes it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Removed(u32);

impl Removed {
    /// Costs removed in a scenario; none in the base.
    pub const fn of(kind: ScenarioKind) -> Self {
        match kind {
            ScenarioKind::Base => Self(0),
            _ => Self(1 << kind as u32),
        }
    }

    /// True if the cost of `kind` is removed.
    pub const fn has(self, kind: ScenarioKind) -> bool {
        self.0 & Self::of(kind).0 != 0
    }

    /// This set plus the cost of `kind`.
    #[must_use]
    pub const fn and(self, kind: ScenarioKind) -> Self {
        Self(self.0 | Self::of(kind).0)
    }

    /// Number of removed costs.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Removed costs, in the order of their scenarios.
    pub fn kinds(self) -> impl Iterator<Item = ScenarioKind> {
        ScenarioKind::ALL.into_iter().filter(move |&kind| self.has(kind))
    }

    /// Host time of a host gap of `nanos` between two calls, of which `input` was a wait for data.
    pub(super) const fn host_gap(self, nanos: u64, input: u64) -> u64 {
        if self.has(ScenarioKind::DeviceOnly) || (self.has(ScenarioKind::LaunchesFree) && nanos <= DISPATCH_NANOS) {
            return 0;
        }
        let other = nanos.saturating_sub(input);
        let other = if self.has(ScenarioKind::NoHostWork) && nanos > DISPATCH_NANOS { 0 } else { other };
        if self.has(ScenarioKind::DataReady) { other } else { other + if input < nanos { input } else { nanos } }
    }

    /// True if entering and returning from a launching call, and the latency after it, cost no time.
    pub(super) const fn launches_free(self) -> bool {
        self.has(ScenarioKind::LaunchesFree) || self.has(ScenarioKind::DeviceOnly)
    }

    /// Host time of a call of `nanos` that did not wait. Short calls that do not launch (event record,
    /// attribute queries) are part of a framework's work for one launch.
    pub(super) const fn call(self, nanos: u64, class: CallClass) -> u64 {
        let gone = match class {
            CallClass::Launch => self.has(ScenarioKind::LaunchesFree),
            CallClass::Memory => self.has(ScenarioKind::NoAllocations),
            CallClass::Other => self.has(ScenarioKind::NoHostWork) && nanos > DISPATCH_NANOS,
            CallClass::Wait => false,
        };
        let short = self.has(ScenarioKind::LaunchesFree) && nanos <= DISPATCH_NANOS;
        if gone || short || self.has(ScenarioKind::DeviceOnly) { 0 } else { nanos }
    }

    /// Host time of `nanos` from the end of the wait in a call of `class` to its return.
    pub(super) const fn wake_up(self, nanos: u64, class: CallClass) -> u64 {
        let gone = matches!(class, CallClass::Memory) && self.has(ScenarioKind::NoAllocations);
        if gone || self.has(ScenarioKind::DeviceOnly) { 0 } else { nanos }
    }

    /// True if the host continues where it really waited for the device in a call of `class`.
    pub(super) const fn never_waits(self, class: CallClass) -> bool {
        self.has(ScenarioKind::NoSyncs)
            || self.has(ScenarioKind::DeviceOnly)
            || (self.has(ScenarioKind::NoAllocations) && matches!(class, CallClass::Memory))
    }

    /// True if a call that stages a copy from pageable memory returns immediately, as it does for pinned
    /// memory.
    pub(super) const fn stages_nothing(self) -> bool {
        self.has(ScenarioKind::CopiesOverlapped) || self.has(ScenarioKind::DeviceOnly)
    }
}

/// True if a scenario includes tracing overhead. Only the base does.
#[inline]
pub(super) const fn is_traced(variant: usize) -> bool {
    variant == ScenarioKind::Base as usize
}

/// Costs removed in each scenario.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variants {
    /// Sets of the scenarios after the named ones. Empty where none is chosen.
    pub(super) chosen: [Removed; CHOSEN_COUNT],
}

impl Variants {
    /// A clock for every scenario.
    #[inline]
    pub(super) fn each(&self, clock: impl Fn(usize, Removed) -> f64) -> Clocks {
        let mut clocks = [0.0; VARIANT_COUNT];
        for kind in ScenarioKind::ALL {
            clocks[kind as usize] = clock(kind as usize, Removed::of(kind));
        }
        for (index, &removed) in self.chosen.iter().enumerate() {
            clocks[SCENARIO_COUNT + index] = clock(SCENARIO_COUNT + index, removed);
        }
        clocks
    }

    /// Scenarios in which the cost of `kind` is removed: its own and the chosen sets that contain it.
    #[inline]
    pub(super) fn without(&self, kind: ScenarioKind) -> impl Iterator<Item = usize> + use<> {
        let chosen = self.chosen;
        let indices = (0..CHOSEN_COUNT).filter(move |&index| chosen[index].has(kind));
        std::iter::once(kind as usize).chain(indices.map(|index| SCENARIO_COUNT + index))
    }
}

/// One clock per scenario, nanoseconds since the [`Origin`]. Floating point because every x86-64 processor
/// adds and compares two of those at once, but not 64-bit integers; integer nanoseconds are exact for 104
/// days (2^53).
pub(super) type Clocks = [f64; VARIANT_COUNT];

/// Adds `nanos` to every clock.
#[inline]
pub(super) fn plus(clocks: &Clocks, nanos: u64) -> Clocks {
    let (mut sums, nanos) = (*clocks, as_clock(nanos));
    for sum in &mut sums {
        *sum += nanos;
    }
    sums
}

/// The later time in every scenario.
#[inline]
pub(super) fn latest(a: &Clocks, b: &Clocks) -> Clocks {
    let mut latest = *a;
    for (clock, &other) in latest.iter_mut().zip(b) {
        *clock = later(*clock, other);
    }
    latest
}

/// Not `f64::max`, which has to check for NaN.
#[inline]
pub(super) const fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The earlier of two clocks.
#[inline]
pub(super) const fn earlier(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// A duration in nanoseconds in the type of the clocks.
#[inline]
pub(super) const fn as_clock(nanos: u64) -> f64 {
    // Signed: CPUs convert that in one step.
    nanos as i64 as f64
}

/// Zero of all clocks: the first time in the input of the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin(Option<u64>);

impl Origin {
    /// Sets the origin to `at` if it is not set yet.
    pub(super) fn tell(&mut self, at: u64) {
        self.0.get_or_insert(at);
    }

    /// Converts a real time to a clock of any scenario.
    pub(super) fn clock(self, at: u64) -> f64 {
        as_clock(at.wrapping_sub(self.0.unwrap_or(0)))
    }

    /// Converts a clock to a real time.
    pub(super) fn time(self, clock: f64) -> u64 {
        self.0.unwrap_or(0).wrapping_add(clock as i64 as u64)
    }
}
