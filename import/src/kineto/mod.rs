//! PyTorch profiler traces (Kineto, in Chrome's JSON) into the engine that also takes live records.
//!
//! The file is read in one pass as a stream. Its records are then brought into the order in which a live run would
//! have delivered them, and fed to the attributor in the same portions, so that nothing in the engine knows where
//! they come from.
//!
//! Of the ranges in the file, those that name steps and the fetching of batches become range events. Three things that
//! a trace of ours has are not in such a file: return values of calls, CUDA calls that Kineto leaves out on purpose
//! (attribute and event queries), and anything before its recording window, so that operations at the beginning may
//! lack their launch.
//!
//! Reading order: `guard` (how long a row may be), `document` (the stream), `row`, `lenient` and `scalar` (lenient
//! reading), `builder` (the mapping), `collective` (process groups), `time`, `copy_name`.

mod builder;
mod collective;
mod copy_name;
mod document;
mod error;
mod guard;
mod lenient;
mod row;
mod scalar;
mod time;

use std::cell::Cell;
use std::io::{BufReader, Read, Write};
use std::ops::ControlFlow;
use std::rc::Rc;

use crate::bounded::Counted;
use gpuwhy_report::run::Report;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, NameId, RangeEvent, RangeEventKind, Record, ThreadId, Timestamp};
use profiler_core::attribution::Attributor;
use serde::de::DeserializeSeed;

use self::builder::{Builder, Range};
use self::document::Document;
pub use self::error::KinetoError;
use self::guard::Guard;
use crate::progress::Ticks;

/// Records are handed over in portions of this much trace time: the period with which the live collector flushes.
const PORTION_NANOS: u64 = 100_000_000;

/// Bytes of the text that are taken at once.
const PIECE: usize = 1 << 16;

/// Makes the report of a Kineto trace. `source` is the JSON text; see [`open`](crate::open()) for files, packed or not.
///
/// A text that ends too early, or that turns into something else, is reported up to there, and the completeness of
/// the report says where that was. So are rows that could not be used, by reason.
///
/// # Errors
/// When it is no trace, when it holds no device work, or when it cannot be read at all.
pub fn import_kineto(source: impl Read) -> Result<Report, KinetoError> {
    Imported::read(source)?.report(&mut || ControlFlow::Continue(()))
}

/// Writes a Kineto trace as a trace of gpuwhy, for everything that reads those. `source` is the JSON text.
///
/// The whole trace is held in memory. Ranges other than those that name the fetching of batches, and marks of steps,
/// are not in the result; what could not be used or read is among the notes of its session.
///
/// # Errors
/// As [`import_kineto`], and when `out` cannot be written.
pub fn translate_kineto(source: impl Read, out: impl Write) -> Result<(), KinetoError> {
    Imported::read(source)?.translate(out, &mut || ControlFlow::Continue(()))
}

/// Asked now and then whether the work goes on.
type Ask<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// What a file holds, in the order in which a live run would have delivered it.
pub(crate) struct Imported {
    builder: Builder,
    session: ProcessInfo,
    /// What was not used, and where reading stopped.
    notes: Vec<String>,
    end: End,
    /// What times in the builder's steps count from.
    base: u64,
}

impl Imported {
    pub(crate) fn read(source: impl Read) -> Result<Self, KinetoError> {
        // In pieces, since the JSON reader asks for single bytes.
        let guarded = BufReader::with_capacity(PIECE, Guard::new(source));
        let position = Rc::<Cell<u64>>::default();
        let mut builder = Builder::default();
        let mut deserializer = serde_json::Deserializer::from_reader(Counted::new(guarded, Rc::clone(&position)));
        let outcome = Document(&mut builder).deserialize(&mut deserializer).and_then(|()| deserializer.end());
        let stopped = outcome.err().map(|error| (position.get(), describe(&error)));
        match stopped {
            None if !builder.found_rows => return Err(KinetoError::NotATrace),
            Some((offset, what)) if builder.rows == 0 => return Err(KinetoError::Unreadable { offset, what }),
            _ => {}
        }
        let stopped =
            stopped.map(|(offset, what)| format!("reading stopped at byte {offset} of the JSON text: {what}"));
        if builder.device_rows == 0 {
            return Err(KinetoError::NoDeviceWork { rows: builder.rows, stopped });
        }
        let base = u64::try_from(builder.base_ns).unwrap_or(0);
        let empty = builder.dictionary.intern_name("");
        let events = range_events(std::mem::take(&mut builder.ranges), empty);
        builder.records.extend(events.into_iter().map(Record::Range));
        for record in &mut builder.records {
            shift(record, base);
        }
        // A stable order even where two records end together, and the one in which they would have been delivered.
        builder.records.sort_by_key(|record| span(record).1);
        let session = ProcessInfo {
            process_id: builder.process_id,
            command: vec!["Kineto trace".to_owned()],
            host: std::mem::take(&mut builder.host),
            start: builder.records.iter().map(|record| span(record).0).min().unwrap_or_default(),
            rank_variables: std::mem::take(&mut builder.rank_variables),
            notes: vec![format!("imported from a Kineto trace with {} rows", builder.rows)],
            ..ProcessInfo::default()
        };
        let end = if stopped.is_some() { End::Abrupt } else { End::Clean };
        let mut notes: Vec<String> = stopped.into_iter().collect();
        for (reason, count) in &builder.unusable {
            notes.push(format!("{count} row{} not used: {reason}", if *count == 1 { "" } else { "s" }));
        }
        tracing::debug!(rows = builder.rows, records = builder.records.len(), "read a Kineto trace");
        for note in &notes {
            tracing::debug!(note, "damaged");
        }
        Ok(Self { builder, session, notes, end, base })
    }

    pub(crate) fn report(self, ask: &mut Ask<'_>) -> Result<Report, KinetoError> {
        let Self { builder, session, notes, end, base } = self;
        let mut attributor = Attributor::new();
        let last = feed(&mut attributor, &builder, base, ask)?;
        attributor.finish(last, &builder.dictionary);
        Ok(Report::new(&session, &attributor, &builder.dictionary, &Loss::default(), end, notes))
    }

    /// Writes a trace of gpuwhy.
    pub(crate) fn translate(self, out: impl Write, ask: &mut Ask<'_>) -> Result<(), KinetoError> {
        let Self { mut builder, mut session, notes, end, .. } = self;
        session.notes.extend(notes);
        let written = KinetoError::Write;
        let (loss, dictionary, groups) = (Loss::default(), &builder.dictionary, &mut builder.groups);
        let mut writer = TraceWriter::new(out, &session).map_err(written)?;
        for group in groups.communicators(session.rank()) {
            writer.event(&Event::Collective(group), dictionary).map_err(written)?;
        }
        let (mut portion_end, mut last, mut ticks) = (None, session.start, Ticks::default());
        for record in &builder.records {
            last = last.max(span(record).1);
            let boundary = *portion_end.get_or_insert(last.nanos().saturating_add(PORTION_NANOS));
            if last.nanos() > boundary {
                writer.event(&Event::Flush(Timestamp::from_nanos(boundary)), dictionary).map_err(written)?;
                portion_end = Some(last.nanos().saturating_add(PORTION_NANOS));
            }
            writer.event(&Event::Record(*record), dictionary).map_err(written)?;
            if let Record::Api(call) = record
                && let Some(operation) = groups.launched_by(call)
            {
                writer.event(&Event::Collective(operation), dictionary).map_err(written)?;
            }
            if ticks.is_due() && ask().is_break() {
                return Err(KinetoError::Interrupted);
            }
        }
        writer.finish(end, last, &loss, dictionary).map(drop).map_err(written)
    }
}

/// Ranges as they begin and end, in an order in which each end meets the newest begin of its thread: of those that
/// begin together the longest comes first, and ends come before begins. A range without length is left out.
fn range_events(mut ranges: Vec<Range>, empty: NameId) -> Vec<RangeEvent> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let event = |range: &Range, at, kind, message| RangeEvent {
        at,
        thread: range.thread,
        kind,
        message,
        domain: empty,
        category: empty,
        ..RangeEvent::default()
    };
    let ends = ranges.iter().map(|range| event(range, range.end, RangeEventKind::Pop, empty));
    let begins = ranges.iter().map(|range| event(range, range.start, RangeEventKind::Push, range.name));
    let mut events: Vec<_> = ends.chain(begins).collect();
    events.sort_by_key(|event| event.at);
    events
}

/// Hands over the records, which are sorted by end, in portions, and the marks of steps before the portion that ends
/// after them. Returns the end of the last record.
fn feed(
    attributor: &mut Attributor,
    builder: &Builder,
    base: u64,
    ask: &mut Ask<'_>,
) -> Result<Timestamp, KinetoError> {
    let mut marks = step_marks(builder, base).into_iter().peekable();
    let mut portion_end = None;
    let (mut last, mut ticks) = (Timestamp::ZERO, Ticks::default());
    for record in &builder.records {
        last = span(record).1;
        let boundary = *portion_end.get_or_insert(last.nanos().saturating_add(PORTION_NANOS));
        if last.nanos() > boundary {
            while let Some((at, thread)) = marks.next_if(|(at, _)| at.nanos() <= boundary) {
                attributor.step_mark(thread, at);
            }
            attributor.flushed(Timestamp::from_nanos(boundary), &builder.dictionary);
            portion_end = Some(last.nanos().saturating_add(PORTION_NANOS));
        }
        attributor.push(record, &builder.dictionary);
        if ticks.is_due() && ask().is_break() {
            return Err(KinetoError::Interrupted);
        }
    }
    marks.for_each(|(at, thread)| attributor.step_mark(thread, at));
    Ok(last)
}

/// The begin of each step, and the end of the last one, which closes it.
fn step_marks(builder: &Builder, base: u64) -> Vec<(Timestamp, ThreadId)> {
    let shifted = |time: Timestamp| Timestamp::from_nanos(time.nanos().saturating_add(base));
    let mut marks: Vec<_> = builder.steps.iter().map(|&(thread, start, _)| (shifted(start), thread)).collect();
    let last = builder.steps.iter().max_by_key(|(_, _, end)| *end);
    marks.extend(last.map(|&(thread, _, end)| (shifted(end), thread)));
    marks.sort_unstable();
    marks
}

/// Begin and end; zero for a record that has none.
fn span(record: &Record) -> (Timestamp, Timestamp) {
    record.span().unwrap_or_default()
}

fn shift(record: &mut Record, base: u64) {
    let (start, end) = match record {
        Record::Range(row) => {
            row.at = Timestamp::from_nanos(row.at.nanos().saturating_add(base));
            return;
        }
        Record::Memory(row) => {
            row.at = Timestamp::from_nanos(row.at.nanos().saturating_add(base));
            return;
        }
        Record::Sample(row) => (&mut row.since, &mut row.at),
        Record::Kernel(row) => (&mut row.start, &mut row.end),
        Record::Copy(row) => (&mut row.start, &mut row.end),
        Record::Memset(row) => (&mut row.start, &mut row.end),
        Record::Api(row) => (&mut row.start, &mut row.end),
        Record::Sync(row) => (&mut row.start, &mut row.end),
        Record::Overhead(row) => (&mut row.start, &mut row.end),
        Record::Managed(row) => (&mut row.start, &mut row.end),
        Record::Event(_) => return,
    };
    for time in [start, end] {
        *time = Timestamp::from_nanos(time.nanos().saturating_add(base));
    }
}

/// What the JSON reader says, without its line and column: the byte offset is what finds a place in such files.
fn describe(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "the text ends in the middle".to_owned();
    }
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_meets_the_newest_begin_of_its_thread() {
        let at = Timestamp::from_nanos;
        let range =
            |name, start, end| Range { thread: ThreadId(1), name: NameId(name), start: at(start), end: at(end) };
        let ranges = vec![range(3, 20, 30), range(1, 10, 30), range(2, 10, 20), range(4, 30, 40), range(5, 35, 35)];
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for event in range_events(ranges, NameId(0)) {
            match event.kind {
                RangeEventKind::Push => open.push((event.message.0, event.at.nanos())),
                _ => closed.push((open.pop().unwrap(), event.at.nanos())),
            }
        }
        assert!(open.is_empty());
        assert_eq!(closed, [((2, 10), 20), ((3, 20), 30), ((1, 10), 30), ((4, 30), 40)]);
    }
}
