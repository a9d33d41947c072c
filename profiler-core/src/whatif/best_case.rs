//! Best case of a scenario.
//!
//! There are two ways to compute one. The simulation covers all interactions, and is used only if it
//! reproduces the real run. The additive bound subtracts from the step the time that a cause has in the
//! accounts, `T / (T - R)`. It is always available but ignores the next bottleneck, so the bounds of two
//! causes must never be added.
//!
//! Neither includes the cost of the fix itself, nor how much faster the rest runs without it, so a simulated
//! one has an interval ([`intervals`](super::intervals)). Loading data with four workers instead of none was
//! predicted to yield 1.52x and 1.29x on two runs of ResNet-50 and yielded 1.40x and 1.22x.

use super::intervals::{WithoutTracing, interval, limited};
use super::scenario::ScenarioKind;
use super::variants::Removed;
use crate::leaf::{Cause, Leaf, Leaves};

/// Gains below this are not shown.
pub const WORTH_SHOWING: f64 = 1.01;
/// Minimum speedup that makes a fix worth planning. Of ten predicted gains of less, five were not there.
pub const WORTH_DOING: f64 = 1.15;

/// Best case of one scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestCase {
    /// The scenario.
    pub kind: ScenarioKind,
    /// Shortest possible step, nanoseconds. 0 if the accounts contain only this cause.
    pub step_ns: u64,
    /// Maximum speedup of the program, at least 1. Infinite if `step_ns` is 0.
    pub speedup: f64,
    /// Range of the gain in nine of ten programs, as factors; `None` for an additive bound.
    pub interval: Option<(f64, f64)>,
}

impl BestCase {
    /// Reduces a step from `real` to `possible`; never makes it longer.
    pub(super) fn new(kind: ScenarioKind, real: u64, possible: u64) -> Self {
        let step_ns = possible.min(real);
        let speedup = if real == 0 { 1.0 } else { real as f64 / step_ns as f64 };
        Self { kind, step_ns, speedup, interval: None }
    }

    /// Simulated result, with a `spread` over the steps as returned by [`spread`](super::intervals::spread);
    /// the gain refers to a step as `untraced` has it.
    pub(super) fn simulated(
        kind: ScenarioKind,
        real: u64,
        possible: u64,
        spread: f64,
        untraced: WithoutTracing,
    ) -> Self {
        let best_case = Self::new(kind, real, possible);
        let known = best_case.speedup.is_finite();
        Self {
            interval: known.then(|| interval(std::iter::once(kind), best_case.speedup, spread, untraced)),
            ..best_case
        }
    }

    /// Additive bounds of a step (or of any window) with these leaves. Time without work is left out of both
    /// sides. `link_ns`: minimum time that the host link needs for the copies in it, nanoseconds, 0 if
    /// unknown: hidden copies must still cross it.
    pub fn additive(leaves: &Leaves, link_ns: u64) -> Vec<Self> {
        let nanos = |leaf: Leaf| leaves[leaf as usize];
        let sum = |wanted: fn(Leaf) -> bool| -> u64 {
            Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(nanos).fold(0, u64::saturating_add)
        };
        let total = sum(|leaf| leaf != Leaf::NoWork);
        let compute = nanos(Leaf::Compute);
        let is_copy = |leaf: Leaf| leaf.is_busy() && leaf.cause() == Cause::Copy && leaf != Leaf::Memset;
        // The accounts do not show by how much copies of pageable memory would become shorter: all of their time might
        // go, down to the minimum for the link. At most as much can be hidden under compute as there is compute.
        let copies = sum(is_copy);
        let shortest = (copies - sum(Leaf::is_pageable)).max(link_ns).min(copies);
        let hidden_copies = copies - shortest.saturating_sub(compute);
        // What the records do not show may be another process, or an event.
        let waits_for_host = |leaf: Leaf| {
            !leaf.is_busy() && !matches!(leaf.cause(), Cause::NoWork | Cause::CannotTell | Cause::OtherProcess)
        };
        let removable = [
            (ScenarioKind::DataReady, nanos(Leaf::DataLoading)),
            (ScenarioKind::LaunchesFree, sum(|leaf| leaf.cause() == Cause::Launch)),
            (ScenarioKind::NoSyncs, nanos(Leaf::SyncDrain)),
            (ScenarioKind::NoAllocations, nanos(Leaf::Allocator)),
            (ScenarioKind::CopiesOverlapped, hidden_copies.min(total.saturating_sub(link_ns))),
            (ScenarioKind::CommunicationHidden, nanos(Leaf::Communication).min(compute)),
            (ScenarioKind::DeviceOnly, sum(waits_for_host)),
        ];
        removable.into_iter().map(|(kind, nanos)| Self::new(kind, total, total.saturating_sub(nanos))).collect()
    }

    /// Limits the speedup to `most`, the gain of a step with nothing but the work that stays.
    pub(super) fn limit(&mut self, most: f64) {
        if self.speedup > most {
            self.step_ns = (self.step_ns as f64 * self.speedup / most).round() as u64;
            self.speedup = most;
        }
        self.interval = self.interval.map(|interval| limited(interval, most, Removed::of(self.kind)));
    }

    /// Fraction of the step that is saved, 0 to 1.
    pub fn saved(&self) -> f64 {
        1.0 - 1.0 / self.speedup
    }

    /// True if the gain is worth a line in a report.
    pub fn is_worth_showing(&self) -> bool {
        self.speedup >= WORTH_SHOWING
    }
}
