//! Ceilings: what a scenario could bring.
//!
//! Two ways lead to one. The simulation answers for a whole world and is believed only if it reproduces the real one.
//! The additive bound takes the time that a cause has on the accounts off the step, `T / (T - R)`: always there, but
//! blind to what would become the bottleneck next, so bounds of two causes must never be added up.
//!
//! Neither knows the price of removing a cost, nor how much faster the rest runs without it, so a simulated one has an
//! interval ([`intervals`](super::intervals)). Loading data with four workers instead of none was predicted to give
//! 1.52x and 1.29x on two runs of ResNet-50 and gave 1.40x and 1.22x.

use super::intervals::interval;
use super::scenario::ScenarioKind;
use crate::attribution::leaf::{Group, Leaf, Leaves};

/// A gain below this is not worth a line.
pub const WORTH_SHOWING: f64 = 1.01;
/// A fix that makes a program less than so many times as fast is not worth a plan.
pub const WORTH_DOING: f64 = 1.05;

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

    /// The additive bounds of a step (or of any window) with these leaves. Time without work is left out of both sides.
    /// `link_ns`: how long the host link needs at least for what was copied meanwhile, nanoseconds, 0 when not known:
    /// copies that are hidden must still cross it.
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
    pub fn saved(&self) -> f64 {
        1.0 - 1.0 / self.speedup
    }

    /// Whether the gain is worth a line in a report.
    pub fn is_worth_showing(&self) -> bool {
        self.speedup >= WORTH_SHOWING
    }
}
