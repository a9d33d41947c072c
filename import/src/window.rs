//! A part of a run: the records that fall into the requested time.
//!
//! Everything that overlaps the part is kept completely, as in the statistics and exports: device work
//! together with the call that launched it, calls, host samples. This takes two passes; the first one only
//! notes the device work of the part.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{CorrelationId, Loss, Record, Timestamp};

/// Time before the part that is searched for launches: longer than any observed queue of launches.
const LEAD: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Window {
    from: Timestamp,
    to: Timestamp,
    /// Launches of the part's device work.
    launched: HashSet<CorrelationId>,
    /// Newest time in the trace.
    last: Timestamp,
    /// Records lost before the part, and up to its end.
    lost_before: Loss,
    lost: Loss,
    flushed: Timestamp,
}

impl Window {
    /// Finds the part from `from` to `to` of the run in `reader`, which is read to its end.
    pub(crate) fn find(mut reader: TraceReader<impl Read>, from: Timestamp, to: Timestamp) -> Self {
        let mut window = Self {
            from,
            to,
            launched: HashSet::new(),
            last: reader.session().start,
            lost_before: Loss::default(),
            lost: Loss::default(),
            flushed: Timestamp::ZERO,
        };
        reader.only(from, to);
        for event in reader {
            match event {
                Ok(Event::Record(record)) => window.look(&record),
                Ok(Event::Flush(at) | Event::End(_, at)) => window.last = window.last.max(at),
                Ok(_) => {}
                // The second pass reports the error.
                Err(_) => break,
            }
        }
        window
    }

    /// Time from which records must be read.
    pub(crate) fn read_from(&self) -> Timestamp {
        Timestamp::from_nanos(self.from.nanos().saturating_sub(LEAD.as_nanos() as u64))
    }

    /// Newest time in the trace.
    pub(crate) fn last(&self) -> Timestamp {
        self.last
    }

    /// End of the part, or of the trace if that is earlier.
    pub(crate) fn end(&self) -> Timestamp {
        self.to.min(self.last)
    }

    fn look(&mut self, record: &Record) {
        let Some(work) = record.device_work() else { return };
        if self.overlaps(work.start, work.end) {
            self.last = self.last.max(work.end.min(self.to));
            self.launched.insert(work.correlation);
        }
    }

    fn overlaps(&self, start: Timestamp, end: Timestamp) -> bool {
        start < self.to && end >= self.from
    }

    pub(crate) fn part_of<'e>(&mut self, event: &'e Event) -> Option<Cow<'e, Event>> {
        let inside = match event {
            Event::Record(record) => self.holds(record),
            Event::Counters(event) => event.span().is_none_or(|(begin, end)| self.contains(begin, end)),
            // Operations outside the part would count as missing in it.
            Event::Collective(event) => event.at().is_none_or(|at| self.contains(at, at)),
            // Both cover the run from its start and do not apply to a part.
            Event::Cost { .. } | Event::Utilization { .. } => false,
            Event::Loss(loss) => return Some(Cow::Owned(self.lost(**loss).into())),
            Event::Flush(at) => {
                self.flushed = self.flushed.max(*at);
                true
            }
            _ => true,
        };
        inside.then_some(Cow::Borrowed(event))
    }

    fn holds(&self, record: &Record) -> bool {
        match record {
            Record::Api(row) if self.launched.contains(&row.correlation) => true,
            // A range that is open in the part may have started before it.
            Record::Range(row) => row.at < self.to,
            // Records without a time belong to every part.
            _ => record.span().is_none_or(|(start, end)| self.overlaps(start, end)),
        }
    }

    /// True if the part contains this time completely: the records that go with a counter sample must be
    /// present.
    fn contains(&self, begin: Timestamp, end: Timestamp) -> bool {
        begin >= self.from && end <= self.to
    }

    /// Takes the loss counters of the complete run. Returns the loss within the part up to now.
    fn lost(&mut self, loss: Loss) -> Loss {
        if self.flushed <= self.from {
            self.lost_before = loss;
        }
        if self.flushed <= self.to {
            self.lost = loss;
        }
        self.lost.since(&self.lost_before)
    }

    /// End of the part if the trace ends as `end`: clean if the trace continues after the part.
    pub(crate) fn ends(&self, end: End) -> End {
        if self.to < self.last { End::Clean } else { end }
    }
}
