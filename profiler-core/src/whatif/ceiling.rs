//! Ceilings: what a scenario could bring, and the text that says so.
//!
//! Two ways lead to one. The simulation answers for a whole world and is believed only if it reproduces the real one.
//! The additive bound takes the time that a cause has on the accounts off the step, `T / (T - R)`: always there, but
//! blind to what would become the bottleneck next, so bounds of two causes must never be added up.
//!
//! Neither knows the price of removing a cost, nor how much faster the rest runs without it, so a simulated one has an
//! interval ([`intervals`](super::intervals)). Loading data with four workers instead of none was predicted to give
//! 1.52x and 1.29x on two runs of ResNet-50 and gave 1.40x and 1.22x.

use std::fmt;

use super::intervals::interval;
use super::scenario::ScenarioKind;
use crate::attribution::leaf::{Group, Leaf, Leaves};

/// A gain below this is not worth a line.
pub const WORTH_SHOWING: f64 = 1.01;
/// A fix that makes a program less than so many times as fast is not worth a plan.
pub const WORTH_DOING: f64 = 1.05;
/// Factors beyond this only say that hardly anything else is left.
const LARGEST_SHOWN: f64 = 100.0;
/// From this factor on the lower end of the interval is shown alone, up to this factor.
const ROUGHLY: f64 = 10.0;
/// The lowest lower end that is shown alone.
const LOWEST_ALONE: f64 = 2.0;

/// What one scenario could bring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// The scenario.
    pub kind: ScenarioKind,
    /// How short the step could become, nanoseconds. 0 when nothing else is on the accounts.
    pub step_ns: u64,
    /// How many times as fast the program could become, at least 1. Infinite when `step_ns` is 0.
    pub speedup: f64,
    /// Between which factors the gain will come out in nine of ten programs; `None` for an additive bound.
    pub interval: Option<(f64, f64)>,
}

impl Ceiling {
    /// A step of `real` becomes one of `possible`; never longer than it is.
    pub(super) fn new(kind: ScenarioKind, real: u64, possible: u64) -> Self {
        let step_ns = possible.min(real);
        let speedup = if real == 0 { 1.0 } else { real as f64 / step_ns as f64 };
        Self { kind, step_ns, speedup, interval: None }
    }

    /// As it was simulated, with a `spread` over the steps as from [`spread`](super::intervals::spread).
    pub(super) fn simulated(kind: ScenarioKind, real: u64, possible: u64, spread: f64) -> Self {
        let ceiling = Self::new(kind, real, possible);
        let known = ceiling.speedup.is_finite();
        Self { interval: known.then(|| interval(std::iter::once(kind), ceiling.speedup, spread)), ..ceiling }
    }

    /// How many times as fast, in words: `about 4.1x faster (3.7x to 4.5x)`, or `more than 10x faster`.
    #[must_use]
    pub fn faster(&self) -> String {
        faster(self.speedup, self.interval)
    }

    /// The additive bounds of a step (or of any window) with these leaves. Time without work is left out of both sides.
    /// `link_ns`: how long the host link needs at least for what was copied meanwhile, nanoseconds, 0 when not known:
    /// copies that are hidden must still cross it.
    #[must_use]
    pub fn additive(leaves: &Leaves, link_ns: u64) -> Vec<Self> {
        let nanos = |leaf: Leaf| leaves[leaf as usize];
        let sum = |wanted: fn(Leaf) -> bool| -> u64 {
            Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(nanos).fold(0, u64::saturating_add)
        };
        let total = sum(|leaf| leaf != Leaf::NoWork);
        let compute = nanos(Leaf::Compute);
        let is_copy = |leaf: Leaf| leaf.is_busy() && leaf.group() == Group::Copy && leaf != Leaf::Memset;
        // Beside compute, only as much can be hidden as there is compute. How much shorter copies of ordinary memory
        // would be is not on the accounts: all of it might go, down to what the link needs.
        let pageable = sum(Leaf::is_pageable);
        let hidden_copies = pageable + (sum(is_copy) - pageable).min(compute);
        let removable = [
            (ScenarioKind::DataReady, nanos(Leaf::DataLoading)),
            (ScenarioKind::LaunchesFree, sum(|leaf| leaf.group() == Group::Launch)),
            (ScenarioKind::NoSyncs, nanos(Leaf::SyncDrain)),
            (ScenarioKind::NoAllocations, nanos(Leaf::Allocator)),
            (ScenarioKind::CopiesOverlapped, hidden_copies.min(total.saturating_sub(link_ns))),
            (ScenarioKind::CommunicationHidden, nanos(Leaf::Communication).min(compute)),
            (ScenarioKind::DeviceOnly, sum(|leaf| !leaf.is_busy() && leaf != Leaf::NoWork)),
        ];
        removable.into_iter().map(|(kind, nanos)| Self::new(kind, total, total.saturating_sub(nanos))).collect()
    }

    /// The part of the step that goes, 0 to 1.
    #[must_use]
    pub fn saved(&self) -> f64 {
        1.0 - 1.0 / self.speedup
    }

    /// Whether the gain is worth a line in a report.
    #[must_use]
    pub fn is_worth_showing(&self) -> bool {
        self.speedup >= WORTH_SHOWING
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} if {}", self.faster(), self.kind.condition())
    }
}

/// A speed-up in words, with as many digits as it is worth: `about 4.1x`. From [`ROUGHLY`] on only the lower end of the
/// interval is shown: the rest of the step decides there, and it was measured together with what would be gone. A bound
/// without an interval is an upper one, so it is shown as it is.
pub(crate) fn about(speedup: f64, interval: Option<(f64, f64)>) -> String {
    match interval {
        Some((low, _)) if digits(speedup) == 0 && low >= LOWEST_ALONE => {
            format!("more than {:.0}x", low.floor().min(ROUGHLY))
        }
        _ if speedup > LARGEST_SHOWN => format!("more than {LARGEST_SHOWN:.0}x"),
        _ => format!("about {:.*}x", digits(speedup), speedup),
    }
}

/// Digits behind the point that a factor is worth.
fn digits(speedup: f64) -> usize {
    match speedup {
        _ if speedup < 1.995 => 2,
        _ if speedup < ROUGHLY - 0.05 => 1,
        _ => 0,
    }
}

/// A speed-up with its interval: `about 4.1x faster (3.7x to 4.5x)`; without the interval where its ends are shown as
/// the same number, and where only the lower one is said.
pub(crate) fn faster(speedup: f64, interval: Option<(f64, f64)>) -> String {
    let about = about(speedup, interval);
    let ends = interval.map(|ends| <[f64; 2]>::from(ends).map(|end| end_of(end, digits(speedup))));
    match ends.filter(|[low, high]| low != high && about.starts_with("about")) {
        Some([low, high]) => format!("{about} faster ({low} to {high})"),
        None => format!("{about} faster"),
    }
}

/// An end of an interval, with the digits of the estimate; with those of its own where the estimate has none.
fn end_of(end: f64, digits_of_estimate: usize) -> String {
    let digits = if digits_of_estimate == 0 { digits(end) } else { digits_of_estimate };
    if end > LARGEST_SHOWN { format!("more than {LARGEST_SHOWN:.0}x") } else { format!("{end:.digits$}x") }
}

#[cfg(test)]
mod tests {
    use super::{about, faster};

    #[test]
    fn an_interval_is_shown_where_it_says_something() {
        assert_eq!(faster(4.08, Some((3.7, 4.49))), "about 4.1x faster (3.7x to 4.5x)");
        assert_eq!(faster(1.02, Some((1.019, 1.021))), "about 1.02x faster");
        assert_eq!(faster(2.5, None), "about 2.5x faster");
    }

    #[test]
    fn of_a_large_speed_up_the_lower_end_is_shown() {
        assert_eq!(faster(40.0, Some((33.0, 120.0))), "more than 10x faster");
        assert_eq!(faster(11.0, Some((8.4, 30.0))), "more than 8x faster");
        assert_eq!(faster(11.0, Some((1.19, 29.7))), "about 11x faster (1.19x to 30x)");
        assert_eq!(faster(26.0, None), "about 26x faster");
        assert_eq!(faster(140.0, None), "more than 100x faster");
    }

    #[test]
    fn a_speed_up_has_the_digits_that_it_is_worth() {
        let shown = [1.074, 1.994, 1.996, 4.082, 9.94, 9.96, 2952.4].map(|speedup| about(speedup, None));
        let wanted =
            ["about 1.07x", "about 1.99x", "about 2.0x", "about 4.1x", "about 9.9x", "about 10x", "more than 100x"];
        assert_eq!(shown, wanted);
    }
}
