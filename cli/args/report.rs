//! Options of `gpuwhy report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gpuwhy_inject::config;

use super::page::PageArgs;
use crate::report;

pub(super) const REPORT_HELP: &str = "\
With --json each trace gives one JSON object on one line, in the order of the files. With --html the report of one trace
is written as a page that opens in a browser without network access; its answer can be read and printed without scripts.

EXIT CODES:
  0  every trace was read
  1  every trace was reported, but at least one is truncated or damaged; the report says where
  2  at least one trace could not be read at all; the others were reported

EXAMPLES:
  gpuwhy report gpuwhy-4711.gpuwhy
  gpuwhy report --top 30 *.gpuwhy | less
  gpuwhy report --json gpuwhy-4711.gpuwhy | jq .verdict
  gpuwhy report --html report.html gpuwhy-4711.gpuwhy";

#[derive(Args)]
pub struct ReportArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required = true, value_name = "TRACE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print all tables behind the verdict
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print all tables, with the N longest kernels
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "full"])]
    top: Option<usize>,
    /// Print the tables of NVTX ranges as well
    #[arg(long, conflicts_with = "json")]
    ranges: bool,
    /// Read this process of an Nsight Systems file [default: the busiest]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Report this capture [default: the newest]
    #[arg(long, value_name = "N")]
    capture: Option<u32>,
    /// Report the run from this time after its start: 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["capture", "pid"])]
    from: Option<Duration>,
    /// Report the run up to this time after its start
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["capture", "pid"])]
    to: Option<Duration>,
    #[command(flatten)]
    page: PageArgs,
    /// Compute the report anew, even where the trace holds one
    #[arg(long)]
    recompute: bool,
}

impl From<ReportArgs> for report::Props {
    fn from(args: ReportArgs) -> Self {
        let extent = match (args.top, args.full) {
            (Some(kernels), _) => report::Extent::Top(kernels),
            (None, true) => report::Extent::Full,
            (None, false) => report::Extent::Summary,
        };
        let window = (args.from.is_some() || args.to.is_some())
            .then(|| (args.from.unwrap_or(Duration::ZERO), args.to.unwrap_or(Duration::MAX)));
        Self {
            window,
            files: args.files,
            json: args.json,
            extent,
            ranges: args.ranges,
            pid: args.pid,
            capture: args.capture,
            recompute: args.recompute,
            html: args.page.into_page(args.capture),
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "expected a time such as 500ms, 10s or 2m".to_owned())
}
