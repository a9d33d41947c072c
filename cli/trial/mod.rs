//! `gpuwhy try`: applies remedies to a program from outside, interleaved with the unchanged program, and says
//! what each one brought.
//!
//! [`place`] has the folders of the runs, [`change`] what is tried, [`runs`] one run of the command; [`compare`]
//! decides which runs follow each other and what they mean, [`words`] prints it. Each uses only those before it.
//! `python` has what runs within programs of Python.

mod change;
mod compare;
mod place;
mod runs;
mod words;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::change::candidates::{Candidate, LeftOut, candidates, left_out, named};
use self::change::{Change, edits, own, question};
use self::compare::gain::Gain;
use self::compare::pairs::{self, Basis, End, Limits, Outcome, Tried};
use self::place::folder::Folder;
pub use self::place::folder::watch as guard;
use self::place::tree::{Copies, Tree};
use self::runs::measured::{Ended, Measured, Program};
use self::runs::program::Live;
use self::runs::unit::Unit;
use self::words::text::Prediction;
use self::words::{cost, text};
use crate::args::trial::{Allowed, TryArgs};
use crate::{history, interrupt, message, progress, terminal};
use anyhow::{Context as _, Result};
use gpuwhy_import::Request;
use gpuwhy_report::history::{LineVersion, Measured as Line, arguments, measured, program};
use gpuwhy_report::run::Results;
use serde_json::Value;

/// Exit code when there was nothing to try, or no time per step.
const NOTHING: u8 = 1;
/// Exit code for a trace that cannot be read, or an unknown remedy.
const BAD_INPUT: u8 = 2;
/// Programs that start several processes, each of which would be measured.
const LAUNCHERS: [&str; 8] =
    ["torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "torch.distributed.run"];
/// Number of last lines of a failed program's stderr to show.
const LAST_LINES: usize = 10;

/// Tries remedies and prints what they brought; returns the exit code. Fails when a run cannot be prepared,
/// after a signal, and when stdout cannot be written.
pub fn run(args: &TryArgs) -> Result<u8> {
    if args.list {
        let text = if args.json { terminal::json(&text::list_json())? } else { text::list() };
        io::stdout().write_all(text.as_bytes())?;
        return Ok(0);
    }
    if let Some(launcher) = launcher(&args.command) {
        message::say(&format!(
            "{launcher} starts several processes, and `gpuwhy try` measures one: pass the command of one process, with \
             one GPU"
        ));
        return Ok(BAD_INPUT);
    }
    if let Some(file) = args.write_patch.as_ref().filter(|file| file.symlink_metadata().is_ok()) {
        message::say(&format!("--write-patch {}: this file is there already, and is not overwritten", file.display()));
        return Ok(BAD_INPUT);
    }
    let folder = Folder::new()?;
    let mut limits = Limits { pairs: usize::from(args.pairs), budget: args.budget, allowed: allowed(&args.allow) };
    // So that the unchanged program and one remedy fit into the budget.
    let limit_s = args.budget.as_secs_f64() / (2 * limits.first_pairs() + 2) as f64;
    let mut report = None;
    if let Some(trace) = &args.from {
        match progress::opened(trace, Request::default()) {
            Ok(read) => report = Some(serde_json::to_value(&read)?),
            Err(error) => return refused(BAD_INPUT, error.into()),
        }
    }
    interrupt::watch()?;
    interrupt::end_children_by_ctrl_c()?;
    if args.until_input_ends {
        interrupt::at_end_of(io::stdin());
    }
    let copies = match own::copies(args, folder.path()) {
        Ok(copies) => copies,
        Err((code, error)) => return refused(code, error),
    };
    let found = own::candidate(args, copies.as_ref(), report.as_ref());
    let found = found.and_then(|own| own.map_or_else(|| named(&args.remedy, report.as_ref()), |own| Ok(vec![own])));
    let mut wanted = match found {
        Ok(wanted) => wanted,
        Err(error) => return refused(BAD_INPUT, error),
    };
    let steps = usize::try_from(args.steps).unwrap_or(usize::MAX);
    let mut live = Live::new(&args.command, folder.path(), steps, args.budget, limit_s);
    live.is_cost = !args.cost.is_empty();
    live.is_own = wanted.iter().any(|candidate| candidate.change.own().is_some());
    live.copies = copies;
    if let Some(line) = &args.build
        && let Some(words) = live.build(line)?
    {
        return refused(NOTHING, anyhow::Error::msg(words));
    }
    let mut others = Vec::new();
    if let Some(step) = &args.step {
        live.count(step.clone());
    }
    if live.is_cost {
        wanted = cost::candidates(&args.cost);
    } else if wanted.is_empty() {
        if report.is_none() {
            message::note(&format!(
                "running the command once to record its report, then again to try its remedies, for at most {}",
                shown(args.budget)
            ));
            match recorded(&mut live) {
                Ok(Ok(read)) => report = Some(read),
                Ok(Err(code)) => return Ok(code),
                Err(error) => return live.refused.ok_or(error),
            }
        }
        let of = report.as_ref().unwrap_or(&Value::Null);
        wanted = candidates(of);
        if question::is_answered_yes(args, &wanted)? {
            limits.allowed.push(Results::Rounding);
        }
        others = left_out(of, &wanted, &limits.allowed);
    }
    live.uses_cuda |= report.is_some();
    announce(&wanted, &limits, live.copies.as_ref());
    match tried(args, &mut live, &wanted, &others, &limits) {
        Err(error) => live.refused.ok_or(error),
        Ok(code) => Ok(code),
    }
}

/// Says why nothing is tried. Fails after a signal.
fn refused(code: u8, why: anyhow::Error) -> Result<u8> {
    if interrupt::exit_code().is_some() {
        return Err(why);
    }
    message::say(&format!("{why:#}"));
    Ok(code)
}

/// The launcher that the command is, if any.
fn launcher(command: &[OsString]) -> Option<&'static str> {
    let first = command.first().map(|word| Path::new(word).file_name().unwrap_or(word).to_owned());
    let module = command.iter().position(|word| word == "-m").and_then(|at| command.get(at + 1).cloned());
    LAUNCHERS.into_iter().find(|name| {
        first.as_ref().is_some_and(|word| word == name) || module.as_ref().is_some_and(|word| word == name)
    })
}

fn allowed(options: &[Allowed]) -> Vec<Results> {
    let has = |one| options.contains(&one) || options.contains(&Allowed::All);
    let more = [(Allowed::Rounding, Results::Rounding), (Allowed::Behavior, Results::Behavior)];
    let more = more.into_iter().filter(|&(option, _)| has(option)).map(|(_, results)| results);
    std::iter::once(Results::Same).chain(more).collect()
}

/// Says what is going to happen.
fn announce(wanted: &[Candidate], limits: &Limits, copies: Option<&Copies>) {
    let count = wanted.iter().filter(|candidate| candidate.is_tried(&limits.allowed)).count();
    if count == 0 {
        return;
    }
    let what = match wanted {
        [one] if one.change.own().is_some() => one.change.id().to_owned(),
        [one, ..] if one.change.recording().is_some() => "what recording costs".to_owned(),
        _ if count == 1 => "1 remedy".to_owned(),
        _ => format!("{count} remedies"),
    };
    if let Some(copies) = copies {
        message::note(&copies.words());
    }
    let verb = if wanted[0].change.recording().is_some() { "measuring" } else { "trying" };
    message::note(&format!(
        "{verb} {what}: at most {} runs of the command, for at most {}; its standard input is empty",
        2 * limits.pairs * count,
        shown(limits.budget)
    ));
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Report of a recorded run; `Err` with the exit code when there is none.
fn recorded(live: &mut Live) -> Result<std::result::Result<Value, u8>> {
    Ok(match live.record()? {
        Ok(report) => Ok(serde_json::to_value(&report)?),
        Err(Ended::Measured(_)) => {
            message::say("the command recorded nothing: it did not use CUDA; name remedies with --remedy");
            Err(NOTHING)
        }
        Err(ended) => Err(unmeasured(&ended, live)),
    })
}

/// Says why the unchanged program gave no time, and returns the exit code.
fn unmeasured(ended: &Ended, live: &Live) -> u8 {
    match ended {
        Ended::Measured(_) => 0,
        Ended::NotApplicable(why) => {
            message::say(why);
            NOTHING
        }
        Ended::Failed(code, errors) => {
            let lines: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            let words = if last.is_empty() { "it prints nothing on stderr".to_owned() } else { last.join("\n") };
            let (place, hint) = match &live.copies {
                Some(copies) => (" in a copy of the tree", copies.hint(errors)),
                None => ("", String::new()),
            };
            message::say(&format!(
                "the unchanged command fails{place}, with exit code {code} (its standard input is empty):\n{words}{hint}"
            ));
            *code
        }
        Ended::TooFewSteps(steps) => {
            let unit = live.unit.as_ref().map_or("", |unit| &unit.name);
            let what = match unit {
                "range" => format!("a step is {}", live.unit.as_ref().map(Unit::words).unwrap_or_default()),
                "recorded" => "a step is what repeats in the recorded work of the GPU; --step RANGE names one of the \
                               program's NVTX ranges"
                    .to_owned(),
                _ => "a step is a call of an optimizer, a pass of a loop, a call of the outermost module, or a batch of a \
                      DataLoader"
                    .to_owned(),
            };
            let others = match live.ranges.as_slice() {
                [] => String::new(),
                names => format!(". Ranges that it opened: {}", names.join(", ")),
            };
            let end = if live.is_cost { "; without steps, --cost needs a command that ends by itself" } else { "" };
            message::say(&format!("the command made {steps} steps, too few to measure: {what}{others}{end}"));
            NOTHING
        }
        Ended::OutOfTime(steps) => {
            message::say(&format!(
                "the command took longer than the time for everything, and made {steps} steps; give it more (--budget), or \
                 fewer steps (--steps)"
            ));
            NOTHING
        }
    }
}

/// Measures and prints. `others` are remedies of the report that are not tried.
fn tried(args: &TryArgs, live: &mut Live, wanted: &[Candidate], others: &[LeftOut], limits: &Limits) -> Result<u8> {
    print(args, &text::not_tried(others, wanted.is_empty()))?;
    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = program(&command);
    let past = Past::read(&command);
    let (mut unchanged, mut rows) = (Vec::<Measured>::new(), Vec::<(Tried, Option<Prediction>)>::new());
    let end = {
        let unit = std::cell::RefCell::new(None);
        let mut observed = Observed { live, unit: &unit };
        pairs::try_all(&mut observed, wanted, limits, &mut |runs, tried| {
            let unit = unit.borrow().clone().unwrap_or_else(|| Unit::named("run"));
            let mut shown = String::new();
            if !runs.is_empty() {
                unchanged = runs.to_vec();
                shown.push_str(&text::unchanged(runs, &unit));
            }
            if tried.candidate.change.recording().is_some() {
                shown.push_str(&cost::words(tried));
                rows.push((tried.clone(), None));
                return print(args, &shown);
            }
            let prediction = past.prediction(&tried.candidate);
            let kept = (1..).zip(&rows).filter(|(_, (row, _))| row.outcome == Outcome::Helps);
            let kept: Vec<_> = kept.map(|(number, _)| number).collect();
            shown.push_str(&text::tried(tried, rows.len() + 1, &kept, prediction));
            past.add(tried, &rows);
            rows.push((tried.clone(), prediction));
            print(args, &shown)
        })?
    };
    let all = match end {
        End::Unmeasured(ended) => return Ok(unmeasured(&ended, live)),
        End::Tried(all) => all,
    };
    let unit = live.unit.clone().unwrap_or_else(|| Unit::named("run"));
    let patch = kept(&all, args.write_patch.as_deref())?;
    let text = if live.is_cost && args.json {
        let mut document = text::document(&program, &unit, &unchanged, &[]);
        document["modes"] = cost::rows(&all);
        terminal::json(&document)?
    } else if live.is_cost {
        String::new()
    } else if args.json {
        let mut document = text::document(&program, &unit, &unchanged, &rows);
        (document["not_tried"], document["patch"]) = (text::not_tried_json(others), patch.into());
        terminal::json(&document)?
    } else {
        text::to_keep(&all)
    };
    io::stdout().write_all(text.as_bytes())?;
    let is_answered = |tried: &Tried| if live.is_cost { tried.gain.is_some() } else { tried.is_measured() };
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

/// The diff of what keeps the remedies that help, also written into `file`; `None` without any line that is known.
fn kept(all: &[Tried], file: Option<&Path>) -> Result<Option<String>> {
    let kept = all.iter().filter(|tried| tried.outcome == Outcome::Helps);
    let edits: Vec<_> = kept.flat_map(|tried| tried.edits.clone()).collect();
    let tree = Tree::of_work(&[]).ok();
    let work = std::fs::canonicalize(".")?;
    let (root, is_git) = tree.as_ref().map_or((work.as_path(), false), Tree::root);
    let diff = edits::diff(&edits, root, is_git);
    if let Some(file) = file {
        diff.left_out.iter().for_each(|why| message::say(&format!("not in the diff: {why}")));
        if diff.text.is_empty() {
            message::say(&format!("{} is not written: no line that keeps a remedy is known", file.display()));
        } else {
            let mut written = std::fs::File::create_new(file).with_context(|| file.display().to_string())?;
            written.write_all(diff.text.as_bytes()).with_context(|| file.display().to_string())?;
        }
    }
    Ok(Some(diff.text).filter(|text| !text.is_empty()))
}

/// The program, with the unit of its steps for the lines that are printed meanwhile.
struct Observed<'a> {
    live: &'a mut Live,
    unit: &'a std::cell::RefCell<Option<Unit>>,
}

impl Program for Observed<'_> {
    fn run(&mut self, changes: &[Change]) -> Result<Ended> {
        let ended = self.live.run(changes);
        self.unit.borrow_mut().clone_from(&self.live.unit);
        ended
    }

    fn can_apply(&self, change: &Change) -> bool {
        self.live.can_apply(change)
    }

    fn elapsed(&self) -> Duration {
        self.live.elapsed()
    }
}

/// Earlier measurements of this program on this machine.
struct Past {
    command: Vec<String>,
    host: String,
    lines: Vec<Line>,
}

impl Past {
    fn read(command: &[String]) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
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
