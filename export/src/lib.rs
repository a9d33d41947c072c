//! Exports traces to the formats of other tools, and provides the statistics that nsys users know.
//!
//! Heavy dependencies are confined to this crate, which `libprof.so` never depends on. Every exporter reads
//! the trace from its file, more than once if a join requires it, so memory does not grow with the trace.
//! Data beyond a table's limit is counted and reported in the [`ExportOutcome`]. This crate measures and
//! attributes no time: `profiler-core` does.

mod attributed;
mod captured;
mod chrome;
mod collectives;
mod correlations;
mod counters;
mod destination;
mod earlier_steps;
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
mod samples;
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

/// Writes `trace` in `format`: to a file, or below a folder for [`TargetFormat::Parquet`]. A file appears
/// when it is complete, a folder when all of its files are.
///
/// # Errors
/// If the trace cannot be read or the output cannot be written, or if `progress` ends the work; the error
/// names the file. A damaged trace is not an error: the readable part is exported, and the [`ExportOutcome`]
/// describes the missing data.
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
        TargetFormat::Speedscope => samples::speedscope(trace, to, progress),
        TargetFormat::Collapsed => samples::collapsed(trace, to, progress),
        TargetFormat::Gpuwhy => recompressed(trace, to, progress),
    }
}

/// Rewrites `trace` in a smaller form.
fn recompressed(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let name = to.path().to_owned();
    let (written, output) =
        compact::compact(trace.bytes(progress)?, Output::create(to)?).map_err(|error| match error {
            // The problem is not in the trace.
            CompactError::Write(error) => ExportError::io(&name, error),
            error => ExportError::refused(trace.path(), error.to_string()),
        })?;
    output.finish()?;
    Ok(ExportOutcome { written: written.records, ..ExportOutcome::default() })
}
