//! Options of `gpuwhy stats`.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_export::nsys::Report;
use gpuwhy_export::stats::{RangeFilter, StatsOptions, TableFormat, TableWidth, TimeFilter, TimeUnit};

use crate::{stats, terminal};

pub(super) const STATS_HELP: &str = "\
Names, columns and units are those of nsys 2024 and later. docs/guide/export.md lists where numbers may differ.

REPORTS:
  cuda_api_sum          cuda_api_trace         cuda_api_gpu_sum
  cuda_gpu_kern_sum     cuda_gpu_kern_gb_sum   cuda_gpu_trace
  cuda_gpu_mem_time_sum cuda_gpu_mem_size_sum  cuda_gpu_sum
  cuda_kern_exec_sum    cuda_kern_exec_trace
  nvtx_sum              nvtx_pushpop_sum       nvtx_pushpop_trace
  nvtx_startend_sum     nvtx_kern_sum          nvtx_gpu_proj_sum
  nvtx_gpu_proj_trace   osrt_sum (waits in host samples)
  um_sum                um_total_sum           um_cpu_page_faults_sum
  gpuwhy's own: cuda_kern_line_sum, cuda_kern_library_sum, cuda_memory_usage_sum, cuda_memory_usage_trace

EXIT CODES:
  0  every report was printed
  1  printed, but something is missing from a trace or it has no rows for a report; stderr says what
  2  a trace could not be read

EXAMPLES:
  gpuwhy stats gpuwhy-4711.gpuwhy
  gpuwhy stats --report cuda_gpu_kern_sum,cuda_api_sum --format csv gpuwhy-4711.gpuwhy
  gpuwhy stats --report cuda_gpu_kern_sum run1/
  gpuwhy stats --report cuda_gpu_trace --filter-time 1s/1.5s --timeunit usec gpuwhy-4711.gpuwhy";

#[derive(Args)]
pub struct StatsArgs {
    /// Print these reports, separated by commas
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', default_value = stats::DEFAULT,
        value_parser = Report::statistic)]
    report: Vec<Report>,
    #[command(flatten)]
    tables: TableArgs,
}

/// What all commands have that print tables about traces.
#[derive(Args)]
pub(super) struct TableArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Read this process of an Nsight Systems file [default: the busiest]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    form: FormArgs,
    /// Print times in nsec, usec, msec or sec
    #[arg(long, value_name = "UNIT", default_value = "nsec")]
    timeunit: TimeUnit,
    /// Keep only this time since the start of tracing: 1.5s/2s, 200ms/
    #[arg(long, value_name = "START/END")]
    filter_time: Option<TimeFilter>,
    /// Keep only this NVTX range, of several the first or INDEX
    #[arg(long, value_name = "RANGE[@DOMAIN][/INDEX]", conflicts_with = "filter_time")]
    filter_nvtx: Option<RangeFilter>,
}

/// What tables look like.
#[derive(Args)]
pub(super) struct FormArgs {
    /// Print in this form
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    format: StatsFormat,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Cut the middle of names to fit this many columns; nolimit cuts none
    /// [default: the terminal; elsewhere names of 100 characters]
    #[arg(long, value_name = "COLUMNS|nolimit")]
    width: Option<TableWidth>,
}

impl From<FormArgs> for StatsOptions {
    fn from(args: FormArgs) -> Self {
        let width = args.width.or_else(|| terminal::columns().map(TableWidth::Line)).unwrap_or_default();
        let format = if args.json { StatsFormat::Json } else { args.format };
        Self { format: format.into(), width, is_shown: io::stdout().is_terminal(), ..Self::default() }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum StatsFormat {
    /// Columns aligned for people
    Table,
    /// Comma-separated
    Csv,
    /// Tab-separated
    Tsv,
    /// An array of objects; of several reports an object with an array for each
    Json,
}

impl From<StatsFormat> for TableFormat {
    fn from(format: StatsFormat) -> Self {
        match format {
            StatsFormat::Table => Self::Table,
            StatsFormat::Csv => Self::Csv,
            StatsFormat::Tsv => Self::Tsv,
            StatsFormat::Json => Self::Json,
        }
    }
}

impl TableArgs {
    /// With the reports to print.
    pub(super) fn with(self, reports: Vec<Report>) -> stats::Props {
        stats::Props {
            traces: self.traces,
            pid: self.pid,
            filter: self.filter_time.unwrap_or_default(),
            range: self.filter_nvtx,
            options: StatsOptions { unit: self.timeunit, ..self.form.into() },
            reports,
        }
    }
}

impl From<StatsArgs> for stats::Props {
    fn from(args: StatsArgs) -> Self {
        args.tables.with(args.report)
    }
}
