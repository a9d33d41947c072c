//! Starts and ends captures based on records and samples: counted steps, and bursts.

use std::mem;

use gpuwhy_trace::cost::{Cost, Mode};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::monitoring::{BurstDecision, BurstLimits, BurstPlanner, MonitorView};

use crate::capture::controller::CaptureController;
use crate::capture::plan::CaptureEvent;
use crate::config::{self, Settings};
use crate::cost::CostTracker;

/// See the [module](self).
pub struct Triggers {
    /// Counts steps while none are captured.
    steps: Option<Attributor>,
    /// Decides when a burst is recorded.
    bursts: Option<BurstPlanner>,
    /// Limits of bursts that follow when tracing costs too much.
    later: BurstLimits,
    /// True if the program makes CUDA graphs.
    has_graphs: bool,
}

impl Triggers {
    /// Creates the triggers that the settings request. If recording cannot be stopped, there are no bursts.
    pub fn new(settings: &Settings, can_stop: bool) -> Self {
        Self {
            steps: settings.capture.detects_steps().then(|| {
                let mut watch = Attributor::new();
                watch.stop_what_if();
                watch
            }),
            bursts: settings.bursts.map(|limits| {
                // A budget of 0 allows no burst.
                let budget = if can_stop { limits.budget } else { 0.0 };
                BurstPlanner::new(BurstLimits { budget, ..limits }, &Cost::default())
            }),
            later: settings.later_bursts(),
            has_graphs: false,
        }
    }

    /// True if captures are bursts.
    pub fn has_bursts(&self) -> bool {
        self.bursts.is_some()
    }

    /// Records less from now on, because tracing costs too much. The `cost` up to now does not count against the
    /// bursts that may follow. Returns false if they cannot follow now.
    pub fn step_down(&mut self, mode: Mode, cost: &Cost, controller: &CaptureController) -> bool {
        let limit = config::MAX_OVERHEAD;
        if mode != Mode::Auto {
            tracing::warn!("tracing costs more than {limit} allows; mode {} from now on", mode.name());
            controller.step_down(mode);
            return true;
        }
        let ends = self.has_graphs || self.later.budget == 0.0;
        if ends {
            // Before bursts could follow: a command must not start a capture in between.
            controller.graph_made();
        }
        let follows = controller.follow_with_bursts();
        if follows {
            let mut planner = BurstPlanner::new(self.later, cost);
            if ends {
                planner.graph_made();
                tracing::warn!(
                    "recording the CUDA graphs of the program costs more than allowed: recording ends here, because switching \
                     it on again can crash a program with CUDA graphs; {limit}=off records everything"
                );
            } else {
                tracing::warn!(
                    "tracing costs more than {:.1} % ({limit}): from now on only bursts are recorded; {limit}=off records everything",
                    100.0 * self.later.budget
                );
            }
            self.bursts = Some(planner);
        }
        follows
    }

    /// Takes a record of any capture.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary, controller: &CaptureController) {
        if let Some(steps) = &mut self.steps {
            steps.push(record, dictionary);
        }
        if !self.has_graphs && matches!(record, Record::Kernel(kernel) if kernel.graph_id != 0) {
            self.graph_made(controller);
        }
        if let (Some(planner), Record::Sample(_) | Record::Range(_)) = (&mut self.bursts, record) {
            planner.push(record, dictionary);
        }
    }

    /// Bursts end for good: switching recording while a graph is launched can crash the program.
    fn graph_made(&mut self, controller: &CaptureController) {
        if mem::replace(&mut self.has_graphs, true) {
            return;
        }
        controller.graph_made();
        if let Some(planner) = &mut self.bursts {
            planner.graph_made();
            tracing::warn!(
                "the program makes CUDA graphs: no burst begins from now on, because it could crash the program"
            );
        }
    }

    /// Takes an event that is no record.
    pub fn other(&mut self, event: &Event, controller: &CaptureController) {
        if matches!(event, Event::GraphNode(_)) {
            self.graph_made(controller);
        }
    }

    /// Handles a flush mark: reports the number of steps up to now, if steps are counted.
    pub fn flushed(&mut self, before: Timestamp, dictionary: &Dictionary, controller: &CaptureController) {
        let Some(steps) = &mut self.steps else { return };
        steps.flushed(before, dictionary);
        let seen = steps.devices().map(|account| account.steps().seen).max().unwrap_or(0);
        controller.event(CaptureEvent::StepsDetected(seen));
    }

    /// Starts and ends bursts.
    pub fn choose_bursts(
        &mut self,
        now: Timestamp,
        view: &MonitorView,
        account: &mut CostTracker,
        controller: &CaptureController,
    ) {
        let Some(planner) = &mut self.bursts else { return };
        match planner.decide(now, view, &account.cost()) {
            // A burst that did not start returns its credit.
            Some(BurstDecision::Begin(trigger)) if !controller.event(CaptureEvent::BurstBegins(trigger)) => {
                planner.refused()
            }
            Some(BurstDecision::Begin(_)) => {}
            // Repeated, because the controller misses an event while another thread holds its lock for long.
            Some(BurstDecision::End) | None if !planner.is_open() && controller.is_capturing() => {
                controller.event(CaptureEvent::BurstEnds);
            }
            Some(BurstDecision::End) | None => {}
        }
        account.bursts(planner.summary());
    }

    /// Ends the run.
    pub fn finish(&mut self, at: Timestamp, account: &mut CostTracker) {
        if let Some(planner) = &mut self.bursts {
            planner.finish(at, &account.cost());
            account.bursts(planner.summary());
        }
    }
}
