//! Routes each record to the capture that it belongs to, or to none.
//!
//! Captures follow each other, but their records may arrive mixed, so several filters can be open at once:
//! that of the capture in progress, and those of earlier captures whose last device work is still to arrive.
//! The capture of a record may be known only later. Records are therefore first routed and later handed over,
//! one capture after the other: the trace names a capture once for all records that follow. Memory is bounded
//! by the filters ([`OPEN_LIMIT`], and their own limits) and by the records that arrive between two
//! handovers.

use std::collections::VecDeque;
use std::mem;

use gpuwhy_report::capture::{MONITORED, OPEN_LIMIT};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{Record, Timestamp};

use crate::routing::capture_filter::{CaptureFilter, Membership};

/// Time after the end of a capture for which its device work is awaited: as long as the engine waits for a
/// launch (2 s).
const DRAIN_NANOS: u64 = 2_000_000_000;

/// Open captures, and records on their way to them.
#[derive(Debug, Default)]
pub struct Router {
    open: VecDeque<(u32, CaptureFilter)>,
    /// The newest concluded captures: records that still arrive for them are lost.
    concluded: VecDeque<CaptureFilter>,
    /// Records to be handed over, with the number of their capture.
    routed: Vec<(u32, Record)>,
    /// Number of records that belong to no capture.
    outside: u64,
    /// Number of calls among them that came after their capture was concluded.
    missed: u64,
    /// Newest flush mark.
    mark: Timestamp,
    rejected: Vec<Record>,
    /// See [`calls_may_be_missing`](Self::calls_may_be_missing).
    without_calls: bool,
    /// Mode auto: samples and ranges outside captures belong to the monitored run.
    monitored: bool,
}

impl Router {
    /// Creates the router of a run that is measured completely, as capture 1.
    pub fn of_whole_run() -> Self {
        Self { open: VecDeque::from([(1, CaptureFilter::new(None))]), ..Self::default() }
    }

    /// Creates the router of a monitored run, whose captures are bursts.
    pub fn of_monitored_run() -> Self {
        Self { monitored: true, ..Self::default() }
    }

    /// From the next capture on, device work of a capture without calls belongs to it by its own time: CUPTI
    /// may record no calls if CUDA had a context before.
    pub fn calls_may_be_missing(&mut self, may: bool) {
        self.without_calls = may;
    }

    /// True if the oldest capture has to be concluded before another starts.
    pub fn is_full(&self) -> bool {
        self.open.len() >= OPEN_LIMIT
    }

    /// Starts a capture.
    pub fn begin(&mut self, number: u32, at: Timestamp) {
        self.open.push_back((number, CaptureFilter::new(Some(at)).without_calls(self.without_calls)));
    }

    /// Ends the range of a capture.
    pub fn end(&mut self, number: u32, at: Timestamp) {
        if let Some((_, filter)) = self.open.iter_mut().find(|(open, _)| *open == number) {
            filter.end(at);
        }
    }

    /// Number of records that belonged to no capture.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Number of calls that came after their capture was concluded, with the work they launched: CUPTI kept
    /// them for too long.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// True as long as the run is measured completely.
    pub fn is_complete(&self) -> bool {
        self.open.front().is_some_and(|(_, filter)| filter.takes_everything())
    }

    /// True if no capture is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a record. Returns its capture if that is certain and no record waits, which holds as long as the
    /// run is measured completely. Otherwise the record is handed over later, if it belongs to a capture.
    #[inline]
    pub fn route(&mut self, record: &Record) -> Option<u32> {
        if let Some((number, filter)) = self.open.front_mut().filter(|(_, filter)| filter.takes_everything()) {
            filter.judge(record);
            return Some(*number);
        }
        let before = self.routed.len();
        self.route_from(0, record);
        // Samples and ranges never wait for a capture.
        if self.monitored && matches!(record, Record::Sample(_) | Record::Range(_)) && self.routed.len() == before {
            self.routed.push((MONITORED, *record));
        }
        None
    }

    fn route_from(&mut self, first: usize, record: &Record) {
        let mut placed = false;
        for (number, filter) in self.open.iter_mut().skip(first) {
            // A call bounds every capture, so all filters see it.
            if placed && !matches!(record, Record::Api(_)) {
                return;
            }
            match filter.judge(record) {
                Membership::In if !placed => {
                    placed = true;
                    self.routed.push((*number, *record));
                }
                Membership::In | Membership::Out => {}
                Membership::Pending => placed = true,
            }
        }
        if !placed {
            self.outside += 1;
            self.missed += u64::from(self.concluded.iter().any(|filter| filter.missed(record)));
        }
    }

    /// Hands over the routed records, one capture after the other.
    pub fn hand_over(&mut self, mut take: impl FnMut(u32, &Event)) {
        if self.routed.windows(2).any(|pair| pair[0].0 != pair[1].0) {
            self.routed.sort_by_key(|&(number, _)| number);
        }
        for (number, record) in self.routed.drain(..) {
            take(number, &Event::Record(record));
        }
    }

    /// Handles a flush mark: if it has advanced, routes the records that no longer wait.
    pub fn flushed(&mut self, before: Timestamp) {
        if before <= self.mark {
            return;
        }
        self.mark = before;
        for index in 0..self.open.len() {
            let mut rejected = mem::take(&mut self.rejected);
            let (number, filter) = &mut self.open[index];
            filter.flushed(|record, inside| match inside {
                true => self.routed.push((*number, record)),
                false => rejected.push(record),
            });
            self.route_rejected(index + 1, rejected);
        }
    }

    /// Routes records that a capture rejected: they belong to a later one, or to none.
    fn route_rejected(&mut self, first: usize, mut rejected: Vec<Record>) {
        rejected.drain(..).for_each(|record| self.route_from(first, &record));
        self.rejected = rejected;
    }

    /// Number of the oldest capture, if its range has ended and no more records for it are expected as of the
    /// mark `before`.
    #[must_use]
    pub fn drained(&self, before: Timestamp, awaits_work: impl Fn(u32) -> bool) -> Option<u32> {
        let (number, filter) = self.open.front()?;
        let end = filter.ended()?;
        let deadline = end.nanos().saturating_add(DRAIN_NANOS);
        (before > end && (before.nanos() > deadline || !awaits_work(*number))).then_some(*number)
    }

    /// Closes the oldest capture: routes the waiting records, and returns its number and the end of its
    /// range, `None` while it is in progress.
    pub fn conclude(&mut self) -> Option<(u32, Option<Timestamp>)> {
        let (number, mut filter) = self.open.pop_front()?;
        let mut rejected = mem::take(&mut self.rejected);
        filter.close(|record, inside| match inside {
            true => self.routed.push((number, record)),
            false => rejected.push(record),
        });
        self.route_rejected(0, rejected);
        let ended = filter.ended();
        if self.concluded.len() >= OPEN_LIMIT {
            self.concluded.pop_front();
        }
        self.concluded.push_back(filter);
        Some((number, ended))
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{ApiCall, CorrelationId, Kernel, RangeEvent};

    use super::*;

    fn time(micros: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + micros * 1_000)
    }

    fn call(id: u32, at: u64) -> Record {
        let (start, end) = (time(at), time(at + 1));
        Record::Api(ApiCall { start, end, correlation: CorrelationId(id), ..ApiCall::default() })
    }

    fn kernel(id: u32, at: u64) -> Record {
        let (start, end) = (time(at), time(at + 1));
        Record::Kernel(Kernel { start, end, correlation: CorrelationId(id), ..Kernel::default() })
    }

    /// Records handed over: their captures, and true for kernels.
    fn handed_over(router: &mut Router) -> Vec<(u32, bool)> {
        let mut got = Vec::new();
        router.hand_over(|number, event| got.push((number, matches!(event, Event::Record(Record::Kernel(_))))));
        got
    }

    #[test]
    fn work_of_one_capture_that_runs_in_the_next_goes_to_the_first() {
        let mut router = Router::default();
        assert_eq!(router.route(&kernel(1, 5)), None);
        router.begin(1, time(10));
        router.route(&call(10, 20));
        router.end(1, time(30));
        router.begin(2, time(31));
        [call(20, 1000), kernel(20, 2000), kernel(10, 2500)].iter().for_each(|record| {
            router.route(record);
        });
        assert_eq!(handed_over(&mut router), [(1, false), (1, true), (2, false), (2, true)]);
        assert_eq!((router.outside(), handed_over(&mut router).len()), (1, 0));
    }

    #[test]
    fn a_capture_is_drained_when_nothing_is_awaited_or_the_timeout_is_over() {
        let mut router = Router::of_whole_run();
        assert_eq!(router.route(&call(1, 1)), Some(1));
        assert_eq!(router.drained(time(5), |_| false), None, "it is being taken");
        router.end(1, time(10));
        assert_eq!(router.drained(time(10), |_| false), None, "what ended with it may still come");
        assert_eq!(router.drained(time(11), |_| false), Some(1));
        assert_eq!(router.drained(time(11), |_| true), None);
        assert_eq!(router.drained(time(2_000_011), |_| true), Some(1));
        assert_eq!(router.conclude(), Some((1, Some(time(10)))));
        assert_eq!(router.conclude(), None);
        for at in [9, 10, 11] {
            router.route(&call(3, at));
        }
        assert!(handed_over(&mut router).is_empty(), "there is no capture");
        assert_eq!((router.missed(), router.outside()), (2, 3));
    }

    #[test]
    fn ranges_outside_of_bursts_are_those_of_the_run() {
        let range = Record::Range(RangeEvent { at: time(5), ..RangeEvent::default() });
        for (mut router, expected) in
            [(Router::of_monitored_run(), &[(MONITORED, false)][..]), (Router::default(), &[])]
        {
            router.route(&range);
            router.route(&call(1, 5));
            assert_eq!(handed_over(&mut router), expected);
        }
    }
}
