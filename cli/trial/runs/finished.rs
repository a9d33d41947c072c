//! What is left of a run: its result, and the time of its steps.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::end::{Cut, Exit};
use super::launch::TRACES;
use super::measured::{Ended, Measured};
use super::recorded::{self, Recorded};
use super::steps::{FEWEST_STEPS, after_start, behind, goes_on, is_behind_at_end, per_step};
use super::unit::Unit;

/// Shortest run without steps whose time is compared: the start of a process scatters by tens of milliseconds.
const SHORTEST: Duration = Duration::from_millis(100);
const TOO_SHORT: &str = "a run takes less than 0.1 s";
const NO_CUDA: &str = "no process of the command loaded CUDA (libcuda.so)";
const NO_COST: &str = "a run was too short for an estimate of what recording costs";
const NOT_SYNCED: &str = "the GPU's contexts could not be waited for";
const NO_WAIT: &str = "if the GPU keeps up with the steps, which end too soon for a wait between them";
const NOTHING_RECORDED: &str = "a run recorded no work of the GPU";

/// A run that has ended.
pub struct Finished {
    pub exit: Exit,
    /// What the Python side counted.
    pub result: Value,
    /// Changes that found something to change.
    pub applied: Vec<String>,
    /// Why it says nothing about the diff.
    pub unused: Option<String>,
    /// True with the user's own change.
    pub is_changed: bool,
    pub folder: TempDir,
}

impl Finished {
    /// True if the Python side ended it.
    fn was_ended(&self) -> bool {
        matches!(self.result["how"].as_str(), Some("measured" | "limit"))
    }

    pub fn ended_itself(&self) -> bool {
        self.exit.cut.is_none() && !self.was_ended()
    }

    /// True if it did not fail, nor take all of the time.
    pub fn is_good(&self) -> bool {
        self.exit.cut == Some(Cut::Limit) || self.exit.cut.is_none() && (self.was_ended() || self.exit.status.success())
    }

    /// True if the Python side counted any.
    pub fn has_steps(&self) -> bool {
        self.result["times"].as_array().is_some_and(|times| !times.is_empty())
    }

    /// Its trace; the largest of several, but that of the process whose steps count.
    pub fn trace(&self) -> Option<PathBuf> {
        recorded::trace_in(&self.folder.path().join(TRACES), self.result["process"].as_u64())
    }

    /// Its steps: those of its trace if libprof.so counts them, else those that Python counted.
    fn steps(&self, unit: Option<&Unit>) -> Recorded {
        let unit = unit.filter(|unit| unit.is_recorded());
        let found = unit.zip(self.trace()).and_then(|(unit, trace)| unit.recorded(&trace).ok());
        found.unwrap_or_else(|| {
            let times = self.result["times"].as_array().into_iter().flatten().filter_map(Value::as_f64);
            let times = times.collect::<Vec<_>>();
            Recorded { made: times.len(), times, ..Recorded::default() }
        })
    }

    /// How it ended, with its time in `unit`. `is_known` if the command has given a time before.
    pub fn ended(&self, unit: Option<&Unit>, uses_cuda: bool, is_known: bool) -> Ended {
        let found = self.steps(unit);
        let is_whole = unit.is_some_and(Unit::is_whole);
        let Exit { status, cut, wall, output, errors, .. } = &self.exit;
        if *cut == Some(Cut::Budget) && !self.was_ended() || is_whole && !self.ended_itself() {
            return Ended::OutOfTime(found.made);
        }
        if self.ended_itself() && !status.success() {
            let code = status.code().or_else(|| Some(128 + status.signal()?));
            return Ended::Failed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), errors.clone());
        }
        if let Some(why) = &self.unused {
            return Ended::NotApplicable(why.clone());
        }
        let (times, result, is_recorded) = (&found.times, &self.result, unit.is_some_and(Unit::is_recorded));
        let between = times.len().saturating_sub(1) as f64;
        let waits: Vec<_> = serde_json::from_value(result["waits"].clone()).unwrap_or_default();
        let ended = result["ended"].as_f64().filter(|_| self.ended_itself() && result["synced"] == true);
        let waited = ended.and(result["waited"].as_f64());
        let to_end = ended.zip(times.first()).map(|(ended, first)| (ended - first) / between);
        let to_end = to_end.filter(|time| time.is_finite());
        let is_behind = waited.is_some_and(|waited| is_behind_at_end(times, waited, &waits));
        let note = match result["synced"] == false && uses_cuda && !times.is_empty() {
            true => Some(NOT_SYNCED),
            // The program may have waited for the GPU itself, or gone on without it.
            false => ended.filter(|&end| waits.is_empty() && !is_behind && goes_on(times, end)).map(|_| NO_WAIT),
        };
        let run = Measured {
            made: found.made,
            to_end,
            is_behind,
            note,
            kind: found.kind,
            cost: found.cost,
            applied: self.applied.clone(),
            edits: result["edits"].clone(),
            output: output.clone(),
            wall: *wall,
            ..Measured::default()
        };
        let whole = |steps| {
            let short = (*wall < SHORTEST).then_some(TOO_SHORT);
            let doubt = if uses_cuda { short } else { Some(NO_CUDA) };
            let seconds = wall.as_secs_f64();
            Measured { seconds, steps, is_whole: steps == 0, all: Some(seconds), doubt, ..run.clone() }
        };
        if unit.is_some_and(Unit::is_run) {
            return Ended::Measured(Box::new(whole(1)));
        }
        let behind = behind(times, &waits);
        // Before the end of the first step is start-up too.
        let counted = times.first().zip(times.last()).map(|(first, last)| (last - first) / between);
        let all = to_end.or(behind).or(counted.filter(|_| found.work.is_none()));
        let all = all.map(|seconds| seconds * found.made as f64).or(found.work);
        let all = all.filter(|&seconds| seconds > 0.0 && self.ended_itself());
        let doubt = (found.kind.is_some() && found.cost.is_none()).then_some(NO_COST);
        let steady = result["from"].as_u64().and_then(|from| usize::try_from(from).ok());
        let steady = if is_recorded { Some(found.warm()) } else { steady };
        // A run that takes all of its time may end when its steps have just become steady.
        let is_enough = |from: &usize| self.was_ended() && from + FEWEST_STEPS < times.len();
        let from = steady.filter(is_enough).unwrap_or_else(|| after_start(times.len(), steady)).min(times.len());
        let count = times.len() - from;
        let is_moved = result["moved"] == true && self.is_changed;
        let seconds = behind.or_else(|| per_step(&times[from..])).filter(|&seconds| seconds > 0.0);
        Ended::Measured(Box::new(match seconds.filter(|_| count > FEWEST_STEPS && !is_whole && !is_moved) {
            Some(seconds) if behind.is_some() || is_recorded => {
                Measured { seconds, steps: count - 1, all, doubt, ..run }
            }
            Some(seconds) => Measured { seconds, steps: count - 1, all, times: times.clone(), from, doubt, ..run },
            None if is_recorded && unit.is_some_and(|unit| unit.step.is_none()) && self.ended_itself() => {
                let doubt =
                    if all.is_none() { Some(NOTHING_RECORDED) } else { found.cost.is_none().then_some(NO_COST) };
                Measured { seconds: all.unwrap_or(0.0), steps: 1, all, doubt, ..run }
            }
            // Another command, or a diff, may have other steps.
            None if is_known && self.ended_itself() => whole(0),
            None => return Ended::TooFewSteps(found.made, found.others.into_iter().collect()),
        }))
    }
}

/// Changed files that processes of a run have loaded; null if no Python said so.
pub fn used(folder: &Path, result: &Value) -> Value {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.file_stem().is_some_and(|name| name == "used"));
    let lists = files.filter_map(|path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok());
    let lists: Vec<_> = lists.chain([result["used"].clone()]).filter(Value::is_array).collect();
    if lists.is_empty() { Value::Null } else { lists.iter().filter_map(Value::as_array).flatten().cloned().collect() }
}
