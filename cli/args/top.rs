//! Options of `gpuwhy top`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gpuwhy_inject::control::address::Process;

use super::values::interval;
use crate::top::{Props, Show};

pub(super) const TOP_HELP: &str = "\
Shows every process of this user that runs with gpuwhy. Keys: up and down choose a process, s starts or stops its
capture, n shows its report, h writes the HTML page of its trace, ? explains the rest, q quits. The processes go on.

A trace is played back as if it were live. With --report the report of each PID so far is printed. Other hosts are reached through the command of --via, which runs gpuwhy
there; no port is opened. Without a terminal the table is printed once.

EXIT CODES:
  0  it was shown
  1  a trace cannot be read, a PID does not run with gpuwhy, or the terminal cannot be used

EXAMPLES:
  gpuwhy top
  gpuwhy top gpuwhy-4711.gpuwhy --speed 4
  gpuwhy top --host node7 --host node8
  gpuwhy top --via 'srun --jobid=7 --overlap -w {host}' --host node7
  gpuwhy top --via 'ssh node7 /opt/gpuwhy/bin/gpuwhy'
  gpuwhy top --once                              all processes: state, verdict, loss, trace
  gpuwhy top --report 4711                       the report of one so far
  gpuwhy top --json | jq -r 'select(.lost > 0) | .pid'
  gpuwhy top --follow 4711 | jq -r .line         until it ends";

#[derive(Args)]
pub struct TopArgs {
    /// Process ids as in the table (4711; in containers also 4711-2), or one trace to play back
    #[arg(value_name = "PID|TRACE")]
    targets: Vec<String>,
    /// Print the table once
    #[arg(long, conflicts_with_all = ["json", "follow", "report"])]
    once: bool,
    /// Print a line of JSON for each process
    #[arg(long)]
    json: bool,
    /// Print lines of JSON again and again, until the named processes end
    #[arg(long)]
    follow: bool,
    /// Print the report of a process so far
    #[arg(long, requires = "targets", conflicts_with_all = ["json", "follow", "hosts", "via"])]
    report: bool,
    /// Time between two answers of a process, from 1s to 1h
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, value_parser = interval)]
    interval: Duration,
    /// Play a trace back so many times as fast as it ran
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = speed)]
    speed: f64,
    /// Show processes of this host, reached with ssh or --via
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Command that runs gpuwhy on another host; {host} is its name
    #[arg(long, value_name = "COMMAND")]
    via: Vec<String>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=10_000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.01 to 10000".to_owned())
}

impl TryFrom<TopArgs> for Props {
    type Error = anyhow::Error;

    /// # Errors
    ///
    /// When targets are neither processes nor one trace.
    fn try_from(args: TopArgs) -> Result<Self, anyhow::Error> {
        let TopArgs { targets, once, json, follow, report, interval, speed, hosts, via } = args;
        let show = match () {
            () if once => Show::Once,
            () if report => Show::Report,
            () if follow => Show::Follow,
            () if json => Show::Json,
            () => Show::Terminal,
        };
        let named: Result<Vec<Process>, _> = targets.iter().map(|target| target.parse()).collect();
        let (processes, trace) = match (named, &targets[..]) {
            (Ok(processes), _) => (processes, None),
            (Err(_), [trace]) => (Vec::new(), Some(PathBuf::from(trace))),
            (Err(_), _) => anyhow::bail!("expected process ids, or one trace"),
        };
        if trace.as_deref().is_some_and(Path::is_dir) {
            anyhow::bail!("{}: this is a folder; name one trace in it", targets[0]);
        }
        if trace.is_some() && !(hosts.is_empty() && via.is_empty()) {
            anyhow::bail!("a trace is played back here: leave --host and --via out");
        }
        if trace.is_some() && report {
            anyhow::bail!("expected process ids; `gpuwhy report` prints the report of a trace");
        }
        Ok(Self { processes, trace, speed, interval, via, hosts, show })
    }
}
