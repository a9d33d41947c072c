//! Options of `gpuwhy merge`.

use std::path::PathBuf;

use clap::Args;

use super::page::ComparisonPageArgs;

pub(super) const MERGE_HELP: &str = "\
The rank of a trace is that of RANK, or of what Open MPI, PMI or Slurm set. Ranks of one host share a clock. Clocks of
other hosts are aligned by the ends of collectives, and the error is printed. With -o, all ranks are written to one
file for https://ui.perfetto.dev, each as a process. With -o -, the comparison goes to stderr.

EXIT CODES:
  0  the ranks were compared
  1  compared, but a trace lacks something; stderr says what
  2  a trace could not be read, or the file could not be written
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy run --output 'run1/rank%q{RANK}.gpuwhy' -- torchrun --nproc-per-node 8 train.py
  gpuwhy merge run1/
  gpuwhy merge run1/ -o run1.perfetto-trace
  gpuwhy merge run1/ --html run1.html
  gpuwhy merge run1/ --open                      the page in a browser
  gpuwhy merge --json run1/ | jq .straggler";

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Traces of the ranks of one job, or folders with them
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Write all ranks to this file (- for standard output) for Perfetto
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub page: ComparisonPageArgs,
}
