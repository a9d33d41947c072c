//! Runs of the program: start, wait, end, and what is left of each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use gpuwhy_report::run::remedies::How;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::change::{Change, OwnChange};
use super::drain::{Drain, Part};
use super::measure::{after_start, per_step};
use super::pairs::{Ended, Measured, Program};
use super::processes::Processes;
use super::tree::Copies;
use super::unit::Unit;
use crate::args::run::RunArgs;
use crate::install_paths::{INJECTION, NVTX_INJECTION};
use crate::run;
use crate::{install_paths, interrupt};

/// The Python module that is put in front of the program.
const PYTHON: &str = concat!(
    include_str!("../run/behind.py"),
    "\n\n",
    include_str!("steps.py"),
    "\n\n",
    include_str!("loops.py"),
    "\n\n",
    include_str!("changes.py")
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
    /// Exit code for a command that does not start.
    pub refused: Option<u8>,
    /// True once a process of the program was seen with CUDA.
    pub uses_cuda: bool,
    /// True if the user's own change is measured: runs go on to their end, so that both did all of the work.
    pub is_own: bool,
    /// Where the runs take place, if not in the user's tree.
    pub copies: Option<Copies>,
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
            refused: None,
            uses_cuda: false,
            is_own: false,
            copies: None,
            processes: Processes::adopt(),
        }
    }

    /// Runs the program once with libprof.so. Returns its trace, or how the run ended without one.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn record(&mut self) -> Result<Result<PathBuf, Ended>> {
        let traces = self.folder.join("traces");
        fs::create_dir_all(&traces)?;
        let plain = RunArgs {
            output: Some(traces.join("%p.gpuwhy").to_string_lossy().into_owned()),
            report: Some("off".to_owned()),
            history: Some("off".into()),
            command: self.command.clone(),
            ..RunArgs::default()
        };
        let command = match run::prepare(&plain, &[])? {
            Ok(command) => command,
            Err(code) => {
                self.refused = Some(code);
                bail!("the program was not run");
            }
        };
        let ended = self.started(command, &[])?;
        let of_process = ended.result["process"].as_u64().map(|process| traces.join(format!("{process}.gpuwhy")));
        let largest = || {
            let files = fs::read_dir(&traces).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
            files.max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len()))
        };
        match of_process.filter(|path| path.is_file()).or_else(largest) {
            Some(trace) => {
                self.uses_cuda = true;
                Ok(Ok(trace))
            }
            None => Ok(Err(self.ended(ended))),
        }
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
            let waited = self.wait(&mut child, Path::new(""));
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
        if let Some(copies) = &self.copies {
            let work = copies.work(own.is_some());
            command.env("PWD", &work).current_dir(work);
            command.envs(std::env::var_os(PYTHONPATH).map(|path| (PYTHONPATH, self.mapped(own.is_some(), &path))));
        }
        for (name, value) in own.iter().flat_map(|own| &own.environment) {
            command.env(name, self.mapped(own.is_some(), value));
        }
    }

    fn mapped(&self, is_changed: bool, text: &OsStr) -> OsString {
        self.copies.as_ref().map_or_else(|| text.to_owned(), |copies| copies.mapped(is_changed, text))
    }

    fn started(&mut self, mut command: Command, changes: &[Change]) -> Result<Finished> {
        let own = changes.iter().find_map(Change::own);
        let remedies: Vec<_> = changes.iter().filter_map(Change::trial).collect();
        self.runs += 1;
        let folder = self.folder.join(self.runs.to_string());
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let settings = json!({
            "remedies": remedies.iter().map(|remedy| remedy.id).collect::<Vec<_>>(),
            "unit": self.unit.as_ref().map(|unit| &unit.name), "loop": self.unit.as_ref().map(|unit| &unit.key),
            "steps": self.steps, "seconds": SECONDS, "warm_steps": WARM_STEPS, "warm_s": WARM_SECONDS,
            "limit_s": self.limit_s, "end": if self.is_own { "limit" } else { "measured" },
            "changed": self.copies.as_ref().map(|copies| copies.changed_lines(own.is_some())),
            "patched": own.is_some_and(|own| own.is_patch),
        });
        // A string of JSON is one of Python.
        let call = format!("\nmain({})\n", Value::from(settings.to_string()));
        fs::write(folder.join("sitecustomize.py"), format!("{PYTHON}{call}"))?;
        command.env(PYTHONPATH, python_path(&folder, &command)?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut environment = Vec::new();
        for remedy in &remedies {
            let changes = remedy.environment(|name| std::env::var_os(name));
            environment.push((remedy.id, !changes.is_empty()));
            for (name, value) in changes {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
        }
        let start = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                self.refused = Some(run::cannot_start(command.get_program(), &error));
                bail!("the program was not run");
            }
        };
        let output = child.stdout.take().map(|stream| Drain::begin(stream, Part::First));
        let errors = child.stderr.take().map(|stream| Drain::begin(stream, Part::Last));
        let waited = self.wait(&mut child, &folder.join("result.json"));
        let _ = child.kill();
        let _ = child.wait();
        self.processes.end();
        let (status, was_in_time) = waited?;
        let result = fs::read(folder.join("result.json")).unwrap_or_default();
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
        applied.extend(own.filter(|own| !own.is_none()).map(|own| own.name.clone()));
        let copies = self.copies.as_ref().filter(|_| own.is_some());
        let printed = |drain: Option<Drain>| {
            let text = drain.map(Drain::text).unwrap_or_default();
            match &self.copies {
                Some(copies) => copies.mapped_back(own.is_some(), &text),
                None => text,
            }
        };
        let finished = Finished {
            unused: copies.and_then(|copies| copies.unused(&result["used"])),
            status,
            was_in_time,
            wall: start.elapsed(),
            applied,
            has_torch: folder.join("torch").exists(),
            output: printed(output),
            errors: printed(errors),
            result,
        };
        let _ = fs::remove_dir_all(&folder);
        Ok(finished)
    }

    /// Waits for the end, and brings it about when the steps are measured or the time is up. Returns the status
    /// and whether the time was enough.
    fn wait(&mut self, child: &mut Child, result: &Path) -> Result<(ExitStatus, bool)> {
        let deadline = self.started + self.budget;
        let (mut asked, mut is_late, mut is_told, mut looked) = (None, false, false, Instant::now());
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, !is_late));
            }
            if !self.uses_cuda && looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.uses_cuda = self.processes.use_cuda();
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
            if asked.is_none() && now > deadline {
                is_late = true;
                signal(child, Signal::INT);
                asked = Some(now);
            } else if asked.is_none() && result.exists() {
                // The program interrupts itself, or is at its end.
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

    fn ended(&mut self, run: Finished) -> Ended {
        let times: Vec<f64> = run.result["times"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let seen = times.len();
        let was_ended = matches!(run.result["how"].as_str(), Some("measured" | "limit"));
        if let Some(why) = run.unused {
            return Ended::NotApplicable(why);
        }
        if !run.was_in_time && !was_ended {
            return Ended::OutOfTime(seen);
        }
        if !was_ended && !run.status.success() {
            let code = run.status.code().or_else(|| Some(128 + run.status.signal()?));
            return Ended::Failed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), run.errors);
        }
        let ended_itself = !matches!(run.result["how"].as_str(), Some("measured" | "limit"));
        let edits = run.result["edits"].clone();
        let measured = |seconds, steps, all: Option<f64>, doubt| {
            let Finished { applied, output, wall, .. } = run;
            let (made, all) = (seen, all.filter(|_| ended_itself));
            Ended::Measured(Measured { seconds, steps, made, all, applied, edits, output, wall, doubt })
        };
        let counts =
            run.has_torch || Unit::of(&run.result).is_some() || self.unit.as_ref().is_some_and(|unit| !unit.is_run());
        if !counts {
            self.unit.get_or_insert_with(|| Unit::named("run"));
            let doubt = match run.wall {
                _ if !self.uses_cuda => Some(NO_CUDA),
                wall if wall < SHORTEST => Some(TOO_SHORT),
                _ => None,
            };
            let seconds = run.wall.as_secs_f64();
            return measured(seconds, 1, Some(seconds), doubt);
        }
        let steady = run.result["from"].as_u64().and_then(|from| usize::try_from(from).ok());
        let from = steady.filter(|_| was_ended).unwrap_or_else(|| after_start(seen, WARM_STEPS, steady));
        let steady = &times[from.min(seen)..];
        match per_step(steady).filter(|&seconds| seconds > 0.0 && steady.len() > FEWEST_STEPS) {
            Some(seconds) => {
                if self.unit.is_none() {
                    self.unit = Unit::of(&run.result);
                }
                let all = times.first().zip(times.last()).map(|(first, last)| last - first);
                measured(seconds, steady.len() - 1, all, None)
            }
            None => Ended::TooFewSteps(seen),
        }
    }
}

impl Program for Live {
    fn run(&mut self, changes: &[Change]) -> Result<Ended> {
        let mut command = self.command(changes.iter().find_map(Change::own))?;
        // Bare: what gpuwhy costs is no part of the times.
        let is_ours = |path: OsString| Path::new(&path).file_name().is_some_and(|name| name == install_paths::LIBRARY);
        for variable in [INJECTION, NVTX_INJECTION] {
            if std::env::var_os(variable).is_some_and(is_ours) {
                command.env_remove(variable);
            }
        }
        let run = self.started(command, changes)?;
        Ok(self.ended(run))
    }

    fn can_apply(&self, change: &Change) -> bool {
        let Some(remedy) = change.trial() else { return change.own().is_none_or(|own| !own.is_none()) };
        let variable = |name: &str| std::env::var_os(name);
        let is_plain = self.unit.as_ref().is_some_and(Unit::is_run);
        match remedy.how {
            How::Set(_) | How::Add(..) => !remedy.environment(variable).is_empty(),
            How::Unset(name) => !is_plain || is_on(name),
            How::PyTorch => !is_plain,
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What is left of a run.
struct Finished {
    status: ExitStatus,
    was_in_time: bool,
    wall: Duration,
    applied: Vec<String>,
    has_torch: bool,
    unused: Option<String>,
    output: String,
    errors: String,
    result: Value,
}

fn shell(line: &OsStr) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line);
    shell
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
