//! The program that is tried: its runs, and what a step of it is, which the first run decides.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use gpuwhy_report::run::Report;
use gpuwhy_report::run::remedies::How;
use rustix::fs::statvfs;
use serde_json::Value;
use tempfile::TempDir;

use super::drain::Part;
use super::end::{self, Exit, RESULT};
use super::finished::{Finished, used};
use super::launch::{LIGHT, Launch, MONITOR, TRACES, is_applied};
use super::measured::{Ended, Program};
use super::recorded::{self, Recorded};
use super::unit::Unit;
use crate::interrupt;
use crate::trial::change::{Change, OwnChange};
use crate::trial::refused::{BAD_INPUT, NOTHING, Refused};

/// Largest part of a run before the first work of the GPU for which the whole run is compared. Start-up hides a part of
/// a gain: with this share, 10 times faster work seems 8.5 times faster.
const START_UP: f64 = 0.02;

/// The program, with what its runs have shown.
pub struct Live {
    pub launch: Launch,
    /// What a step is, after the first run.
    pub unit: Option<Unit>,
    /// True once a process of the program was seen with CUDA.
    pub uses_cuda: bool,
    runs: usize,
    /// True once a run of the unchanged program gave a time.
    is_measured: bool,
    /// True once PyTorch was seen in it.
    has_torch: bool,
}

impl Live {
    /// Prepares runs. `unit` is a step if the user names it.
    pub fn new(launch: Launch, unit: Option<Unit>, uses_cuda: bool) -> Self {
        Self { launch, unit, uses_cuda, runs: 0, is_measured: false, has_torch: false }
    }

    /// Runs the program once with libprof.so, and returns its report.
    ///
    /// # Errors
    /// As [`Program::run`], and if there is no trace, or it cannot be read.
    pub fn record(&mut self) -> Result<Report> {
        let run = self.one(Some(None), &[])?;
        let Some(trace) = run.trace() else {
            let ended = if run.is_good() { Ended::Measured(Box::default()) } else { self.ended(&run) };
            return Err(self.refused(ended).into());
        };
        self.uses_cuda = true;
        let report = recorded::report(&trace).map_err(|error| Refused(BAD_INPUT, error.to_string()))?;
        if self.unit.is_none() && (run.has_steps() || run.is_good()) {
            self.unit = Some(unit_of(&run, &Recorded::of(&report)));
        }
        Ok(report)
    }

    /// Runs a command in both copies that prepares them.
    ///
    /// # Errors
    /// If it fails, or after a signal.
    pub fn build(&mut self, line: &OsStr) -> Result<()> {
        for change in [None, Some(OwnChange::default())] {
            let command = self.launch.shell(line, change.as_ref());
            let Exit { status, output, errors, .. } = end::run(&self.launch, None, None, command, None, Part::Last)?;
            if !status.success() {
                // Compilers and what starts them print errors to different streams.
                let last =
                    [&errors, &output].into_iter().find_map(|text| text.lines().rfind(|line| !line.trim().is_empty()));
                let with = if change.is_some() { "with the diff" } else { "unchanged" };
                let words = last.unwrap_or("it prints nothing");
                let words = format!("--build fails in the copy that is {with} ({status}): {words}");
                return Err(Refused(NOTHING, words).into());
            }
        }
        Ok(())
    }

    /// One run; with libprof.so in a mode, whose default is `None`, if it is to be recorded.
    fn one(&mut self, recording: Option<Option<&str>>, changes: &[Change]) -> Result<Finished> {
        let made = self.made(recording, changes);
        let is_full = |cause: &io::Error| matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        made.map_err(|error| match error.chain().filter_map(|cause| cause.downcast_ref()).any(is_full) {
            true => error.context(self.no_room()),
            false => error,
        })
    }

    fn no_room(&self) -> String {
        format!("{}: no space is left in the folder for temporary files (TMPDIR)", self.launch.folder.display())
    }

    fn made(&mut self, recording: Option<Option<&str>>, changes: &[Change]) -> Result<Finished> {
        let (launch, unit, own) = (&self.launch, self.unit.as_ref(), changes.iter().find_map(Change::own));
        self.runs += 1;
        let folder = TempDir::with_prefix_in(format!("{}-", self.runs), &launch.folder)?;
        let traces = folder.path().join(TRACES);
        fs::create_dir(&traces).with_context(|| traces.display().to_string())?;
        let (command, cores, mut applied) = launch.prepared(recording, unit, changes, folder.path())?;
        let mut exit = end::run(launch, unit, Some(folder.path()), command, cores, Part::First)?;
        self.uses_cuda |= exit.uses_cuda;
        self.has_torch |= folder.path().join("torch").exists();
        let result = fs::read(folder.path().join(RESULT)).unwrap_or_default();
        if result.is_empty() && statvfs(&launch.folder).is_ok_and(|about| about.f_bavail == 0) {
            bail!(self.no_room());
        }
        let result: Value = serde_json::from_slice(&result).unwrap_or_default();
        applied.extend(result["applied"].as_object().into_iter().flat_map(|found| found.keys().cloned()));
        let is_recorded = |mode: &&str| {
            let trace = recorded::trace_in(&traces, None);
            trace.is_some_and(|trace| ["monitor", "auto"].contains(mode) || recorded::first_work(&trace).is_some())
        };
        applied.extend(changes.iter().find_map(Change::recording).filter(is_recorded).map(str::to_owned));
        applied.extend(own.filter(|own| !own.is_none()).map(|own| own.name.clone()));
        let (mut unused, is_changed) = (None, own.is_some());
        if let Some(copies) = &launch.copies {
            exit.output = copies.mapped_back(is_changed, &exit.output);
            exit.errors = copies.mapped_back(is_changed, &exit.errors);
            unused = copies.unused(&used(folder.path(), &result)).filter(|_| is_changed);
        }
        Ok(Finished { exit, result, applied, unused, is_changed, folder })
    }

    fn ended(&mut self, run: &Finished) -> Ended {
        let ended = run.ended(self.unit.as_ref(), self.uses_cuda, self.is_measured);
        self.is_measured |= matches!(ended, Ended::Measured(_));
        ended
    }
}

impl Program for Live {
    fn run(&mut self, changes: &[Change]) -> Result<Ended> {
        let recording = match self.unit.as_ref().filter(|unit| unit.is_recorded()) {
            Some(unit) => Some(Some(if unit.step.is_some() { MONITOR } else { LIGHT })),
            None => changes.iter().find_map(Change::recording).map(Some),
        };
        let mut run = self.one(recording, changes)?;
        if self.unit.is_some() || !run.is_good() {
            return Ok(self.ended(&run));
        }
        if run.has_steps() {
            self.unit = Unit::of(&run.result);
            // Before the unit is known, nothing shows how far behind it the GPU is.
            if self.unit.as_ref().is_none_or(|unit| unit.name != "optimizer") {
                run = self.one(None, changes)?;
            }
            return Ok(self.ended(&run));
        }
        let is_whole = run.ended_itself();
        if self.launch.is_cost && !is_whole {
            return Ok(Ended::TooFewSteps(0, Vec::new()));
        }
        // How much of it is start-up, or whether the engine finds steps, is not known without a recording.
        self.unit = Some(Unit::named(if is_whole { "run" } else { "recorded" }));
        if self.uses_cuda && !self.launch.is_cost && self.elapsed() + run.exit.wall < self.launch.budget {
            match self.one(Some(Some(LIGHT)), changes) {
                Ok(again) => {
                    let trace = again.trace().filter(|_| again.is_good());
                    let report = trace.and_then(|trace| recorded::report(&trace).ok());
                    self.unit = report.map(|report| unit_of(&again, &Recorded::of(&report))).or(self.unit.take());
                    if self.unit.as_ref().is_some_and(Unit::is_recorded) {
                        run = again;
                    }
                }
                // libprof.so is not there, or another tool is in its place.
                Err(_) if is_whole && interrupt::exit_code().is_none() => {}
                Err(error) => return Err(error),
            }
        }
        // Counting jumps takes time, which only this run would have.
        if self.unit.as_ref().is_some_and(Unit::is_run) && run.folder.path().join("loops").exists() {
            run = self.one(None, changes)?;
        }
        Ok(self.ended(&run))
    }

    fn can_apply(&self, change: &Change) -> bool {
        let Some(remedy) = change.trial() else { return change.own().is_none_or(|own| !own.is_none()) };
        is_applied(remedy)
            || match remedy.how {
                How::PyTorch | How::Unset(_) => self.has_torch,
                how => matches!(how, How::Python),
            }
    }

    fn elapsed(&self) -> Duration {
        self.launch.started.elapsed()
    }

    fn refused(&self, ended: Ended) -> Refused {
        ended.refused(self.launch.copies.as_ref(), self.unit.as_ref(), self.launch.is_cost)
    }
}

/// The unit for a program that was recorded: what Python counts; else a run, if the GPU works for most of it; else the
/// steps of the recording.
fn unit_of(run: &Finished, recorded: &Recorded) -> Unit {
    let since = run.exit.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let first = run.trace().and_then(|trace| recorded::first_work(&trace));
    let start_up = first.map_or(0, |first| first.saturating_sub(since)) as f64;
    let is_run = start_up <= START_UP * run.exit.wall.as_nanos() as f64;
    Unit::of(&run.result).filter(|_| run.has_steps()).unwrap_or_else(|| {
        Unit::named(match recorded.kind {
            _ if run.ended_itself() && is_run => "run",
            None if run.ended_itself() => "work",
            _ => "recorded",
        })
    })
}
