//! Step times of the simulation, real and in every scenario, for the steps used by the reliability check and
//! the best cases.
//!
//! A step lasts from the time when the device has finished everything that started before one boundary to the
//! time when it has finished everything that started before the next. Real and simulated times are read at
//! the same operations, so steps also exist in a scenario in which a copy runs far ahead.
//!
//! The steps of the complete run count, in bounded memory: when the rows are full, adjacent ones are joined.
//! The newest few would not be enough. Fifty steps of five kernels are 2 ms, in which a program that launches
//! eagerly is a third slower or faster than over a second; and if a detected step is a part of the program's
//! own, only a few of them include an allocator that is emptied after every sixteenth.

use super::combinations::StepOf;
use super::device::Progress;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use super::variants::Clocks;
use crate::steps::StepSeries;
use crate::steps::step_table::SERIES_LIMIT;

/// Rows kept per series (168 bytes each). Even, so that adjacent rows can be joined in pairs.
const ROW_LIMIT: usize = 128;

/// Consecutive steps: their real and simulated durations, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Time at which the device had finished the work before them.
    pub began: u64,
    /// Number of steps; never 0.
    pub steps: u64,
    /// Number of steps of the run that they represent; the following values are for that number.
    pub represented_steps: u64,
    /// Real time. Never 0.
    pub real: u64,
    /// Simulated time in each scenario, indexed by `ScenarioKind as usize`.
    pub simulated: [u64; SCENARIO_COUNT],
    /// Sum of the absolute errors of the base simulation in each step.
    pub error: u64,
    /// Time that operations waited for an unrecorded reason while the device was idle.
    pub unexplained: u64,
}

impl StepTimes {
    /// Absolute error of the base simulation as a fraction of the real time.
    pub fn base_error(&self) -> f64 {
        self.error as f64 / self.real as f64
    }

    /// Adds the steps directly after these.
    fn append(&mut self, next: &Self) {
        self.steps += next.steps;
        self.represented_steps += next.represented_steps;
        self.real = self.real.saturating_add(next.real);
        for (sum, nanos) in self.simulated.iter_mut().zip(next.simulated) {
            *sum = sum.saturating_add(nanos);
        }
        self.error = self.error.saturating_add(next.error);
        self.unexplained = self.unexplained.saturating_add(next.unexplained);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSteps {
    /// Open step: progress at its start.
    last: Option<(StepSeries, Progress)>,
    series: Vec<Series>,
}

/// Steps of one series.
#[derive(Clone, Debug)]
struct Series {
    id: StepSeries,
    rows: Vec<StepTimes>,
    /// Number of times that adjacent rows were joined: a full row has two to the power of this many steps.
    joined: u32,
}

impl SimulatedSteps {
    /// A step of `id` starts: all earlier work is in `now`, and the previous step represents `stands_for`
    /// steps. Time between steps of different series is not a step. Returns the previous step, if there was
    /// one.
    pub(super) fn boundary(&mut self, now: &Progress, id: StepSeries, stands_for: u64) -> Option<StepOf> {
        if now.real == 0 {
            return None; // No operation has run: the first step has no start yet.
        }
        let mut step = None;
        if let Some((_, last)) = self.last.filter(|&(series, _)| series == id) {
            let real = now.real - last.real;
            if real == 0 {
                return None; // No operation ran in between: not a step.
            }
            let simulated: [u64; SCENARIO_COUNT] =
                std::array::from_fn(|index| (now.clocks[index] - last.clocks[index]) as u64);
            let times = |nanos: u64| nanos.saturating_mul(stands_for);
            self.find_or_add(id).push(&StepTimes {
                began: last.real,
                steps: 1,
                represented_steps: stands_for,
                real: times(real),
                simulated: simulated.map(times),
                error: times(simulated[ScenarioKind::Base as usize].abs_diff(real)),
                unexplained: times(now.unexplained - last.unexplained),
            });
            step = Some(StepOf::between(&last, now));
        }
        self.last = Some((id, *now));
        step
    }

    /// Applies `change` to the clocks at the start of the open step.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        if let Some((_, last)) = &mut self.last {
            change(&mut last.clocks);
        }
    }

    /// Discards the open step.
    pub(super) fn break_off(&mut self) {
        self.last = None;
    }

    pub(super) fn rows(&self, id: StepSeries) -> &[StepTimes] {
        self.series.iter().find(|series| series.id == id).map_or(&[], |series| &series.rows)
    }

    /// With too many series, the one with the fewest steps is dropped.
    fn find_or_add(&mut self, id: StepSeries) -> &mut Series {
        let index = self.series.iter().position(|series| series.id == id).unwrap_or_else(|| {
            let steps = |series: &Series| series.rows.iter().map(|row| row.steps).sum::<u64>();
            if self.series.len() >= SERIES_LIMIT
                && let Some(least) = (0..self.series.len()).min_by_key(|&index| steps(&self.series[index]))
            {
                self.series.remove(least);
            }
            self.series.push(Series { id, rows: Vec::new(), joined: 0 });
            self.series.len() - 1
        });
        &mut self.series[index]
    }
}

impl Series {
    fn push(&mut self, step: &StepTimes) {
        let full = 1 << self.joined;
        if let Some(row) = self.rows.last_mut().filter(|row| row.steps < full) {
            row.append(step);
            return;
        }
        if self.rows.len() == ROW_LIMIT {
            for index in 0..ROW_LIMIT / 2 {
                self.rows[index] = self.rows[2 * index];
                let next = self.rows[2 * index + 1];
                self.rows[index].append(&next);
            }
            self.rows.truncate(ROW_LIMIT / 2);
            self.joined += 1;
        }
        self.rows.push(*step);
    }
}

#[cfg(test)]
mod tests {
    use super::super::variants::VARIANT_COUNT;
    use super::*;
    use crate::steps::StepSource;

    const PERIOD: StepSeries = StepSeries { source: StepSource::Period, period: 5 };

    #[test]
    fn every_step_is_in_one_row_however_many_there_are() {
        let mut steps = SimulatedSteps::default();
        let mut now = Progress { real: 1_000, clocks: [0.0; VARIANT_COUNT], ..Progress::default() };
        steps.boundary(&now, PERIOD, 1);
        for count in 1..=5_000u64 {
            now.real += count;
            now.clocks[ScenarioKind::Base as usize] += (count - 1) as f64;
            now.clocks[ScenarioKind::NoSyncs as usize] += (count / 2) as f64;
            steps.boundary(&now, PERIOD, 1);
            let rows = steps.rows(PERIOD);
            assert!(rows.len() <= ROW_LIMIT);
            assert_eq!(rows.iter().map(|row| row.steps).sum::<u64>(), count);
            assert_eq!(rows.iter().map(|row| row.real).sum::<u64>(), now.real - 1_000);
            assert_eq!(rows.iter().map(|row| row.error).sum::<u64>(), count);
        }
        let rows = steps.rows(PERIOD);
        assert!(
            rows.len() >= ROW_LIMIT / 2 && rows.windows(2).all(|pair| pair[0].began + pair[0].real == pair[1].began)
        );
        let sum: u64 = rows.iter().map(|row| row.simulated[ScenarioKind::NoSyncs as usize]).sum();
        assert_eq!(sum as f64, now.clocks[ScenarioKind::NoSyncs as usize]);
    }

    #[test]
    fn neither_what_broke_off_nor_what_is_between_two_series_is_a_step() {
        let other = StepSeries { period: 7, ..PERIOD };
        let mut steps = SimulatedSteps::default();
        let mut at = |real, id| _ = steps.boundary(&Progress { real, ..Progress::default() }, id, 1);
        at(10, PERIOD);
        at(20, PERIOD);
        at(50, other);
        at(55, other);
        at(70, PERIOD);
        at(80, PERIOD);
        steps.break_off();
        let mut at = |real, id| _ = steps.boundary(&Progress { real, ..Progress::default() }, id, 1);
        at(200, PERIOD);
        at(210, PERIOD);
        let times = |id| steps.rows(id).iter().map(|row| (row.began, row.real)).collect::<Vec<_>>();
        assert_eq!(times(PERIOD), [(10, 10), (70, 10), (200, 10)]);
        assert_eq!(times(other), [(50, 5)]);
        assert_eq!(times(StepSeries { period: 9, ..PERIOD }), []);
    }
}
