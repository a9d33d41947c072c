//! A capture that a command wants to begin at a step of the program, the same one in all ranks of a job.
//!
//! Steps count from 0: step 7 is the eighth. A step is a range of the name that gpuwhy was started with, counted from
//! the first one after CUDA's start, or a step that was detected. A range begins and ends a capture exactly. Detected
//! steps are known only when they are over, several at a time, so a capture begins and ends then.

use super::{Action, Event, Phase, Plan};
use gpuwhy_trace::record::{Timestamp, Trigger};

/// Which steps a command wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtStep {
    /// The first one, from 0.
    pub first: u64,
    /// How many; at least one. `None`: until a command ends the capture.
    pub count: Option<u64>,
}

/// What becomes of such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStepAnswer {
    /// The capture begins at the step.
    Waits,
    /// The step has begun already, so nothing changes.
    Past,
    /// Nothing counts steps here, so nothing changes.
    NotCounted,
    /// A capture is being taken, or measuring is over, so nothing changes.
    Busy,
}

/// What the plan knows of steps.
#[derive(Debug, Default)]
pub(super) struct StepCount {
    /// Steps that have begun, if ranges are steps, else those that were detected.
    seen: u64,
    /// What a command waits for.
    wanted: Option<AtStep>,
    /// The capture that a step began ends once so many steps were seen, and the last of them is over.
    until: Option<u64>,
}

impl StepCount {
    pub(super) fn is_awaited(&self) -> bool {
        self.wanted.is_some()
    }

    /// Any capture begins: it is not one that ends by steps, unless it says so afterwards.
    pub(super) fn begun(&mut self) {
        self.until = None;
    }

    /// Takes back what a command waited for. Answers whether there was something.
    pub(super) fn cancel(&mut self) -> bool {
        self.wanted.take().is_some()
    }
}

impl Plan {
    /// A command wants a capture of these steps. A later command replaces an earlier one whose step has not come.
    pub fn start_at_step(&mut self, wanted: AtStep) -> AtStepAnswer {
        let answer = match self.phase {
            Phase::Over | Phase::Taking { .. } => AtStepAnswer::Busy,
            // Where records are not wanted any more nothing detects.
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

    /// Steps that have begun or were detected, where something counts them.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        (self.request.range_name().is_some() || self.request.detects_steps()).then_some(self.count.seen)
    }

    /// The step that a command waits for.
    #[must_use]
    pub fn awaited_step(&self) -> Option<u64> {
        self.count.wanted.map(|wanted| wanted.first)
    }

    /// Counts the steps in `event`; what begins or ends by that.
    pub(super) fn count_steps(&mut self, event: Event, now: Timestamp) -> Option<Action> {
        let by_name = self.request.range_name().is_some();
        match event {
            Event::RangeOpened if by_name => {
                let number = self.count.seen;
                self.count.seen += 1;
                self.begin_at(number, number, now)
            }
            Event::RangeClosed if by_name => self.end_at(),
            Event::StepsDetected(seen) if self.request.detects_steps() => {
                self.count.seen = seen;
                // How many are wanted counts from what is known by now, so that the capture has so many.
                self.end_at().or_else(|| self.begin_at(seen, seen, now))
            }
            _ => None,
        }
    }

    /// Begins what waits for step `number` or one before it, and counts its steps from `from`.
    fn begin_at(&mut self, number: u64, from: u64, now: Timestamp) -> Option<Action> {
        let wanted = self.count.wanted.take_if(|wanted| wanted.first <= number)?;
        if !matches!(self.phase, Phase::Waiting | Phase::Idle) {
            // Another capture has begun meanwhile, and has the step.
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
