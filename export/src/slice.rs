//! Extracts a time window of a trace as a separate trace, for exports of a part.
//!
//! As in the statistics, everything that overlaps the window is kept entirely: device work together with its
//! launching call (independent of its time), calls, and ranges with both ends. Event recordings have no time
//! and are kept with their call. Times are not shifted. Two passes; the memory of the first grows with the
//! window, by an eighth of a byte per launch and some 30 bytes per range.

use std::io::BufWriter;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::record::{RangeEvent, RangeEventKind, Record, ThreadId, Timestamp};
use rustc_hash::FxHashSet;

use crate::correlations::Correlations;
use crate::error::ExportError;
use crate::ranges::{ClosedRange, OpenRanges};
use crate::stats::TimeFilter;
use gpuwhy_import::{Progress, TraceFile, scratch};

/// Writes the part of `trace` that overlaps the window. Returns it with descriptions of missing data, for the
/// user.
///
/// # Errors
/// If the trace cannot be read, or the part cannot be stored.
pub fn slice(
    trace: &TraceFile,
    filter: TimeFilter,
    progress: &mut Progress<'_>,
) -> Result<(TraceFile, Vec<String>), ExportError> {
    let mut kept = WindowContents { origin: trace.session().start, filter, ..WindowContents::default() };
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

/// Contents of a trace that belong to the window.
#[derive(Default)]
struct WindowContents {
    origin: Timestamp,
    filter: TimeFilter,
    /// Correlations of kept device work, whose calls are kept, too.
    launched: Correlations,
    /// Correlations of calls that overlap the window themselves.
    called: Correlations,
    open: OpenRanges,
    /// Start and end events of kept ranges.
    ends: FxHashSet<(ThreadId, Timestamp, bool)>,
    last: Timestamp,
}

impl WindowContents {
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

    fn range(&mut self, range: &ClosedRange) {
        if self.overlaps(range.begin.at, range.end) {
            self.ends.insert((range.begin.thread, range.begin.at, true));
            self.ends.insert((range.end_thread, range.end, false));
        }
    }

    /// Ranges without an end last until the last range event.
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open).finish(self.last);
        open.iter().for_each(|range| self.range(range));
    }

    fn admits(&self, event: &Event) -> bool {
        match event {
            Event::Record(record) => self.holds(record),
            Event::Counters(event) => event.span().is_none_or(|(begin, end)| self.overlaps(begin, end)),
            // Operations outside would have no kernel.
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
