//! Options of `gpuwhy try`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use gpuwhy_inject::config::RangeName;

use super::values::{interval, variable};

pub(super) const TRY_HELP: &str = "\
gpuwhy runs the command several times: once to record a report, then alternately without and with each remedy of the report
that can be applied from outside, by an environment variable or a change of PyTorch when the program imports it. What
helps is kept for the remedies after it. The program's files stay as they are; what it writes, it writes in every run, so
direct checkpoints and logs to another place.

The times are those of runs without gpuwhy's library. A step is the first of these that the program has: a call of PyTorch's
optimizer, a pass of the outermost loop of its own code (Python 3.12 or later), a call of the outermost module, a batch of the
data loader; gpuwhy ends a run as Ctrl-C would after enough steps. Without any, whole runs are compared if the program ends
by itself and its start-up takes less than 2 %; else both sides are recorded in mode light, and a step is what repeats in
the work of the GPU. With --step a step is an NVTX range, which mode monitor counts without kernel records. Standard input is
empty. Programs that start several processes for several GPUs are refused.

Numbers that the program prints are compared. By default only remedies are tried that leave the results as they are; on a
terminal gpuwhy asks once about those that change last digits. A remedy that --remedy names is tried whatever it changes.

With --patch, --against or --env the change is yours, and no remedy is tried beside it. A diff is applied in a copy of the
working tree: that of git, with untracked files that it does not ignore, else the folder. Both sides then run in copies,
and paths below the tree in the command and in variables (but HOME, TMPDIR, a virtual environment and folders of PATH that
git ignores) are those of the copy. Runs go on to the end of the program if the budget allows it. The change is a diff or
an option already, so --write-patch is refused beside it.

With --cost nothing is tried: runs without libprof.so alternate with runs in each mode, and the times are of steps that
Python counts, else of whole runs. Traces go to the temporary folder, and no gain into the history.

EXIT CODES:
  0    remedies were tried, whether they help or not
  1    there was nothing to try, or the program could not be measured, copied or built
  2    an option is not understood, the trace could not be read, or the diff does not apply
  125  gpuwhy itself failed
  126  the command was found but could not be executed
  127  the command was not found
  130  interrupted by Ctrl-C
  others  those of the command, if it fails without a remedy

EXAMPLES:
  gpuwhy try -- python train.py
  gpuwhy try --allow rounding --budget 30m -- python train.py --output-dir /tmp/try
  gpuwhy try --from gpuwhy-4711.gpuwhy -- python train.py
  gpuwhy try --remedy fused_optimizer --remedy pinned --write-patch keep.diff -- python train.py
  gpuwhy try --patch fix.diff -- python train.py
  gpuwhy try --patch fix.diff --from gpuwhy-4711.gpuwhy --link data -- python train.py
  gpuwhy try --patch kernel.diff --build 'make -j8' -- ./simulate
  gpuwhy try --against 'python train.py --workers 8' -- python train.py
  gpuwhy try --env OMP_NUM_THREADS=8 -- python train.py
  gpuwhy try --cost -- python train.py
  gpuwhy try --cost=monitor,auto -- python serve.py
  gpuwhy try --list";

#[derive(Args, Debug)]
pub struct TryArgs {
    /// Take the remedies from the report of this trace
    #[arg(long, value_name = "TRACE")]
    pub from: Option<PathBuf>,
    /// Try this remedy; repeatable. Beside your change: the remedy that it is
    #[arg(long, value_name = "ID")]
    pub remedy: Vec<String>,
    /// Also try remedies that change results in this way; repeatable
    #[arg(long, value_name = "WHAT")]
    pub allow: Vec<Allowed>,
    /// Measure this diff in a copy of the working tree; `-` is stdin
    #[arg(long, value_name = "DIFF")]
    pub patch: Option<PathBuf>,
    /// Measure this command (for `sh -c`) against COMMAND
    #[arg(long, value_name = "OTHER")]
    pub against: Option<OsString>,
    /// Measure COMMAND with this variable; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(OsString, OsString)>,
    /// Let the copies share this path, which git ignores; repeatable
    #[arg(long, value_name = "PATH", requires = "patch")]
    pub link: Vec<PathBuf>,
    /// Run this command (for `sh -c`) in each copy before all runs
    #[arg(long, value_name = "COMMAND", requires = "patch")]
    pub build: Option<OsString>,
    /// Write a diff of the lines that keep what helps, to a new file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["patch", "against", "env"])]
    pub write_patch: Option<PathBuf>,
    /// Measure what recording costs in these modes: light, monitor, full, auto [default: light,monitor,full]
    #[arg(long, value_name = "MODES", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    #[arg(default_missing_value = "light,monitor,full")]
    #[arg(conflicts_with_all = ["from", "remedy", "allow", "patch", "against", "env", "write_patch", "step"])]
    pub cost: Vec<CostMode>,
    /// Print all remedies that can be tried, and what they change
    #[arg(long)]
    #[arg(conflicts_with_all = ["from", "remedy", "allow", "patch", "against", "env", "write_patch", "cost", "command"])]
    pub list: bool,
    /// Measure at least this many steps in each run
    #[arg(long, value_name = "N", default_value = "60", value_parser = value_parser!(u32).range(5..=100_000))]
    pub steps: u32,
    /// A step is this NVTX range of the program: range[@domain]
    #[arg(long, value_name = "RANGE", value_parser = range)]
    pub step: Option<RangeName>,
    /// Compare at most this many pairs of runs for each remedy
    #[arg(long, value_name = "N", default_value = "12", value_parser = value_parser!(u8).range(2..=20))]
    pub pairs: u8,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = interval)]
    pub budget: Duration,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// End as by SIGTERM when stdin ends: for the server of `gpuwhy mcp`
    #[arg(long, hide = true)]
    pub until_input_ends: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "list")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct GuardArgs {
    /// The temporary folder
    pub folder: PathBuf,
}

fn range(text: &str) -> Result<RangeName, String> {
    RangeName::parse(text).ok_or_else(|| "name a range, such as step or step@training".to_owned())
}

/// How much is recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum CostMode {
    /// As by default
    Light,
    /// Samples and NVML's readings
    Monitor,
    /// All calls too
    Full,
    /// Monitor with bursts
    Auto,
}

impl CostMode {
    /// Its name in the settings of libprof.so.
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Monitor => "monitor",
            Self::Full => "full",
            Self::Auto => "auto",
        }
    }
}

/// What a remedy may do to the results.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Allowed {
    /// Numbers change in their last digits
    Rounding,
    /// Something else changes, such as the order of random numbers
    Behavior,
    /// Both
    All,
}
