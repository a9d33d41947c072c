//! Which sets of costs the chosen worlds are without: what a second and a third fix bring after a first one.
//!
//! A gain of two fixes is neither the sum nor the larger of their gains: the first may uncover the second (data that
//! are ready leave a program that waits for its launches), or leave nothing to it. There are too many sets to simulate
//! all of them, so they take turns in a few worlds: all pairs of the costs that matter most, then for each of these
//! costs its best pair and the third one that promises most. That is one round. The next one takes four times as many
//! steps, and what the ones before it said counts a quarter.
//!
//! A set that takes its turn begins with the clocks of a named world, of the cost in it that gains most, and its first
//! steps do not count.

use gpuwhy_trace::record::DeviceId;

use super::device::Progress;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use super::worlds::{CHOSEN_COUNT, Removed};
use crate::steps::StepSeries;

/// Costs of which sets are made: ten pairs.
const KINDS: usize = 5;
/// A cost of less than this part of the time is not one of them.
const LEAST_PART: f64 = 0.04;
/// Steps of a turn in the first round: as few as a short recording has.
const FIRST_TURN: u64 = 4;
/// Steps of the longest turn.
const LONGEST_TURN: u64 = 256;
/// Steps at the begin of a turn that do not count, in which the worlds run apart.
const UNCOUNTED: u64 = 2;
/// What was simulated in the round before counts so much.
const DECAY: f64 = 0.25;
/// Steps of another series after which the one that is looked at is chosen anew.
const OTHERS: u64 = 16;

/// A set of costs that are gone, and how long the steps then are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combined {
    /// What is gone: two costs or three.
    pub removed: Removed,
    /// Steps that were simulated without them.
    pub steps: u64,
    /// The sum of their time, nanoseconds, and that of the same steps in each scenario; of earlier rounds a part.
    replayed: f64,
    named: [f64; SCENARIO_COUNT],
}

impl Combined {
    const fn new(removed: Removed) -> Self {
        Self { removed, steps: 0, replayed: 0.0, named: [0.0; SCENARIO_COUNT] }
    }

    /// How many times as fast the steps are as those in which only the cost of `kind` is gone, at least 1.
    pub fn gain_after(&self, kind: ScenarioKind) -> f64 {
        (self.named[kind as usize] / self.replayed.max(1.0)).max(1.0)
    }
}

/// What one step of the device that is looked at took, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepOf {
    /// In each scenario.
    pub(super) named: [f64; SCENARIO_COUNT],
    /// In each of the chosen worlds.
    pub(super) chosen: [f64; CHOSEN_COUNT],
}

impl StepOf {
    pub(super) fn between(last: &Progress, now: &Progress) -> Self {
        let took = |world: usize| (now.clocks[world] - last.clocks[world]).max(0.0);
        Self { named: std::array::from_fn(took), chosen: std::array::from_fn(|place| took(SCENARIO_COUNT + place)) }
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Combinations {
    of: Option<(DeviceId, StepSeries)>,
    others: u64,
    /// All of their steps so far, nanoseconds in each scenario.
    sums: [f64; SCENARIO_COUNT],
    kinds: Vec<ScenarioKind>,
    results: Vec<Combined>,
    /// Sets whose turn comes in this round, the last first.
    waiting: Vec<Removed>,
    /// Steps until the next turn, and how many of them do not count.
    left: u64,
    uncounted: u64,
    turn: u64,
    triples: bool,
    chosen: [Removed; CHOSEN_COUNT],
}

impl Combinations {
    /// A step of a device and a series is over; `costs` is how much time each of them took so far, nanoseconds. Gives
    /// the sets of the chosen worlds where these change, each with the named world that it begins as.
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

    /// What is known of the sets, if these are the steps that were looked at.
    pub(super) fn results(&self, of: (DeviceId, StepSeries)) -> &[Combined] {
        if self.of == Some(of) { &self.results } else { &[] }
    }

    fn add(&mut self, step: &StepOf) {
        for (place, set) in self.chosen.into_iter().enumerate().filter(|(_, set)| set.count() > 1) {
            let known = self.results.iter().position(|result| result.removed == set).unwrap_or_else(|| {
                self.results.push(Combined::new(set));
                self.results.len() - 1
            });
            let result = &mut self.results[known];
            result.steps += 1;
            result.replayed += step.chosen[place];
            for (sum, took) in result.named.iter_mut().zip(step.named) {
                *sum += took;
            }
        }
    }

    /// How many times as fast all steps are without the cost of `kind`.
    fn gain(&self, kind: ScenarioKind) -> f64 {
        self.sums[ScenarioKind::Untraced as usize] / self.sums[kind as usize].max(1.0)
    }

    /// The sets of what comes next: the triples of this round, or the pairs of the next one.
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
                result.replayed *= DECAY;
                result.named.iter_mut().for_each(|sum| *sum *= DECAY);
            }
        }
        self.kinds = self.largest(costs);
        let known = self.kinds.iter().fold(Removed::default(), |set, &kind| set.and(kind));
        self.results.retain(|result| result.removed.kinds().all(|kind| known.has(kind)));
        for (place, &first) in self.kinds.iter().enumerate() {
            for &second in &self.kinds[place + 1..] {
                self.waiting.push(Removed::of(first).and(second));
            }
        }
        // The pairs of the largest costs come first.
        self.waiting.reverse();
    }

    /// The costs that matter most: those that gain, or that take much time and may gain once another one is gone.
    fn largest(&self, costs: &[f64; SCENARIO_COUNT]) -> Vec<ScenarioKind> {
        let real = self.sums[ScenarioKind::Untraced as usize].max(1.0);
        let weight = |kind: ScenarioKind| {
            let saved = 1.0 - self.sums[kind as usize] / real;
            // What takes time and gains nothing by itself comes behind what gains as much.
            saved.max(0.5 * (costs[kind as usize] / real).min(1.0))
        };
        let mut kinds: Vec<_> = ScenarioKind::FIXES.into_iter().filter(|&kind| weight(kind) >= LEAST_PART).collect();
        kinds.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
        kinds.truncate(KINDS);
        kinds
    }

    /// For each of the costs, its best pair with the third one that does most beside it.
    fn best_triples(&self) -> Vec<Removed> {
        let mut triples = Vec::new();
        for &first in &self.kinds {
            let mut pairs: Vec<_> =
                self.results.iter().filter(|pair| pair.removed.count() == 2 && pair.removed.has(first)).collect();
            pairs.sort_by(|a, b| b.gain_after(first).total_cmp(&a.gain_after(first)));
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
