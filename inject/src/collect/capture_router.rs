//! On the collector's side: each record goes to the capture that it belongs to, or nowhere.
//!
//! Captures follow each other, but their records may come mixed, so several filters can be open at once: that of the
//! capture being taken and those of earlier ones whose last device work is still to come. Memory is bounded by the
//! filters ([`OPEN_LIMIT`], and their own limits).

use std::collections::VecDeque;

use profiler_core::capture::OPEN_LIMIT;
use profiler_core::record::{Record, Timestamp};

use crate::collect::capture_filter::{CaptureFilter, Membership};

/// Device work that was launched in a capture is waited for so long after its end: as long as the engine waits for a
/// launch (2 s).
const DRAIN_NANOS: u64 = 2_000_000_000;

/// The open captures.
#[derive(Debug, Default)]
pub struct CaptureRouter {
    open: VecDeque<(u32, CaptureFilter)>,
    /// The newest that were concluded: what comes for them all the same is lost.
    concluded: VecDeque<CaptureFilter>,
    /// Records that belong to no capture.
    outside: u64,
    /// Calls among them that came after their capture was concluded.
    missed: u64,
    /// The newest flush mark.
    mark: Timestamp,
    rejected: Vec<Record>,
    /// See [`calls_may_be_missing`](Self::calls_may_be_missing).
    without_calls: bool,
}

impl CaptureRouter {
    /// With the run as capture 1, or with none.
    #[must_use]
    pub fn new(whole_run: bool) -> Self {
        let open = if whole_run { VecDeque::from([(1, CaptureFilter::new(None))]) } else { VecDeque::new() };
        Self { open, ..Self::default() }
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

    /// The capture that the record belongs to without a doubt, as long as the run is measured as a whole.
    #[inline]
    pub fn whole(&mut self, record: &Record) -> Option<u32> {
        let (number, filter) = self.open.front_mut().filter(|(_, filter)| filter.takes_everything())?;
        filter.judge(record);
        Some(*number)
    }

    /// Hands the record to `take` with the capture that it belongs to, now or later.
    pub fn route(&mut self, record: &Record, mut take: impl FnMut(u32, &Record)) {
        self.route_from(0, record, &mut take);
    }

    fn route_from(&mut self, first: usize, record: &Record, take: &mut impl FnMut(u32, &Record)) {
        let mut placed = false;
        for (number, filter) in self.open.iter_mut().skip(first) {
            // A call bounds every capture, so all filters see it.
            if placed && !matches!(record, Record::Api(_)) {
                return;
            }
            match filter.judge(record) {
                Membership::In if !placed => {
                    placed = true;
                    take(*number, record);
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

    /// A flush mark: hands over what has stopped waiting, if the mark has moved on.
    pub fn flushed(&mut self, before: Timestamp, mut take: impl FnMut(u32, &Record)) {
        if before <= self.mark {
            return;
        }
        self.mark = before;
        for index in 0..self.open.len() {
            let mut rejected = std::mem::take(&mut self.rejected);
            let (number, filter) = &mut self.open[index];
            filter.flushed(|record, inside| if inside { take(*number, &record) } else { rejected.push(record) });
            for record in rejected.drain(..) {
                self.route_from(index + 1, &record, &mut take);
            }
            self.rejected = rejected;
        }
    }

    /// The oldest capture, if its range has ended and nothing more of it is to come as of the mark `before`.
    #[must_use]
    pub fn drained(&self, before: Timestamp, awaits_work: impl Fn(u32) -> bool) -> Option<u32> {
        let (number, filter) = self.open.front()?;
        let end = filter.ended()?;
        let deadline = end.nanos().saturating_add(DRAIN_NANOS);
        (before > end && (before.nanos() > deadline || !awaits_work(*number))).then_some(*number)
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

    /// Closes the oldest capture: hands over what still waits, and answers with its number and the end of its range,
    /// `None` while it is being taken.
    pub fn conclude(&mut self, mut take: impl FnMut(u32, &Record)) -> Option<(u32, Option<Timestamp>)> {
        let (number, mut filter) = self.open.pop_front()?;
        let mut rejected = std::mem::take(&mut self.rejected);
        filter.close(|record, inside| if inside { take(number, &record) } else { rejected.push(record) });
        for record in rejected.drain(..) {
            self.route_from(0, &record, &mut take);
        }
        self.rejected = rejected;
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
    use profiler_core::record::{ApiCall, CorrelationId, Kernel};

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

    #[test]
    fn work_of_one_capture_that_runs_in_the_next_goes_to_the_first() {
        let mut router = CaptureRouter::new(false);
        let mut got = Vec::new();
        let mut take = |number: u32, record: &Record| got.push((number, matches!(record, Record::Kernel(_))));
        router.route(&kernel(1, 5), &mut take);
        router.begin(1, time(10));
        router.route(&call(10, 20), &mut take);
        router.end(1, time(30));
        router.begin(2, time(31));
        router.route(&call(20, 1000), &mut take);
        router.route(&kernel(20, 2000), &mut take);
        router.route(&kernel(10, 2500), &mut take);
        assert_eq!(got, [(1, false), (2, false), (2, true), (1, true)]);
        assert_eq!(router.outside(), 1);
    }

    #[test]
    fn a_capture_is_drained_when_nothing_is_awaited_or_the_timeout_is_over() {
        let mut router = CaptureRouter::new(true);
        assert_eq!(router.drained(time(5), |_| false), None, "it is being taken");
        router.end(1, time(10));
        assert_eq!(router.drained(time(10), |_| false), None, "what ended with it may still come");
        assert_eq!(router.drained(time(11), |_| false), Some(1));
        assert_eq!(router.drained(time(11), |_| true), None);
        assert_eq!(router.drained(time(2_000_011), |_| true), Some(1));
        assert_eq!(router.conclude(|_, _| {}), Some((1, Some(time(10)))));
        assert_eq!(router.conclude(|_, _| {}), None);
        for at in [9, 10, 11] {
            router.route(&call(3, at), |_, _| panic!("there is no capture"));
        }
        assert_eq!((router.missed(), router.outside()), (2, 3));
    }
}
