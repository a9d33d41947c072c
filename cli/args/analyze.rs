//! Options of `gpuwhy analyze`.

use clap::Args;
use gpuwhy_export::nsys::Report;

use super::stats::TableArgs;
use crate::stats;

pub(super) const ANALYZE_HELP: &str = "\
Names, columns, options and thresholds are those of nsys; gpu_idle_causes is gpuwhy's own.

RULES, with their options:
  cuda_memcpy_async   asynchronous copies that block, because the memory is pageable
  cuda_memcpy_sync    copies for which the host waits
  cuda_memset_sync    memsets for which the host waits
  cuda_api_sync       calls that wait for a whole stream or device
  gpu_gaps            a device was idle for long              gap=500 (milliseconds)
  gpu_time_util       a device was used little                threshold=50 (percent), chunks=30
  gpu_idle_causes     what the idle time of a device was spent on
  every rule                                                  rows=50 (-1: all) of each trace

EXIT CODES:
  0  every rule was checked, whatever it found
  1  checked, but something is missing from a trace; stderr says what
  2  a trace could not be read

EXAMPLES:
  gpuwhy analyze gpuwhy-4711.gpuwhy
  gpuwhy analyze --rule gpu_gaps:gap=10:rows=5,gpu_idle_causes gpuwhy-4711.gpuwhy
  gpuwhy analyze --rule cuda_memcpy_sync --format csv run.sqlite";

#[derive(Args)]
pub struct AnalyzeArgs {
    /// Check these rules, with options behind colons [default: all]
    #[arg(short, long, value_name = "RULE", value_delimiter = ',', value_parser = Report::rule)]
    rule: Vec<Report>,
    #[command(flatten)]
    tables: TableArgs,
}

impl From<AnalyzeArgs> for stats::Props {
    fn from(args: AnalyzeArgs) -> Self {
        args.tables.with(if args.rule.is_empty() { Report::rules() } else { args.rule })
    }
}
