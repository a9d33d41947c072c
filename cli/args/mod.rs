//! The command line as clap parses it.
//!
//! Each subcommand has a file, with its help. No code outside this folder uses clap.

pub mod check;
pub mod completions;
pub mod control;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod exporter;
pub mod hang;
pub mod history;
pub mod kernels;
pub mod lake;
pub mod mcp;
pub mod merge;
pub mod page;
pub mod query;
pub mod report;
pub mod run;
pub mod top;
pub mod trial;
mod values;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::check::{CHECK_HELP, CheckArgs};
use self::completions::{COMPLETIONS_HELP, CompletionsArgs};
use self::control::{SWITCH_HELP, StartArgs, StopArgs};
use self::demo::{DEMO_HELP, DemoArgs};
use self::diff::{DIFF_HELP, DiffArgs};
use self::doctor::{DOCTOR_HELP, DoctorArgs, ProbeArgs};
use self::export::{EXPORT_HELP, ExportArgs};
use self::exporter::{EXPORTER_HELP, ExporterArgs};
use self::hang::{HANG_HELP, HangArgs};
use self::kernels::{KERNELS_HELP, KernelsArgs};
use self::lake::{LAKE_HELP, LakeArgs};
use self::mcp::{MCP_HELP, McpArgs};
use self::merge::{MERGE_HELP, MergeArgs};
use self::query::{QUERY_HELP, QueryArgs};
use self::report::{REPORT_HELP, ReportArgs};
use self::run::{RUN_HELP, RunArgs, WatchArgs};
use self::top::{TOP_HELP, TopArgs};
use self::trial::{GuardArgs, TRY_HELP, TryArgs};
use crate::prose;

/// Hidden subcommand that makes the calls that `doctor --calibrate` measures.
pub const CALIBRATION_PROGRAM: &str = "calibration-program";
/// Hidden subcommand that says why a program of `run` has no report.
pub const WATCH_RUN: &str = "watch-run";
/// Hidden subcommand of `try` that cleans up after it.
pub const GUARD_TRY: &str = "guard-try";
/// Hidden subcommand that loads a libcupti.
pub const PROBE_LIBCUPTI: &str = "probe-libcupti";

/// Find the bottleneck of a CUDA program while it runs
#[derive(Parser)]
#[command(name = "gpuwhy", version = env!("GPUWHY_VERSION"), after_help = EXAMPLES)]
pub struct Cli {
    /// Log to stderr which files are used (-v), or every step (-vv)
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Messages")]
    pub verbose: u8,
    /// Print only errors and missing data to stderr
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a command with gpuwhy loaded into its CUDA processes
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Print the report of a trace
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Measure kernels with hardware counters and show what limits them
    #[command(after_help = KERNELS_HELP)]
    Kernels(Box<KernelsArgs>),
    /// Try remedies on a program without changing it, and measure their gains
    #[command(after_help = TRY_HELP)]
    Try(Box<TryArgs>),
    /// Compare two traces of one program and explain the difference
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Check traces against limits, or the newest run against earlier ones
    #[command(after_help = CHECK_HELP)]
    Check(Box<CheckArgs>),
    /// Query traces: tables and rules of nsys, recipes, or SQL
    #[command(after_help = QUERY_HELP)]
    Query(Box<QueryArgs>),
    /// Compare the ranks of a job, or write them to one timeline
    #[command(after_help = MERGE_HELP)]
    Merge(MergeArgs),
    /// Convert traces to the format of another tool, or recompress them
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Keep the tables of many runs as Parquet files for SQL engines
    #[command(after_help = LAKE_HELP)]
    Lake(LakeArgs),
    /// Show what running programs do and why they are not faster, live
    #[command(after_help = TOP_HELP)]
    Top(TopArgs),
    /// Serve metrics of this node's programs to Prometheus
    #[command(after_help = EXPORTER_HELP)]
    Exporter(ExporterArgs),
    /// Find the rank that a hanging NCCL job is waiting for
    #[command(after_help = HANG_HELP)]
    Hang(HangArgs),
    /// Start a capture in a running process
    #[command(after_help = SWITCH_HELP)]
    Start(StartArgs),
    /// Stop the capture in a running process
    #[command(after_help = SWITCH_HELP)]
    Stop(StopArgs),
    /// Answer questions of coding agents and editors about traces (MCP)
    #[command(after_help = MCP_HELP)]
    Mcp(McpArgs),
    /// Check whether programs can be profiled on this machine
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Play recorded sessions; needs no GPU
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Make the calls that `doctor --calibrate` measures, in a child
    #[command(name = CALIBRATION_PROGRAM, hide = true)]
    CalibrationProgram,
    /// Say why a program of `run` has no report
    #[command(name = WATCH_RUN, hide = true)]
    WatchRun(WatchArgs),
    /// Clean up behind a `try` that was killed
    #[command(name = GUARD_TRY, hide = true)]
    GuardTry(GuardArgs),
    /// Load a libcupti and call into it; `doctor` runs this in a child
    #[command(name = PROBE_LIBCUPTI, hide = true)]
    Probe(ProbeArgs),
}

/// Parses the command line. Fails when it is invalid, and also for the help or the version, which clap
/// returns as errors.
pub fn parsed() -> Result<Cli, clap::Error> {
    let texts = |command: clap::Command| match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(prose::unwrapped(&text)),
        None => command,
    };
    let mut command = texts(Cli::command()).mut_subcommands(texts);
    let words: Vec<_> = std::env::args_os().collect();
    let found = command.try_get_matches_from_mut(&words).map_err(with_shown_verbs)?;
    if let Some(error) = lost_value(&command, &words, &found) {
        return Err(error);
    }
    Cli::from_arg_matches(&found).map_err(|error| error.format(&mut command))
}

/// An error whose suggestions include only subcommands for users, and `query` for subcommands of nsys.
fn with_shown_verbs(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && ["stats", "analyze"].contains(&verb.as_str())
    {
        let names = vec![format!("query {verb}")];
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        return error;
    }
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let command = Cli::command();
        let is_shown = |name: &&String| !command.find_subcommand(name.as_str()).is_some_and(clap::Command::is_hide_set);
        let names: Vec<_> = names.iter().filter(is_shown).cloned().collect();
        if names.is_empty() {
            error.remove(ContextKind::SuggestedSubcommand);
        } else {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error
}

/// The error for `run --gpu-metrics auto`: an option with an optional value takes one only after `=`, and the
/// word would be started as a program.
fn lost_value(command: &clap::Command, words: &[OsString], found: &clap::ArgMatches) -> Option<clap::Error> {
    let (verb, given) = found.subcommand()?;
    let verb = command.find_subcommand(verb)?;
    let has_no_value = |option: &clap::Arg| {
        option.is_require_equals_set() && option.get_num_args().is_some_and(|values| values.min_values() == 0)
    };
    let program = verb.get_positionals().find(|words| words.is_trailing_var_arg_set())?.get_id().as_str();
    let program = given.get_raw(program)?.next()?;
    for option in verb.get_arguments().filter(|option| has_no_value(option)) {
        let id = option.get_id().as_str();
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let name = format!("--{}", option.get_long()?);
        let Some(at) = words.iter().position(|word| *word == *name) else { continue };
        if words.get(at + 1).is_none_or(|next| next != program) {
            continue;
        }
        // If the word is valid after `=`, it is a value; otherwise it is a program.
        let next = program.to_str()?;
        let line = words[..at].iter().cloned().chain([format!("{name}={next}").into(), "--".into(), "program".into()]);
        if command.clone().try_get_matches_from_mut(line).is_ok() {
            let text = format!(
                "{name} takes a value after '=' only\n\n  tip: write '{name}={next}'; for a program named '{next}' \
                 write '{name} -- {next}'\n"
            );
            return Some(command.clone().error(clap::error::ErrorKind::InvalidValue, text));
        }
    }
    None
}

const EXAMPLES: &str = "\
EXAMPLES:
  gpuwhy run -- python train.py                  profile a program; the report comes at its end
  gpuwhy run --live 1s -- ./simulate             with a line about the bottleneck every second
  gpuwhy report gpuwhy-4711.gpuwhy               print the report of a trace
  gpuwhy kernels -- python train.py              what limits the slowest kernels, and what to do
  gpuwhy try -- python train.py                  apply remedies from outside, measure their gains
  gpuwhy top                                     watch running programs, live
  gpuwhy report --open gpuwhy-4711.gpuwhy        look at its timeline in a browser
  gpuwhy report --explain dispatch               what a word of the report means
  gpuwhy diff before.gpuwhy after.gpuwhy         how a change affected the run time, and why
  gpuwhy check --history train.py                earlier runs: is the newest slower?
  gpuwhy check --no-sync gpuwhy-4711.gpuwhy      fail a build if a run exceeds a limit
  gpuwhy export --to chrome gpuwhy-4711.gpuwhy   for Perfetto, HTA and TensorBoard
  gpuwhy query stats gpuwhy-4711.gpuwhy          the tables of nsys stats
  gpuwhy query 'SELECT count(*) FROM kernels' gpuwhy-4711.gpuwhy
  gpuwhy mcp                                     let a coding agent ask about traces
  gpuwhy doctor                                  can programs be profiled on this machine?
  gpuwhy demo                                    see gpuwhy work without a GPU";

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest line of help, without a default at its end.
    const MOST_LETTERS: usize = 72;

    #[test]
    fn the_command_line_is_consistent_and_its_help_lines_are_short() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for verb in command.get_subcommands().chain([&command]) {
            let options = verb.get_arguments().filter_map(|option| option.get_help());
            for line in verb.get_about().into_iter().chain(options) {
                let line = line.to_string();
                let text = line.split(" [default: ").next().unwrap_or(&line);
                assert!(text.chars().count() <= MOST_LETTERS, "{}: {text}", verb.get_name());
                assert!(text.starts_with(char::is_uppercase) && !text.ends_with('.'), "{}: {text}", verb.get_name());
            }
        }
    }
}
