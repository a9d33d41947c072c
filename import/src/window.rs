//! A part of a run: which of its records are about the time that was asked for.
//!
//! What overlaps the part is kept whole, as in the statistics and exports: device work together with the call that
//! launched it, calls, looks. So two passes are made, of which the first only notes what device work the part has.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{CorrelationId, Loss, Record, Timestamp};

/// A launch is looked for this long before the part: longer than any queue of launches was seen to last.
const LEAD: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Window {
    from: Timestamp,
    to: Timestamp,
    /// Launches of the device work in the part.
    launched: HashSet<CorrelationId>,
    /// The newest time that the trace knows.
    last: Timestamp,
    /// What was lost before the part, and up to its end.
    lost_before: Loss,
    lost: Loss,
    flushed: Timestamp,
}

impl Window {
    /// The part from `from` to `to` of the run in `reader`, all of which is read.
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
                // The second pass tells.
                Err(_) => break,
            }
        }
        window
    }

    /// From when on records must be read.
    pub(crate) fn read_from(&self) -> Timestamp {
        Timestamp::from_nanos(self.from.nanos().saturating_sub(LEAD.as_nanos() as u64))
    }

    /// The newest time that the trace knows.
    pub(crate) fn last(&self) -> Timestamp {
        self.last
    }

    /// When the part ends: with the trace, if that is earlier.
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
            // Operations outside would be missed in the part.
            Event::Collective(event) => event.at().is_none_or(|at| self.contains(at, at)),
            // Both are about the run so far, and say nothing of a part of it.
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
            // A range that is open in the part may have begun before it.
            Record::Range(row) => row.at < self.to,
            // What has no time belongs to every part.
            _ => record.span().is_none_or(|(start, end)| self.overlaps(start, end)),
        }
    }

    /// Whether the part has all of this time: the records beside a sample of counters must be there.
    fn contains(&self, begin: Timestamp, end: Timestamp) -> bool {
        begin >= self.from && end <= self.to
    }

    /// The counters of the whole run stand at `loss`. Answers what was lost in the part so far.
    fn lost(&mut self, loss: Loss) -> Loss {
        if self.flushed <= self.from {
            self.lost_before = loss;
        }
        if self.flushed <= self.to {
            self.lost = loss;
        }
        self.lost.since(&self.lost_before)
    }

    /// How the part ends if the trace ends as `end`: cleanly, where the trace goes on behind it.
    pub(crate) fn ends(&self, end: End) -> End {
        if self.to < self.last { End::Clean } else { end }
    }
}
