//! Result of a simulation: best cases if the simulation is reliable, else the reason for the refusal.
//!
//! This module alone decides. It checks the simulation of the real run: if that does not reproduce the real
//! step times, no other scenario is reliable either.

use super::best_case::BestCase;
use super::busy::Busy;
use super::combinations::Combined;
use super::intervals::{WithoutTracing, interval, limited, spread};
use super::scenario::ScenarioKind;
use super::steps::StepTimes;
use super::variants::Removed;
use crate::leaf::Leaves;
use crate::quantile::lower_median;

/// Largest median error of the base simulation. Published simulations of training traces have errors of 3 to
/// 14 %.
pub const BASE_ERROR_LIMIT: f64 = 0.05;
/// Largest fraction of the step time in which operations waited for something that the records do not show.
pub const UNEXPLAINED_LIMIT: f64 = 0.05;
/// Fewest complete steps for a meaningful mean.
pub const FEWEST_STEPS: usize = 3;

/// Minimum fraction of the steady time that the simulated steps must cover, if the result is not computed by
/// steps.
pub const COVERED_LEAST: f64 = 0.5;

/// Reason for not using the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SimulationProblem {
    /// Only this many steps were simulated from start to end, fewer than [`FEWEST_STEPS`].
    FewSteps(u64),
    /// The error of the base simulation is this fraction of the step, more than [`BASE_ERROR_LIMIT`].
    BaseError(f64),
    /// This fraction of the step was spent waiting for an unknown reason, [`UNEXPLAINED_LIMIT`] or more.
    Unexplained(f64),
    /// The simulated steps cover only this fraction of the steady time, less than [`COVERED_LEAST`].
    Covered(f64),
}

/// Possible gains of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Number of complete steps used: all simulated ones after start-up.
    pub steps: u64,
    /// Number of steps of the run that they represent: more than `steps` if only part of the run was
    /// simulated.
    pub represented_steps: u64,
    /// Total time of the represented steps, nanoseconds.
    pub covers_ns: u64,
    /// Median over the steps of the absolute error of the base simulation, as a fraction of the step (over
    /// means of adjacent steps if there are more than 128). `None` without steps.
    pub base_error: Option<f64>,
    /// Reason that the best cases are additive bounds (or missing) instead of simulated.
    pub refused: Option<SimulationProblem>,
    /// Fraction of a step that remains without tracing in the simulation, 0 to 1; 1 if the overhead of
    /// tracing is unknown. `None` if the simulation is refused. Simulated best cases are relative to a step
    /// without tracing.
    pub untraced: Option<f64>,
    /// Fraction of the overhead of tracing that comes from a table, 0 to 1; the rest is seen in the calls.
    pub priced: f64,
    /// One for each scenario with a result, except for the two that remove no cost of the program.
    pub best_cases: Vec<BestCase>,
    /// Results with several costs removed at once, as far as simulated.
    pub combined: Vec<Combined>,
    /// Work that no gain can go below; none if it is unknown.
    pub busy: Busy,
}

impl WhatIf {
    /// Computes the result for these steps. `priced`: fraction of the overhead of tracing that comes from a table,
    /// 0 to 1.
    pub(super) fn of(rows: &[StepTimes], combined: &[Combined], priced: f64) -> Self {
        let sum = |of: &dyn Fn(&StepTimes) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
        let (steps, represented_steps, real) =
            (sum(&|row| row.steps), sum(&|row| row.represented_steps), sum(&|row| row.real));
        let mut base_errors: Vec<_> = rows.iter().map(StepTimes::base_error).collect();
        base_errors.sort_by(f64::total_cmp);
        let base_error = lower_median(&base_errors);
        let unexplained = if real == 0 { 0.0 } else { sum(&|row| row.unexplained) as f64 / real as f64 };
        let refused = match base_error {
            _ if steps < FEWEST_STEPS as u64 => Some(SimulationProblem::FewSteps(steps)),
            Some(error) if error > BASE_ERROR_LIMIT => Some(SimulationProblem::BaseError(error)),
            _ if unexplained >= UNEXPLAINED_LIMIT => Some(SimulationProblem::Unexplained(unexplained)),
            _ => None,
        };
        let (mut best_cases, mut untraced) = (Vec::new(), None);
        if refused.is_none() {
            let simulated = |kind: ScenarioKind| sum(&|row| row.simulated[kind as usize]);
            let base = simulated(ScenarioKind::Base).max(1);
            // The base error affects both, so the ratio is more accurate than either.
            let possible =
                |kind: ScenarioKind| real as f64 * simulated(kind) as f64 / base as f64 / represented_steps as f64;
            let without = simulated(ScenarioKind::Untraced);
            let part = (without as f64 / base as f64).min(1.0);
            untraced = Some(part);
            let without = WithoutTracing { part, priced };
            let now = possible(ScenarioKind::Untraced) as u64;
            for kind in ScenarioKind::ALL.into_iter().filter(|kind| kind.is_change()) {
                // Without counters no kernel has a known roofline, so there is no result.
                if kind == ScenarioKind::KernelsAtRoof && simulated(kind) == simulated(ScenarioKind::Untraced) {
                    continue;
                }
                let pair = |row: &StepTimes| {
                    (row.simulated[kind as usize] as f64, row.simulated[ScenarioKind::Untraced as usize] as f64)
                };
                let spread = spread(&rows.iter().map(pair).collect::<Vec<_>>());
                best_cases.push(BestCase::simulated(kind, now, possible(kind) as u64, spread, without));
            }
        }
        let believed = |set: &&Combined| refused.is_none() && set.steps >= FEWEST_STEPS as u64;
        let combined = combined.iter().filter(believed).copied().collect();
        let mut answer = Self {
            steps,
            represented_steps,
            covers_ns: real,
            base_error,
            refused,
            untraced,
            priced,
            best_cases,
            combined,
            busy: Busy::default(),
        };
        answer.raise_what_contains();
        answer
    }

    /// No best case is smaller than that of a contained scenario. Scenarios differ in more than host costs:
    /// without launches, the gaps of the device are those of a graph.
    fn raise_what_contains(&mut self) {
        for index in 0..self.best_cases.len() {
            for &kind in self.best_cases[index].kind.contained() {
                let Some(inner) = self.best_case(kind).copied() else { continue };
                let outer = &mut self.best_cases[index];
                if inner.speedup > outer.speedup {
                    (outer.speedup, outer.step_ns) = (inner.speedup, inner.step_ns);
                }
                let ends = outer.interval.zip(inner.interval);
                outer.interval = ends.map(|((low, high), inner)| (low.max(inner.0), high.max(inner.1)));
            }
        }
    }

    /// Refuses the result if its steps are less than [`COVERED_LEAST`] of `judged` nanoseconds: they do not
    /// represent the rest.
    #[must_use]
    pub(crate) fn only_if_it_covers(mut self, judged: u64) -> Self {
        let part = self.covers_ns as f64 / judged.max(1) as f64;
        if self.refused.is_none() && part < COVERED_LEAST {
            self.refused = Some(SimulationProblem::Covered(part));
        }
        self
    }

    /// Uses the additive bounds of `leaves` if the simulation was refused; `link_ns` as for
    /// [`BestCase::additive`].
    #[must_use]
    pub fn or_additive(mut self, leaves: &Leaves, link_ns: u64) -> Self {
        if self.refused.is_some() {
            self.untraced = None;
            self.best_cases = BestCase::additive(leaves, link_ns);
        }
        self
    }

    /// Limits every gain to that of a step with nothing but the work that stays. `leaves`: the steps that the shares
    /// of the report are of; `selections`: part of computation that only finds selections, 0 to 1.
    #[must_use]
    pub(crate) fn leaving_the_work(mut self, leaves: &Leaves, selections: f64) -> Self {
        self.busy = Busy::of(leaves, selections, self.untraced.unwrap_or(1.0));
        for best_case in &mut self.best_cases {
            best_case.limit(self.busy.most(Removed::of(best_case.kind)));
        }
        self
    }

    /// Mean real duration of the simulated steps, nanoseconds, computed from the two factors of a best case.
    /// `None` if nothing was simulated. Includes tracing if its overhead is known; best cases do not.
    pub fn step_ns(&self) -> Option<u64> {
        let best_case = self.best_cases.iter().find(|best_case| best_case.step_ns > 0)?;
        let now = best_case.step_ns as f64 * best_case.speedup;
        self.refused.is_none().then(|| (now / self.untraced.unwrap_or(1.0)).round() as u64)
    }

    /// Speedup of the program without all of `removed`, and its interval; `None` if it was not simulated. The
    /// combined gain builds on the first of `removed`, and is not above that of a scenario without all of them.
    #[must_use]
    pub fn without(&self, removed: Removed) -> Option<(f64, (f64, f64))> {
        let first = self.best_case(removed.kinds().next()?)?;
        if removed.count() == 1 {
            return Some((first.speedup, first.interval?));
        }
        let set = self.combined.iter().find(|set| set.removed == removed)?;
        // Fewer steps are simulated for a set than for a scenario that contains it, so its own error is larger.
        let contained = |outer: &&BestCase| removed.kinds().all(|kind| outer.kind.contained().contains(&kind));
        let most = self.best_cases.iter().filter(contained).map(|outer| outer.speedup).fold(f64::INFINITY, f64::min);
        let (stays, speedup) = (self.busy.most(removed), (first.speedup * set.gain_after(first.kind)).min(most));
        let interval = || interval(removed.kinds(), speedup, 0.0, self.without_tracing());
        speedup.is_finite().then(|| (speedup.min(stays), limited(interval(), stays, removed)))
    }

    /// Fraction of a step that remains without tracing, from and to: how wrong the table of its overhead may
    /// be. `None` as for `untraced`.
    pub fn untraced_range(&self) -> Option<(f64, f64)> {
        self.untraced.map(|_| self.without_tracing().range())
    }

    fn without_tracing(&self) -> WithoutTracing {
        WithoutTracing { part: self.untraced.unwrap_or(1.0), priced: self.priced }
    }

    /// Best case of one scenario, if it has a result.
    pub fn best_case(&self, kind: ScenarioKind) -> Option<&BestCase> {
        self.best_cases.iter().find(|best_case| best_case.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::scenario::SCENARIO_COUNT;

    #[test]
    fn a_scenario_promises_no_less_than_one_that_it_contains() {
        let mut simulated = [1_000; SCENARIO_COUNT];
        simulated[ScenarioKind::LaunchesFree as usize] = 250;
        simulated[ScenarioKind::CopiesOverlapped as usize] = 100;
        simulated[ScenarioKind::DeviceOnly as usize] = 500;
        let row = |began| StepTimes {
            began,
            steps: 1,
            represented_steps: 1,
            real: 1_000,
            simulated,
            error: 0,
            unexplained: 0,
        };
        let answer = WhatIf::of(&[row(1), row(1_001), row(2_001)], &[], 1.0);
        let [launches, device] = [ScenarioKind::LaunchesFree, ScenarioKind::DeviceOnly].map(|kind| {
            let best_case = answer.best_case(kind).unwrap();
            (best_case.speedup, best_case.step_ns, best_case.interval.unwrap())
        });
        assert_eq!((launches.0, launches.1), (4.0, 250));
        assert_eq!((device.0, device.1), (4.0, 250), "as much as without launches, less than without copies");
        assert!(device.2.0 >= launches.2.0 && device.2.1 >= launches.2.1, "{device:?} {launches:?}");
        assert_eq!(answer.step_ns(), Some(1_000));
    }
}
