//! How a run is started: the command with a change, in the folder of the run, with what gpuwhy puts in front of it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use gpuwhy_inject::config::{CAPTURE_RANGE, DELAY, DURATION, MAX_OVERHEAD, SAMPLING, STEPS};
use gpuwhy_report::run::remedies::{How, Trial};
use rustix::thread::CpuSet;
use serde_json::{Value, json};

use super::steps::{SECONDS, WARM_SECONDS, WARM_STEPS};
use super::unit::Unit;
use crate::args::run::RunArgs;
use crate::install_paths::{INJECTION, NVTX_INJECTION};
use crate::trial::change::{Change, OwnChange, machine};
use crate::trial::place::processes::{Processes, STARTED_BY};
use crate::trial::place::tree::Copies;
use crate::trial::refused::Refused;
use crate::{install_paths, run};

/// The Python module that is put in front of the program.
const PYTHON: &str = concat!(
    include_str!("../../run/behind.py"),
    include_str!("../python/steps.py"),
    include_str!("../python/loops.py"),
    include_str!("../python/edits.py"),
    include_str!("../python/changes.py")
);
const PYTHONPATH: &str = "PYTHONPATH";
/// Modes in which a run is recorded: with the report's records, and with ranges only.
pub const LIGHT: &str = "light";
pub const MONITOR: &str = "monitor";
/// Folder of the traces of a run.
pub const TRACES: &str = "traces";

/// What all runs have in common.
pub struct Launch {
    pub command: Vec<OsString>,
    /// Place for the files of runs.
    pub folder: PathBuf,
    /// Where the runs take place, if not in the user's tree.
    pub copies: Option<Copies>,
    /// Number of steps to measure.
    pub steps: usize,
    /// Longest time of the steps of one run.
    pub limit: Duration,
    /// Time for everything since the start.
    pub budget: Duration,
    pub started: Instant,
    /// True if the user's own change is measured: runs go on to their end, so that both did all of the work.
    pub is_own: bool,
    /// True if runs are recorded only to see what that costs.
    pub is_cost: bool,
    pub processes: Processes,
}

impl Launch {
    /// A line for `sh -c`, in its copy.
    pub fn shell(&self, line: &OsStr, own: Option<&OwnChange>) -> Command {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line);
        self.place(&mut shell, own);
        shell
    }

    /// The command without gpuwhy's library, with the user's change if there is one.
    fn bare(&self, own: Option<&OwnChange>) -> Result<Command> {
        if let Some(line) = own.and_then(|own| own.against.as_ref()) {
            return Ok(self.shell(&self.mapped(own.is_some(), line), own));
        }
        let Some((program, arguments)) = self.command.split_first() else { bail!("no command given") };
        let in_copy = self.copies.as_ref().map(|copies| copies.program(own.is_some(), program)).transpose()?;
        let mut command = Command::new(in_copy.as_ref().unwrap_or(program));
        command.args(arguments.iter().map(|word| self.mapped(own.is_some(), word)));
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
            let copies = self.copies.as_ref();
            command.env(name, copies.map_or_else(|| value.clone(), |copies| copies.value(own.is_some(), name, value)));
        }
    }

    fn mapped(&self, is_changed: bool, text: &OsStr) -> OsString {
        self.copies.as_ref().map_or_else(|| text.to_owned(), |copies| copies.mapped(is_changed, text))
    }

    /// The command of a run, with the CPU cores for it, and the remedies that change its environment; with libprof.so
    /// in a mode, whose default is `None`, if it is to be recorded.
    pub fn prepared(
        &self,
        recording: Option<Option<&str>>,
        unit: Option<&Unit>,
        changes: &[Change],
        folder: &Path,
    ) -> Result<(Command, Option<CpuSet>, Vec<String>)> {
        let own = changes.iter().find_map(Change::own);
        let mut command = self.bare(own)?;
        if let Some(mode) = recording {
            command = self.recorded(&command, mode, unit, folder)?;
            self.place(&mut command, own);
        } else {
            // What gpuwhy costs is no part of the times.
            let is_ours =
                |path: OsString| Path::new(&path).file_name().is_some_and(|name| name == install_paths::LIBRARY);
            for variable in [INJECTION, NVTX_INJECTION] {
                if std::env::var_os(variable).is_some_and(is_ours) {
                    command.env_remove(variable);
                }
            }
        }
        let key = unit.map(|unit| match self.copies.as_ref().filter(|_| own.is_some()) {
            Some(copies) => copies.changed_loop(&unit.key),
            None => unit.key.clone(),
        });
        let settings = json!({
            "remedies": changes.iter().filter_map(|change| Some(change.trial()?.id)).collect::<Vec<_>>(),
            "unit": unit.map(|unit| &unit.name), "loop": key,
            "steps": self.steps, "seconds": SECONDS, "warm_steps": WARM_STEPS, "warm_s": WARM_SECONDS,
            "limit_s": self.limit.as_secs_f64(), "end": if self.is_own { "limit" } else { "measured" },
            "changed": self.copies.as_ref().map(|copies| copies.changed_lines(own.is_some())),
            "root": self.copies.as_ref().map(|copies| copies.root(own.is_some()).to_string_lossy()),
            "patched": own.is_some_and(|own| own.is_patch), "waits": recording.is_none() || self.is_cost,
        });
        let file = folder.join("sitecustomize.py");
        // A string of JSON is one of Python.
        let text = format!("{PYTHON}\nmain({})\n", Value::from(settings.to_string()));
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        let given = command.get_envs().find(|(name, _)| *name == PYTHONPATH).and_then(|(_, value)| value);
        let old = given.map(OsStr::to_owned).or_else(|| std::env::var_os(PYTHONPATH)).filter(|path| !path.is_empty());
        let folders = std::iter::once(PathBuf::from(folder)).chain(old.iter().flat_map(std::env::split_paths));
        command.env(PYTHONPATH, std::env::join_paths(folders).context(PYTHONPATH)?);
        let (mut cores, mut applied) = (None, Vec::new());
        for remedy in changes.iter().filter_map(Change::trial) {
            for (name, value) in machine::environment(remedy) {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            if matches!(remedy.how, How::Cores) {
                cores = machine::cores();
            }
            applied.extend(is_applied(remedy).then(|| remedy.id.to_owned()));
        }
        Ok((command, cores, applied))
    }

    /// `bare` with libprof.so.
    fn recorded(&self, bare: &Command, mode: Option<&str>, unit: Option<&Unit>, folder: &Path) -> Result<Command> {
        // Steps need all records of a run, and ranges nothing but them.
        let is_counted = mode.is_some() && !self.is_cost;
        let of_range = is_counted && unit.is_some_and(|unit| unit.step.is_some());
        let args = RunArgs {
            output: Some(folder.join(TRACES).join("%p.gpuwhy").to_string_lossy().into_owned()),
            report: (!self.is_cost).then(|| "off".to_owned()),
            history: Some("off".into()),
            mode: mode.map(str::to_owned),
            cuda_graph_trace: (is_counted && !of_range).then(|| "node".to_owned()),
            gpu_metrics: of_range.then(|| "off".to_owned()),
            command: std::iter::once(bare.get_program()).chain(bare.get_args()).map(OsStr::to_owned).collect(),
            ..RunArgs::default()
        };
        let more = of_range.then(|| (SAMPLING, "off".to_owned()));
        let mut command = run::prepare(&args, more.as_slice())?.map_err(|code| Refused(code, String::new()))?;
        if is_counted {
            // Of the whole run, whatever part the environment asks for.
            for variable in [CAPTURE_RANGE, STEPS, DELAY, DURATION, MAX_OVERHEAD] {
                command.env_remove(variable);
            }
        }
        Ok(command)
    }
}

/// True if the remedy changes the environment of the program.
pub fn is_applied(remedy: &Trial) -> bool {
    match remedy.how {
        How::Cores => machine::cores().is_some(),
        How::Unset(name) => std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0"),
        _ => !machine::environment(remedy).is_empty(),
    }
}
