//! The worlds that are simulated side by side, and what is gone in each.
//!
//! Each named scenario has one world, in which one cost is gone. The base is the run as it was; in all other worlds
//! nothing is traced. A few worlds more have a set of costs that is chosen
//! while the run goes on (`combinations`): they tell what a second and a third fix bring after a first one. The named
//! ones are constants, so that the compiler works out their weights; those of the others are looked up.

use super::input::CallClass;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use crate::thresholds::DISPATCH_NANOS;

/// Worlds whose set of removed costs is chosen as the run goes on.
pub(super) const CHOSEN_COUNT: usize = 3;
pub(super) const WORLD_COUNT: usize = SCENARIO_COUNT + CHOSEN_COUNT;

/// A set of costs that are gone, each named by the scenario that is without it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Removed(u32);

impl Removed {
    /// What is gone in a scenario; nothing in the base.
    pub const fn of(kind: ScenarioKind) -> Self {
        match kind {
            ScenarioKind::Base => Self(0),
            _ => Self(1 << kind as u32),
        }
    }

    /// Whether the cost of `kind` is gone.
    pub const fn has(self, kind: ScenarioKind) -> bool {
        self.0 & Self::of(kind).0 != 0
    }

    /// These and the cost of `kind`.
    #[must_use]
    pub const fn and(self, kind: ScenarioKind) -> Self {
        Self(self.0 | Self::of(kind).0)
    }

    /// How many costs are gone.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The costs, in the order of their scenarios.
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

    /// Whether entering and returning from a launching call, and the latency behind it, cost nothing.
    pub(super) const fn launches_free(self) -> bool {
        self.has(ScenarioKind::LaunchesFree) || self.has(ScenarioKind::DeviceOnly)
    }

    /// Host time of a call of `nanos` that waited for nothing. Short calls that do not launch (event record, attribute
    /// queries) are part of what a framework does for one launch.
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

    /// Host time of `nanos` from the end of what a call of `class` waited for to its return.
    pub(super) const fn wake_up(self, nanos: u64, class: CallClass) -> u64 {
        let gone = matches!(class, CallClass::Memory) && self.has(ScenarioKind::NoAllocations);
        if gone || self.has(ScenarioKind::DeviceOnly) { 0 } else { nanos }
    }

    /// Whether the host goes on where it really waited for the device in a call of `class`.
    pub(super) const fn never_waits(self, class: CallClass) -> bool {
        self.has(ScenarioKind::NoSyncs)
            || self.has(ScenarioKind::DeviceOnly)
            || (self.has(ScenarioKind::NoAllocations) && matches!(class, CallClass::Memory))
    }

    /// Whether a call that stages a copy from ordinary memory returns at once, as it does for page-locked memory.
    pub(super) const fn stages_nothing(self) -> bool {
        self.has(ScenarioKind::CopiesOverlapped) || self.has(ScenarioKind::DeviceOnly)
    }
}

/// Whether a world has the time that tracing takes. All but the base are without it.
#[inline]
pub(super) const fn is_traced(world: usize) -> bool {
    world == ScenarioKind::Base as usize
}

/// What is gone in each world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worlds {
    /// The sets of the worlds behind the named ones. Nothing is gone where none is chosen.
    pub(super) chosen: [Removed; CHOSEN_COUNT],
}

impl Worlds {
    /// A clock for every world.
    #[inline]
    pub(super) fn each(&self, clock: impl Fn(usize, Removed) -> f64) -> Clocks {
        let mut clocks = [0.0; WORLD_COUNT];
        for kind in ScenarioKind::ALL {
            clocks[kind as usize] = clock(kind as usize, Removed::of(kind));
        }
        for (place, &removed) in self.chosen.iter().enumerate() {
            clocks[SCENARIO_COUNT + place] = clock(SCENARIO_COUNT + place, removed);
        }
        clocks
    }

    /// The worlds in which the cost of `kind` is gone: its own and those of the chosen sets that have it.
    #[inline]
    pub(super) fn without(&self, kind: ScenarioKind) -> impl Iterator<Item = usize> + use<> {
        let chosen = self.chosen;
        let places = (0..CHOSEN_COUNT).filter(move |&place| chosen[place].has(kind));
        std::iter::once(kind as usize).chain(places.map(|place| SCENARIO_COUNT + place))
    }
}

/// One clock in every world, nanoseconds since the [`Origin`]. Floating point because every x86-64 processor adds
/// and compares two of those at once, and no 64-bit integers; whole nanoseconds are exact for 104 days (2^53).
pub(super) type Clocks = [f64; WORLD_COUNT];

/// Every clock later by `nanos`.
#[inline]
pub(super) fn plus(clocks: &Clocks, nanos: u64) -> Clocks {
    let (mut sums, nanos) = (*clocks, as_clock(nanos));
    for sum in &mut sums {
        *sum += nanos;
    }
    sums
}

/// The later one in every world.
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

/// The earlier of two clocks.
#[inline]
pub(super) const fn earlier(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
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

    /// A real time as a clock in any world.
    pub(super) fn clock(self, at: u64) -> f64 {
        as_clock(at.wrapping_sub(self.0.unwrap_or(0)))
    }

    /// The real time that a clock stands for.
    pub(super) fn time(self, clock: f64) -> u64 {
        self.0.unwrap_or(0).wrapping_add(clock as i64 as u64)
    }
}
