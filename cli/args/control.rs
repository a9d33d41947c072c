//! Options of `gpuwhy start` and `gpuwhy stop`.

use clap::Args;
use gpuwhy_inject::config::MAX_STEPS;
use gpuwhy_inject::control::address::Process;

use crate::control;

pub(super) const SWITCH_HELP: &str = "\
With --all the command is for every process of this user, and their captures begin or end within milliseconds. Other
hosts are reached through the command of --via, which runs gpuwhy there; no port is opened.

With --at-step the capture begins when the program begins that step, so all ranks of a job capture the same one. Steps
are the ranges that `gpuwhy run -c command -p RANGE` names. docs/guide/launchers.md describes it.

EXIT CODES:
  0  the process has answered, or all have; the answer says whether anything changed
  1  there is no such process, one does not answer, or one cannot begin at that step

EXAMPLES:
  gpuwhy start 4711; sleep 10; gpuwhy stop 4711
  gpuwhy stop --release 4711            torch.profiler in the process can use CUPTI until the next start
  gpuwhy start --all --at-step 12000 --steps 5
  gpuwhy start --all --via 'srun --jobid=7 --overlap -w {host}' --host node7 --host node8
  srun --jobid=7 --overlap --ntasks-per-node=1 gpuwhy stop --all";

/// One process, or all of them.
#[derive(Args)]
struct Whom {
    /// Process id as in `gpuwhy top` (4711; in containers also 4711-2)
    #[arg(value_name = "PID", required_unless_present = "all", conflicts_with = "all")]
    process: Option<Process>,
    /// Tell every process of this user
    #[arg(long)]
    all: bool,
    /// Tell those of this host, reached with ssh or --via
    #[arg(long = "host", value_name = "HOST", requires = "all")]
    hosts: Vec<String>,
    /// Command that runs gpuwhy on another host; {host} is its name
    #[arg(long, value_name = "COMMAND", requires = "all")]
    via: Vec<String>,
}

impl Whom {
    /// A command of the protocol, which `arguments` are on the command line.
    fn tell(self, command: &str, arguments: &[&str]) -> control::Props {
        let command = command.to_owned();
        match self.process {
            Some(process) => control::Props::Tell { process, command },
            None => {
                let arguments = arguments.iter().copied().chain(["--all"]).map(str::to_owned).collect();
                control::Props::TellAll { command, arguments, hosts: self.hosts, via: self.via }
            }
        }
    }
}

#[derive(Args)]
pub struct StartArgs {
    #[command(flatten)]
    whom: Whom,
    /// Begin at this step of the program, counted from 0
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(..=MAX_STEPS))]
    at_step: Option<u64>,
    /// End the capture after so many steps
    #[arg(long, value_name = "STEPS", requires = "at_step", value_parser = clap::value_parser!(u64).range(1..=MAX_STEPS))]
    steps: Option<u64>,
}

impl From<StartArgs> for control::Props {
    fn from(args: StartArgs) -> Self {
        let Some(first) = args.at_step.map(|step| step.to_string()) else { return args.whom.tell("start", &["start"]) };
        let mut command = format!("{} {first}", control::AT_STEP);
        let mut arguments = vec!["start", "--at-step", &first];
        let count = args.steps.map(|steps| steps.to_string());
        if let Some(count) = &count {
            command.push_str(&format!(" {count}"));
            arguments.extend(["--steps", count]);
        }
        args.whom.tell(&command, &arguments)
    }
}

#[derive(Args)]
pub struct StopArgs {
    #[command(flatten)]
    whom: Whom,
    /// Release CUPTI to other profilers until the next start
    #[arg(long)]
    release: bool,
}

impl From<StopArgs> for control::Props {
    fn from(args: StopArgs) -> Self {
        if args.release { args.whom.tell("release", &["stop", "--release"]) } else { args.whom.tell("stop", &["stop"]) }
    }
}
