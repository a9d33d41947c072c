//! A capture that starts at a step of the program by command, the same step in all ranks of a job.
//!
//! Steps count from 0: step 7 is the eighth. A step is a range with the name that gpuwhy was started with,
//! counted from the first one after CUDA's start, or a detected step. A range starts and ends a capture
//! exactly. Detected steps are known only once they are over, several at a time, so a capture starts and ends
//! at that point.

use super::{Action, CaptureEvent, Phase, Plan};
use gpuwhy_trace::record::{Timestamp, Trigger};

/// Steps that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtStep {
    /// First step, from 0.
    pub first: u64,
    /// Number of steps, at least one. `None`: until a command ends the capture.
    pub count: Option<u64>,
}

/// Response to such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStepAnswer {
    /// The capture will start at the step.
    Waits,
    /// The step has already started; the command has no effect.
    Past,
    /// Steps are not counted in this process; the command has no effect.
    NotCounted,
    /// A capture is in progress, or measuring is over; the command has no effect.
    Busy,
}

/// Step counts of the plan.
#[derive(Debug, Default)]
pub(super) struct StepCount {
    /// Number of steps that have started, if ranges are steps, else of detected steps.
    seen: u64,
    /// Steps that a command waits for.
    wanted: Option<AtStep>,
    /// A capture that a step started ends once `seen` reaches this number and the last step is over.
    until: Option<u64>,
}

impl StepCount {
    pub(super) fn is_awaited(&self) -> bool {
        self.wanted.is_some()
    }

    /// Called at the start of any capture: it does not end by steps unless the caller sets `until`
    /// afterwards.
    pub(super) fn begun(&mut self) {
        self.until = None;
    }

    /// Cancels the awaited steps. Returns true if there were any.
    pub(super) fn cancel(&mut self) -> bool {
        self.wanted.take().is_some()
    }
}

impl Plan {
    /// Handles a command to capture these steps. It replaces an earlier command whose step has not come.
    pub fn start_at_step(&mut self, wanted: AtStep) -> AtStepAnswer {
        let answer = match self.phase {
            Phase::Over | Phase::Taking { .. } => AtStepAnswer::Busy,
            // Without records, no steps are detected.
            Phase::Idle if self.request.detects_steps() => AtStepAnswer::NotCounted,
            _ if self.steps().is_none() => AtStepAnswer::NotCounted,
            _ if wanted.first < self.count.seen => AtStepAnswer::Past,
            _ => AtStepAnswer::Waits,
        };
        if answer == AtStepAnswer::Waits {
            self.count.wanted = Some(wanted);
        }
        answer
    }

    /// Number of steps started or detected; `None` if steps are not counted.
    pub fn steps(&self) -> Option<u64> {
        (self.request.range_name().is_some() || self.request.detects_steps()).then_some(self.count.seen)
    }

    /// Step that a command waits for.
    pub fn awaited_step(&self) -> Option<u64> {
        self.count.wanted.map(|wanted| wanted.first)
    }

    /// Counts the steps in `event`; returns the start or end of a capture if it causes one.
    pub(super) fn count_steps(&mut self, event: CaptureEvent, now: Timestamp) -> Option<Action> {
        let by_name = self.request.range_name().is_some();
        match event {
            CaptureEvent::RangeOpened if by_name => {
                let number = self.count.seen;
                self.count.seen += 1;
                self.begin_at(number, number, now)
            }
            CaptureEvent::RangeClosed if by_name => self.end_at(),
            CaptureEvent::StepsDetected(seen) if self.request.detects_steps() => {
                self.count.seen = seen;
                // Counts the requested steps from the current step, so that the capture has the full number.
                self.end_at().or_else(|| self.begin_at(seen, seen, now))
            }
            _ => None,
        }
    }

    /// Starts the capture that waits for step `number` or an earlier one, and counts its steps from `from`.
    fn begin_at(&mut self, number: u64, from: u64, now: Timestamp) -> Option<Action> {
        let wanted = self.count.wanted.take_if(|wanted| wanted.first <= number)?;
        if !matches!(self.phase, Phase::Waiting | Phase::Idle) {
            // Another capture is in progress and contains the step.
            return None;
        }
        let action = self.begin(Trigger::Command, 0, now);
        self.count.until = wanted.count.map(|count| from.saturating_add(count));
        Some(action)
    }

    fn end_at(&mut self) -> Option<Action> {
        let until = self.count.until?;
        if self.count.seen < until || !matches!(self.phase, Phase::Taking { .. }) {
            return None;
        }
        self.count.until = None;
        let next = self.next_of_commands();
        Some(self.end(next))
    }
}
