//! `gpuwhy try`: applies remedies to a program from outside, interleaved with the unchanged program, and says
//! what each one brought.
//!
//! [`place`] has the folders of the runs, [`change`] what is tried, [`runs`] one run of the command; [`compare`]
//! decides which runs follow each other and what they mean, [`words`] prints it. Each uses only those before it.
//! `python` has what runs within programs of Python.

mod change;
mod compare;
mod place;
mod refused;
mod runs;
mod words;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::change::candidates::{Candidate, LeftOut, candidates, left_out, named};
use self::change::{edits, own, question};
use self::compare::gain::Gain;
use self::compare::pairs::{self, Basis, Limits, Outcome, Tried};
use self::place::folder::Folder;
pub use self::place::folder::watch as guard;
use self::place::processes::Processes;
use self::place::tree::Tree;
use self::refused::{BAD_INPUT, NOTHING, Refused};
use self::runs::launch::Launch;
use self::runs::measured::{Measured, Program as _};
use self::runs::program::Live;
use self::runs::unit::Unit;
use self::words::text::Prediction;
use self::words::{cost, text};
use crate::args::trial::{Allowed, TryArgs};
use crate::{history, interrupt, message, progress, terminal};
use anyhow::{Context as _, Result, anyhow, bail};
use gpuwhy_import::Request;
use gpuwhy_report::history::{LineVersion, Measured as Line, arguments, measured, program};
use gpuwhy_report::run::Results;
use rustix::fs::{Access, access};
use serde_json::Value;

/// Programs that start several processes, each of which would be measured.
const LAUNCHERS: [&str; 8] =
    ["torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "torch.distributed.run"];

/// Tries remedies and prints what they brought; returns the exit code. Fails when a run cannot be prepared,
/// after a signal, and when stdout cannot be written.
pub fn run(args: &TryArgs) -> Result<u8> {
    match answered(args) {
        Err(error) if interrupt::exit_code().is_none() => {
            let Refused(code, why) = error.downcast()?;
            if !why.is_empty() {
                message::say(&why);
            }
            Ok(code)
        }
        other => other,
    }
}

fn answered(args: &TryArgs) -> Result<u8> {
    if args.list {
        let text = if args.json { terminal::json(&text::list_json())? } else { text::list() };
        io::stdout().write_all(text.as_bytes())?;
        return Ok(0);
    }
    if let Some(launcher) = launcher(&args.command) {
        let words = format!(
            "{launcher} starts several processes, and `gpuwhy try` measures one: pass the command of one process, with \
             one GPU"
        );
        return Err(Refused(BAD_INPUT, words).into());
    }
    args.write_patch.as_deref().map_or(Ok(()), writable).map_err(Refused::with(BAD_INPUT))?;
    let folder = Folder::new()?;
    let mut limits = Limits { pairs: usize::from(args.pairs), budget: args.budget, allowed: allowed(&args.allow) };
    let bad_input = Refused::with(BAD_INPUT);
    let read = args.from.as_ref().map(|trace| progress::opened(trace, Request::default()));
    let read = read.transpose().map_err(|error| bad_input(error.into()))?;
    let mut report = read.map(|read| serde_json::to_value(&read)).transpose()?;
    interrupt::watch()?;
    interrupt::end_children_by_ctrl_c()?;
    if args.until_input_ends {
        interrupt::at_end_of(io::stdin());
    }
    let copies = own::copies(args, folder.path())?;
    let own = own::candidate(args, copies.as_ref(), report.as_ref())?;
    let launch = Launch {
        command: args.command.clone(),
        folder: folder.path().to_owned(),
        copies,
        steps: usize::try_from(args.steps).unwrap_or(usize::MAX),
        // So that the unchanged program and one remedy fit into the budget.
        limit: args.budget.div_f64(2.0 * limits.first_pairs() as f64 + 2.0),
        budget: args.budget,
        started: Instant::now(),
        is_own: own.is_some(),
        is_cost: !args.cost.is_empty(),
        processes: Processes::adopt(folder.path()),
    };
    let mut wanted = own.map_or_else(|| named(&args.remedy, report.as_ref()), |own| Ok(vec![own]))?;
    let mut live = Live::new(launch, args.step.clone().map(Unit::range), report.is_some());
    args.build.as_ref().map_or(Ok(()), |line| live.build(line))?;
    let mut others = Vec::new();
    let has_recorded = wanted.is_empty() && !live.launch.is_cost && report.is_none();
    if live.launch.is_cost {
        wanted = cost::candidates(&args.cost);
    } else if wanted.is_empty() {
        if has_recorded {
            message::note(&format!(
                "running the command once to record its report, then again to try its remedies, for at most {}",
                shown(args.budget)
            ));
            report = Some(serde_json::to_value(&live.record()?)?);
        }
        let of = report.as_ref().unwrap_or(&Value::Null);
        // Of what a recorded run has shown: remedies of PyTorch say nothing about other programs.
        wanted = candidates(of);
        wanted.retain(|candidate| !has_recorded || live.can_apply(&candidate.change));
        if question::is_answered_yes(args, &wanted)? {
            limits.allowed.push(Results::Rounding);
        }
        others = left_out(of, &wanted, &limits.allowed);
    }
    announce(&wanted, &limits, &live, has_recorded);
    tried(args, &mut live, &wanted, &others, &limits)
}

/// The launcher that the command is, if any.
fn launcher(command: &[OsString]) -> Option<&'static str> {
    let first = command.first().map(|word| Path::new(word).file_name().unwrap_or(word));
    let module = command.iter().position(|word| word == "-m").and_then(|at| Some(command.get(at + 1)?.as_os_str()));
    LAUNCHERS.into_iter().find(|name| [first, module].into_iter().flatten().any(|word| word == *name))
}

fn allowed(options: &[Allowed]) -> Vec<Results> {
    let has = |one| options.contains(&one) || options.contains(&Allowed::All);
    let more = [(Allowed::Rounding, Results::Rounding), (Allowed::Behavior, Results::Behavior)];
    let more = more.into_iter().filter(|&(option, _)| has(option)).map(|(_, results)| results);
    std::iter::once(Results::Same).chain(more).collect()
}

/// Says what is going to happen.
fn announce(wanted: &[Candidate], limits: &Limits, live: &Live, has_recorded: bool) {
    let count = wanted.iter().filter(|candidate| candidate.is_tried(&limits.allowed)).count();
    if count == 0 {
        return;
    }
    let what = match wanted {
        _ if live.launch.is_cost => "measuring what recording costs".to_owned(),
        [one] if live.launch.is_own => format!("trying {}", one.change.id()),
        _ if count == 1 => "trying 1 remedy".to_owned(),
        _ => format!("trying {count} remedies"),
    };
    if let Some(copies) = &live.launch.copies {
        message::note(&copies.words());
    }
    // One run may only show what a step is, and a recorded one how long the start-up takes.
    let before = if live.launch.is_cost { 1 } else { 2 };
    let runs = 2 * limits.pairs * count + if live.unit.is_none() { before } else { 0 };
    let more = if has_recorded { "more " } else { "" };
    message::note(&format!(
        "{what}: at most {runs} {more}runs of the command, for at most {}; its standard input is empty",
        shown(limits.budget)
    ));
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Measures and prints. `others` are remedies of the report that are not tried.
fn tried(args: &TryArgs, live: &mut Live, wanted: &[Candidate], others: &[LeftOut], limits: &Limits) -> Result<u8> {
    print(args, &text::not_tried(others, wanted.is_empty()))?;
    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (program, past) = (program(&command), Past::read(&command));
    let unit = |live: &Live| live.unit.clone().unwrap_or_else(|| Unit::named("run"));
    let (mut unchanged, mut rows) = (Vec::<Measured>::new(), Vec::<(Tried, Option<Prediction>)>::new());
    let all = pairs::try_all(live, wanted, limits, |live, runs, tried| {
        let mut shown = String::new();
        if !runs.is_empty() {
            unchanged = runs.to_vec();
            shown.push_str(&text::unchanged(runs, &unit(live)));
        }
        if live.launch.is_cost {
            shown.push_str(&cost::words(tried));
        } else {
            let prediction = past.prediction(&tried.candidate);
            let kept = (1..).zip(&rows).filter(|(_, (row, _))| row.outcome == Outcome::Helps);
            let kept: Vec<_> = kept.map(|(number, _)| number).collect();
            shown.push_str(&text::tried(tried, rows.len() + 1, &kept, prediction));
            past.add(tried, &rows);
            rows.push((tried.clone(), prediction));
        }
        print(args, &shown)
    })?;
    let patch = kept(&all, args.write_patch.as_deref(), &live.launch.folder);
    if args.json {
        let mut document = text::document(&program, &unit(live), &unchanged, &rows);
        if live.launch.is_cost {
            document["modes"] = cost::rows(&all);
        } else {
            (document["not_tried"], document["patch"]) = (text::not_tried_json(others), patch.into());
        }
        io::stdout().write_all(terminal::json(&document)?.as_bytes())?;
    } else if !live.launch.is_cost {
        print(args, &text::to_keep(&all))?;
    }
    let is_answered = |tried: &Tried| if live.launch.is_cost { tried.gain.is_some() } else { tried.is_measured() };
    Ok(if all.iter().any(is_answered) { 0 } else { NOTHING })
}

/// Prints a part of the text.
fn print(args: &TryArgs, text: &str) -> Result<()> {
    if !args.json {
        io::stdout().write_all(text.as_bytes())?;
        io::stdout().flush()?;
    }
    Ok(())
}

/// Fails if `file` cannot be made, before the runs.
fn writable(file: &Path) -> Result<()> {
    let name = || format!("--write-patch {}", file.display());
    if file.symlink_metadata().is_ok() {
        bail!("{}: this file is there already, and is not overwritten", name());
    }
    // With `.`, a file in the place of the folder is an error too.
    let folder = file.parent().unwrap_or(file).join(".");
    access(&folder, Access::WRITE_OK | Access::EXEC_OK).with_context(|| format!("{}: its folder", name()))
}

/// The diff of what keeps the remedies that help, also written into `file`; `None` without any line that is known.
/// git makes it in `folder`. Errors are only printed: the results of all runs are still to come.
fn kept(all: &[Tried], file: Option<&Path>, folder: &Path) -> Option<String> {
    let kept = all.iter().filter(|tried| tried.outcome == Outcome::Helps);
    let edits: Vec<_> = kept.flat_map(|tried| tried.edits.clone()).collect();
    let (tree, work) = (Tree::of_work(&[]).ok(), fs::canonicalize(".").unwrap_or_default());
    let diff = edits::diff(&edits, tree.as_ref().map_or(&work, Tree::root), folder);
    if let (Ok((_, left_out)), Some(_)) = (&diff, file) {
        left_out.iter().for_each(|why| message::say(&format!("not in the diff: {why}")));
    }
    let text =
        diff.and_then(|(text, _)| (!text.is_empty()).then_some(text).context("no line that keeps a remedy is known"));
    if let Some(file) = file {
        let write = |text: &String| Ok(File::create_new(file)?.write_all(text.as_bytes())?);
        if let Err(why) = text.as_ref().map_err(|why| anyhow!("{why:#}")).and_then(write) {
            message::say(&format!("{} is not written: {why:#}", file.display()));
        }
    }
    text.ok()
}

/// Earlier measurements of this program on this machine.
struct Past {
    command: Vec<String>,
    host: String,
    lines: Vec<Line>,
}

impl Past {
    fn read(command: &[String]) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Self { command: command.to_vec(), host, lines: history::measured() }
    }

    /// The last measurement, or what the report says.
    fn prediction(&self, candidate: &Candidate) -> Option<Prediction> {
        let before = |name: &str| measured(&self.lines, &self.command, &self.host, name);
        let found = match candidate.change.own() {
            Some(own) => before(&own.kept_as).or_else(|| before(own.remedy.as_ref()?)),
            None => before(candidate.change.id()),
        };
        match found {
            Some(line) => Some(Prediction::History(line.gain)),
            None => candidate.predicted.map(|(low, high)| Prediction::Report(low, high)),
        }
    }

    /// Adds a measured gain to the history. Errors are only printed.
    fn add(&self, tried: &Tried, before: &[(Tried, Option<Prediction>)]) {
        // Later pairs, or another run, may show a difference after all.
        let is_known = |gain: &Gain| tried.outcome != Outcome::NoDifference || gain.is_narrow();
        let Some(gain) = tried.gain.filter(is_known) else { return };
        let Some(path) = history::file::wanted() else { return };
        // A report that shows it as the remedy's knows no conditions.
        let is_of_step = matches!(tried.basis, Basis::Step | Basis::ToEnd);
        let name = match tried.candidate.change.own() {
            Some(own) => own.remedy.as_ref().filter(|_| is_of_step).unwrap_or(&own.kept_as),
            None if !is_of_step => return,
            None => tried.candidate.change.id(),
        };
        let kept = before.iter().filter(|(row, _)| row.outcome == Outcome::Helps);
        let line = Line {
            gpuwhy_measured: LineVersion,
            at_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
            host: self.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: program(&self.command),
            arguments: arguments(&self.command),
            remedy: name.to_owned(),
            on_top_of: kept.map(|(row, _)| row.candidate.change.id().to_owned()).collect(),
            gain: gain.middle,
            low: gain.low,
            high: gain.high,
            pairs: tried.pairs as u64,
        };
        if let Err(error) = history::file::append(&path, &line.line()) {
            message::say(&format!("{error:#}; this gain is not in the history (GPUWHY_HISTORY=off keeps none)"));
        }
    }
}
