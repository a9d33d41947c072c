//! Chooses which sets of costs are simulated together: the gain of a second and a third fix after a first
//! one.
//!
//! The gain of two fixes is neither the sum nor the larger of their gains: the first may expose the second
//! (once data are ready, a program waits for its launches), or leave it no effect. There are too many sets to
//! simulate all of them, so they take turns in a few scenarios: all pairs of the costs that matter most, then
//! for each of these costs its best pair with the most promising third one. That is one round. The next one
//! takes four times as many steps, and the results of earlier rounds count a quarter.
//!
//! A set whose turn comes starts with the clocks of the named scenario with the largest gain among its costs,
//! and its first steps do not count.

use gpuwhy_trace::record::DeviceId;

use super::device::Progress;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use super::variants::{CHOSEN_COUNT, Removed};
use crate::sorting::SortRows as _;
use crate::steps::StepSeries;

/// Number of costs that are combined: ten pairs.
const KINDS: usize = 5;
/// Costs of less than this fraction of the time are not combined.
const LEAST_PART: f64 = 0.04;
/// Steps per turn in the first round: as few as a short recording has.
const FIRST_TURN: u64 = 4;
/// Steps of the longest turn.
const LONGEST_TURN: u64 = 256;
/// Steps at the start of a turn that do not count, while the scenarios diverge.
const UNCOUNTED: u64 = 2;
/// Weight of the results of the previous round.
const DECAY: f64 = 0.25;
/// Steps of another series after which the observed series is chosen again.
const OTHERS: u64 = 16;

/// A set of removed costs, and the resulting length of the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Combined {
    /// Removed costs: two or three.
    pub removed: Removed,
    /// Number of steps simulated without them.
    pub steps: u64,
    /// Sum of their time, nanoseconds, and of the same steps in each scenario; earlier rounds count in part.
    simulated: f64,
    named: [f64; SCENARIO_COUNT],
}

impl Combined {
    const fn new(removed: Removed) -> Self {
        Self { removed, steps: 0, simulated: 0.0, named: [0.0; SCENARIO_COUNT] }
    }

    /// Speedup over steps without only the cost of `kind`, at least 1.
    pub fn gain_after(&self, kind: ScenarioKind) -> f64 {
        (self.named[kind as usize] / self.simulated.max(1.0)).max(1.0)
    }
}

/// Duration of one step of the observed device, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepOf {
    /// In each named scenario.
    pub(super) named: [f64; SCENARIO_COUNT],
    /// In each of the chosen combinations.
    pub(super) chosen: [f64; CHOSEN_COUNT],
}

impl StepOf {
    pub(super) fn between(last: &Progress, now: &Progress) -> Self {
        let took = |variant: usize| (now.clocks[variant] - last.clocks[variant]).max(0.0);
        Self { named: std::array::from_fn(took), chosen: std::array::from_fn(|index| took(SCENARIO_COUNT + index)) }
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Combinations {
    of: Option<(DeviceId, StepSeries)>,
    others: u64,
    /// Sum of all their steps up to now, nanoseconds in each scenario.
    sums: [f64; SCENARIO_COUNT],
    kinds: Vec<ScenarioKind>,
    results: Vec<Combined>,
    /// Sets left in this round, the next one last.
    waiting: Vec<Removed>,
    /// Steps until the next turn, and the number of these that do not count.
    left: u64,
    uncounted: u64,
    turn: u64,
    triples: bool,
    chosen: [Removed; CHOSEN_COUNT],
}

impl Combinations {
    /// A step of a device and a series ended; `costs` is the total time of each cost up to now, nanoseconds.
    /// Returns the new sets if they change, each with the named scenario whose clocks it starts with.
    pub(super) fn step(
        &mut self,
        of: (DeviceId, StepSeries),
        step: &StepOf,
        costs: &[f64; SCENARIO_COUNT],
    ) -> Option<[(Removed, usize); CHOSEN_COUNT]> {
        if self.of != Some(of) {
            self.others += 1;
            if self.of.is_some() && self.others < OTHERS {
                return None;
            }
            *self = Self { of: Some(of), left: FIRST_TURN - 1, turn: FIRST_TURN, triples: true, ..Self::default() };
        }
        self.others = 0;
        for (sum, took) in self.sums.iter_mut().zip(step.named) {
            *sum += took;
        }
        if self.uncounted > 0 {
            self.uncounted -= 1;
            return None;
        }
        self.add(step);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return None;
        }
        if self.waiting.is_empty() {
            self.refill(costs);
        }
        self.left = self.turn;
        let mut next = [Removed::default(); CHOSEN_COUNT];
        next.iter_mut().for_each(|set| *set = self.waiting.pop().unwrap_or_default());
        if next == self.chosen {
            return None;
        }
        (self.chosen, self.uncounted) = (next, UNCOUNTED);
        Some(next.map(|set| {
            let start = set.kinds().max_by(|&a, &b| self.gain(a).total_cmp(&self.gain(b)));
            (set, start.unwrap_or(ScenarioKind::Untraced) as usize)
        }))
    }

    /// Results of the sets, if these are the observed steps.
    pub(super) fn results(&self, of: (DeviceId, StepSeries)) -> &[Combined] {
        if self.of == Some(of) { &self.results } else { &[] }
    }

    fn add(&mut self, step: &StepOf) {
        for (index, set) in self.chosen.into_iter().enumerate().filter(|(_, set)| set.count() > 1) {
            let known = self.results.iter().position(|result| result.removed == set).unwrap_or_else(|| {
                self.results.push(Combined::new(set));
                self.results.len() - 1
            });
            let result = &mut self.results[known];
            result.steps += 1;
            result.simulated += step.chosen[index];
            for (sum, took) in result.named.iter_mut().zip(step.named) {
                *sum += took;
            }
        }
    }

    /// Speedup of all steps without the cost of `kind`.
    fn gain(&self, kind: ScenarioKind) -> f64 {
        self.sums[ScenarioKind::Untraced as usize] / self.sums[kind as usize].max(1.0)
    }

    /// Fills in the next sets: the triples of this round, or the pairs of the next one.
    fn refill(&mut self, costs: &[f64; SCENARIO_COUNT]) {
        self.triples = !self.triples;
        if self.triples {
            self.waiting = self.best_triples();
            if !self.waiting.is_empty() {
                return;
            }
            self.triples = false;
        }
        if !self.kinds.is_empty() {
            self.turn = (4 * self.turn).min(LONGEST_TURN);
            for result in &mut self.results {
                result.simulated *= DECAY;
                result.named.iter_mut().for_each(|sum| *sum *= DECAY);
            }
        }
        self.kinds = self.largest(costs);
        let known = self.kinds.iter().fold(Removed::default(), |set, &kind| set.and(kind));
        self.results.retain(|result| result.removed.kinds().all(|kind| known.has(kind)));
        for (index, &first) in self.kinds.iter().enumerate() {
            for &second in &self.kinds[index + 1..] {
                self.waiting.push(Removed::of(first).and(second));
            }
        }
        // The pairs of the largest costs come first.
        self.waiting.reverse();
    }

    /// The costs that matter most: those with a gain, or with much time and a possible gain once another one
    /// is removed.
    fn largest(&self, costs: &[f64; SCENARIO_COUNT]) -> Vec<ScenarioKind> {
        let real = self.sums[ScenarioKind::Untraced as usize].max(1.0);
        let weight = |kind: ScenarioKind| {
            let saved = 1.0 - self.sums[kind as usize] / real;
            // A cost that takes time but gains nothing alone ranks after one with an equal gain.
            saved.max(0.5 * (costs[kind as usize] / real).min(1.0))
        };
        let mut kinds: Vec<_> = ScenarioKind::FIXES.into_iter().filter(|&kind| weight(kind) >= LEAST_PART).collect();
        kinds.sort_rows_by(|&a, &b| weight(b).total_cmp(&weight(a)));
        kinds.truncate(KINDS);
        kinds
    }

    /// For each of the costs, its best pair plus the third one with the next best pair.
    fn best_triples(&self) -> Vec<Removed> {
        let mut triples = Vec::new();
        for &first in &self.kinds {
            let mut pairs: Vec<_> =
                self.results.iter().filter(|pair| pair.removed.count() == 2 && pair.removed.has(first)).collect();
            pairs.sort_rows_by(|a, b| b.gain_after(first).total_cmp(&a.gain_after(first)));
            if let [best, next, ..] = pairs[..] {
                let triple = next.removed.kinds().fold(best.removed, Removed::and);
                if !triples.contains(&triple) {
                    triples.push(triple);
                }
            }
        }
        triples
    }
}
