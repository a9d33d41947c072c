//! The SQLite file of an Nsight Systems export, so that existing SQL and nsys scripts run unchanged.
//!
//! Tables and columns are those of schema 3.20 (nsys 2025.3); later versions have only added to them. Only
//! data that a gpuwhy trace contains is present, and tables that nsys omits if nothing was traced are omitted
//! here, too. Two passes: times are relative to the start of tracing, which must precede all rows.

mod facts;
mod gpu_metrics;
mod insert;
mod kinds;
mod managed;
mod rows;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::Timestamp;
use rusqlite::Connection;

use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::output::Unfinished;
use gpuwhy_import::{Progress, TraceFile};

use self::rows::Inserts;

/// Omitted if empty: nsys's scripts interpret the existence of a table as traced data.
const OPTIONAL: [&str; 8] = [
    "GPU_METRICS",
    "TARGET_INFO_GPU_METRICS",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
];

/// Writes `trace` to an SQLite file.
pub fn write(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let path = to.path().to_owned();
    let failed = |error: rusqlite::Error| ExportError::sqlite(&path, &error);
    // SQLite accepts an empty file as an empty database.
    let (_, place) = Unfinished::create(to)?;
    let connection = Connection::open(place.temporary()).map_err(failed)?;
    // An unfinished file is deleted, so its data need not survive a crash.
    connection
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN;")
        .map_err(failed)?;
    connection.execute_batch(include_str!("schema.sql")).map_err(failed)?;
    let mut outcome = ExportOutcome::default();
    let mut end = Timestamp::ZERO;
    let passed = {
        let mut inserts = Inserts::new(&connection).map_err(failed)?;
        let mut metrics = gpu_metrics::Inserts::new(&connection).map_err(failed)?;
        let passed = trace.pass(progress, |event, scope| {
            if let Event::Counters(event) = event {
                metrics.event(event, scope.session.start).map_err(failed)?;
            }
            inserts.node(event, scope.dictionary);
            let Event::Record(record) = event else { return Ok::<_, ExportError>(()) };
            match inserts.record(record, scope).map_err(failed)? {
                Some(at) => {
                    outcome.written += 1;
                    end = end.max(at);
                }
                None => outcome.leave_out(record),
            }
            Ok(())
        })?;
        inserts.finish(end, &passed).map_err(failed)?;
        if !inserts.has_managed() {
            for table in managed::FAULTS {
                connection.execute_batch(&format!("DROP TABLE {table}")).map_err(failed)?;
            }
        }
        outcome.notes = passed.notes();
        outcome.notes.extend(inserts.notes());
        passed
    };
    facts::write(&connection, &passed, end).map_err(failed)?;
    for table in OPTIONAL {
        let is_empty: bool = connection
            .query_row(&format!("SELECT NOT EXISTS (SELECT 1 FROM {table})"), [], |row| row.get(0))
            .map_err(failed)?;
        if is_empty {
            connection.execute_batch(&format!("DROP TABLE {table}")).map_err(failed)?;
        }
    }
    connection.execute_batch("COMMIT").map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    place.finish()?;
    Ok(outcome)
}
