//! `gpuwhy check --history`: earlier runs of programs, and a check that the newest is not slower.
//!
//! The line format is library code ([`gpuwhy_report::history`]), and so are the choice of the runs to compare and the
//! wording ([`gpuwhy_compare::history`]); this module handles the file, streams and exit codes.

pub mod file;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Result, bail};
use gpuwhy::Report;
use gpuwhy_compare::diff::StepChange;
use gpuwhy_compare::history::{self, Judged, Like};
use gpuwhy_report::history::{Measured, Run};
use serde_json::{Value, json};

use crate::args::history::HistoryArgs;
use crate::{message, terminal};

/// Exit code when the history has damaged lines.
const DAMAGED: u8 = 3;
/// Exit code when the newest run is slower than allowed.
const SLOWER: u8 = 1;
/// Version of the JSON schema.
const SCHEMA: u32 = 2;

/// Measured gains of remedies of all programs; none where no history is kept.
pub fn measured() -> Vec<Measured> {
    file::wanted().map(|path| file::read_measured(&path)).unwrap_or_default()
}

/// Prints the history of the programs whose name contains `program`, and returns the exit code. Fails when
/// there is no history, it cannot be read, or stdout cannot be written.
pub fn run(program: Option<&str>, args: &HistoryArgs, json: bool) -> Result<u8> {
    let path = file::path()?;
    let (runs, bad) = file::read(&path)?;
    if let Some(first) = bad.first() {
        message::say(&format!("{} lines are passed over; the first: {first}", bad.len()));
    }
    let mut programs = BTreeMap::<String, Vec<Run>>::new();
    for run in runs {
        let name = run.program();
        if program.is_none_or(|part| name.contains(part)) {
            programs.entry(name).or_default().push(run);
        }
    }
    if programs.is_empty() {
        match program {
            Some(part) => bail!("{}: no run of a program with {part:?} in its name", path.display()),
            None if bad.is_empty() => bail!("{}: no runs yet; `gpuwhy run` adds one", path.display()),
            None => bail!("{}: no run can be read", path.display()),
        }
    }
    let like = Like { same_host: !args.any_host, same_arguments: !args.any_arguments };
    let judged: Vec<_> = programs.iter().map(|(name, runs)| (name, runs, history::judged(runs, like))).collect();
    if json {
        let programs: Vec<_> = judged.iter().map(|(name, runs, judged)| document(name, runs, judged)).collect();
        let document = json!({"schema_version": SCHEMA, "file": path, "bad_lines": bad.len(), "programs": programs});
        io::stdout().write_all(terminal::json(&document)?.as_bytes())?;
    } else {
        let style = terminal::style();
        let texts: Vec<_> =
            judged.iter().map(|(_, runs, judged)| history::text(runs, judged, args.last, style)).collect();
        io::stdout().write_all(texts.join("\n").as_bytes())?;
    }
    let mut code = if bad.is_empty() { 0 } else { DAMAGED };
    for (name, _, judged) in &judged {
        let Some((allowed, newest)) = args.fail_if_slower.zip(judged.last()) else { continue };
        let Some((_, change)) = newest.before.as_ref().filter(|_| newest.outcome == StepChange::Slower) else {
            continue;
        };
        if change.percent() > allowed {
            let earlier = match newest.held_against {
                1 => "the only earlier run like it".to_owned(),
                count => format!("each of the {count} earlier runs like it"),
            };
            message::say(&format!(
                "{name}: the newest run is {:.1} % slower than the last one like it, more than {allowed} %; it is slower \
                 than {earlier}",
                change.percent()
            ));
            code = SLOWER;
        }
    }
    Ok(code)
}

/// Appends a line about the run of a trace. Errors are only printed.
pub fn add(report: &Report, trace: &Path) {
    let trace = std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned()).to_string_lossy().into_owned();
    let Some(run) = Run::of(report, Some(&trace)) else {
        message::note(&format!("{trace}: not added to the history: it has no device work, or is not of rank 0"));
        return;
    };
    let Some(path) = file::wanted() else { return };
    if let Err(error) = file::append(&path, &run.line()) {
        message::say(&format!("{error:#}; this run is not in the history (GPUWHY_HISTORY=off keeps none)"));
    }
}

fn document(name: &str, runs: &[Run], judged: &[Judged]) -> Value {
    let row = |(run, judged): (&Run, &Judged)| {
        // We wrote the line, so it is valid JSON.
        let mut row: Value = serde_json::from_str(&run.line()).unwrap_or_default();
        row["regression"] = (judged.outcome == StepChange::Slower).into();
        row["compared_with"] = judged.held_against.into();
        row["change"] = judged.before.as_ref().map_or(Value::Null, |(before, change)| {
            let causes: BTreeMap<_, _> = change.causes.iter().map(|&(cause, ns)| (cause.name(), ns)).collect();
            json!({
                "since_ns": runs.get(*before).map(|run| run.start_ns),
                "outcome": change.outcome(),
                "device": change.device,
                "before_ns": change.before_ns,
                "after_ns": change.after_ns,
                "recordings_p": change.test.p,
                "causes_ns": causes,
            })
        });
        row
    };
    json!({"program": name, "runs": runs.iter().zip(judged).map(row).collect::<Vec<_>>()})
}
