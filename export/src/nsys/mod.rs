//! SQLite files of Nsight Systems, read as if they were traces of gpuwhy.
//!
//! A file is translated once into a trace in a temporary file, and everything that reads traces reads that: one way in
//! for report, statistics, exports and comparison. Tables and columns are looked up rather than expected, because they
//! come and go with versions and with what was traced; those that are absent are said in the notes of the session, and
//! only a file without any of them is an error. SQLite sorts, so memory does not grow with the file.
//!
//! Of several processes one is taken, since a trace is about one: the one with most device work unless told otherwise.
//! What such a file does not hold stays absent: looks at host threads, whether a copy was asynchronous, categories of ranges, the PCI Express
//! link, loss.

mod database;
mod facts;
mod merge;
mod queries;
mod rows;
mod schema;

use std::fs::File;
use std::io::{BufWriter, Read as _};
use std::path::Path;

use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::End;
use profiler_core::record::{Loss, Timestamp};
use profiler_core::trace::TraceWriter;

use self::database::Database;
use self::facts::Process;
use self::merge::Merge;
use self::schema::Schema;
use crate::error::ExportError;
use crate::scratch::{self, Scratch};

/// How every SQLite file of version 3 begins (the file format's own documentation).
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// A mark is written for so much time of the trace: the period with which libprof.so flushes.
const FLUSH_NANOS: u64 = 100_000_000;

/// Whether the file is an SQLite database.
pub fn is_sqlite(path: &Path) -> bool {
    let mut beginning = [0; MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut beginning).is_ok() && beginning == *MAGIC)
}

/// Translates the database into a trace in a temporary file, which vanishes with the answer: the process `pid`, or the
/// one with most device work.
///
/// # Errors
///
/// When it is no export of Nsight Systems, has no such process, cannot be read, or there is no room for the trace.
pub fn translate(path: &Path, pid: Option<u32>) -> Result<Scratch, ExportError> {
    let database = Database::open(path)?;
    let connection = &database.connection;
    let failed = |error: rusqlite::Error| database.failed(&error);
    let schema = Schema::of(connection).map_err(failed)?;
    if let Some(view) = schema.view() {
        let why = format!("{view} is a view, which an export of Nsight Systems has no reason for: it is not read");
        return Err(ExportError::translation(path, why));
    }
    if !schema.is_nsys() {
        return Err(ExportError::foreign(
            path,
            "this is an SQLite file, but no export of Nsight Systems: it lacks StringIds, or every table of CUDA and NVTX",
        ));
    }
    let found = facts::processes(connection, &schema).map_err(failed)?;
    let process = Process::choose(found, pid).map_err(|which| ExportError::process(path, which))?;
    let mut dictionary = Dictionary::new();
    facts::describe(connection, &schema, &process, &mut dictionary).map_err(failed)?;
    let mut session = facts::session(connection, &schema, &process, path).map_err(failed)?;
    session.notes.extend(facts::impossible(connection, &schema, &process).map_err(failed)?);
    session.notes.extend(database.unread());

    let trace = Scratch::new()?;
    let written = scratch::failed;
    let mut writer = TraceWriter::new(BufWriter::new(trace.writer()?), &session).map_err(written)?;
    let loss = Loss::default();
    let mut statements = queries::statements(connection, &schema, &process).map_err(failed)?;
    let mut merge = Merge::new(connection, &schema, &mut statements, session.start, &mut dictionary).map_err(failed)?;
    let (mut last, mut next_flush) = (session.start, None);
    while let Some((at, record)) = merge.next(&mut dictionary).map_err(failed)? {
        last = last.max(at);
        let due = *next_flush.get_or_insert(at.nanos().saturating_add(FLUSH_NANOS));
        if at.nanos() > due {
            writer.flush(Timestamp::from_nanos(due), &loss, &dictionary).map_err(written)?;
            next_flush = Some(at.nanos().saturating_add(FLUSH_NANOS));
        }
        writer.push(&record, &dictionary).map_err(written)?;
    }
    writer.finish(End::Clean, last, &loss, &dictionary).map_err(written)?;
    Ok(trace)
}
