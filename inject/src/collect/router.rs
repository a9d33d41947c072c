//! Each record goes to the capture that it belongs to, or nowhere.
//!
//! Captures follow each other, but their records may come mixed, so several filters can be open at once: that of the
//! capture being taken and those of earlier ones whose last device work is still to come. Which capture a record
//! belongs to may be known only after it came. So records are first routed and later handed over, those of one capture
//! after those of another: the trace names a capture once for all records behind it. Memory is bounded by the filters
//! ([`OPEN_LIMIT`], and their own limits) and by what comes between two times of handing over.

use std::collections::VecDeque;
use std::mem;

use gpuwhy_report::capture::{MONITORED, OPEN_LIMIT};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{Record, Timestamp};

use crate::collect::capture_filter::{CaptureFilter, Membership};

/// Device work that was launched in a capture is waited for so long after its end: as long as the engine waits for a
/// launch (2 s).
const DRAIN_NANOS: u64 = 2_000_000_000;

/// The open captures, and the records on their way to them.
#[derive(Debug, Default)]
pub struct Router {
    open: VecDeque<(u32, CaptureFilter)>,
    /// The newest that were concluded: what comes for them all the same is lost.
    concluded: VecDeque<CaptureFilter>,
    /// Records that wait to be handed over, with the number of their capture.
    routed: Vec<(u32, Record)>,
    /// Records that belong to no capture.
    outside: u64,
    /// Calls among them that came after their capture was concluded.
    missed: u64,
    /// The newest flush mark.
    mark: Timestamp,
    rejected: Vec<Record>,
    /// See [`calls_may_be_missing`](Self::calls_may_be_missing).
    without_calls: bool,
    /// Mode auto: samples and ranges of no capture are those of the run as it is monitored.
    monitored: bool,
}

impl Router {
    /// Of a run that is measured as a whole, as capture 1.
    #[must_use]
    pub fn of_whole_run() -> Self {
        Self { open: VecDeque::from([(1, CaptureFilter::new(None))]), ..Self::default() }
    }

    /// Of a run that is monitored, with bursts for captures.
    #[must_use]
    pub fn of_monitored_run() -> Self {
        Self { monitored: true, ..Self::default() }
    }

    /// From the next capture on, device work of a capture without calls belongs to it by its own time: CUPTI may record
    /// no calls where CUDA had a context before.
    pub fn calls_may_be_missing(&mut self, may: bool) {
        self.without_calls = may;
    }

    /// Whether the oldest capture has to be concluded before another begins.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.len() >= OPEN_LIMIT
    }

    /// A capture begins.
    pub fn begin(&mut self, number: u32, at: Timestamp) {
        self.open.push_back((number, CaptureFilter::new(Some(at)).without_calls(self.without_calls)));
    }

    /// The range of a capture ended.
    pub fn end(&mut self, number: u32, at: Timestamp) {
        if let Some((_, filter)) = self.open.iter_mut().find(|(open, _)| *open == number) {
            filter.end(at);
        }
    }

    /// Records that belonged to no capture so far.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Calls that came after their capture was concluded, with whatever they launched: CUPTI kept them for too long.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Whether the run is measured as a whole, so far.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.open.front().is_some_and(|(_, filter)| filter.takes_everything())
    }

    /// Whether no capture is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a record. Answers its capture if that is known without a doubt and nothing waits: as long as the run is
    /// measured as a whole. Else the record is handed over later, if it belongs to a capture.
    #[inline]
    pub fn route(&mut self, record: &Record) -> Option<u32> {
        if let Some((number, filter)) = self.open.front_mut().filter(|(_, filter)| filter.takes_everything()) {
            filter.judge(record);
            return Some(*number);
        }
        let before = self.routed.len();
        self.route_from(0, record);
        // Samples and ranges never wait for their capture.
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
                Membership::Waits => placed = true,
            }
        }
        if !placed {
            self.outside += 1;
            self.missed += u64::from(self.concluded.iter().any(|filter| filter.missed(record)));
        }
    }

    /// Hands over what was routed, those of one capture after those of another.
    pub fn hand_over(&mut self, mut take: impl FnMut(u32, &Event)) {
        if self.routed.windows(2).any(|pair| pair[0].0 != pair[1].0) {
            self.routed.sort_by_key(|&(number, _)| number);
        }
        for (number, record) in self.routed.drain(..) {
            take(number, &Event::Record(record));
        }
    }

    /// A flush mark: routes what has stopped waiting, if the mark has moved on.
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

    /// The records of a capture that turned out to be none of its own belong to a later one, or to none.
    fn route_rejected(&mut self, first: usize, mut rejected: Vec<Record>) {
        rejected.drain(..).for_each(|record| self.route_from(first, &record));
        self.rejected = rejected;
    }

    /// The oldest capture, if its range has ended and nothing more of it is to come as of the mark `before`.
    #[must_use]
    pub fn drained(&self, before: Timestamp, awaits_work: impl Fn(u32) -> bool) -> Option<u32> {
        let (number, filter) = self.open.front()?;
        let end = filter.ended()?;
        let deadline = end.nanos().saturating_add(DRAIN_NANOS);
        (before > end && (before.nanos() > deadline || !awaits_work(*number))).then_some(*number)
    }

    /// Closes the oldest capture: routes what still waits, and answers with its number and the end of its range, `None`
    /// while it is being taken.
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

    /// What is handed over: captures, and whether each record is a kernel.
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
