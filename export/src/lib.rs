//! Traces of gpuwhy in the formats of other people's tools, and the statistics that nsys users know.
//!
//! Heavy dependencies live here and not in `libprof.so`, which never depends on this crate. Every exporter reads the
//! trace from its file, more than once where a join needs it, so memory does not grow with the trace; what a table
//! had no room for is counted and named in the [`Outcome`]. Nothing is measured or attributed here: that is
//! `profiler-core`.

mod attributed;
mod chrome;
mod correlations;
mod cut;
mod destination;
mod error;
mod job;
mod json;
mod kineto_names;
mod lanes;
mod names;
mod operation;
mod order;
mod output;
mod parquet;
mod perfetto;
pub mod query;
mod ranges;
pub mod ranks;
mod records;
mod sqlite;
pub mod stats;
mod survey;
pub mod tables;
mod words;

use tables::Label;

pub use cut::cut;
pub use destination::{Destination, Shape};
pub use error::ExportError;
pub use gpuwhy_import::{OpenError, Progress, TraceFile, unwatched};
pub use output::Output;

/// What a trace can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome's JSON as the PyTorch profiler writes it.
    Chrome,
    /// The SQLite file of an Nsight Systems export.
    Sqlite,
    /// A line of JSON for each record.
    Json,
    /// Perfetto's own format.
    Perfetto,
    /// Apache Parquet: a folder of runs and ranks with a file for each table.
    Parquet,
}

impl Format {
    /// How it is written.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Chrome | Self::Json | Self::Perfetto => Shape::Stream,
            Self::Sqlite => Shape::File,
            Self::Parquet => Shape::Folder,
        }
    }

    /// What the name of a file of this format ends with.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            // The TensorBoard plugin finds traces by this ending.
            Self::Chrome => "pt.trace.json.gz",
            Self::Sqlite => "sqlite",
            Self::Json => "jsonl.gz",
            Self::Perfetto => "perfetto-trace",
            Self::Parquet => "parquet",
        }
    }
}

/// What was written, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Records of the trace that are in the output.
    pub written: u64,
    /// Records of kinds that the format has no place for.
    pub without_place: u64,
    /// What the trace lacks, or what could not be joined: sentences for the user.
    pub notes: Vec<String>,
}

/// How to export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rank of a trace that does not know its own: its place among the traces that are exported together.
    pub fallback_rank: u32,
    /// How many traces are exported together, for those that do not know their world.
    pub fallback_world: u32,
    /// Run and rank of the trace in a format that holds several.
    pub label: Label,
    /// Ranges of this name are steps: where the format has a way to say that, it is said.
    pub step_range: Option<String>,
}

/// Writes `trace` in `format`: to a file, or below a folder for [`Format::Parquet`]. A file appears when it is complete, a
/// folder when all of its files are.
///
/// # Errors
///
/// When the trace cannot be read or the output cannot be written, and when `progress` ends the work; the error names the
/// file. A trace that is damaged is no error: what can be read is exported, and the [`Outcome`] says what is missing.
pub fn export(
    trace: &TraceFile,
    format: Format,
    to: Destination,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Outcome, ExportError> {
    match format {
        Format::Chrome => chrome::write(trace, to, options, progress),
        Format::Sqlite => sqlite::write(trace, to, progress),
        Format::Json => records::write(trace, to, progress),
        Format::Perfetto => perfetto::write(trace, to, progress),
        Format::Parquet => parquet::write(trace, &to, &options.label, progress),
    }
}
