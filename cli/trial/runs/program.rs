//! Runs of the program: start, wait, end, and what is left of each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use gpuwhy_inject::config::{CAPTURE_RANGE, DELAY, DURATION, MAX_OVERHEAD, RangeName, SAMPLING, STEPS};
use gpuwhy_report::run::Report;
use gpuwhy_report::run::remedies::How;
use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::drain::{Drain, Part};
use super::measured::{Ended, Measured, Program};
use super::recorded::{self, Recorded};
use super::steps::{after_start, behind, is_behind_at_end, per_step};
use super::unit::Unit;
use crate::args::run::RunArgs;
use crate::install_paths::{INJECTION, NVTX_INJECTION};
use crate::run;
use crate::trial::change::{Change, OwnChange, machine};
use crate::trial::place::processes::{Processes, STARTED_BY};
use crate::trial::place::tree::Copies;
use crate::{install_paths, interrupt, message};

/// The Python module that is put in front of the program.
const PYTHON: &str = concat!(
    include_str!("../../run/behind.py"),
    "\n\n",
    include_str!("../python/steps.py"),
    "\n\n",
    include_str!("../python/loops.py"),
    "\n\n",
    include_str!("../python/edits.py"),
    "\n\n",
    include_str!("../python/changes.py")
);
const PYTHONPATH: &str = "PYTHONPATH";
/// First steps that are never measured, and shortest time for them.
const WARM_STEPS: usize = 10;
const WARM_SECONDS: f64 = 2.0;
/// Shortest time that is measured.
const SECONDS: f64 = 2.0;
/// Fewest steps that give a time.
const FEWEST_STEPS: usize = 3;
/// Time to end by itself after an interrupt, and after SIGTERM.
const AFTER_INTERRUPT: Duration = Duration::from_secs(10);
const AFTER_TERM: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// Longest time between two looks whether the program uses CUDA.
const LOOK: Duration = Duration::from_millis(100);
/// Shortest run without steps whose time is compared: the start of a process scatters by tens of milliseconds.
const SHORTEST: Duration = Duration::from_millis(100);
const TOO_SHORT: &str = "a run takes less than 0.1 s";
const NO_CUDA: &str = "no process of the command loaded CUDA (libcuda.so)";
const NO_COST: &str = "a run was too short for an estimate of what recording costs";
const NOT_SYNCED: &str = "the GPU's contexts could not be waited for";
const NOTHING_RECORDED: &str = "a run recorded no work of the GPU";
/// Largest part of a run before the first work of the GPU for which the whole run is compared.
const START_UP: f64 = 0.1;
/// Shares of the time of a run that PyTorch gets until the first step: it may have to compile.
const UNTIL_STEPS: u32 = 4;
/// Longest part of the time of a run for which its growing trace is read: a tenth.
const READING: u32 = 9;
/// Modes in which a run is recorded: with the report's records, and with ranges only.
const LIGHT: &str = "light";
const MONITOR: &str = "monitor";
/// Where the Python side writes what it counted.
const RESULT: &str = "result.json";
/// Exit code for a trace that cannot be read.
const BAD_TRACE: u8 = 2;

/// The command with its place for files.
pub struct Live {
    command: Vec<OsString>,
    folder: PathBuf,
    steps: usize,
    budget: Duration,
    limit_s: f64,
    started: Instant,
    runs: usize,
    /// What a step is, after the first run.
    pub unit: Option<Unit>,
    /// The range that is a step.
    step: Option<RangeName>,
    /// Exit code for a command that does not start.
    pub refused: Option<u8>,
    /// True once a process of the program was seen with CUDA.
    pub uses_cuda: bool,
    /// True if the user's own change is measured: runs go on to their end, so that both did all of the work.
    pub is_own: bool,
    /// True once a run of the unchanged program gave a time.
    is_measured: bool,
    /// True if runs are recorded only to see what that costs.
    pub is_cost: bool,
    /// Where the runs take place, if not in the user's tree.
    pub copies: Option<Copies>,
    /// True once PyTorch was seen in it.
    has_torch: bool,
    /// Ranges that a run opened, if none of them is the step.
    pub ranges: Vec<String>,
    processes: Processes,
}

impl Live {
    /// Prepares runs of `command`, with files in `folder`. `limit_s` limits the steps of one run.
    pub fn new(command: &[OsString], folder: &Path, steps: usize, budget: Duration, limit_s: f64) -> Self {
        Self {
            command: command.to_vec(),
            folder: folder.to_owned(),
            steps,
            budget,
            limit_s,
            started: Instant::now(),
            runs: 0,
            unit: None,
            step: None,
            refused: None,
            uses_cuda: false,
            is_own: false,
            is_measured: false,
            is_cost: false,
            copies: None,
            has_torch: false,
            ranges: Vec::new(),
            processes: Processes::adopt(),
        }
    }

    /// Makes the range `step` the unit.
    pub fn count(&mut self, step: RangeName) {
        self.unit = Some(Unit { at: Some(step.to_string()), ..Unit::named("range") });
        self.step = Some(step);
    }

    /// Runs the program once with libprof.so. Returns its report, or how the run ended without one.
    ///
    /// # Errors
    /// As [`Program::run`], and if the trace cannot be read.
    pub fn record(&mut self) -> Result<Result<Report, Ended>> {
        let run = self.one(Some(None), &[])?;
        let Some(trace) = run.trace() else {
            let is_silent = run.is_good() && !run.has_steps();
            return Ok(Err(if is_silent { Ended::Measured(Measured::default()) } else { self.ended(&run) }));
        };
        self.uses_cuda = true;
        let report = recorded::report(&trace).inspect_err(|error| {
            if interrupt::exit_code().is_none() {
                message::say(&error.to_string());
                self.refused = Some(BAD_TRACE);
            }
        })?;
        if self.unit.is_none() && (run.has_steps() || run.is_good()) {
            self.unit = Some(self.unit_of(&run, &Recorded::of(&report)));
        }
        Ok(Ok(report))
    }

    /// The unit for a program that was recorded: what Python counts; else a run, if the GPU works for most of it; else
    /// the steps of the recording.
    fn unit_of(&self, run: &Finished, recorded: &Recorded) -> Unit {
        let counted = Unit::of(&run.result).filter(|_| run.has_steps());
        counted.unwrap_or_else(|| {
            let started = run.since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
            let first = run.trace().and_then(|trace| recorded::first_work(&trace));
            let is_late = |first: u64| first.saturating_sub(started) as f64 > START_UP * run.wall.as_nanos() as f64;
            let is_whole = run.ended_itself();
            Unit::named(match recorded.kind {
                _ if is_whole && !first.is_some_and(is_late) => "run",
                None if is_whole => "work",
                _ => "recorded",
            })
        })
    }

    /// Runs a command in both copies that prepares them; says why if it fails.
    ///
    /// # Errors
    /// After a signal.
    pub fn build(&mut self, line: &OsStr) -> Result<Option<String>> {
        for change in [None, Some(OwnChange::default())] {
            let mut command = shell(line);
            self.place(&mut command, change.as_ref());
            // Compilers and what starts them print errors to different streams.
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            let mut child = command.spawn()?;
            let output = child.stdout.take().map(|stream| Drain::begin(stream, Part::Last));
            let errors = child.stderr.take().map(|stream| Drain::begin(stream, Part::Last));
            let waited = self.wait(&mut child, None);
            let _ = child.kill();
            self.processes.end();
            let (status, _) = waited?;
            if !status.success() {
                let texts = [output, errors].map(|drain| drain.map(Drain::text).unwrap_or_default());
                let last = texts.iter().rev().find_map(|text| text.lines().rfind(|line| !line.trim().is_empty()));
                let with = if change.is_some() { "with the diff" } else { "unchanged" };
                let words = last.unwrap_or("it prints nothing");
                return Ok(Some(format!("--build fails in the copy that is {with} ({status}): {words}")));
            }
        }
        Ok(None)
    }

    /// The command without gpuwhy's library, with the user's change if there is one.
    fn command(&self, own: Option<&OwnChange>) -> Result<Command> {
        let map = |word: &OsString| self.mapped(own.is_some(), word);
        let mut command = match own.and_then(|own| own.against.as_ref()) {
            Some(line) => shell(&map(line)),
            None => {
                let Some((program, arguments)) = self.command.split_first() else { bail!("no command given") };
                let in_copy = self.copies.as_ref().map(|copies| copies.program(own.is_some(), program)).transpose()?;
                let mut command = Command::new(in_copy.as_ref().unwrap_or(program));
                command.args(arguments.iter().map(map));
                command
            }
        };
        self.place(&mut command, own);
        Ok(command)
    }

    /// Puts a command into its copy, with the variables of the change.
    fn place(&self, command: &mut Command, own: Option<&OwnChange>) {
        command.env(STARTED_BY, &self.folder);
        if let Some(copies) = &self.copies {
            let work = copies.work(own.is_some());
            // What recording sets stays.
            let is_free = |(name, _): &(OsString, OsString)| command.get_envs().all(|(set, _)| set != name);
            let mapped: Vec<_> = copies.environment(own.is_some()).filter(is_free).collect();
            command.envs(mapped).env("PWD", &work).current_dir(work);
        }
        for (name, value) in own.iter().flat_map(|own| &own.environment) {
            command.env(name, self.mapped(own.is_some(), value));
        }
    }

    fn mapped(&self, is_changed: bool, text: &OsStr) -> OsString {
        self.copies.as_ref().map_or_else(|| text.to_owned(), |copies| copies.mapped(is_changed, text))
    }

    /// The command of a run; with libprof.so in `mode`, whose default is `None`, if it is to be recorded.
    fn prepared(&mut self, recording: Option<Option<&str>>, own: Option<&OwnChange>, traces: &Path) -> Result<Command> {
        let mut bare = self.command(own)?;
        let Some(mode) = recording else {
            // What gpuwhy costs is no part of the times.
            let is_ours =
                |path: OsString| Path::new(&path).file_name().is_some_and(|name| name == install_paths::LIBRARY);
            for variable in [INJECTION, NVTX_INJECTION] {
                if std::env::var_os(variable).is_some_and(is_ours) {
                    bare.env_remove(variable);
                }
            }
            return Ok(bare);
        };
        let plain = RunArgs {
            output: Some(traces.join("%p.gpuwhy").to_string_lossy().into_owned()),
            report: (!self.is_cost).then(|| "off".to_owned()),
            history: Some("off".into()),
            mode: mode.map(str::to_owned),
            command: std::iter::once(bare.get_program()).chain(bare.get_args()).map(OsStr::to_owned).collect(),
            ..RunArgs::default()
        };
        // Steps need all records of a run, and ranges nothing but them.
        let of_unit = match self.unit.as_ref().map(|unit| unit.name.as_str()) {
            Some("recorded" | "work") => RunArgs { cuda_graph_trace: Some("node".to_owned()), ..plain },
            Some("range") if mode.is_some() => RunArgs { gpu_metrics: Some("off".to_owned()), ..plain },
            _ => plain,
        };
        let more = [(SAMPLING, "off".to_owned())];
        let more = if mode == Some(MONITOR) && self.step.is_some() { &more[..] } else { &[] };
        let mut command = run::prepare(&of_unit, more)?.or_else(|code| {
            self.refused = Some(code);
            bail!("the program was not run")
        })?;
        if mode.is_some() && self.unit.as_ref().is_some_and(Unit::is_recorded) {
            // Of the whole run, whatever part the environment asks for.
            for variable in [CAPTURE_RANGE, STEPS, DELAY, DURATION, MAX_OVERHEAD] {
                command.env_remove(variable);
            }
        }
        self.place(&mut command, own);
        Ok(command)
    }

    fn one(&mut self, recording: Option<Option<&str>>, changes: &[Change]) -> Result<Finished> {
        let own = changes.iter().find_map(Change::own);
        let remedies: Vec<_> = changes.iter().filter_map(Change::trial).collect();
        self.runs += 1;
        let folder = TempDir::with_prefix_in(format!("{}-", self.runs), &self.folder)?;
        let traces = folder.path().join("traces");
        fs::create_dir(&traces).with_context(|| traces.display().to_string())?;
        let mut command = self.prepared(recording, own, &traces)?;
        let key = self.unit.as_ref().map(|unit| match self.copies.as_ref().filter(|_| own.is_some()) {
            Some(copies) => copies.changed_loop(&unit.key),
            None => unit.key.clone(),
        });
        let settings = json!({
            "remedies": remedies.iter().map(|remedy| remedy.id).collect::<Vec<_>>(),
            "unit": self.unit.as_ref().map(|unit| &unit.name), "loop": key,
            "steps": self.steps, "seconds": SECONDS, "warm_steps": WARM_STEPS, "warm_s": WARM_SECONDS,
            "limit_s": self.limit_s, "end": if self.is_own { "limit" } else { "measured" },
            "changed": self.copies.as_ref().map(|copies| copies.changed_lines(own.is_some())),
            "root": self.copies.as_ref().map(|copies| copies.root(own.is_some()).to_string_lossy()),
            "patched": own.is_some_and(|own| own.is_patch), "waits": recording.is_none() || self.is_cost,
        });
        // A string of JSON is one of Python.
        let call = format!("\nmain({})\n", Value::from(settings.to_string()));
        let python = folder.path().join("sitecustomize.py");
        fs::write(&python, format!("{PYTHON}{call}")).with_context(|| python.display().to_string())?;
        command.env(PYTHONPATH, python_path(folder.path(), &command)?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut environment = Vec::new();
        let cores =
            if remedies.iter().any(|remedy| matches!(remedy.how, How::Cores)) { machine::cores() } else { None };
        for remedy in &remedies {
            let changes = machine::environment(remedy);
            let is_pinned = matches!(remedy.how, How::Cores) && cores.is_some();
            environment.push((remedy.id, !changes.is_empty() || is_pinned));
            for (name, value) in changes {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
        }
        let (since, start) = (SystemTime::now(), Instant::now());
        let mut child = match machine::on(cores, || command.spawn()) {
            Ok(child) => child,
            Err(error) => {
                self.refused = Some(run::cannot_start(command.get_program(), &error));
                bail!("the program was not run");
            }
        };
        let output = child.stdout.take().map(|stream| Drain::begin(stream, Part::First));
        let errors = child.stderr.take().map(|stream| Drain::begin(stream, Part::Last));
        let waited = self.wait(&mut child, Some(folder.path()));
        let _ = child.kill();
        let _ = child.wait();
        self.processes.end();
        let (status, cut) = waited?;
        let result = fs::read(folder.path().join(RESULT)).unwrap_or_default();
        if result.is_empty() && statvfs(&self.folder).is_ok_and(|about| about.f_bavail == 0) {
            bail!("{}: no space is left in the folder for temporary files (TMPDIR)", self.folder.display());
        }
        let mut applied: Vec<_> = remedies
            .iter()
            .zip(environment)
            .filter(|(remedy, (_, is_set))| match remedy.how {
                How::Unset(name) => is_on(name),
                _ => remedy.is_for_any_program() && *is_set,
            })
            .map(|(remedy, _)| remedy.id.to_owned())
            .collect();
        let result: Value = serde_json::from_slice(&result).unwrap_or_default();
        applied.extend(result["applied"].as_object().into_iter().flat_map(|found| found.keys().cloned()));
        self.has_torch |= folder.path().join("torch").exists();
        let is_recorded = |mode: &&str| {
            let trace = recorded::trace_in(&traces, None);
            trace.is_some_and(|trace| ["monitor", "auto"].contains(mode) || recorded::first_work(&trace).is_some())
        };
        applied.extend(changes.iter().find_map(Change::recording).filter(is_recorded).map(str::to_owned));
        applied.extend(own.filter(|own| !own.is_none()).map(|own| own.name.clone()));
        let copies = self.copies.as_ref().filter(|_| own.is_some());
        let printed = |drain: Option<Drain>| {
            let text = drain.map(Drain::text).unwrap_or_default();
            match &self.copies {
                Some(copies) => copies.mapped_back(own.is_some(), &text),
                None => text,
            }
        };
        Ok(Finished {
            is_changed: own.is_some(),
            unused: copies.and_then(|copies| copies.unused(&used(folder.path(), &result))),
            status,
            cut,
            since,
            wall: start.elapsed(),
            applied,
            output: printed(output),
            errors: printed(errors),
            result,
            folder,
        })
    }

    /// Waits for the end, and brings it about when the steps are measured or the time is up.
    fn wait(&mut self, child: &mut Child, folder: Option<&Path>) -> Result<(ExitStatus, Option<Cut>)> {
        let deadline = self.started + self.budget;
        let limit = Duration::try_from_secs_f64(self.limit_s).unwrap_or(self.budget);
        let has_limit =
            folder.is_some() && self.unit.as_ref().is_none_or(|unit| unit.is_recorded() && !unit.is_whole());
        // Where Python counts no steps, one of several processes may have ended.
        let is_counted = self.unit.as_ref().is_none_or(|unit| !unit.is_recorded() && !unit.is_run());
        let (mut asked, mut cut, mut is_told, mut looked) = (None, None, false, Instant::now());
        let is_there = |file: &str| folder.is_some_and(|folder| folder.join(file).exists());
        let (mut cuda, mut next) = (None, Duration::from_secs_f64(WARM_SECONDS + SECONDS));
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, cut));
            }
            if cuda.is_none() && looked.elapsed() >= LOOK {
                looked = Instant::now();
                cuda = self.processes.use_cuda().then_some(looked);
                self.uses_cuda |= cuda.is_some();
            }
            if interrupt::exit_code().is_some() {
                signal(child, Signal::TERM);
                let until = Instant::now() + Duration::from_secs(1);
                while Instant::now() < until && child.try_wait()?.is_none() {
                    thread::sleep(POLL);
                }
                bail!("interrupted");
            }
            let now = Instant::now();
            let worked = cuda.map_or(Duration::ZERO, |since: Instant| now - since);
            if asked.is_none() && is_counted && is_there(RESULT) {
                // The program interrupts itself, or is at its end.
                asked = Some(now);
            } else if asked.is_none() && now > deadline {
                cut = Some(Cut::Budget);
            } else if asked.is_none() && worked > limit && has_limit && !is_there("claim") {
                let is_starting = self.unit.is_none() && is_there("torch") && worked < UNTIL_STEPS * limit;
                cut = (!is_starting).then_some(Cut::Limit);
            } else if asked.is_none() && worked > next {
                cut = folder.is_some_and(|folder| self.has_enough(&folder.join("traces"))).then_some(Cut::Limit);
                next = worked + (READING * now.elapsed()).max(Duration::from_secs(1));
            }
            if cut.is_some() && asked.is_none() {
                signal(child, Signal::INT);
                asked = Some(now);
            }
            if let Some(since) = asked {
                if now > since + AFTER_INTERRUPT && !is_told {
                    is_told = true;
                    signal(child, Signal::TERM);
                } else if now > since + AFTER_INTERRUPT + AFTER_TERM {
                    child.kill()?;
                }
            }
            thread::sleep(POLL);
        }
    }

    /// True if the growing trace of a run has enough steps.
    fn has_enough(&self, traces: &Path) -> bool {
        let name = self.unit.as_ref().map_or("", |unit| &unit.name);
        let Some(trace) =
            recorded::trace_in(traces, None).filter(|_| matches!(name, "recorded" | "range") && !self.is_own)
        else {
            return false;
        };
        let Ok(found) = self.recorded(&trace) else { return false };
        let steady = &found.times[warm(&found)..];
        let span = steady.first().zip(steady.last()).map_or(0.0, |(first, last)| last - first);
        steady.len() > self.steps && span >= SECONDS
    }

    /// The steps in a trace.
    fn recorded(&self, trace: &Path) -> Result<Recorded, gpuwhy_import::OpenError> {
        match &self.step {
            Some(step) => Recorded::of_ranges(trace, step),
            None => recorded::report(trace).map(|report| Recorded::of(&report)),
        }
    }

    fn ended(&mut self, run: &Finished) -> Ended {
        let ended = self.found(run);
        self.is_measured |= matches!(ended, Ended::Measured(_));
        ended
    }

    fn found(&mut self, run: &Finished) -> Ended {
        let times: Vec<f64> = run.result["times"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let is_recorded = self.unit.as_ref().is_some_and(Unit::is_recorded);
        let found = match run.trace().filter(|_| is_recorded).map(|trace| self.recorded(&trace)) {
            Some(Ok(found)) => found,
            _ => Recorded { made: times.len(), times, ..Recorded::default() },
        };
        let is_whole = self.unit.as_ref().is_some_and(Unit::is_whole);
        if run.cut == Some(Cut::Budget) && !run.was_ended() || is_whole && !run.ended_itself() {
            return Ended::OutOfTime(found.made);
        }
        if run.cut.is_none() && !run.was_ended() && !run.status.success() {
            let code = run.status.code().or_else(|| Some(128 + run.status.signal()?));
            return Ended::Failed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), run.errors.clone());
        }
        if let Some(why) = &run.unused {
            return Ended::NotApplicable(why.clone());
        }
        self.ranges = found.others.iter().cloned().collect();
        let waits: Vec<_> = serde_json::from_value(run.result["waits"].clone()).unwrap_or_default();
        let ended = run.result["ended"].as_f64().filter(|_| run.ended_itself() && run.result["synced"] == true);
        let to_end = ended.zip(found.times.first()).map(|(ended, first)| ended - first);
        let to_end =
            to_end.map(|time| time / found.times.len().saturating_sub(1) as f64).filter(|time| time.is_finite());
        let is_behind = ended.is_some_and(|ended| is_behind_at_end(&found.times, ended, &waits));
        let is_unsynced = run.result["synced"] == false && self.uses_cuda && !found.times.is_empty();
        let measured = |seconds, steps, all: Option<f64>, doubt| {
            let Finished { applied, output, wall, .. } = run;
            let (applied, output, wall) = (applied.clone(), output.clone(), *wall);
            let edits = run.result["edits"].clone();
            let (made, kind, cost, all) = (found.made, found.kind, found.cost, all.filter(|_| run.ended_itself()));
            Ended::Measured(Measured {
                seconds,
                steps,
                made,
                is_whole: steps == 0,
                all,
                times: Vec::new(),
                from: 0,
                to_end,
                is_behind,
                note: is_unsynced.then_some(NOT_SYNCED),
                kind,
                cost,
                applied,
                edits,
                output,
                wall,
                doubt,
            })
        };
        let whole = |steps| {
            let doubt = match run.wall {
                _ if !self.uses_cuda => Some(NO_CUDA),
                wall if wall < SHORTEST => Some(TOO_SHORT),
                _ => None,
            };
            let seconds = run.wall.as_secs_f64();
            measured(seconds, steps, Some(seconds), doubt)
        };
        if self.unit.as_ref().is_some_and(Unit::is_run) {
            return whole(1);
        }
        let behind = behind(&found.times, &waits);
        // Before the end of the first step is start-up too.
        let share = found.times.len() as f64 / found.times.len().saturating_sub(1) as f64;
        let all = found.times.first().zip(found.times.last()).map(|(first, last)| (last - first) * share);
        let all = to_end.or(behind).map(|seconds| seconds * found.made as f64).or(found.work).or(all);
        let all = all.filter(|&seconds| seconds > 0.0);
        let steady = run.result["from"].as_u64().and_then(|from| usize::try_from(from).ok());
        let steady = if is_recorded { Some(warm(&found)) } else { steady };
        let count = found.times.len();
        // A run that takes all of its time may end when its steps have just become steady.
        let is_enough = |from: &usize| run.was_ended() && from + FEWEST_STEPS < count;
        let from = steady.filter(is_enough).unwrap_or_else(|| after_start(count, WARM_STEPS, steady));
        let steady = &found.times[from.min(count)..];
        let is_moved = run.result["moved"] == true && run.is_changed;
        match behind
            .or_else(|| per_step(steady))
            .filter(|&seconds| seconds > 0.0 && steady.len() > FEWEST_STEPS && !is_whole && !is_moved)
        {
            Some(seconds) => {
                let is_unknown = found.kind.is_some() && found.cost.is_none();
                let mut ended = measured(seconds, steady.len() - 1, all, is_unknown.then_some(NO_COST));
                if let (Ended::Measured(run), None, false) = (&mut ended, behind, is_recorded) {
                    (run.times, run.from) = (found.times.clone(), from);
                }
                ended
            }
            None if is_recorded && self.step.is_none() && run.ended_itself() => {
                let doubt =
                    if all.is_none() { Some(NOTHING_RECORDED) } else { found.cost.is_none().then_some(NO_COST) };
                measured(all.unwrap_or(0.0), 1, all, doubt)
            }
            // Another command, or a diff, may have other steps.
            None if self.is_measured && run.ended_itself() => whole(0),
            None => Ended::TooFewSteps(found.made),
        }
    }
}

impl Program for Live {
    fn run(&mut self, changes: &[Change]) -> Result<Ended> {
        let recording = match self.unit.as_ref().map(|unit| unit.name.as_str()) {
            Some("range") => Some(Some(MONITOR)),
            Some("recorded" | "work") => Some(Some(LIGHT)),
            _ => changes.iter().find_map(Change::recording).map(Some),
        };
        let run = self.one(recording, changes)?;
        if self.unit.is_some() || !run.is_good() {
            return Ok(self.ended(&run));
        }
        if run.has_steps() {
            self.unit = Unit::of(&run.result);
            // Before the unit is known, nothing shows how far behind it the GPU is.
            let is_known = self.unit.as_ref().is_some_and(|unit| unit.name == "optimizer");
            let run = if is_known { run } else { self.one(None, changes)? };
            return Ok(self.ended(&run));
        }
        if self.is_cost && !run.ended_itself() {
            return Ok(Ended::TooFewSteps(0));
        }
        // How much of it is start-up, or whether the engine finds steps, is not known without a recording.
        let is_whole = run.ended_itself();
        let mut unit = Unit::named(if is_whole { "run" } else { "recorded" });
        let mut run = run;
        if self.uses_cuda && !self.is_cost && self.started.elapsed() + run.wall < self.budget {
            self.unit = Some(Unit::named(if is_whole { "work" } else { "recorded" }));
            match self.one(Some(Some(LIGHT)), changes) {
                Ok(again) => {
                    let trace = again.trace().filter(|_| again.is_good());
                    let report = trace.and_then(|trace| recorded::report(&trace).ok());
                    unit = report.map_or(unit, |report| self.unit_of(&again, &Recorded::of(&report)));
                    if !unit.is_run() {
                        run = again;
                    }
                }
                // libprof.so is not there, or another tool is in its place.
                Err(_) if is_whole && interrupt::exit_code().is_none() => self.refused = None,
                Err(error) => return Err(error),
            }
        }
        self.unit = Some(unit);
        Ok(self.ended(&run))
    }

    fn can_apply(&self, change: &Change) -> bool {
        let Some(remedy) = change.trial() else { return change.own().is_none_or(|own| !own.is_none()) };
        let is_plain = !self.has_torch;
        match remedy.how {
            How::Set(_) | How::Add(..) | How::Preload(_) => !machine::environment(remedy).is_empty(),
            How::Cores => machine::cores().is_some(),
            How::Python => true,
            How::Unset(name) => !is_plain || is_on(name),
            How::PyTorch => !is_plain,
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Why gpuwhy ended a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    /// It made enough steps, or took its share of the time.
    Limit,
    /// The time for everything was up.
    Budget,
}

/// What is left of a run.
struct Finished {
    status: ExitStatus,
    cut: Option<Cut>,
    since: SystemTime,
    wall: Duration,
    applied: Vec<String>,
    unused: Option<String>,
    /// True with the user's own change.
    is_changed: bool,
    output: String,
    errors: String,
    result: Value,
    folder: TempDir,
}

impl Finished {
    /// True if the Python side ended it.
    fn was_ended(&self) -> bool {
        matches!(self.result["how"].as_str(), Some("measured" | "limit"))
    }

    fn ended_itself(&self) -> bool {
        self.cut.is_none() && !self.was_ended()
    }

    /// True if it did not fail, nor take all of the time.
    fn is_good(&self) -> bool {
        self.cut == Some(Cut::Limit) || self.cut.is_none() && (self.was_ended() || self.status.success())
    }

    /// True if the Python side counted any.
    fn has_steps(&self) -> bool {
        self.result["times"].as_array().is_some_and(|times| !times.is_empty())
    }

    /// Its trace; the largest of several, but that of the process whose steps count.
    fn trace(&self) -> Option<PathBuf> {
        recorded::trace_in(&self.folder.path().join("traces"), self.result["process"].as_u64())
    }
}

/// Index of the first time of a recording after start-up.
fn warm(found: &Recorded) -> usize {
    let Some(first) = found.times.first().filter(|_| found.forgotten() == 0) else { return 0 };
    let late = found.times.partition_point(|time| time - first < WARM_SECONDS);
    late.max(WARM_STEPS).min(found.times.len())
}

fn shell(line: &OsStr) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line);
    shell
}

/// Changed files that processes of a run have loaded; null if no Python said so.
fn used(folder: &Path, result: &Value) -> Value {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.file_stem().is_some_and(|name| name == "used"));
    let lists = files.filter_map(|path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok());
    let lists: Vec<_> = lists.chain([result["used"].clone()]).filter(Value::is_array).collect();
    if lists.is_empty() { Value::Null } else { lists.iter().filter_map(Value::as_array).flatten().cloned().collect() }
}

/// The modules' folders of `command`, behind `folder`.
fn python_path(folder: &Path, command: &Command) -> Result<OsString> {
    let own = command.get_envs().find(|(name, _)| *name == PYTHONPATH).and_then(|(_, value)| Some(value?.to_owned()));
    let old = own.or_else(|| std::env::var_os(PYTHONPATH)).filter(|path| !path.is_empty());
    let folders = std::iter::once(folder.to_owned()).chain(old.iter().flat_map(std::env::split_paths));
    std::env::join_paths(folders).context(PYTHONPATH)
}

/// True if the variable is set to something else than 0.
fn is_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Sends a signal to the process group that `child` leads. There may be none any more.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}
