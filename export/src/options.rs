//! What is asked of an export, and what came of it.

use crate::destination::Shape;
use crate::tables::Label;
use gpuwhy_trace::record::Record;

/// What a trace can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFormat {
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
    /// A trace again, in larger blocks, which compress better.
    Gpuwhy,
}

impl TargetFormat {
    /// How it is written.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Chrome | Self::Json | Self::Perfetto | Self::Gpuwhy => Shape::Stream,
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
            Self::Gpuwhy => "gpuwhy",
        }
    }
}

/// What was written, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOutcome {
    /// Records of the trace that are in the output.
    pub written: u64,
    /// Records of kinds that the format has no place for, in the order of [`Record::KINDS`].
    pub without_place: [u64; Record::KINDS.len()],
    /// What the trace lacks, or what could not be joined: sentences for the user.
    pub notes: Vec<String>,
}

impl ExportOutcome {
    /// Counts a record that the format has no place for.
    pub(crate) const fn leave_out(&mut self, record: &Record) {
        self.without_place[record.kind()] += 1;
    }

    /// The kinds that the format has no place for and that the trace has, with the number of their records.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Record::KINDS.into_iter().zip(self.without_place).filter(|&(_, count)| count > 0)
    }
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
