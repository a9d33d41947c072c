//! Data under the lock of the captures: the plan, the pending marks, and the time in which recording was
//! impossible.
//!
//! No clock, thread or library: times are parameters.

use gpuwhy_trace::record::{Timestamp, Trigger};

use crate::capture::plan::Plan;

/// Data under the lock.
#[derive(Debug)]
pub struct CaptureState {
    pub plan: Plan,
    /// Marks that wait until tracing is on, the first one a start: the thread that switches tracing on sends
    /// them.
    pub marks: Vec<PendingMark>,
    /// Time within captures without recording.
    pub unobserved: Unobserved,
    /// Newest time of an event.
    newest: Timestamp,
}

/// Decision of the plan about a capture.
#[derive(Debug)]
pub enum PendingMark {
    Begin(u32, Trigger),
    End(u32),
}

impl CaptureState {
    pub fn new(plan: Plan) -> Self {
        Self { plan, marks: Vec::new(), unobserved: Unobserved::default(), newest: Timestamp::ZERO }
    }

    /// Adjusts a time that was read before the lock was taken: not before the time of an event that got the
    /// lock first.
    pub fn in_order(&mut self, at: Timestamp) -> Timestamp {
        self.newest = self.newest.max(at);
        self.newest
    }

    /// Notes whether the capture in progress is recorded as of `at`.
    pub fn observe(&mut self, at: Timestamp, recorded: bool) {
        if self.plan.taking().is_some() && !recorded {
            self.unobserved.since.get_or_insert(at);
        } else {
            self.unobserved.end(at);
        }
    }
}

/// Sum of periods; the last one may still be open.
///
/// A period counts once it is over: it belongs to the capture that continues after it.
#[derive(Debug, Default)]
pub struct Unobserved {
    since: Option<Timestamp>,
    over_nanos: u64,
}

impl Unobserved {
    /// Starts a period at `since`, which replaces an earlier assumption about its start.
    pub fn begin(&mut self, since: Timestamp) {
        self.since = Some(since);
    }

    fn end(&mut self, at: Timestamp) {
        if let Some(since) = self.since.take() {
            self.over_nanos += at.since(since);
        }
    }

    /// Nanoseconds of the completed periods.
    pub fn over(&self) -> u64 {
        self.over_nanos
    }

    /// Nanoseconds including the open period, up to `at`.
    pub fn until(&self, at: Timestamp) -> u64 {
        self.over_nanos + self.since.map_or(0, |since| at.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::plan::{Action, CaptureEvent};
    use crate::config::request::Request;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// A capture of the complete run is in progress.
    fn taking() -> CaptureState {
        let mut state = CaptureState::new(Plan::new(Request::default(), at(0)));
        assert!(matches!(state.plan.on(CaptureEvent::Tick, at(0)), Action::Begin { number: 1, .. }));
        state
    }

    #[test]
    fn a_period_counts_when_it_is_over_and_lasts_from_its_first_moment() {
        let mut state = taking();
        state.observe(at(10), true);
        state.observe(at(20), false);
        state.observe(at(30), false);
        assert_eq!([state.unobserved.over(), state.unobserved.until(at(50))], [0, 30]);
        state.observe(at(60), true);
        assert_eq!([state.unobserved.over(), state.unobserved.until(at(99))], [40, 40]);
        state.observe(at(100), false);
        state.observe(at(101), true);
        assert_eq!(state.unobserved.over(), 41);
    }

    #[test]
    fn what_was_lost_before_it_was_noticed_counts_too() {
        let mut state = taking();
        state.observe(at(20), false);
        state.unobserved.begin(at(12));
        assert_eq!(state.unobserved.until(at(22)), 10);
    }

    #[test]
    fn outside_of_captures_nothing_is_missed() {
        let mut state = taking();
        state.observe(at(10), false);
        assert_eq!(state.plan.on(CaptureEvent::CommandStop, at(15)), Action::End { number: 1 });
        state.observe(at(20), false);
        state.observe(at(90), false);
        assert_eq!(state.unobserved.until(at(99)), 10);
    }

    #[test]
    fn events_keep_the_order_in_which_they_got_the_lock() {
        let mut state = taking();
        assert_eq!([9, 7, 10].map(|nanos| state.in_order(at(nanos)).nanos()), [9, 9, 10]);
    }
}
