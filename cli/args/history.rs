//! Options of `gpuwhy history`.

use std::path::PathBuf;

use clap::Args;
use profiler_core::history::Like;

use super::diff::percent;
use crate::history;

pub(super) const HISTORY_HELP: &str = "\
`gpuwhy run` and the Python module add a line about each run to a file on this machine: step, verdict, causes, command
line. Nothing is sent anywhere. GPUWHY_HISTORY=off keeps none; GPUWHY_HISTORY=FILE names another file.

A run is compared with earlier runs of the same program with the same arguments on the same host, devices and mode. The
durations of their steps are compared by the test of `gpuwhy diff`. A run is a regression if it is slower than each of
up to five such runs before it.

EXIT CODES:
  0  the history was read
  1  it was read, but lines of it are damaged
  2  there is none, it cannot be read, or no run of the program is in it
  3  read, and the newest run is a regression of more than --fail-if-slower allows

EXAMPLES:
  gpuwhy history
  gpuwhy history train.py --last 50
  gpuwhy history --any-arguments train.py
  gpuwhy history --fail-if-slower 3 train.py
  gpuwhy report --history gpuwhy-4711.gpuwhy     add a run from its trace";

#[derive(Args)]
pub struct HistoryArgs {
    /// Show programs with this in their name [default: all]
    #[arg(value_name = "PROGRAM")]
    program: Option<String>,
    /// Show the N newest runs of each program
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    last: usize,
    /// Compare runs on different hosts as well
    #[arg(long)]
    any_host: bool,
    /// Compare runs with different arguments as well
    #[arg(long)]
    any_arguments: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Exit with 3 if the newest run of a program is slower by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_slower: Option<f64>,
    /// Read this file [default: GPUWHY_HISTORY, or ~/.local/state/gpuwhy/history.jsonl]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl From<HistoryArgs> for history::Props {
    fn from(args: HistoryArgs) -> Self {
        Self {
            program: args.program,
            rows: args.last,
            like: Like { same_host: !args.any_host, same_arguments: !args.any_arguments },
            json: args.json,
            fail_if_slower: args.fail_if_slower,
            file: args.file,
        }
    }
}
