//! Traces of gpuwhy in the formats of other people's tools, and the statistics that nsys users know.
//!
//! Heavy dependencies live here and not in `libprof.so`, which never depends on this crate. Every exporter reads the
//! trace from its file, more than once where a join needs it, so memory does not grow with the trace; what a table
//! had no room for is counted and named in the [`ExportOutcome`]. Nothing is measured or attributed here: that is
//! `profiler-core`.

mod attributed;
mod chrome;
mod collectives;
mod correlations;
mod counters;
mod destination;
mod earlier_steps;
mod enum_names;
mod error;
mod instances;
mod json;
mod kineto_names;
pub mod lake;
mod launches;
mod made_folders;
pub mod named;
mod names;
pub mod nsys;
mod options;
mod order;
mod output;
mod parquet;
mod perfetto;
mod prescan;
mod process_names;
mod projection;
pub mod query;
mod ranges;
pub mod ranks;
mod records;
mod row_store;
mod slice;
mod sqlite;
pub mod stats;
pub mod tables;
mod tracks;

pub use destination::{Destination, Shape};
pub use error::ExportError;
pub use gpuwhy_import::{OpenError, Progress, TraceFile, unwatched};
pub use options::{ExportOutcome, Options, TargetFormat};
pub use output::Output;
pub use slice::slice;

use gpuwhy_trace::format::compact::{self, CompactError};

/// Writes `trace` in `format`: to a file, or below a folder for [`TargetFormat::Parquet`]. A file appears when it is
/// complete, a folder when all of its files are.
///
/// # Errors
/// When the trace cannot be read or the output cannot be written, and when `progress` ends the work; the error names
/// the file. A trace that is damaged is no error: what can be read is exported, and the [`ExportOutcome`] says what is
/// missing.
pub fn export(
    trace: &TraceFile,
    format: TargetFormat,
    to: Destination,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    match format {
        TargetFormat::Chrome => chrome::write(trace, to, options, progress),
        TargetFormat::Sqlite => sqlite::write(trace, to, progress),
        TargetFormat::Json => records::write(trace, to, progress),
        TargetFormat::Perfetto => perfetto::write(trace, to, progress),
        TargetFormat::Parquet => parquet::write(trace, &to, &options.label, progress),
        TargetFormat::Gpuwhy => recompressed(trace, to, progress),
    }
}

/// Writes `trace` again, smaller.
fn recompressed(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let name = to.path().to_owned();
    let (written, output) =
        compact::compact(trace.bytes(progress)?, Output::create(to)?).map_err(|error| match error {
            // The trace is not what is wrong.
            CompactError::Write(error) => ExportError::io(&name, error),
            error => ExportError::refused(trace.path(), error.to_string()),
        })?;
    output.finish()?;
    Ok(ExportOutcome { written: written.records, ..ExportOutcome::default() })
}
