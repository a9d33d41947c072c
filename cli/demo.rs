//! `gpuprof demo`: plays recorded sessions through the real `libprof.so` on a machine without a GPU.
//!
//! A small host program stands in for the CUDA driver: it loads `libprof.so` as the driver does, and a replay library
//! stands in for libcupti and hands over the activity buffers that a GPU once produced. Everything between those two
//! and the verdict is what runs in a live program; nothing is shown from a script.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{complain, files, run};

mod fixtures;

use fixtures::Fixture;

/// Exit code when a recording could not be played.
pub const FAILED: u8 = 1;

/// How many recordings play when none is named: enough to see two different verdicts in half a minute.
const DEFAULT_COUNT: usize = 2;

const HOST: &str = "gpuprof-replay-host";
const REPLAY_LIBRARY: &str = "libcupti_replay.so";

/// What to play and how.
#[derive(Debug)]
pub struct Props {
    /// Which recordings.
    pub choice: Choice,
    /// The folder with the recordings; those that come with gpuprof when `None`.
    pub from: Option<PathBuf>,
    /// Only list them.
    pub list: bool,
    /// As fast as possible instead of at the recorded speed.
    pub fast: bool,
    /// Where the traces go; a new folder when `None`.
    pub output: Option<PathBuf>,
}

/// Which recordings to play.
#[derive(Debug)]
pub enum Choice {
    /// The first [`DEFAULT_COUNT`].
    Default,
    /// All.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

/// Plays the chosen recordings one after another and answers with the exit code.
///
/// # Errors
///
/// When there are no recordings, when a name is unknown, when the libraries are neither there nor can be built, or
/// when a recording fails.
pub fn run(props: &Props) -> Result<u8> {
    let all = fixtures::find(props.from.as_deref())?;
    if props.list {
        let mut text = String::new();
        for Fixture { name, description, .. } in &all {
            writeln!(text, "{name:<24} {description}")?;
        }
        io::stdout().write_all(text.as_bytes())?;
        return Ok(0);
    }
    let chosen = choose(&props.choice, &all)?;
    let stage = Stage::set()?;
    let folder = match &props.output {
        Some(folder) => folder.clone(),
        None => env::temp_dir().join(format!("gpuprof-demo-{}", std::process::id())),
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;

    let mut failed = Vec::new();
    let mut traces = Vec::new();
    for fixture in chosen {
        let trace = folder.join(format!("{}.gpuprof", fixture.name));
        say(&format!(
            "\n== {}: {}\n   {} plays {}\n\n",
            fixture.name,
            fixture.description,
            HOST,
            fixture.path.display()
        ))?;
        let status = stage.play(fixture, &trace, props.fast)?;
        if status.success() {
            traces.push(trace);
        } else {
            complain(&format!("{}: {HOST} ended with {status}", fixture.name));
            failed.push(fixture.name.as_str());
        }
    }
    if let [.., trace] = traces.as_slice() {
        say(&format!(
            "\nThe traces are in {}. Read one with\n\n  gpuprof report {}\n",
            folder.display(),
            trace.display()
        ))?;
    }
    if !failed.is_empty() {
        bail!("not played: {}", failed.join(", "));
    }
    Ok(0)
}

fn choose<'a>(choice: &Choice, all: &'a [Fixture]) -> Result<Vec<&'a Fixture>> {
    match choice {
        Choice::Default => Ok(all.iter().take(DEFAULT_COUNT).collect()),
        Choice::All => Ok(all.iter().collect()),
        Choice::Named(names) => names
            .iter()
            .map(|name| {
                let known = || all.iter().map(|fixture| fixture.name.as_str()).collect::<Vec<_>>().join(", ");
                all.iter()
                    .find(|fixture| fixture.name == *name)
                    .with_context(|| format!("there is no recording {name:?}; there are {}", known()))
            })
            .collect(),
    }
}

/// Writes to stdout at once: the host program writes to the same terminal.
fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The three files that stand in for a program, a driver and a GPU.
struct Stage {
    host: PathBuf,
    library: PathBuf,
    replay: PathBuf,
}

impl Stage {
    /// Finds the files; in a source checkout builds what is missing.
    fn set() -> Result<Self> {
        match Self::find() {
            Ok(stage) => Ok(stage),
            Err(missing) => {
                let Some(checkout) = checkout() else { return Err(missing.into()) };
                build(&checkout)?;
                Ok(Self::find()?)
            }
        }
    }

    fn find() -> Result<Self, files::NotFound> {
        Ok(Self {
            library: files::library()?,
            host: files::beside_executable(HOST)?,
            replay: files::beside_executable(REPLAY_LIBRARY)?,
        })
    }

    fn play(&self, fixture: &Fixture, trace: &Path, fast: bool) -> Result<std::process::ExitStatus> {
        // The library never overwrites a trace; this folder is the demo's own.
        match fs::remove_file(trace) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", trace.display()));
            }
            _ => {}
        }
        Command::new(&self.host)
            .env(run::INJECTION, &self.library)
            .env("GPUPROF_CUPTI_PATH", &self.replay)
            .env("GPUPROF_REPLAY", &fixture.path)
            .env("GPUPROF_REPLAY_SPEED", if fast { "max" } else { "1" })
            .env("GPUPROF_LIVE", if fast { "off" } else { "1s" })
            .env("GPUPROF_REPORT", "summary")
            // As fast as possible is faster than a busy machine takes records in; nobody waits for this program.
            .env("GPUPROF_EXIT_TIMEOUT", "60s")
            .env("GPUPROF_OUTPUT", pattern(trace))
            .status()
            .with_context(|| format!("cannot start {}", self.host.display()))
    }
}

/// `path` as an output pattern, in which a percent sign is written twice.
fn pattern(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

/// The source checkout that this program was built from, if it is still there and the program still lies where cargo
/// put it. An installed program must not run a compiler.
fn checkout() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built_by_cargo = files::executable_folder()?.join("deps").is_dir();
    (built_by_cargo && root.join("cupti-replay/Cargo.toml").is_file()).then(|| root.to_owned())
}

/// Builds the parts that cargo does not build along with `gpuprof`, into the folder that this program came from.
fn build(checkout: &Path) -> Result<()> {
    let folder = files::executable_folder().context("cannot find the folder of this program")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = folder.parent().context("the folder of this program has no parent")?;
    say("Building libprof.so and the replay library, once.\n")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(["build", "--profile", profile, "-p", "gpuprof-inject", "-p", "cupti-replay", "--target-dir"])
        .arg(target)
        .current_dir(checkout)
        .status()
        .with_context(|| format!("cannot start {}", Path::new(&cargo).display()))?;
    if !status.success() {
        bail!("cargo ended with {status} in {}", checkout.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Fixture> {
        ["a", "b", "c"].map(|name| Fixture { name: name.into(), path: name.into(), description: String::new() }).into()
    }

    fn names(choice: &Choice) -> Vec<String> {
        choose(choice, &three()).unwrap().into_iter().map(|fixture| fixture.name.clone()).collect()
    }

    #[test]
    fn recordings_are_chosen_by_default_all_or_by_name() {
        assert_eq!(names(&Choice::Default), ["a", "b"]);
        assert_eq!(names(&Choice::All), ["a", "b", "c"]);
        assert_eq!(names(&Choice::Named(vec!["c".into(), "a".into()])), ["c", "a"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let error = choose(&Choice::Named(vec!["x".into()]), &three()).unwrap_err().to_string();
        assert!(error.contains("\"x\"") && error.contains("a, b, c"), "{error}");
    }

    #[test]
    fn a_percent_sign_in_a_folder_is_no_placeholder() {
        assert_eq!(pattern(Path::new("/tmp/50%p/a.gpuprof")), "/tmp/50%%p/a.gpuprof");
    }
}
