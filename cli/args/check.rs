//! Options of `gpuwhy check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gpuwhy::{Baseline, Cause, Expectations, Roof};
use gpuwhy_inject::config;

use super::history::HistoryArgs;
use super::values::percent;

pub(super) const CHECK_HELP: &str = "\
Every limit is checked in the report of each trace; a failed limit shows the measured value. Counts cover the whole
trace. To check only a part of the program, record only that part, with a session, a range or --steps
(docs/guide/check.md). A report that lacks records is not checked, because a limit could hold only due to missing
records.

With --history, the runs that `gpuwhy run` and the Python module have noted on this machine are listed (see
docs/guide/history.md). GPUWHY_HISTORY names another file. A run is compared with earlier runs of the same program with
the same arguments on the same host, devices and mode, by the test of `gpuwhy diff`. It is a regression if it is slower
than each of up to five such runs before it.

With --baseline, times of kernels, modules and steps are compared with a file that is kept with the code. --bless stores
them there. With --runs, limits on counts must hold in each run, and limits on times fail if they fail in all: in some, they
are inconclusive. The baseline then has all runs, and an interval of the ratio decides (4 runs of each or more). Limits
that are inconclusive do not change the exit code. CAUSE is data_loading, host_cpu, copy, launch, gpu_compute, sync, communication, allocator, no_work or cannot_tell.

EXIT CODES:
  0  all limits hold
  1  at least one does not or is not in the baseline, or the newest run is slower than --fail-if-slower allows
  2  a trace, the baseline or the history could not be read, the history has no run of PROGRAM, or no limit is given
  3  a report lacks records and was not judged, or lines of the history are damaged; no other limit failed

EXAMPLES:
  gpuwhy check --no-sync --no-pageable-copy --launches-at-most 3 step.gpuwhy
  gpuwhy check --step-at-most 35ms --share-at-most data_loading=5 train.gpuwhy
  gpuwhy check --memory-at-most 70GB --no-memory-growth train.gpuwhy
  gpuwhy check --baseline perf.json --bless --kernel-within softmax=1.05 --step-within 1.03 run.gpuwhy
  gpuwhy check --baseline perf.json --kernel-within softmax=1.05 --step-within 1.03 --format github run.gpuwhy
  gpuwhy check --runs --baseline perf.json --step-within 1.03 runs/
  gpuwhy check --history
  gpuwhy check --history train.py --fail-if-slower 3";

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Traces of gpuwhy, PyTorch or Nsight Systems (SQLite), or folders
    #[arg(required_unless_present = "history", value_name = "TRACE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// Judge the traces together, as runs of one program
    #[arg(long, conflicts_with = "history")]
    pub runs: bool,
    /// Judge this capture [default: the newest]
    #[arg(long, value_name = "N")]
    pub capture: Option<u32>,
    /// Print in this form
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Print JSON: a line for each trace, as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Allow at most N kernels
    #[arg(long, value_name = "N")]
    kernels_at_most: Option<u64>,
    /// Allow at most N calls that launch kernels or graphs
    #[arg(long, value_name = "N")]
    launches_at_most: Option<u64>,
    /// Allow no call that waits for the device
    #[arg(long)]
    no_sync: bool,
    /// Allow no copy from or to pageable memory
    #[arg(long)]
    no_pageable_copy: bool,
    /// Allow no call that allocates device or pinned memory
    #[arg(long)]
    no_allocation: bool,
    /// Require GPUs to be busy for at least PERCENT of a typical step
    #[arg(long, value_name = "PERCENT", value_parser = part)]
    busy_at_least: Option<f64>,
    /// Limit the median of kernels with NAME in their name
    #[arg(long, value_name = "NAME=TIME", value_parser = named_time)]
    kernel_at_most: Vec<(String, Duration)>,
    /// Limit the median of one kernel to RATIO times the baseline
    #[arg(long, value_name = "NAME=RATIO", value_parser = named_ratio, requires = "baseline")]
    kernel_within: Vec<(String, f64)>,
    /// Limit the mean time of module NAME in a replay of a CUDA graph
    #[arg(long, value_name = "NAME=TIME", value_parser = named_time)]
    module_at_most: Vec<(String, Duration)>,
    /// Limit the time of module NAME to RATIO times the baseline
    #[arg(long, value_name = "NAME=RATIO", value_parser = named_ratio, requires = "baseline")]
    module_within: Vec<(String, f64)>,
    /// Allow no kernel that spills registers to local memory
    #[arg(long)]
    no_spills: bool,
    /// Require kernels to reach PERCENT of peak: dram, l2, l1, tensor, issue
    #[arg(long, value_name = "NAME=UNIT:PERCENT", value_parser = use_of_unit)]
    kernel_uses: Vec<(String, (Roof, f64))>,
    /// Require one of these bottlenecks, separated by commas
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    bottleneck: Vec<Cause>,
    /// Allow none of these bottlenecks, separated by commas
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    not_bottleneck: Vec<Cause>,
    /// Limit the part of a step that a cause takes
    #[arg(long, value_name = "CAUSE=PERCENT", value_parser = share)]
    share_at_most: Vec<(Cause, f64)>,
    /// Limit the median step
    #[arg(long, value_name = "TIME", value_parser = time)]
    step_at_most: Option<Duration>,
    /// Limit the median step of a kind, such as decode in a server
    #[arg(long, value_name = "KIND=TIME", value_parser = named_time, alias = "kind-within")]
    kind_at_most: Vec<(String, Duration)>,
    /// Limit the memory in use on each device, such as 70GB
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory_at_most: Option<u64>,
    /// Allow no memory that each step takes and keeps
    #[arg(long)]
    no_memory_growth: bool,
    /// Limit the median step to RATIO times the baseline
    #[arg(long, value_name = "RATIO", value_parser = ratio, requires = "baseline")]
    step_within: Option<f64>,
    /// Read or store medians in this file
    #[arg(long, value_name = "FILE", help_heading = "Baseline")]
    baseline: Option<PathBuf>,
    /// Distinguish runs of one kernel with different inputs
    #[arg(long, value_name = "NAME", requires = "baseline", help_heading = "Baseline")]
    case: Option<String>,
    /// Store the medians in the baseline instead of judging by it
    #[arg(long, requires = "baseline", help_heading = "Baseline")]
    bless: bool,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each limit
    Text,
    /// A line of JSON for each trace
    Json,
    /// A table, such as for $GITHUB_STEP_SUMMARY
    Markdown,
    /// Annotations of GitHub Actions
    Github,
}

impl CheckArgs {
    /// Output format.
    pub const fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

impl LimitArgs {
    /// True if a baseline is to be stored, but no limit selects values for it.
    pub fn blesses_nothing(&self) -> bool {
        self.bless && self.kernel_within.is_empty() && self.module_within.is_empty() && self.step_within.is_none()
    }

    /// The file to compare with or to store in; `None` if none is given.
    pub fn baseline(&self) -> Option<Baseline> {
        let baseline = Baseline::new(self.baseline.as_ref()?).case(self.case.clone().unwrap_or_default());
        Some(if self.bless { baseline.renewed() } else { baseline })
    }

    /// The limits; `None` if none is given.
    pub fn rules(&self) -> Option<Expectations> {
        let if_set = |is_set, rules, add: fn(Expectations) -> Expectations| if is_set { add(rules) } else { rules };
        let rules = self.kernels_at_most.into_iter().fold(Expectations::new(), Expectations::kernels_at_most);
        let rules = self.launches_at_most.into_iter().fold(rules, Expectations::launches_at_most);
        let rules = if_set(self.no_sync, rules, Expectations::no_sync);
        let rules = if_set(self.no_pageable_copy, rules, Expectations::no_pageable_copy);
        let rules = if_set(self.no_allocation, rules, Expectations::no_allocation);
        let rules = self.busy_at_least.into_iter().fold(rules, Expectations::busy_at_least);
        let rules = self.kernel_at_most.iter().fold(rules, |rules, (name, most)| rules.kernel_at_most(name, *most));
        let rules = self.module_at_most.iter().fold(rules, |rules, (name, most)| rules.module_at_most(name, *most));
        let rules = if_set(self.no_spills, rules, |rules| rules.no_spills(""));
        let uses = self.kernel_uses.iter();
        let rules = uses.fold(rules, |rules, (name, (unit, least))| rules.kernel_uses_at_least(name, *unit, *least));
        let rules = if self.bottleneck.is_empty() { rules } else { rules.bottleneck_in(&*self.bottleneck) };
        let rules = if self.not_bottleneck.is_empty() { rules } else { rules.bottleneck_not_in(&*self.not_bottleneck) };
        let rules = self.share_at_most.iter().fold(rules, |rules, &(cause, most)| rules.share_at_most(cause, most));
        let rules = self.step_at_most.into_iter().fold(rules, Expectations::step_at_most);
        let rules = self.kind_at_most.iter().fold(rules, |rules, (name, most)| rules.kind_at_most(name, *most));
        let rules = self.memory_at_most.into_iter().fold(rules, Expectations::memory_at_most);
        let mut rules = if_set(self.no_memory_growth, rules, Expectations::no_memory_growth);
        if let Some(baseline) = &self.baseline() {
            let kernels = self.kernel_within.iter();
            rules = kernels.fold(rules, |rules, (name, ratio)| rules.kernel_within(name, *ratio, baseline));
            let modules = self.module_within.iter();
            rules = modules.fold(rules, |rules, (name, ratio)| rules.module_within(name, *ratio, baseline));
            rules = self.step_within.into_iter().fold(rules, |rules, ratio| rules.step_within(ratio, baseline));
        }
        (!rules.is_empty()).then(|| rules.after_start_up())
    }
}

fn time(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "expected a time such as 40us, 1.5ms or 2s".to_owned())
}

/// Parses `70GB` or `1.5GB`: decimal, as in the report, unlike the sizes of libprof.so's variables.
fn memory(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => f64::NAN,
    };
    let bytes = digits.trim_end().parse::<f64>().map(|number| number * scale).ok();
    let bytes = bytes.filter(|bytes| (0.0..1e18).contains(bytes)).map(|bytes| bytes as u64);
    bytes.ok_or_else(|| "expected a size such as 800MB or 70GB".to_owned())
}

/// Parses a percentage as a share from 0 to 1.
fn part(text: &str) -> Result<f64, String> {
    let number = percent(text).ok().filter(|number| *number <= 100.0);
    number.map(|number| number / 1e2).ok_or_else(|| "expected 0 to 100, such as 5 or 2.5%".to_owned())
}

fn ratio(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0, such as 1.05".to_owned())
}

fn cause(text: &str) -> Result<Cause, String> {
    let names = || Cause::ALL.map(Cause::name).join(", ");
    Cause::ALL.into_iter().find(|cause| cause.name() == text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Parses `NAME=VALUE`; kernel names may contain `=`.
fn named<T>(text: &str, value: fn(&str) -> Result<T, String>) -> Result<(String, T), String> {
    let (name, text) = text.rsplit_once('=').ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    if name.is_empty() {
        return Err("expected a name before =".to_owned());
    }
    Ok((name.to_owned(), value(text)?))
}

fn named_time(text: &str) -> Result<(String, Duration), String> {
    named(text, time)
}

fn named_ratio(text: &str) -> Result<(String, f64), String> {
    named(text, ratio)
}

fn use_of_unit(text: &str) -> Result<(String, (Roof, f64)), String> {
    named(text, |text| {
        let (unit, least) = text.split_once(':').ok_or_else(|| "expected NAME=UNIT:PERCENT".to_owned())?;
        let unit = Roof::ALL.into_iter().find(|of| of.name() == unit);
        let units = || Roof::ALL.map(Roof::name).join(", ");
        Ok((unit.ok_or_else(|| format!("expected one of {}", units()))?, part(least)?))
    })
}

fn share(text: &str) -> Result<(Cause, f64), String> {
    let (name, share) = named(text, part)?;
    Ok((cause(&name)?, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_others_refused() {
        assert_eq!(time("40us"), Ok(Duration::from_micros(40)));
        assert_eq!(time("1.5us"), Ok(Duration::from_nanos(1500)));
        assert_eq!(time("35ms"), Ok(Duration::from_millis(35)));
        assert!(time("-1us").is_err() && time("nanus").is_err() && time("35 parsecs").is_err());
        assert_eq!([memory("70GB"), memory("1.5MB"), memory("7")], [Ok(70_000_000_000), Ok(1_500_000), Ok(7)]);
        assert!(["70GiB", "-1GB", "GB", "inf", "70g", "1e30"].iter().all(|text| memory(text).is_err()));
        assert_eq!(part("5%"), Ok(0.05));
        assert!(part("101").is_err() && part("-1").is_err() && part("NaN").is_err());
        assert_eq!(share("data_loading=5"), Ok((Cause::DataLoading, 0.05)));
        assert_eq!(use_of_unit("softmax=dram:80"), Ok(("softmax".to_owned(), (Roof::Dram, 0.8))));
        assert!(use_of_unit("softmax=ram:80").unwrap_err().contains("tensor, dram"));
        assert!(use_of_unit("softmax=dram").is_err() && use_of_unit("softmax=dram:101").is_err());
        assert!(share("loading=5").unwrap_err().contains("data_loading"));
        assert_eq!(named_ratio("f<a=1>=1.05"), Ok(("f<a=1>".to_owned(), 1.05)));
        assert!(named_ratio("=1").is_err() && named_ratio("softmax").is_err() && named_ratio("a=0").is_err());
    }
}
