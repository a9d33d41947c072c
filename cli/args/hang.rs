//! Options of `gpuwhy hang`.

use std::path::PathBuf;

use clap::Args;

pub(super) const HANG_HELP: &str = "\
Queries this user's processes for unfinished operations in NCCL's communicators, and shows which rank never entered a
collective, or entered it with another function, size or type. Other hosts are reached with the command of --via, which
runs gpuwhy there; gpuwhy opens no port. Alternatively, run `gpuwhy hang --answers` on every node with a launcher, and
pass its output as a file. Dumps of PyTorch's flight recorder (TORCH_FR_BUFFER_SIZE) are read as well: one file for each
rank, whose name ends with the rank.

EXIT CODES:
  0  no rank waits
  1  ranks wait, or a process or host does not respond; the text says which
  2  no process was found, no host could be reached, or a file could not be read
  130, 143  interrupted by Ctrl-C or SIGTERM

EXAMPLES:
  gpuwhy hang
  gpuwhy hang --via 'srun --jobid=7 --overlap -w {host}' --host node7 --host node8
  srun --jobid=7 --overlap --ntasks-per-node=1 gpuwhy hang --answers > answers; gpuwhy hang answers
  gpuwhy hang /tmp/nccl_trace_rank_*
  gpuwhy hang --json answers | jq '.findings[0].culprits'";

#[derive(Args, Debug)]
pub struct HangArgs {
    /// Responses of ranks (- for stdin), dumps, or folders with them
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the responses of this host, for another `gpuwhy hang`
    #[arg(long, conflicts_with_all = ["json", "files", "via", "hosts"])]
    pub answers: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Query processes of this host, reached with ssh or --via
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Command that runs gpuwhy on another host; {host} is its name
    #[arg(long, value_name = "COMMAND")]
    pub via: Vec<String>,
}
