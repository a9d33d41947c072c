//! What decides from records and samples when a capture begins or ends: steps that are counted, and mode auto.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::monitoring::{BurstDecision, BurstLimits, BurstPlanner, MonitorView};

use crate::capture::controller::CaptureController;
use crate::capture::plan::Event;
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
    /// Those that the settings ask for. Without a way to stop recording, there are no bursts.
    pub fn new(settings: &Settings, can_stop: bool) -> Self {
        Self {
            steps: settings.capture.detects_steps().then(|| {
                let mut watch = Attributor::new();
                watch.stop_what_if();
                watch
            }),
            bursts: settings.bursts.map(|limits| {
                // Without a budget there is none.
                let budget = if can_stop { limits.budget } else { 0.0 };
                BurstPlanner::new(BurstLimits { budget, ..limits })
            }),
        }
    }

    /// Looks at a record, whichever capture it belongs to.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        if let Some(steps) = &mut self.steps {
            steps.push(record, dictionary);
        }
        if let (Some(planner), Record::Sample(_) | Record::Range(_)) = (&mut self.bursts, record) {
            planner.push(record, dictionary);
        }
    }

    /// A flush mark: tells how many steps there were so far, when somebody counts them.
    pub fn flushed(&mut self, before: Timestamp, dictionary: &Dictionary, controller: &CaptureController) {
        let Some(steps) = &mut self.steps else { return };
        steps.flushed(before, dictionary);
        let seen = steps.devices().map(|account| account.steps().seen).max().unwrap_or(0);
        controller.event(Event::StepsDetected(seen));
    }

    /// Begins and ends bursts.
    pub fn choose_bursts(
        &mut self,
        now: Timestamp,
        view: &MonitorView,
        account: &mut CostTracker,
        controller: &CaptureController,
    ) {
        let Some(planner) = &mut self.bursts else { return };
        let event = match planner.decide(now, view, &account.cost()) {
            Some(BurstDecision::Begin(trigger)) => Some(Event::BurstBegins(trigger)),
            Some(BurstDecision::End) => Some(Event::BurstEnds),
            None => None,
        };
        // One that did not begin gives its credit back; one that somebody else has ended has ended.
        if event.is_some_and(|event| !controller.event(event)) {
            planner.refused();
        }
        account.bursts(planner.summary());
    }

    /// The run is over.
    pub fn finish(&mut self, at: Timestamp, account: &mut CostTracker) {
        if let Some(planner) = &mut self.bursts {
            planner.finish(at, &account.cost());
            account.bursts(planner.summary());
        }
    }
}
