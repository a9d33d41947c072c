//! The state of the current capture, and the events that start and end captures.
//!
//! ```text
//!            begin                      end: repeat
//! Waiting ──────────> Taking(number) ───────────────> Waiting
//!    ^                   │    │ end: stop, last repeat
//!    │ command: start    │    └──────────────────────> Idle ──command: start──> Taking
//!    └───────────────────│ end: stop-shutdown
//!                        └──────────────────────────> Over
//! ```
//! No clock, thread or library: events carry their time and return an action, so every path can be tested.
//! The configuration of the user is [`crate::config::request`].

mod at_step;

use gpuwhy_trace::record::{Timestamp, Trigger};

pub use at_step::{AtStep, AtStepAnswer};

use crate::config::request::{AtEnd, CaptureRange, Request, StepRole};
use crate::sys::clock::nanos;

/// An event that may start or end a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEvent {
    /// `cudaProfilerStart` is about to return.
    ProfilerStart,
    /// `cudaProfilerStop` was called.
    ProfilerStop,
    /// The chosen range was opened: the program's range, or its step.
    RangeOpened,
    RangeClosed,
    /// Number of steps detected since the start.
    StepsDetected(u64),
    /// Time has passed.
    Tick,
    /// The capture of the complete run ends, because it costs too much; bursts follow.
    BurstsFollow,
    /// A burst starts for this reason.
    BurstBegins(Trigger),
    /// The burst ends.
    BurstEnds,
    /// An external command to start.
    CommandStart,
    /// An external command to stop.
    CommandStop,
    /// Another tool has taken CUPTI's buffers.
    Lost,
    /// The other tool is done.
    Regained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    /// Switch tracing on; its records are discarded.
    Warm,
    /// A capture starts.
    Begin {
        /// Number of the capture, from 1.
        number: u32,
        trigger: Trigger,
    },
    /// The capture ends.
    End {
        number: u32,
    },
    /// A capture that waited for its step is canceled.
    Canceled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Taking { number: u32, since: Timestamp, trigger: Trigger, cycle: u64 },
    Idle,
    Over,
}

/// The state. See the [module](self).
#[derive(Debug)]
pub struct Plan {
    request: Request,
    start: Timestamp,
    phase: Phase,
    /// Number of captures started.
    begun: u32,
    /// Number of completed captures that came from the request rather than from a command.
    taken: u32,
    /// Number of steps started, if steps are named ranges.
    steps: u64,
    warm: bool,
    /// The capture in progress is not recorded: its end has been reported, and a new one replaces it once
    /// records are made again.
    lost: bool,
    /// The program makes CUDA graphs.
    has_graphs: bool,
    /// Step counts for commands that name a step.
    count: at_step::StepCount,
}

impl Plan {
    /// Creates the plan of a starting process.
    pub fn new(request: Request, start: Timestamp) -> Self {
        let count = at_step::StepCount::default();
        Self {
            request,
            start,
            phase: Phase::Waiting,
            begun: 0,
            taken: 0,
            steps: 0,
            warm: false,
            lost: false,
            has_graphs: false,
            count,
        }
    }

    /// Request that the plan carries out.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Number of the capture in progress.
    pub fn taking(&self) -> Option<u32> {
        if let Phase::Taking { number, .. } = self.phase { Some(number) } else { None }
    }

    /// Number of captures started.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// The program makes CUDA graphs.
    pub fn graph_made(&mut self) {
        self.has_graphs = true;
    }

    /// True if no capture starts from now on, because the program makes CUDA graphs and recording was in bursts:
    /// switching it on while a graph is launched can crash the program (docs/design/overhead.md).
    pub fn ended_for_graphs(&self) -> bool {
        self.has_graphs && self.request.range == CaptureRange::Bursts
    }

    /// True if measuring is over for good.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// True if records are needed now, including for warm-up steps and for the detection of steps.
    pub fn wants_records(&self) -> bool {
        let awaits_step = self.phase == Phase::Waiting || (self.phase == Phase::Idle && self.count.is_awaited());
        let detecting = self.request.detects_steps() && awaits_step;
        self.taking().is_some() || self.warm || detecting
    }

    /// Time at which a capture will start or end without any other event.
    pub fn deadline(&self) -> Option<Timestamp> {
        let after = |from: Timestamp, time| Timestamp::from_nanos(from.nanos().saturating_add(nanos(time)));
        match self.phase {
            Phase::Waiting if self.request.range == CaptureRange::Whole => Some(after(self.start, self.request.delay)),
            Phase::Taking { since, .. } => self.request.duration.map(|duration| after(since, duration)),
            _ => None,
        }
    }

    /// Handles an event at time `now`.
    pub fn on(&mut self, event: CaptureEvent, now: Timestamp) -> Action {
        match self.count_steps(event, now) {
            None => self.decide(event, now),
            Some(action) => {
                if matches!(action, Action::Begin { .. }) {
                    // A schedule must count this step too; it cannot start a capture while one is in
                    // progress.
                    self.decide(event, now);
                }
                action
            }
        }
    }

    fn decide(&mut self, event: CaptureEvent, now: Timestamp) -> Action {
        match (self.phase, event) {
            (Phase::Over, _) => Action::None,
            (Phase::Taking { number, .. }, CaptureEvent::Lost) if !self.lost => {
                self.lost = true;
                Action::End { number }
            }
            (Phase::Taking { since, trigger, cycle, .. }, CaptureEvent::Regained) if self.lost => {
                self.begun += 1;
                self.lost = false;
                self.phase = Phase::Taking { number: self.begun, since, trigger, cycle };
                Action::Begin { number: self.begun, trigger }
            }
            (_, CaptureEvent::Lost | CaptureEvent::Regained) => Action::None,
            (Phase::Taking { trigger, .. }, CaptureEvent::CommandStop) => {
                // After a stop by command, only a command starts again, and bursts go on.
                let next = match trigger {
                    Trigger::Command => self.next_of_commands(),
                    _ if trigger.is_burst() => Phase::Waiting,
                    _ => Phase::Idle,
                };
                self.end(next)
            }
            (_, CaptureEvent::CommandStop) => {
                if self.count.cancel() {
                    Action::Canceled
                } else {
                    Action::None
                }
            }
            (Phase::Taking { trigger: Trigger::Start, .. }, CaptureEvent::BurstsFollow) => {
                self.request.range = CaptureRange::Bursts;
                self.end(Phase::Waiting)
            }
            (Phase::Taking { trigger, .. }, CaptureEvent::BurstEnds) if trigger.is_burst() => self.end(Phase::Waiting),
            (Phase::Waiting, CaptureEvent::BurstBegins(trigger)) if self.request.range == CaptureRange::Bursts => {
                self.begin(trigger, 0, now)
            }
            (_, CaptureEvent::BurstsFollow | CaptureEvent::BurstBegins(_) | CaptureEvent::BurstEnds) => Action::None,
            (Phase::Taking { trigger, .. }, CaptureEvent::CommandStart) if !trigger.is_burst() => Action::None,
            (Phase::Taking { number, since, cycle, .. }, CaptureEvent::CommandStart) => {
                // The burst becomes the requested capture, which ends by command.
                self.phase = Phase::Taking { number, since, trigger: Trigger::Command, cycle };
                Action::None
            }
            (_, CaptureEvent::CommandStart) => self.begin(Trigger::Command, 0, now),
            (Phase::Taking { since, trigger, .. }, CaptureEvent::Tick) => match self.request.duration {
                Some(duration) if now.since(since) >= nanos(duration) => self.end_of_range(trigger, true),
                _ => Action::None,
            },
            _ if now.since(self.start) < nanos(self.request.delay) => Action::None,
            (Phase::Idle, _) => Action::None,
            (Phase::Waiting, CaptureEvent::Tick) if self.request.range == CaptureRange::Whole => {
                let delayed = !self.request.delay.is_zero();
                self.begin(if delayed { Trigger::Delay } else { Trigger::Start }, 0, now)
            }
            (_, CaptureEvent::Tick) => Action::None,
            (phase, CaptureEvent::ProfilerStart | CaptureEvent::ProfilerStop) => {
                self.range_event(phase, Trigger::ProfilerApi, event == CaptureEvent::ProfilerStart, now)
            }
            (phase, CaptureEvent::RangeOpened | CaptureEvent::RangeClosed) => {
                let opened = event == CaptureEvent::RangeOpened;
                if let CaptureRange::Steps(..) = self.request.range {
                    self.step_event(phase, opened, now)
                } else {
                    self.range_event(phase, Trigger::Range, opened, now)
                }
            }
            (phase, CaptureEvent::StepsDetected(steps)) => self.steps_detected(phase, steps, now),
        }
    }

    fn range_event(&mut self, phase: Phase, by: Trigger, opened: bool, now: Timestamp) -> Action {
        let chosen = match self.request.range {
            CaptureRange::ProfilerApi => by == Trigger::ProfilerApi,
            CaptureRange::Named(_) => by == Trigger::Range,
            CaptureRange::Whole
            | CaptureRange::Steps(..)
            | CaptureRange::Commands(_)
            | CaptureRange::Nothing
            | CaptureRange::Bursts => false,
        };
        match phase {
            _ if !chosen => Action::None,
            Phase::Waiting if opened => self.begin(by, 0, now),
            Phase::Taking { trigger, .. } if !opened && trigger == by => self.end_of_range(by, false),
            _ => Action::None,
        }
    }

    /// Handles the start or end of a step of the program.
    fn step_event(&mut self, phase: Phase, opened: bool, now: Timestamp) -> Action {
        let CaptureRange::Steps(schedule, _) = self.request.range else { return Action::None };
        if opened {
            let role = schedule.role(self.steps);
            self.steps += 1;
            return match (role, phase) {
                (StepRole::Warmup, Phase::Waiting) => {
                    self.warm = true;
                    Action::Warm
                }
                (StepRole::Active(cycle), Phase::Waiting) => self.begin(Trigger::Steps, cycle, now),
                _ => Action::None,
            };
        }
        match phase {
            Phase::Taking { trigger: Trigger::Steps, cycle, .. }
                if schedule.role(self.steps) != StepRole::Active(cycle) =>
            {
                self.end_of_cycle(schedule.role(self.steps))
            }
            _ => Action::None,
        }
    }

    /// Steps are known only once they are over, several at a time: a capture starts and ends at that point.
    fn steps_detected(&mut self, phase: Phase, steps: u64, now: Timestamp) -> Action {
        let CaptureRange::Steps(schedule, None) = self.request.range else { return Action::None };
        match (schedule.role(steps), phase) {
            (StepRole::Active(cycle), Phase::Waiting) => self.begin(Trigger::Steps, cycle, now),
            (role, Phase::Taking { trigger: Trigger::Steps, cycle, .. }) if role != StepRole::Active(cycle) => {
                self.end_of_cycle(role)
            }
            (StepRole::Over, Phase::Waiting) => {
                self.phase = Phase::Idle;
                Action::None
            }
            _ => Action::None,
        }
    }

    fn end_of_cycle(&mut self, next: StepRole) -> Action {
        if next != StepRole::Over {
            self.taken += 1;
            return self.end(Phase::Waiting);
        }
        let after = if self.request.at_end == AtEnd::StopShutdown { Phase::Over } else { Phase::Idle };
        self.end(after)
    }

    fn end_of_range(&mut self, trigger: Trigger, by_time: bool) -> Action {
        if trigger == Trigger::Command {
            let next = self.next_of_commands();
            return self.end(next);
        }
        self.taken += 1;
        let next = match self.request.at_end {
            AtEnd::None if !by_time => {
                self.taken -= 1;
                return Action::None;
            }
            AtEnd::None | AtEnd::Stop => Phase::Idle,
            AtEnd::StopShutdown => Phase::Over,
            // The complete run starts only once, so time alone does not start another capture.
            AtEnd::Repeat(_) if self.request.range == CaptureRange::Whole => Phase::Idle,
            AtEnd::Repeat(Some(times)) if self.taken >= times => Phase::Idle,
            AtEnd::Repeat(_) => Phase::Waiting,
        };
        self.end(next)
    }

    /// After a capture by command, the request continues where it was, unless it is for the complete run.
    fn next_of_commands(&self) -> Phase {
        let more = match self.request.at_end {
            AtEnd::Repeat(times) => times.is_none_or(|times| self.taken < times),
            _ => self.taken == 0,
        };
        if more && self.request.range != CaptureRange::Whole { Phase::Waiting } else { Phase::Idle }
    }

    fn begin(&mut self, trigger: Trigger, cycle: u64, now: Timestamp) -> Action {
        if self.ended_for_graphs() {
            return Action::None;
        }
        self.begun += 1;
        self.warm = false;
        self.count.begun();
        self.phase = Phase::Taking { number: self.begun, since: now, trigger, cycle };
        Action::Begin { number: self.begun, trigger }
    }

    fn end(&mut self, next: Phase) -> Action {
        let Some(number) = self.taking() else { return Action::None };
        self.phase = next;
        if std::mem::take(&mut self.lost) { Action::None } else { Action::End { number } }
    }
}

#[cfg(test)]
mod tests;
