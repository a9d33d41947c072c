//! Options of `gpuwhy start` and `gpuwhy stop`.

use clap::Args;
use gpuwhy_inject::config::MAX_STEPS;
use gpuwhy_inject::control::address::ProcessName;

pub(super) const SWITCH_HELP: &str = "\
--all sends the command to every process of this user; their captures start or stop within milliseconds of each other. Other
hosts are reached with the command of --via, which runs gpuwhy there; gpuwhy opens no port.

With --at-step the capture starts when the program starts that step, so all ranks of a job capture the same step. Steps
are the ranges that `gpuwhy run -c command -p RANGE` names. docs/guide/launchers.md describes it.

EXIT CODES:
  0  the process responded, or all did; the response says whether anything changed
  1  there is no such process, one does not respond, or one cannot start at that step

EXAMPLES:
  gpuwhy start 4711; sleep 10; gpuwhy stop 4711
  gpuwhy stop --release 4711            torch.profiler in the process can use CUPTI until the next start
  gpuwhy start --all --at-step 12000 --steps 5
  gpuwhy start --all --via 'srun --jobid=7 --overlap -w {host}' --host node7 --host node8
  srun --jobid=7 --overlap --ntasks-per-node=1 gpuwhy stop --all";

/// Target of the command: one process, or all of them.
#[derive(Args, Debug)]
pub struct Recipients {
    /// Process id as in `gpuwhy top` (4711; in containers also 4711-2)
    #[arg(value_name = "PID", required_unless_present = "all", conflicts_with = "all")]
    pub process: Option<ProcessName>,
    /// Send the command to every process of this user
    #[arg(long)]
    pub all: bool,
    /// Send it to the processes of this host, with ssh or --via
    #[arg(long = "host", value_name = "HOST", requires = "all")]
    pub hosts: Vec<String>,
    /// Command that runs gpuwhy on another host; {host} is its name
    #[arg(long, value_name = "COMMAND", requires = "all")]
    pub via: Vec<String>,
}

#[derive(Args, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    pub recipients: Recipients,
    /// Start the capture at this step of the program, counted from 0
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(..=MAX_STEPS))]
    pub at_step: Option<u64>,
    /// End the capture after this number of steps
    #[arg(long, value_name = "STEPS", requires = "at_step", value_parser = clap::value_parser!(u64).range(1..=MAX_STEPS))]
    pub steps: Option<u64>,
}

#[derive(Args, Debug)]
pub struct StopArgs {
    #[command(flatten)]
    pub recipients: Recipients,
    /// Release CUPTI to other profilers until the next start
    #[arg(long)]
    pub release: bool,
}
