//! `gpuwhy hang`: finds the rank that the ranks of a hanging job wait for, while they wait.
//!
//! The analysis is library code; this module handles sockets, launchers, files and exit codes.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result, bail};
use gpuwhy_compare::hang::{RunAnswers, judge};
use gpuwhy_import::rank_report::RankReports;
use gpuwhy_inject::control::address::ProcessName;
use gpuwhy_report::text_format::{printable, printable_json};
use serde_json::json;

use crate::args::hang::HangArgs;
use crate::control::connection::{Answered, processes, query_all};
use crate::remote::Launcher;
use crate::{message, terminal};

/// Exit code when ranks wait.
const WAITS: u8 = 1;
/// Exit code when no rank responded or reported a collective, or a file could not be read.
pub const FAILED: u8 = 2;
/// Protocol command.
const QUESTION: &str = "hang";
/// Maximum size of an input, bytes.
const LARGEST: u64 = 64 << 20;

/// Queries the ranks and prints the result; returns the exit code. Fails when a file or a folder of sockets
/// cannot be read, or stdout cannot be written.
pub fn run(args: &HangArgs) -> Result<u8> {
    if args.answers {
        return print_answers();
    }
    let launchers = Launcher::all(&args.via, &args.hosts)?;
    let mut found = RankReports::default();
    for path in expanded(&args.files)? {
        let of_file = if path == Path::new("-") { from_stdin()? } else { RankReports::open(&path)? };
        found.rank_reports.extend(of_file.rank_reports);
        found.silent.extend(of_file.silent);
        found.notes.extend(of_file.notes);
    }
    if args.files.is_empty() && launchers.is_empty() {
        let (answers, refused) = local();
        found.notes.extend(refused);
        for (process, answer) in answers {
            match answer {
                Ok(line) => found.line(&line, &format!("process {process}")),
                Err(why) => found.silent.push(format!("process {process} does not respond: {why}")),
            }
        }
    }
    let unreachable = ask_hosts(launchers, &mut found);
    if found.rank_reports.is_empty() && found.silent.is_empty() {
        // No rank responded, which is an error and not a finding.
        found.notes.extend(unreachable);
    } else {
        found.silent.extend(unreachable);
    }
    for note in &found.notes {
        message::say(&printable(note));
    }
    if found.rank_reports.is_empty() && found.silent.is_empty() {
        bail!(
            "no rank answers: no process of this user runs with gpuwhy here, or none has a rank. Ask where the ranks run \
             (--host, --via), or name files with their answers."
        );
    }
    let mut report = judge(&found.rank_reports);
    report.silent = found.silent;
    let text = match args.json {
        true => terminal::json(&report)?,
        false => report.text_within(terminal::style()),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(match report.findings.is_empty() && report.silent.is_empty() {
        true if !report.runs.is_empty() && report.runs.iter().all(RunAnswers::has_no_collective) => FAILED,
        true => 0,
        false => WAITS,
    })
}

/// Prints a line for each process of this host: its response, or that it does not respond.
fn print_answers() -> Result<u8> {
    let (answers, refused) = local();
    refused.iter().for_each(|why| message::say(why));
    let mut out = io::stdout().lock();
    for (process, answer) in &answers {
        match answer {
            Ok(line) => writeln!(out, "{}", printable_json(line))?,
            Err(why) => {
                let line = json!({"type": "silent", "process": process.to_string(), "message": why});
                writeln!(out, "{}", printable_json(&line.to_string()))?;
            }
        }
    }
    Ok(if answers.is_empty() { FAILED } else { 0 })
}

/// Process with its response or the reason why there is none.
type Heard = (ProcessName, Result<String, String>);

/// Responses of this host's processes, or the reasons why there are none; and the folders that were skipped.
fn local() -> (Vec<Heard>, Vec<String>) {
    let (processes, refused) = processes();
    let heard = |(process, answer): (ProcessName, Answered)| match answer {
        Ok(answer) => answer.map(|(line, _)| (process, Ok(line))),
        Err(error) => Some((process, Err(error.to_string()))),
    };
    (query_all(processes, QUESTION).into_iter().filter_map(heard).collect(), refused)
}

/// Queries the other hosts in parallel. Returns those that do not respond.
fn ask_hosts(launchers: Vec<Launcher>, found: &mut RankReports) -> Vec<String> {
    let (sender, receiver) = channel();
    for launcher in launchers {
        let sender = sender.clone();
        thread::spawn(move || {
            let output = output_of(&launcher, &["hang", "--answers"]);
            // The receiver is gone when the program ends.
            let _ = sender.send((launcher.host, output));
        });
    }
    drop(sender);
    let mut unreachable = Vec::new();
    for (host, output) in receiver {
        match output {
            Ok(text) => {
                for (number, line) in (1..).zip(text.lines()) {
                    found.line(line, &format!("{host}: line {number}"));
                }
            }
            Err(error) => unreachable.push(format!("{host}: {error:#}")),
        }
    }
    unreachable
}

/// Output of `gpuwhy` with these arguments on a host. Fails when the launcher cannot be started, or prints
/// nothing and does not end in time.
fn output_of(launcher: &Launcher, arguments: &[&str]) -> Result<String> {
    launcher.output(arguments).map(|(text, _)| text)
}

fn from_stdin() -> Result<RankReports> {
    let mut bytes = Vec::new();
    io::stdin().take(LARGEST).read_to_end(&mut bytes).context("standard input")?;
    Ok(RankReports::read(&bytes, "standard input", None)?)
}

/// Named files and the files in named folders, sorted.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = path.read_dir().with_context(|| path.display().to_string())?;
        let mut inside: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        if inside.is_empty() {
            bail!("{}: the folder has no files", path.display());
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}
