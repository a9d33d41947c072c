//! The SQLite file of an Nsight Systems export, so that existing SQL and nsys scripts run unchanged.
//!
//! Tables and columns are those of schema 3.20 (nsys 2025.3); later versions have only added to them. Only
//! data that a gpuwhy trace contains is present, and tables that nsys omits if nothing was traced are omitted
//! here, too. `rows.sql` says how each row of gpuwhy's tables is written.

mod facts;
mod rows;

use rusqlite::Connection;

use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::output::Unfinished;
use crate::tables::recorded;
use gpuwhy_import::{Progress, TraceFile};

use self::rows::Rows;

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

/// Tables of page faults. nsys's reports about managed memory require both, so they exist as soon as the trace has any
/// event of managed memory.
const FAULTS: [&str; 2] = ["CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"];

/// Writes `trace` to an SQLite file.
pub fn write(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let path = to.path().to_owned();
    let failed = |error: rusqlite::Error| ExportError::sqlite(&path, &error);
    // SQLite accepts an empty file as an empty database.
    let (_, place) = Unfinished::create(to)?;
    let connection = Connection::open(place.temporary()).map_err(failed)?;
    // An unfinished file is deleted, so its data need not survive a crash.
    let options = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN;";
    for sql in [options, include_str!("schema.sql"), include_str!("metrics.sql")] {
        connection.execute_batch(sql).map_err(failed)?;
    }
    let mut rows = Rows::new(&connection, trace.session(), &path).map_err(failed)?;
    let (passed, notes) = recorded(trace, &mut rows, progress)?;
    facts::write(&connection, &passed, &rows).map_err(failed)?;
    let (has_managed, outcome) = rows.finish();
    let remove = |table: &str| connection.execute_batch(&format!("DROP TABLE {table}")).map_err(failed);
    if !has_managed {
        FAULTS.into_iter().try_for_each(remove)?;
    }
    for table in OPTIONAL {
        let is_empty: bool = connection
            .query_row(&format!("SELECT NOT EXISTS (SELECT 1 FROM {table})"), [], |row| row.get(0))
            .map_err(failed)?;
        if is_empty {
            remove(table)?;
        }
    }
    connection.execute_batch("COMMIT").map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    place.finish()?;
    Ok(ExportOutcome { notes, ..outcome })
}
