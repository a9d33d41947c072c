//! Options and results of an export.

use crate::destination::Shape;
use crate::tables::Label;
use gpuwhy_trace::record::Record;

/// Output format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFormat {
    /// Chrome JSON as written by the PyTorch profiler.
    Chrome,
    /// The SQLite file of an Nsight Systems export.
    Sqlite,
    /// One line of JSON for each record.
    Json,
    /// Perfetto's own format.
    Perfetto,
    /// Apache Parquet: a folder of runs and ranks with a file for each table.
    Parquet,
    /// Host samples for speedscope.
    Speedscope,
    /// Host samples as collapsed stacks.
    Collapsed,
    /// A gpuwhy trace again, with larger blocks, which compress better.
    Gpuwhy,
}

impl TargetFormat {
    /// How the format is written.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Chrome | Self::Json | Self::Perfetto | Self::Speedscope | Self::Collapsed | Self::Gpuwhy => {
                Shape::Stream
            }
            Self::Sqlite => Shape::File,
            Self::Parquet => Shape::Folder,
        }
    }

    /// File name extension of this format.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            // The TensorBoard plugin recognizes traces by this extension.
            Self::Chrome => "pt.trace.json.gz",
            Self::Sqlite => "sqlite",
            Self::Json => "jsonl.gz",
            Self::Perfetto => "perfetto-trace",
            Self::Parquet => "parquet",
            Self::Speedscope => "speedscope.json",
            Self::Collapsed => "collapsed.txt",
            Self::Gpuwhy => "gpuwhy",
        }
    }
}

/// Summary of written and missing data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOutcome {
    /// Number of records of the trace that are in the output.
    pub written: u64,
    /// Number of records that the format cannot represent, in the order of [`Record::KINDS`].
    pub without_place: [u64; Record::KINDS.len()],
    /// Describes missing data in the trace and failed joins, for the user.
    pub notes: Vec<String>,
}

impl ExportOutcome {
    /// Counts a record of this [`kind`](Record::kind) that the format cannot represent.
    pub(crate) const fn leave_out(&mut self, kind: usize) {
        self.without_place[kind] += 1;
    }

    /// Kinds in the trace that the format cannot represent, with the number of their records.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Record::KINDS.into_iter().zip(self.without_place).filter(|&(_, count)| count > 0)
    }
}

/// Options of an export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rank for a trace without one: its index among the traces that are exported together.
    pub fallback_rank: u32,
    /// World size for traces without one: the number of traces that are exported together.
    pub fallback_world_size: u32,
    /// Run and rank of the trace, in a format that can contain several.
    pub label: Label,
    /// Name of the ranges that are steps, for formats that can represent steps.
    pub step_range: Option<String>,
}
