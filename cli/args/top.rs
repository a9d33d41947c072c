//! Options of `gpuwhy top`.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use gpuwhy_inject::control::address::ProcessName;

use super::values::interval;

pub(super) const TOP_HELP: &str = "\
Shows every process of this user that runs with gpuwhy. Keys: up and down choose a process, s starts or stops its
capture, n shows its report, h writes the HTML page of its trace, ? explains the rest, q quits. The processes continue.

A trace is played back as if it were live. With --report the report of each PID so far is printed. Other hosts are reached with the command of --via, which runs gpuwhy
there; gpuwhy opens no port. Without a terminal the table is printed once.

EXIT CODES:
  0  it was shown
  1  a trace cannot be read, a PID does not run with gpuwhy, or the terminal cannot be used

EXAMPLES:
  gpuwhy top
  gpuwhy top gpuwhy-4711.gpuwhy --speed 4
  gpuwhy top --host node7 --host node8
  gpuwhy top --via 'srun --jobid=7 --overlap -w {host}' --host node7
  gpuwhy top --via 'ssh node7 /opt/gpuwhy/bin/gpuwhy'
  gpuwhy top --once                              all processes: state, bottleneck, loss, trace
  gpuwhy top --report 4711                       the report of one so far
  gpuwhy top --json | jq -r 'select(.lost > 0) | .pid'
  gpuwhy top --follow 4711 | jq -r .line         until it ends";

#[derive(Args, Debug)]
pub struct TopArgs {
    /// Process ids as in the table (in containers also 4711-2), or a trace
    #[arg(value_name = "PID|TRACE")]
    pub targets: Vec<String>,
    /// Print the table once
    #[arg(long, conflicts_with_all = ["json", "follow", "report"])]
    pub once: bool,
    /// Print a line of JSON for each process
    #[arg(long)]
    pub json: bool,
    /// Print lines of JSON again and again, until the named processes end
    #[arg(long)]
    pub follow: bool,
    /// Print the report of a process so far
    #[arg(long, requires = "targets", conflicts_with_all = ["json", "follow", "hosts", "via"])]
    pub report: bool,
    /// Time between two responses of a process, from 1s to 1h
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, value_parser = interval)]
    pub interval: Duration,
    /// Playback speed relative to the run
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = speed)]
    pub speed: f64,
    /// Show processes of this host, reached with ssh or --via
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Command that runs gpuwhy on another host; {host} is its name
    #[arg(long, value_name = "COMMAND")]
    pub via: Vec<String>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=10_000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.01 to 10000".to_owned())
}

impl TopArgs {
    /// Processes of this host to show; empty for all.
    pub fn processes(&self) -> Vec<ProcessName> {
        match self.trace() {
            Some(_) => Vec::new(),
            None => self.targets.iter().filter_map(|target| target.parse().ok()).collect(),
        }
    }

    /// Trace to play back instead of live processes.
    pub fn trace(&self) -> Option<&Path> {
        self.targets.iter().find(|target| target.parse::<ProcessName>().is_err()).map(Path::new)
    }
}
