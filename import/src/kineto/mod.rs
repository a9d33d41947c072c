//! Feeds PyTorch profiler traces (Kineto, in Chrome's JSON format) to the engine that also takes live
//! records.
//!
//! The file is read in one pass as a stream. Its records are then sorted into the order in which a live run
//! would have delivered them, and fed to the attributor in portions of the same size, so the engine does not
//! depend on their source.
//!
//! The ranges that name steps and the fetching of batches become range events. Such a file lacks three things
//! that a gpuwhy trace has: return values of calls, CUDA calls that Kineto omits on purpose (attribute and
//! event queries), and everything before its recording window, so early operations may lack their launch.
//!
//! Reading order: `text` (rows as pieces of the text), `repair`, `document` (the stream), `row`, `lenient` and
//! `scalar` (lenient reading), `builder` (the mapping), `correlation`, `processes`, `jax` (rows of XLA), `python`
//! (stacks), `operators`, `impossible` (times), `collective` (process groups), `time`, `copy_name`.

mod builder;
mod collective;
mod copy_name;
mod correlation;
mod document;
mod error;
mod impossible;
mod jax;
mod lenient;
mod operators;
mod processes;
mod python;
mod repair;
mod row;
mod scalar;
mod text;
mod time;

use std::io::{BufReader, Read, Write};
use std::ops::ControlFlow;

use gpuwhy_report::run::Report;
use gpuwhy_report::run::operators::{Operators, OperatorsBy};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, NameId, RangeEvent, RangeEventKind, Record, ThreadId, Timestamp};
use profiler_core::api::ApiClass;
use profiler_core::attribution::Attributor;
use profiler_core::collective::CollectiveEngine;

use self::builder::{Builder, HostRange};
use self::document::Stopped;
pub use self::error::KinetoError;
use self::operators::OperatorRows;
use crate::operators::Recorder;
use crate::progress::Ticks;

/// Trace time per portion of records: the flush period of the live collector.
const PORTION_NANOS: u64 = 100_000_000;

/// Reference of the times of a file that lacks one and has times from 0: 0 means "not recorded".
const START_UNKNOWN: u64 = 1_000_000_000;

/// Bytes of the text per read.
const PIECE: usize = 1 << 16;

/// Makes the report of a Kineto trace. `source` is the JSON text; see [`open`](crate::open()) for files,
/// packed or not.
///
/// If the text ends too early or becomes invalid, the report covers the part before, and its completeness
/// names the position. It also lists the rows that could not be used, by reason.
///
/// # Errors
/// Fails if it is not a trace, has no device work, or cannot be read.
pub fn import_kineto(source: impl Read) -> Result<Report, KinetoError> {
    Imported::read(source, None, None)?.report(&mut || ControlFlow::Continue(()))
}

/// Writes a Kineto trace as a gpuwhy trace, for all readers of those. `source` is the JSON text.
///
/// Holds the complete trace in memory. Of the ranges, the result has only those that name the fetching of
/// batches, and the marks of steps. The notes of its session list everything that could not be used or read.
///
/// # Errors
/// As [`import_kineto`], and if `out` cannot be written.
pub fn translate_kineto(source: impl Read, out: impl Write) -> Result<(), KinetoError> {
    Imported::read(source, None, None)?.translate(out, &mut || ControlFlow::Continue(())).map(drop)
}

/// Polled at intervals; a break stops the work.
type Ask<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// Contents of a file, in the order in which a live run would have delivered them.
pub(crate) struct Imported {
    builder: Builder,
    session: ProcessInfo,
    /// Notes on unused rows, and on where reading stopped.
    notes: Vec<String>,
    end: End,
    /// Reference of the times in the builder's steps.
    base: u64,
    operators: Option<Recorder>,
}

impl Imported {
    /// `pid`: the process to keep of a file with several. `operators`: what rows of them are about, if there are to be
    /// any.
    pub(crate) fn read(
        source: impl Read,
        pid: Option<u32>,
        operators: Option<OperatorsBy>,
    ) -> Result<Self, KinetoError> {
        let mut builder = Builder::default();
        builder.operators = operators.map(OperatorRows::new);
        let stopped = document::read(BufReader::with_capacity(PIECE, source), &mut builder).err();
        match stopped {
            None if !builder.found_rows => return Err(KinetoError::NotATrace),
            Some(Stopped { offset, what }) if builder.rows == 0 => {
                return Err(KinetoError::Unreadable { offset, what });
            }
            _ => {}
        }
        let stopped = stopped
            .map(|Stopped { offset, what }| format!("reading stopped at byte {offset} of the JSON text: {what}"));
        if builder.device_rows == 0 {
            return Err(without_work(&builder, stopped));
        }
        let left_out = match pid {
            Some(pid) => builder.keep_process(pid).map_err(KinetoError::OtherProcess)?,
            None => None,
        };
        let separated = if pid.is_some() { None } else { builder.separate_processes() };
        if separated.is_some() {
            // The rank in the file is that of one of them.
            builder.rank_variables.clear();
        }
        let base = match u64::try_from(builder.base_ns).unwrap_or(0) {
            0 if builder.layout.is_used() => START_UNKNOWN,
            base => base,
        };
        let empty = builder.dictionary.intern_name("");
        let events = range_events(std::mem::take(&mut builder.ranges), empty);
        builder.records.extend(events.into_iter().map(Record::Range));
        let samples = python::samples(std::mem::take(&mut builder.python), &mut builder.dictionary);
        builder.records.extend(samples.into_iter().map(Record::Sample));
        for record in &mut builder.records {
            shift(record, base);
        }
        // The order of delivery; stable, also for records that end together.
        builder.records.sort_by_key(|record| span(record).1);
        let impossible = impossible::take_out(&mut builder);
        let starts = builder.records.iter().map(|record| span(record).0).filter(|&start| start > Timestamp::ZERO);
        let session = ProcessInfo {
            process_id: builder.process_id(),
            command: vec![match &separated {
                Some((processes, _)) => format!("Kineto trace of {processes} processes"),
                None => "Kineto trace".to_owned(),
            }],
            host: std::mem::take(&mut builder.host),
            start: starts.min().unwrap_or_default(),
            rank_variables: std::mem::take(&mut builder.rank_variables),
            notes: remarks(&builder, separated.map(|(_, note)| note).or(left_out)),
            ..ProcessInfo::default()
        };
        let end = if stopped.is_some() { End::Abrupt } else { End::Clean };
        let mut notes: Vec<String> = stopped.into_iter().chain(impossible).collect();
        for (reason, count) in &builder.unusable {
            notes.push(format!("{count} row{} not used: {reason}", if *count == 1 { "" } else { "s" }));
        }
        tracing::debug!(rows = builder.rows, records = builder.records.len(), "read a Kineto trace");
        for note in &notes {
            tracing::debug!(note, "damaged");
        }
        let operators = builder.operators.take().map(|operators| operators.recorder(base));
        Ok(Self { builder, session, notes, end, base, operators })
    }

    pub(crate) fn report(self, ask: &mut Ask<'_>) -> Result<Report, KinetoError> {
        let Self { mut builder, session, notes, end, base, mut operators } = self;
        let mut marks = step_marks(&builder, base).into_iter().peekable();
        let (mut attributor, mut collectives) = (Attributor::new(), CollectiveEngine::default());
        attributor.begun_midway();
        let last = deliver(&mut builder, session.rank(), ask, |event, dictionary| {
            if let Some(operators) = &mut operators {
                operators.event(&event, dictionary);
            }
            match event {
                Event::Record(record) => {
                    attributor.push(&record, dictionary);
                    collectives.push(&record, dictionary);
                }
                Event::Collective(event) => collectives.event(&event),
                Event::Flush(boundary) => {
                    // Before the portion that ends after it.
                    while let Some((at, thread)) = marks.next_if(|(at, _)| *at <= boundary) {
                        attributor.step_mark(thread, at);
                    }
                    attributor.flushed(boundary, dictionary);
                    collectives.flushed(boundary);
                }
                _ => {}
            }
            Ok(())
        })?;
        marks.for_each(|(at, thread)| attributor.step_mark(thread, at));
        attributor.finish(last, &builder.dictionary);
        collectives.finish(last);
        let mut report = Report::new(&session, &attributor, &builder.dictionary, &Loss::default(), end, notes);
        report.collectives = collectives.report(&builder.dictionary);
        report.operators = operators.and_then(|operators| operators.operators(&builder.dictionary));
        Ok(report)
    }

    /// The operators alone.
    pub(crate) fn operators(self, ask: &mut Ask<'_>) -> Result<Option<Operators>, KinetoError> {
        let Self { mut builder, session, operators: Some(mut operators), .. } = self else { return Ok(None) };
        deliver(&mut builder, session.rank(), ask, |event, dictionary| {
            operators.event(&event, dictionary);
            Ok(())
        })?;
        Ok(operators.operators(&builder.dictionary))
    }

    /// Writes a gpuwhy trace, without the operators.
    pub(crate) fn translate(self, out: impl Write, ask: &mut Ask<'_>) -> Result<(), KinetoError> {
        let Self { mut builder, mut session, notes, end, .. } = self;
        session.notes.extend(notes);
        let mut writer = TraceWriter::new(out, &session).map_err(KinetoError::Write)?;
        let last = deliver(&mut builder, session.rank(), ask, |event, dictionary| {
            writer.event(&event, dictionary).map_err(KinetoError::Write)
        })?;
        let finished = writer.finish(end, last.max(session.start), &Loss::default(), &builder.dictionary);
        finished.map_err(KinetoError::Write).map(drop)
    }
}

/// Gives all that the file has, in the order of a live collector: groups of ranks, then records, which are sorted by
/// end, in portions, each with a flush mark at its end; after a call the collective that it launched. Returns the end
/// of the last record.
fn deliver(
    builder: &mut Builder,
    rank: Option<u32>,
    ask: &mut Ask<'_>,
    mut give: impl FnMut(Event, &Dictionary) -> Result<(), KinetoError>,
) -> Result<Timestamp, KinetoError> {
    let Builder { records, dictionary, groups, .. } = builder;
    for group in groups.communicators(rank) {
        give(Event::Collective(group), dictionary)?;
    }
    let (mut portion_end, mut last, mut ticks) = (None, Timestamp::ZERO, Ticks::default());
    for record in records.iter() {
        last = last.max(span(record).1);
        let boundary = *portion_end.get_or_insert(last.nanos().saturating_add(PORTION_NANOS));
        if last.nanos() > boundary {
            give(Event::Flush(Timestamp::from_nanos(boundary)), dictionary)?;
            portion_end = Some(last.nanos().saturating_add(PORTION_NANOS));
        }
        give(Event::Record(*record), dictionary)?;
        if let Record::Api(call) = record
            && let Some(operation) = groups.launched_by(call)
        {
            give(Event::Collective(operation), dictionary)?;
        }
        if ticks.is_due() && ask().is_break() {
            return Err(KinetoError::Interrupted);
        }
    }
    Ok(last)
}

/// Error of a file without device work.
fn without_work(builder: &Builder, stopped: Option<String>) -> KinetoError {
    let launches = |record: &&Record| {
        let Record::Api(call) = record else { return false };
        let function = builder.dictionary.api_function(call.function);
        function.is_some_and(|function| ApiClass::of(builder.dictionary.name(function.name)).launches())
    };
    match builder.records.iter().filter(launches).count() as u64 {
        0 => KinetoError::NoDeviceWork { rows: builder.rows, stopped },
        launches => KinetoError::LostDeviceWork { launches, stopped },
    }
}

/// Notes on the file that are no loss of records.
fn remarks(builder: &Builder, processes: Option<String>) -> Vec<String> {
    let mut notes = vec![format!("imported from a Kineto trace with {} rows", builder.rows)];
    notes.extend(processes);
    if builder.repaired > 0 {
        let (count, rows) = (builder.repaired, if builder.repaired == 1 { "row" } else { "rows" });
        notes.push(format!(
            "{count} {rows} with values or characters that JSON does not allow, such as NaN: read as absent or as blanks"
        ));
    }
    notes
}

/// Splits ranges into start and end events, ordered so that each end matches the newest start of its thread:
/// of ranges that start together the longest comes first, and ends come before starts. Ranges of zero length
/// are omitted.
fn range_events(mut ranges: Vec<HostRange>, empty: NameId) -> Vec<RangeEvent> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let event = |range: &HostRange, at, kind, message| RangeEvent {
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

/// Start of each step, and the end of the last one, which closes it.
fn step_marks(builder: &Builder, base: u64) -> Vec<(Timestamp, ThreadId)> {
    let shifted = |time: Timestamp| Timestamp::from_nanos(time.nanos().saturating_add(base));
    let mut marks: Vec<_> = builder.steps.iter().map(|&(thread, start, _)| (shifted(start), thread)).collect();
    let last = builder.steps.iter().max_by_key(|(_, _, end)| *end);
    marks.extend(last.map(|&(thread, _, end)| (shifted(end), thread)));
    marks.sort_unstable();
    marks
}

/// Start and end; zero for a record without times.
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
    // Both 0: not recorded.
    if *end == Timestamp::ZERO {
        return;
    }
    for time in [start, end] {
        *time = Timestamp::from_nanos(time.nanos().saturating_add(base));
    }
}

#[cfg(test)]
mod tests {
    use super::processes::LabelId;
    use super::*;

    #[test]
    fn each_end_meets_the_newest_begin_of_its_thread() {
        let at = Timestamp::from_nanos;
        let range = |name, start, end| HostRange {
            process: LabelId::default(),
            thread: ThreadId(1),
            name: NameId(name),
            start: at(start),
            end: at(end),
        };
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
