//! The command line as clap sees it, and its translation into the `Props` of each subcommand.
//!
//! A subcommand is a file, with its help. Nothing outside of this folder knows clap.

mod analyze;
mod compact;
mod control;
mod demo;
mod diff;
mod doctor;
mod explain;
mod export;
mod merge;
mod query;
mod report;
mod run;
mod stats;

use clap::{ArgAction, Parser, Subcommand};

use self::analyze::{ANALYZE_HELP, AnalyzeArgs};
use self::compact::{COMPACT_HELP, CompactArgs};
use self::control::{ProcessArgs, STATUS_HELP, StatusArgs, StopArgs, TELL_HELP, WATCH_HELP, WatchArgs};
use self::demo::{DEMO_HELP, DemoArgs};
use self::diff::{DIFF_HELP, DiffArgs};
use self::doctor::{DOCTOR_HELP, DoctorArgs, ProbeArgs};
use self::explain::{EXPLAIN_HELP, ExplainArgs};
use self::export::{EXPORT_HELP, ExportArgs};
use self::merge::{MERGE_HELP, MergeArgs};
use self::query::{QUERY_HELP, QueryArgs};
use self::report::{REPORT_HELP, ReportArgs};
use self::run::{RUN_HELP, RunArgs};
use self::stats::{STATS_HELP, StatsArgs};

/// Tells, while a CUDA program runs, why it is not faster.
#[derive(Parser)]
#[command(name = "gpuwhy", version = env!("GPUWHY_VERSION"), after_help = EXAMPLES)]
pub struct Cli {
    /// Say more on stderr: which files were taken (-v), and every step (-vv)
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Messages")]
    pub verbose: u8,
    /// Say nothing on stderr but errors and what a result lacks
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a command with gpuwhy loaded into every CUDA process of it
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Print what a trace says
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two traces of one program: what changed, why, and whether it could be chance
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Print the statistics of `nsys stats` about a trace
    #[command(after_help = STATS_HELP)]
    Stats(StatsArgs),
    /// Look for what commonly goes wrong, by the rules of `nsys analyze`
    #[command(after_help = ANALYZE_HELP)]
    Analyze(AnalyzeArgs),
    /// Ask traces in SQL
    #[command(after_help = QUERY_HELP)]
    Query(QueryArgs),
    /// Compare the ranks of a job: who waits for whom; or write them to one file
    #[command(after_help = MERGE_HELP)]
    Merge(MergeArgs),
    /// Write traces in the format of another tool
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Write a trace again, smaller and with the same contents
    #[command(after_help = COMPACT_HELP)]
    Compact(CompactArgs),
    /// List this user's processes that run with gpuwhy, and what holds them back
    #[command(after_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Begin a capture in a running process
    #[command(after_help = TELL_HELP)]
    Start(ProcessArgs),
    /// End the capture in a running process; it goes on at full speed
    #[command(after_help = TELL_HELP)]
    Stop(StopArgs),
    /// Print the report of a running process so far
    #[command(after_help = TELL_HELP)]
    Snapshot(ProcessArgs),
    /// Print the verdict of a running process again and again, as lines of JSON
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Check whether this machine can be profiled, and say what to do where it cannot
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Explain a word of the report and how it is measured
    #[command(after_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// Play recorded sessions through the real library; needs no GPU
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Load a libcupti and call into it. `doctor` runs this in a process of its own.
    #[command(name = crate::doctor::probe::SUBCOMMAND, hide = true)]
    Probe(ProbeArgs),
}

const EXAMPLES: &str = "\
EXAMPLES:
  gpuwhy run -- python train.py         profile a program; the verdict comes at its end
  gpuwhy run --live 1s -- ./simulate    with a line about the bottleneck every second
  gpuwhy report gpuwhy-4711.gpuwhy    read a trace again
  gpuwhy diff before.gpuwhy after.gpuwhy
                                         what a change brought, and why
  gpuwhy export --to chrome gpuwhy-4711.gpuwhy
                                         for Perfetto, HTA and TensorBoard
  gpuwhy stats gpuwhy-4711.gpuwhy     the tables of nsys stats
  gpuwhy analyze gpuwhy-4711.gpuwhy   the rules of nsys analyze
  gpuwhy query gpuwhy-4711.gpuwhy 'SELECT count(*) FROM kernels'
                                         anything else, in SQL
  gpuwhy doctor                         can this machine be profiled?
  gpuwhy demo                           see it work without a GPU";
