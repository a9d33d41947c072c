//! SQLite files of Nsight Systems, read as if they were traces of gpuwhy.
//!
//! A file is translated once into a temporary trace, which every reader of traces can read: one path for
//! report, statistics, exports and comparison. The code queries the schema for tables and columns instead of
//! expecting them, because they vary with the version and with what was traced. The notes of the session list
//! the absent tables; only a file without any of them is an error. SQLite sorts, so memory does not grow with
//! the file.
//!
//! A trace is about one process. If the file has several, the one with the most device work is used unless
//! the caller names another. Data that such a file lacks stays absent: host samples, the distinction of
//! asynchronous copies, categories of ranges, the PCI Express link, loss.

mod clocks;
mod database;
mod facts;
mod merge;
mod other_work;
mod queries;
mod rows;
mod samples;
mod schema;

use std::io::BufWriter;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{Loss, Timestamp};

use self::clocks::Impossible;
pub(crate) use self::database::Database;
use self::facts::ProcessFacts;
use self::merge::Merge;
use self::other_work::OtherWork;
use self::samples::{Sampled, Samples};
use self::schema::Schema;
pub(crate) use self::schema::WITHOUT_CUDA;
use crate::error::OpenError;
use crate::plausible::Plausible;
use crate::progress::{Progress, Ticks};
use crate::scratch::{self, Translated};

/// Trace time between two flush marks: the period with which libprof.so flushes.
const FLUSH_NANOS: u64 = 100_000_000;

/// Translates the database into a temporary trace: the process `pid`, or the one with the most device work.
/// Fails if it is not an export of Nsight Systems, has no such process, cannot be read, or there is no space
/// for the trace, and if `progress` stops the work.
pub(crate) fn translate(
    database: &Database,
    pid: Option<u32>,
    progress: &mut Progress<'_>,
) -> Result<Translated, OpenError> {
    let path = &*database.path;
    let connection = &database.connection;
    let failed = |error: rusqlite::Error| database.failed(&error);
    let schema = Schema::of(connection).map_err(failed)?;
    if let Some(view) = schema.view() {
        let why = format!("{view} is a view, which an export of Nsight Systems has no reason for: it is not read");
        return Err(OpenError::refused(path, why));
    }
    if let Some(why) = schema.refusal() {
        return Err(OpenError::refused(path, why));
    }
    let found = facts::processes(connection, &schema).map_err(failed)?;
    let process = ProcessFacts::choose(found, pid).map_err(|which| OpenError::refused(path, which))?;
    let mut dictionary = Dictionary::new();
    facts::describe(connection, &schema, &process, &mut dictionary).map_err(failed)?;
    let mut session = facts::session(connection, &schema, &process, path).map_err(failed)?;
    session.notes.extend(facts::impossible(connection, &schema, &process).map_err(failed)?);
    session.notes.extend(queries::unread_ranges(connection, &schema, &process).map_err(failed)?);
    session.notes.extend(database.unread());
    let sampled = Sampled::of(connection, &schema, &dictionary).map_err(failed)?;
    session.notes.extend(sampled.notes.iter().cloned());

    let trace = scratch::create()?;
    let written = scratch::failed;
    let mut writer =
        TraceWriter::new(BufWriter::new(trace.try_clone().map_err(written)?), &session).map_err(written)?;
    let loss = Loss::default();
    let mut statements = queries::statements(connection, &schema, &process).map_err(failed)?;
    let mut merge = Merge::new(connection, &schema, &mut statements, session.start, &mut dictionary).map_err(failed)?;
    let mut statement = sampled.statement(connection).map_err(failed)?;
    for set in sampled.sets() {
        writer.event(&set.into(), &dictionary).map_err(written)?;
    }
    let mut samples = Samples::new(sampled, statement.as_mut(), session.start).map_err(failed)?;
    let mut statement = other_work::statement(connection, &schema, &process).map_err(failed)?;
    let mut others =
        OtherWork::new(connection, &schema, &process, statement.as_mut(), session.start).map_err(failed)?;
    let impossible = Impossible::find(connection, &schema, &process, session.start).map_err(failed)?;
    let mut plausible = Plausible::default();
    let (mut last, mut next_flush, mut ticks) = (session.start, None, Ticks::default());
    while let Some((at, record)) = merge.next(&mut dictionary).map_err(failed)? {
        let Some(record) = plausible.check(record, impossible.of(&record)) else { continue };
        // The end of work whose times are taken out is none of the recording.
        let at = record.device_work().filter(|work| work.end == Timestamp::ZERO).map_or(at, |_| last);
        last = last.max(at);
        while let Some(sample) = samples.next(last).map_err(failed)? {
            writer.event(&sample.into(), &dictionary).map_err(written)?;
        }
        while let Some(work) = others.next(last).map_err(failed)? {
            writer.event(&work.into(), &dictionary).map_err(written)?;
        }
        let due = *next_flush.get_or_insert(last.nanos().saturating_add(FLUSH_NANOS));
        if last.nanos() > due {
            writer.event(&Event::Flush(Timestamp::from_nanos(due)), &dictionary).map_err(written)?;
            next_flush = Some(last.nanos().saturating_add(FLUSH_NANOS));
        }
        writer.event(&Event::Record(record), &dictionary).map_err(written)?;
        if ticks.is_due() && progress(0, database.bytes).is_break() {
            return Err(OpenError::interrupted(path));
        }
    }
    while let Some(sample) = samples.next(Timestamp::from_nanos(u64::MAX)).map_err(failed)? {
        writer.event(&sample.into(), &dictionary).map_err(written)?;
    }
    for loss in samples.losses() {
        writer.event(&loss.into(), &dictionary).map_err(written)?;
    }
    writer.finish(End::Clean, last, &loss, &dictionary).map_err(written)?;
    let notes = plausible.found.sentences().into_iter().chain(impossible.differ).collect();
    Ok(Translated { trace, notes, other_processes: process.left_out(), lacks_cuda: schema.lacks_cuda() })
}
