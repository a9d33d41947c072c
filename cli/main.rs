//! The `gpuwhy` command.
//!
//! Each subcommand has a file: [`args`] has its options as clap parses them, and `run` does the work and
//! returns the exit code. Computing on records is library code.

mod args;
mod check;
mod control;
mod demo;
mod diff;
mod doctor;
mod explain;
mod export;
mod exporter;
mod hang;
mod history;
mod inputs;
mod install_paths;
mod interrupt;
mod kernels;
mod lake;
mod mcp;
mod merge;
mod message;
mod output;
mod page;
mod progress;
mod prose;
mod query;
mod remote;
mod report;
mod run;
mod sizes;
mod terminal;
mod top;
mod trial;

use std::io;
use std::process::ExitCode;

use crate::args::Command;

/// Exit code for an invalid command line, as in programs that use getopt.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match args::parsed() {
        Ok(cli) => cli,
        Err(error) => {
            // A terminal that refuses the message cannot be helped.
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    message::set_up(cli.verbose, cli.quiet);
    let (outcome, failure) = match cli.command {
        Command::Run(args) => (run::run(&args), run::OWN_FAILURE),
        Command::Report(args) => (report::run(&args), report::UNREADABLE),
        Command::Kernels(args) => (kernels::run(&args), run::OWN_FAILURE),
        Command::Try(args) => (trial::run(&args), run::OWN_FAILURE),
        Command::Top(args) => (top::run(&args), top::FAILED),
        Command::Diff(args) => (diff::run(&args), diff::UNREADABLE),
        Command::Check(args) => (check::run(&args), check::UNREADABLE),
        Command::Export(args) => (export::run(&args), export::FAILED),
        Command::Exporter(args) => (exporter::run(&args), exporter::FAILED),
        Command::Merge(args) => (merge::run(&args), merge::FAILED),
        Command::Query(args) => (query::run(&args), query::FAILED),
        Command::Lake(args) => (lake::run(&args), lake::FAILED),
        Command::Doctor(args) => (doctor::run(&args), doctor::check::FAILED),
        Command::WatchRun(args) => (run::watch::run(&args), run::OWN_FAILURE),
        Command::GuardTry(args) => (trial::guard(&args.folder), run::OWN_FAILURE),
        Command::Probe(args) => (doctor::probe::run(args.libcupti), doctor::check::FAILED),
        Command::CalibrationProgram => (doctor::calibrate::program::run(), doctor::check::FAILED),
        Command::Hang(args) => (hang::run(&args), hang::FAILED),
        Command::Start(args) => (control::start(&args), control::NO_ANSWER),
        Command::Stop(args) => (control::stop(&args), control::NO_ANSWER),
        Command::Mcp(args) => (mcp::run(&args), mcp::FAILED),
        Command::Demo(args) => (demo::run(&args), demo::FAILED),
        Command::Completions(args) => (args::completions::run(&args), args::completions::FAILED),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => match interrupt::exit_code() {
            Some(code) => {
                message::say("interrupted; no unfinished file remains");
                code.into()
            }
            None => {
                message::say(&format!("{error:#}"));
                failure.into()
            }
        },
    }
}

/// True if the reader of our output went away (`gpuwhy report x | head`) and needs no more.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe))
}
