//! A part of a trace in time, as a trace of its own: for exports that are to hold a part.
//!
//! What overlaps the window is kept whole, as in the statistics: device work together with the call that launched it,
//! whenever that was; calls; ranges with both of their ends. Recordings of events have no time and go with their call.
//! Times stay those of the whole trace. Two passes; what is kept of the first grows with the window, by an eighth of a
//! byte a launch and some 30 bytes a range.

use std::io::BufWriter;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::record::{RangeEvent, RangeEventKind, Record, ThreadId, Timestamp};
use rustc_hash::FxHashSet;

use crate::correlations::Correlations;
use crate::error::ExportError;
use crate::ranges::{OpenRanges, Range};
use crate::stats::TimeFilter;
use gpuwhy_import::{Progress, TraceFile, scratch};

/// Writes the part of `trace` that overlaps the window, and what it lacks: sentences for the user.
///
/// # Errors
/// When the trace cannot be read, or there is no room for the part.
pub fn slice(
    trace: &TraceFile,
    filter: TimeFilter,
    progress: &mut Progress<'_>,
) -> Result<(TraceFile, Vec<String>), ExportError> {
    let mut kept = Kept { origin: trace.session().start, filter, ..Kept::default() };
    trace.pass(&mut |done, total| progress(done / 2, total), |event, _| {
        if let Event::Record(record) = event {
            kept.look(record);
        }
        Ok::<_, ExportError>(())
    })?;
    kept.close();
    let part = scratch::create()?;
    let written = scratch::failed;
    let mut writer =
        TraceWriter::new(BufWriter::new(part.try_clone().map_err(written)?), trace.session()).map_err(written)?;
    let passed = trace.pass(&mut |done, total| progress(total / 2 + done / 2, total), |event, scope| {
        if kept.admits(event) { writer.event(event, scope.dictionary).map_err(written) } else { Ok(()) }
    })?;
    writer.close(&passed.dictionary).map_err(written)?;
    Ok((trace.with_contents(part)?, passed.damaged()))
}

/// What of a trace is in the window.
#[derive(Default)]
struct Kept {
    origin: Timestamp,
    filter: TimeFilter,
    /// Device work that is kept, whose calls are kept too.
    launched: Correlations,
    /// Calls that are kept for their own sake.
    called: Correlations,
    open: OpenRanges,
    /// Begins and ends of ranges that are kept.
    ends: FxHashSet<(ThreadId, Timestamp, bool)>,
    last: Timestamp,
}

impl Kept {
    fn overlaps(&self, start: Timestamp, end: Timestamp) -> bool {
        self.filter.admits(self.origin, start, end)
    }

    fn look(&mut self, record: &Record) {
        match record {
            Record::Api(row) if self.overlaps(row.start, row.end) => {
                self.called.insert(row.correlation);
            }
            Record::Range(row) => {
                self.last = self.last.max(row.at);
                if let Some(range) = self.open.take(row) {
                    self.range(&range);
                }
            }
            _ => {
                if let Some(work) = record.device_work().filter(|work| self.overlaps(work.start, work.end)) {
                    self.launched.insert(work.correlation);
                }
            }
        }
    }

    fn range(&mut self, range: &Range) {
        if self.overlaps(range.begin.at, range.end) {
            self.ends.insert((range.begin.thread, range.begin.at, true));
            self.ends.insert((range.end_thread, range.end, false));
        }
    }

    /// Ranges that never ended last as long as anything is known of ranges.
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open).finish(self.last);
        open.iter().for_each(|range| self.range(range));
    }

    fn admits(&self, event: &Event) -> bool {
        match event {
            Event::Record(record) => self.holds(record),
            Event::Counters(event) => event.span().is_none_or(|(begin, end)| self.overlaps(begin, end)),
            // Operations outside would meet no kernel.
            Event::Collective(event) => event.at().is_none_or(|at| self.overlaps(at, at)),
            _ => true,
        }
    }

    fn holds(&self, record: &Record) -> bool {
        match record {
            Record::Range(row) => self.holds_range(row),
            Record::Event(row) => self.called.contains(row.correlation),
            Record::Api(row) if self.launched.contains(row.correlation) => true,
            _ => record.span().is_some_and(|(start, end)| self.overlaps(start, end)),
        }
    }

    fn holds_range(&self, row: &RangeEvent) -> bool {
        let begins = match row.kind {
            RangeEventKind::Push | RangeEventKind::Start => true,
            RangeEventKind::Pop | RangeEventKind::End => false,
            RangeEventKind::Mark | RangeEventKind::Unknown => return self.overlaps(row.at, row.at),
        };
        self.ends.contains(&(row.thread, row.at, begins))
    }
}
