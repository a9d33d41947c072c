//! `gpuwhy demo`: plays recorded sessions through the real `libprof.so` on a machine without a GPU.
//!
//! A small host program stands in for the CUDA driver and loads `libprof.so` as the driver does. A replay
//! library stands in for libcupti and delivers the activity buffers that a GPU once produced. All code
//! between those two and the report is the code that runs in a live program; no output is scripted.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args::demo::DemoArgs;
use crate::{install_paths, interrupt, message};

mod fixtures;

use fixtures::{Fixture, HOST};

/// Exit code when a recording could not be played.
pub const FAILED: u8 = 1;
/// Exit code when a recording name is unknown, as for any other invalid argument.
const UNKNOWN: u8 = 2;

/// Number of recordings to play when none is named: enough to see two different bottlenecks in half a minute.
const DEFAULT_COUNT: usize = 2;

const REPLAY_LIBRARY: &str = "libcupti_replay.so";

/// Plays the chosen recordings one after another and returns the exit code, [`UNKNOWN`] for an unknown name.
/// Fails when there are no recordings, the libraries are missing and cannot be built, or a recording fails.
pub fn run(args: &DemoArgs) -> Result<u8> {
    let all = fixtures::find(args.from.as_deref())?;
    if args.list {
        let mut text = String::new();
        for Fixture { name, description, .. } in &all {
            writeln!(text, "{name:<24} {description}")?;
        }
        io::stdout().write_all(text.as_bytes())?;
        return Ok(0);
    }
    let chosen = match choose(args, &all) {
        Ok(chosen) => chosen,
        Err(error) => {
            message::say(&format!("{error:#}"));
            return Ok(UNKNOWN);
        }
    };
    let stage = Stage::set()?;
    interrupt::watch()?;
    args.output.as_deref().map(make_folder).transpose()?;
    let mut failed = Vec::new();
    let mut traces = Vec::new();
    for fixture in chosen {
        let trace = args.output.as_ref().map(|folder| folder.join(format!("{}.gpuwhy", fixture.name)));
        if !message::is_quiet() {
            let Fixture { name, description, path } = fixture;
            say(&format!("\n== {name}: {description}\n   {HOST} plays {}\n\n", path.display()))?;
        }
        let status = stage.play(fixture, trace.as_deref(), args.fast)?;
        if status.success() {
            traces.extend(trace);
        } else {
            message::say(&format!("{}: {HOST} ended with {status}", fixture.name));
            failed.push(fixture.name.as_str());
        }
    }
    if args.output.is_none() && !message::is_quiet() {
        say("\n`gpuwhy demo -o DIR` keeps the traces, to be read by other commands.\n")?;
    } else if let [.., trace] = traces.as_slice()
        && !message::is_quiet()
    {
        // The name this program was called by: it may not be in the PATH.
        let gpuwhy = env::args_os().next().unwrap_or_else(|| "gpuwhy".into());
        say(&format!(
            "\nThe traces are in {}. Read one with\n\n  {} report {}\n",
            trace.parent().unwrap_or(Path::new(".")).display(),
            Path::new(&gpuwhy).display(),
            trace.display()
        ))?;
    }
    if !failed.is_empty() {
        bail!("not played: {}", failed.join(", "));
    }
    Ok(0)
}

fn choose<'a>(args: &DemoArgs, all: &'a [Fixture]) -> Result<Vec<&'a Fixture>> {
    match &args.names[..] {
        _ if args.all => Ok(all.iter().collect()),
        [] => Ok(all.iter().take(DEFAULT_COUNT).collect()),
        names => names
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

/// Creates the folder of the traces unless it exists. Fails if its parent does not exist.
fn make_folder(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made.with_context(|| format!("{}: cannot make this folder", folder.display())),
    }
}

/// Writes to stdout and flushes: the host program writes to the same terminal.
fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Files that stand in for a program, a driver and a GPU.
struct Stage {
    host: PathBuf,
    library: PathBuf,
    replay: PathBuf,
}

impl Stage {
    /// Finds the files; in a source checkout, builds the missing ones.
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

    fn find() -> Result<Self, install_paths::NotFound> {
        Ok(Self {
            library: install_paths::library()?,
            host: install_paths::next_to_executable(HOST)?,
            replay: install_paths::next_to_executable(REPLAY_LIBRARY)?,
        })
    }

    fn play(&self, fixture: &Fixture, trace: Option<&Path>, fast: bool) -> Result<ExitStatus> {
        // The library never overwrites a trace; those with the names of recordings belong to the demo.
        match trace.map(|trace| (trace, fs::remove_file(trace))) {
            Some((trace, Err(error))) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", trace.display()));
            }
            _ => {}
        }
        let host = Command::new(&self.host)
            .env(install_paths::INJECTION, &self.library)
            .env("GPUWHY_CUPTI_PATH", &self.replay)
            .env("GPUWHY_REPLAY", &fixture.path)
            .env("GPUWHY_REPLAY_SPEED", if fast { "max" } else { "1" })
            .env("GPUWHY_LIVE", if fast || message::is_quiet() { "off" } else { "1s" })
            // With -q, a report that is not kept is all that remains of a recording.
            .env("GPUWHY_REPORT", if message::is_quiet() && trace.is_some() { "off" } else { "summary" })
            // At full speed a busy machine may not keep up with the records. No other process waits for this
            // program.
            .env("GPUWHY_EXIT_TIMEOUT", "60s")
            .env("GPUWHY_OUTPUT", trace.map_or_else(|| "off".to_owned(), pattern))
            // Its reports are the output of the demo, so they go to stdout like the headings.
            .stderr(io::stdout().as_fd().try_clone_to_owned()?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.host.display()))?;
        let status = ended(host)?;
        if interrupt::state().is_break() {
            // The trace is incomplete.
            let _ = trace.map(fs::remove_file);
            bail!("interrupted");
        }
        Ok(status)
    }
}

/// Waits for the program, and kills it when a signal requests that.
fn ended(mut host: Child) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = host.try_wait()? {
            return Ok(status);
        }
        if interrupt::state().is_break() {
            host.kill()?;
            return host.wait();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// `path` as an output pattern, with percent signs doubled.
fn pattern(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

/// Source checkout that this program was built from, if it still exists and the program is still where cargo
/// put it. An installed program must not run a compiler.
fn checkout() -> Option<PathBuf> {
    let built_by_cargo = install_paths::executable_folder()?.join("deps").is_dir();
    let is_checkout = |root: &PathBuf| built_by_cargo && root.join("testing/cupti-replay/Cargo.toml").is_file();
    install_paths::possible_checkouts().into_iter().find(is_checkout)
}

/// Builds the parts that cargo does not build along with `gpuwhy`, into the folder of this program.
fn build(checkout: &Path) -> Result<()> {
    let folder = install_paths::executable_folder().context("cannot find the folder of this program")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = folder.parent().context("the folder of this program has no parent")?;
    say("Building the replay library, once; little is left to compile.\n")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        // With `gpuwhy`, because its features are those of what is compiled already: without it, the packages that it
        // shares with the replay library would be compiled again.
        .args([
            "build",
            "--profile",
            profile,
            "-p",
            "gpuwhy",
            "-p",
            "gpuwhy-inject",
            "-p",
            "cupti-replay",
            "--target-dir",
        ])
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

    fn names(args: &DemoArgs) -> Vec<String> {
        choose(args, &three()).unwrap().into_iter().map(|fixture| fixture.name.clone()).collect()
    }

    fn named(names: &[&str]) -> DemoArgs {
        DemoArgs { names: names.iter().map(|&name| name.to_owned()).collect(), ..DemoArgs::default() }
    }

    #[test]
    fn recordings_are_chosen_by_default_all_or_by_name() {
        assert_eq!(names(&DemoArgs::default()), ["a", "b"]);
        assert_eq!(names(&DemoArgs { all: true, ..DemoArgs::default() }), ["a", "b", "c"]);
        assert_eq!(names(&named(&["c", "a"])), ["c", "a"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let error = choose(&named(&["x"]), &three()).unwrap_err().to_string();
        assert!(error.contains("\"x\"") && error.contains("a, b, c"), "{error}");
    }

    #[test]
    fn a_percent_sign_in_a_folder_is_no_placeholder() {
        assert_eq!(pattern(Path::new("/tmp/50%p/a.gpuwhy")), "/tmp/50%%p/a.gpuwhy");
    }
}
