//! Options of `gpuwhy export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_export::TargetFormat;
use gpuwhy_export::stats::{RangeFilter, TimeFilter};

use crate::export::{self, Stretch};

pub(super) const EXPORT_HELP: &str = "\
One trace becomes one file, several become files in a folder, which is made when OUT ends with / or has no file ending.
For parquet OUT is the folder of all runs [default: gpuwhy-parquet], and other runs and ranks in it stay. What exists is
replaced with --force only. chrome, json and perfetto can be written to pipes and devices. A file gets its name when it
is complete, so nothing unfinished stays behind. docs/guide/export.md describes each format.

EXIT CODES:
  0  every trace was written
  1  every trace was written, but at least one lacks something; stderr says what
  2  at least one trace could not be read or written; the others were written; or an output may not be written
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy export --to chrome gpuwhy-4711.gpuwhy -o trace.json.gz
  gpuwhy export --to chrome rank*.gpuwhy -o log/
  gpuwhy export --to chrome --step-range step gpuwhy-4711.gpuwhy
  gpuwhy export --to perfetto --filter-nvtx step/100 gpuwhy-4711.gpuwhy
  gpuwhy export --to parquet run1/ -o traces/ && duckdb -c \
    \"SELECT rank, count(*) FROM 'traces/*/*/kernels.parquet' GROUP BY rank\"
  gpuwhy export --to json gpuwhy-4711.gpuwhy -o - | jq 'select(.kind == \"copy\") | .bytes'
  gpuwhy export --to sqlite gpuwhy-4711.gpuwhy && nsys stats gpuwhy-4711.sqlite";

#[derive(Args)]
pub struct ExportArgs {
    /// Trace files of gpuwhy, folders with them, SQLite files of Nsight Systems or traces of the PyTorch profiler
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    to: ExportFormat,
    /// The file to write (- for standard output), or the folder for several [default: in the working directory, named
    /// after the trace]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace files that exist; traces that are read are never replaced
    #[arg(long)]
    force: bool,
    /// Only what overlaps START/END, counted from the start of tracing: 1.5s/2s, 200ms/, /3000000
    #[arg(long, value_name = "STRETCH")]
    filter_time: Option<TimeFilter>,
    /// Only what overlaps a range of the program: RANGE[@DOMAIN][/INDEX], the first one unless told otherwise
    #[arg(long, value_name = "RANGE", conflicts_with = "filter_time")]
    filter_nvtx: Option<RangeFilter>,
    /// Ranges of this name are training steps (chrome: they become ProfilerStep#0, #1, ...)
    #[arg(long, value_name = "NAME")]
    step_range: Option<String>,
    /// The process, of an SQLite file of Nsight Systems with several [default: the one with most device work]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// parquet: the name of the run that all traces belong to [default: that of their folder]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExportFormat {
    /// JSON of the PyTorch profiler: Perfetto, HolisticTraceAnalysis, TensorBoard, chrome://tracing
    Chrome,
    /// The SQLite file of an Nsight Systems export: your SQL, `nsys stats`
    Sqlite,
    /// A line of JSON for each record
    Json,
    /// Perfetto's own format: smaller than chrome, with counters and the verdict
    Perfetto,
    /// Apache Parquet, run=.../rank=N/TABLE.parquet: DuckDB, Polars, Spark, pandas
    Parquet,
}

impl From<ExportArgs> for export::Props {
    fn from(args: ExportArgs) -> Self {
        let format = match args.to {
            ExportFormat::Chrome => TargetFormat::Chrome,
            ExportFormat::Sqlite => TargetFormat::Sqlite,
            ExportFormat::Json => TargetFormat::Json,
            ExportFormat::Perfetto => TargetFormat::Perfetto,
            ExportFormat::Parquet => TargetFormat::Parquet,
        };
        Self {
            traces: args.traces,
            format,
            output: args.output,
            force: args.force,
            step_range: args.step_range,
            stretch: match (args.filter_time, args.filter_nvtx) {
                (Some(filter), _) => Some(Stretch::Time(filter)),
                (None, filter) => filter.map(Stretch::Range),
            },
            pid: args.pid,
            run: args.run,
        }
    }
}
