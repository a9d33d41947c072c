//! Starts and ends captures based on records and samples: counted steps, and mode auto.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::monitoring::{BurstDecision, BurstLimits, BurstPlanner, MonitorView};

use crate::capture::controller::CaptureController;
use crate::capture::plan::CaptureEvent;
use crate::config::Settings;
use crate::cost::CostTracker;

/// See the [module](self).
pub struct Triggers {
    /// Counts steps while none are captured.
    steps: Option<Attributor>,
    /// Decides when mode auto records.
    bursts: Option<BurstPlanner>,
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
                BurstPlanner::new(BurstLimits { budget, ..limits })
            }),
        }
    }

    /// Takes a record of any capture.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        if let Some(steps) = &mut self.steps {
            steps.push(record, dictionary);
        }
        if let (Some(planner), Record::Sample(_) | Record::Range(_)) = (&mut self.bursts, record) {
            planner.push(record, dictionary);
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
        let event = match planner.decide(now, view, &account.cost()) {
            Some(BurstDecision::Begin(trigger)) => Some(CaptureEvent::BurstBegins(trigger)),
            Some(BurstDecision::End) => Some(CaptureEvent::BurstEnds),
            None => None,
        };
        // A burst that did not start returns its credit; a burst may also have been ended by another event.
        if event.is_some_and(|event| !controller.event(event)) {
            planner.refused();
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
