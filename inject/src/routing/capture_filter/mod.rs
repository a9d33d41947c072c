//! Decides which records belong to a capture.
//!
//! Tracing is switched on before a capture starts, and off some time after it ends, because device work that
//! was launched in it may still be running. Two captures may also follow each other without tracing ever
//! being off. Some records therefore belong to no capture or to another one. The time of the call decides: an
//! API record by its own start, device work by that of its launching call, the rest by its own time.
//!
//! Device work lacks the time of its call; it only has the call's correlation id. Ids count up, so the calls
//! seen in the range bound the ids that belong to it. Work whose id lies outside the known bounds waits: for
//! its call, for two flush marks (its call may be the only one that has not returned yet), or for the end.
//! Device times are only used where the error of mapping them cannot matter.

use std::mem;

use gpuwhy_trace::record::{CorrelationId, Record, Timestamp};
use profiler_core::thresholds::CLOCK_SLACK_NANOS;

/// Maximum number of waiting records, about 4 MB for each of the captures that can be open. Beyond that,
/// device work is assigned to the capture, since no call contradicts it.
const WAITING_LIMIT: usize = 1 << 15;

/// Decision about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The record belongs to the capture.
    In,
    /// The record does not belong to the capture.
    Out,
    /// The filter keeps the record until more is known.
    Pending,
}

#[derive(Debug, Default)]
pub struct CaptureFilter {
    /// `None` for a run that is measured from its start: everything before the end belongs to it.
    begin: Option<u64>,
    end: Option<u64>,
    /// Lowest and highest id of the calls in the range.
    first: Option<u32>,
    last: Option<u32>,
    /// Lowest id of the calls after the end.
    beyond: Option<u32>,
    waiting: Vec<Record>,
    /// Records that have already waited through a flush mark.
    waited: Vec<Record>,
    /// Calls may not be recorded: without any calls, work belongs to the capture by its own time.
    without_calls: bool,
}

impl CaptureFilter {
    /// Creates a filter that is open from `begin`, or for everything.
    pub fn new(begin: Option<Timestamp>) -> Self {
        Self { begin: begin.map(Timestamp::nanos), ..Self::default() }
    }

    /// Sets whether calls may be missing because they are not recorded.
    #[must_use]
    pub fn without_calls(self, may_be: bool) -> Self {
        Self { without_calls: may_be, ..self }
    }

    /// Ends the range. Records that belong to it may still arrive.
    pub fn end(&mut self, at: Timestamp) {
        self.end.get_or_insert(at.nanos());
    }

    /// End of the range.
    pub fn ended(&self) -> Option<Timestamp> {
        self.end.map(Timestamp::from_nanos)
    }

    /// True if every record belongs to the capture without a check.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.begin.is_none() && self.end.is_none()
    }

    /// Decides about a record; keeps it if it waits.
    pub fn judge(&mut self, record: &Record) -> Membership {
        if self.takes_everything() && !matches!(record, Record::Api(_)) {
            return Membership::In;
        }
        let decision = match record {
            Record::Api(call) => self.judge_call(call.start.nanos(), call.correlation.0),
            Record::Kernel(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Copy(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Memset(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Event(event) => self.judge_work(0, event.correlation),
            Record::Sync(sync) => self.judge_time(sync.start.nanos()),
            Record::Overhead(overhead) => self.judge_time(overhead.start.nanos()),
            Record::Range(range) => self.judge_time(range.at.nanos()),
            Record::Sample(sample) => self.judge_time(sample.at.nanos()),
            Record::Memory(event) => self.judge_time(event.at.nanos()),
            Record::Managed(event) => self.judge_time(event.start.nanos()),
        };
        if decision != Membership::Pending {
            return decision;
        }
        if self.waiting.len() + self.waited.len() >= WAITING_LIMIT {
            return Membership::In;
        }
        self.waiting.push(*record);
        Membership::Pending
    }

    /// Handles a flush mark: everything that completed before it has been decided. Releases the records that
    /// no longer wait, with true if they belong to the capture.
    pub fn flushed(&mut self, mut release: impl FnMut(Record, bool)) {
        for (records, waited) in [(mem::take(&mut self.waited), true), (mem::take(&mut self.waiting), false)] {
            for record in records {
                match self.judge_again(&record) {
                    Membership::In => release(record, true),
                    Membership::Out => release(record, false),
                    // Before the first call: its own call had the time of two marks to arrive.
                    Membership::Pending if waited && self.is_before_first(&record) => {
                        release(record, self.is_in_by_time(&record));
                    }
                    Membership::Pending => self.waited.push(record),
                }
            }
        }
    }

    /// True if a call that arrives after the filter was closed would have belonged to the capture.
    #[must_use]
    pub fn missed(&self, record: &Record) -> bool {
        matches!(record, Record::Api(call) if self.judge_time(call.start.nanos()) == Membership::In)
    }

    /// Closes the filter: no more records will arrive. Releases the waiting records. No call after the end
    /// has claimed them, so they belong to the capture, unless they come from before the first call.
    pub fn close(&mut self, mut release: impl FnMut(Record, bool)) {
        for record in mem::take(&mut self.waited).into_iter().chain(mem::take(&mut self.waiting)) {
            let is_in = if self.is_before_first(&record) {
                self.is_in_by_time(&record)
            } else {
                self.judge_again(&record) != Membership::Out
            };
            release(record, is_in);
        }
    }

    fn judge_again(&self, record: &Record) -> Membership {
        match record {
            Record::Kernel(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Copy(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Memset(work) => self.judge_work(work.start.nanos(), work.correlation),
            Record::Event(event) => self.judge_work(0, event.correlation),
            _ => Membership::Out,
        }
    }

    fn judge_call(&mut self, start: u64, id: u32) -> Membership {
        if self.end.is_some_and(|end| start > end) {
            self.beyond = Some(self.beyond.map_or(id, |known| if is_before(id, known) { id } else { known }));
            return Membership::Out;
        }
        if self.begin.is_some_and(|begin| start < begin) {
            return Membership::Out;
        }
        self.first = Some(self.first.map_or(id, |known| if is_before(id, known) { id } else { known }));
        self.last = Some(self.last.map_or(id, |known| if is_before(known, id) { id } else { known }));
        Membership::In
    }

    fn judge_work(&self, start: u64, CorrelationId(id): CorrelationId) -> Membership {
        // Work cannot start before its call, except for the error of mapping the device's clock.
        if start != 0 && self.begin.is_some_and(|begin| start.saturating_add(CLOCK_SLACK_NANOS) < begin) {
            return Membership::Out;
        }
        // Work without a launching call can only be placed by its own time.
        if id == 0 {
            return self.judge_time(start);
        }
        if self.begin.is_some() && self.first.is_none_or(|first| is_before(id, first)) {
            return Membership::Pending;
        }
        let Some(end) = self.end else { return Membership::In };
        if self.beyond.is_some_and(|beyond| !is_before(id, beyond)) {
            return Membership::Out;
        }
        let launched_by_then = start != 0 && start.saturating_add(CLOCK_SLACK_NANOS) <= end;
        let known = self.last.is_some_and(|last| !is_before(last, id));
        if launched_by_then || known { Membership::In } else { Membership::Pending }
    }

    fn judge_time(&self, at: u64) -> Membership {
        let inside = self.begin.is_none_or(|begin| at >= begin) && self.end.is_none_or(|end| at <= end);
        if inside { Membership::In } else { Membership::Out }
    }

    fn is_before_first(&self, record: &Record) -> bool {
        let id = match record {
            Record::Kernel(work) => work.correlation.0,
            Record::Copy(work) => work.correlation.0,
            Record::Memset(work) => work.correlation.0,
            Record::Event(event) => event.correlation.0,
            _ => return false,
        };
        self.begin.is_some() && self.first.is_none_or(|first| is_before(id, first))
    }

    /// True if work belongs to a capture whose calls are not recorded. Work without a time arrived while it
    /// was open.
    fn is_in_by_time(&self, record: &Record) -> bool {
        let start = match record {
            Record::Kernel(work) => work.start.nanos(),
            Record::Copy(work) => work.start.nanos(),
            Record::Memset(work) => work.start.nanos(),
            _ => 0,
        };
        let calls_are_missing = self.without_calls && self.first.is_none();
        calls_are_missing && (start == 0 || self.judge_time(start) == Membership::In)
    }
}

/// True if id `a` was assigned before id `b`; ids wrap.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests;
