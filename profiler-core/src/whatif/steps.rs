//! Step times of the replay: real and in every scenario, for the steps that the gate looks at.
//!
//! A step lasts from when the device has finished everything that began before one boundary to when it has finished
//! everything that began before the next. Real and replayed times are read at the same operations, so a scenario in
//! which a copy runs far ahead does not seem to have no steps.

use std::collections::VecDeque;

use super::device::Progress;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};

/// Steps that the gate and the medians look at.
pub(super) const STEP_WINDOW: usize = 50;

/// One step: how long it took and how long it would have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Real time, nanoseconds. Never 0.
    pub real: u64,
    /// Replayed time in each scenario, indexed by `ScenarioKind as usize`, nanoseconds.
    pub replayed: [u64; SCENARIO_COUNT],
    /// Time that operations waited for something that the records do not show while the device was idle, nanoseconds.
    pub unexplained: u64,
}

impl StepTimes {
    /// How far the base replay is off, as a signed part of the real time.
    #[must_use]
    pub fn base_error(&self) -> f64 {
        self.replayed[ScenarioKind::Base as usize] as f64 / self.real as f64 - 1.0
    }
}

/// The newest steps of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    last: Option<Progress>,
    rows: VecDeque<StepTimes>,
}

impl Steps {
    /// A step begins: everything before it is in `now`.
    pub(super) fn boundary(&mut self, now: &Progress) {
        if now.real == 0 {
            return; // Nothing has run: the first step has no begin yet.
        }
        if let Some(last) = &self.last {
            let real = now.real - last.real;
            if real == 0 {
                return; // Nothing ran in between: not a step.
            }
            if self.rows.len() == STEP_WINDOW {
                self.rows.pop_front();
            }
            self.rows.push_back(StepTimes {
                real,
                replayed: std::array::from_fn(|index| now.clocks[index] - last.clocks[index]),
                unexplained: now.unexplained - last.unexplained,
            });
        }
        self.last = Some(*now);
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &StepTimes> {
        self.rows.iter()
    }
}
