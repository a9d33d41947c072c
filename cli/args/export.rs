//! Options of `gpuwhy export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_export::TargetFormat;
use gpuwhy_export::stats::{RangeFilter, TimeFilter};

pub(super) const EXPORT_HELP: &str = "\
One trace becomes one file, several become files in a folder. The folder is made if OUT ends with / or has no file ending.
For parquet, OUT is the folder of all runs [default: gpuwhy-parquet]; other runs and ranks in it stay. Existing files are
replaced only with --force. All but sqlite and parquet can be written to pipes and devices. A file gets its name when it
is complete, so no unfinished file remains. docs/guide/export.md describes each format.

EXIT CODES:
  0  every trace was written; stderr counts the records that the format has no place for, by kind
  1  every trace was written, but at least one is damaged or lacks something; stderr says what
  2  at least one trace could not be read or written; the others were written
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy export --to chrome gpuwhy-4711.gpuwhy -o trace.json.gz
  gpuwhy export --to chrome rank*.gpuwhy -o log/
  gpuwhy export --to chrome --step-range step gpuwhy-4711.gpuwhy
  gpuwhy export --to perfetto --filter-nvtx step/100 gpuwhy-4711.gpuwhy
  gpuwhy export --to parquet run1/ -o traces/ && duckdb -c \
    \"SELECT rank, count(*) FROM 'traces/*/*/kernels.parquet' GROUP BY rank\"
  gpuwhy export --to json gpuwhy-4711.gpuwhy -o - | jq 'select(.kind == \"copy\") | .bytes'
  gpuwhy export --to collapsed gpuwhy-4711.gpuwhy -o - | flamegraph.pl --countname ns > stacks.svg
  gpuwhy export --to gpuwhy gpuwhy-4711.gpuwhy -o kept.gpuwhy
  gpuwhy export --to sqlite gpuwhy-4711.gpuwhy && nsys stats gpuwhy-4711.sqlite";

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Write this format
    #[arg(long, value_name = "FORMAT", required_unless_present = "sizes")]
    pub to: Option<ExportFormat>,
    /// Write this file (- for standard output), or to this folder
    /// [default: named after the trace, in the working directory]
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Replace files that exist, but never a trace that is read
    #[arg(long)]
    pub force: bool,
    /// Keep only this time since the start of tracing: 1.5s/2s, 200ms/
    #[arg(long, value_name = "START/END")]
    pub filter_time: Option<TimeFilter>,
    /// Keep only this NVTX range, of several the first or INDEX
    #[arg(long, value_name = "RANGE[@DOMAIN][/INDEX]", conflicts_with = "filter_time")]
    pub filter_nvtx: Option<RangeFilter>,
    /// Mark ranges of this name as steps (chrome: ProfilerStep#0, #1, ...)
    #[arg(long, value_name = "NAME")]
    pub step_range: Option<String>,
    /// Read this process of a file of Nsight Systems [default: the busiest] or torch.profiler [default: all]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Name the run of all traces (parquet) [default: GPUWHY_RUN, the job, a rank's folder, or the file]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Print the bytes that each kind of record takes, and recompressed
    #[arg(long, conflicts_with_all = ["to", "output", "filter_time", "filter_nvtx", "step_range", "run"])]
    pub sizes: bool,
}

/// What `--to` names.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExportFormat {
    /// JSON of the PyTorch profiler: Perfetto, HolisticTraceAnalysis, TensorBoard, chrome://tracing
    Chrome,
    /// The SQLite file of an Nsight Systems export: your SQL, `nsys stats`
    Sqlite,
    /// A line of JSON for each record
    Json,
    /// Perfetto's own format: smaller than chrome, with counters and the bottleneck
    Perfetto,
    /// Apache Parquet, run=.../rank=N/TABLE.parquet: DuckDB, Polars, Spark, pandas
    Parquet,
    /// Host samples for speedscope.app: stacks over time, by thread
    Speedscope,
    /// Host samples for flame graphs: stacks and their nanoseconds
    Collapsed,
    /// The trace again, smaller and without loss; a damaged one is refused
    Gpuwhy,
}

impl From<ExportFormat> for TargetFormat {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Chrome => Self::Chrome,
            ExportFormat::Sqlite => Self::Sqlite,
            ExportFormat::Json => Self::Json,
            ExportFormat::Perfetto => Self::Perfetto,
            ExportFormat::Parquet => Self::Parquet,
            ExportFormat::Speedscope => Self::Speedscope,
            ExportFormat::Collapsed => Self::Collapsed,
            ExportFormat::Gpuwhy => Self::Gpuwhy,
        }
    }
}
