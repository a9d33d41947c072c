//! The process beside a program of `gpuwhy run`, which says why there is no report.
//!
//! gpuwhy becomes the program, so it cannot speak after its end. Before, it starts this process, which waits for that
//! end in a process group of its own, and prints a line if libprof.so did not get as far as a trace or a report. It is
//! no child of the program: a program that waits for all of its children would wait for it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use gpuwhy_inject::config::{self, Level, ReportStyle, Settings};
use gpuwhy_inject::control::watcher::{Progress, Watch};

use super::launcher;
use crate::args::WATCH_RUN;
use crate::args::run::WatchArgs;
use crate::doctor::driver;
use crate::message;

/// Times between looks at the processes, until libprof.so answers; the last one repeats.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// Maximum number of processes in a look.
const MOST_PROCESSES: usize = 1000;

/// Starts the process for the program that `command` describes, unless the user wants no report. Returns a function
/// that ends it, for a program that does not start.
pub fn start(command: &mut Command, settings: &Settings) -> Option<impl FnOnce() + use<>> {
    let silent = settings.report == ReportStyle::Off || settings.log < Level::Warn || message::is_quiet();
    // As the first process of a container, the program would be its parent after all.
    if silent || std::process::id() == 1 {
        return None;
    }
    let (watch, name) = Watch::of_this_process().inspect_err(|error| tracing::info!(%error, "no watcher")).ok()?;
    let (socket, end) = watch.into_parts();
    let mut first = Command::new(env::current_exe().ok()?);
    first.arg(WATCH_RUN).arg(std::process::id().to_string()).arg("--").arg(command.get_program());
    first.args(command.get_args()).stdin(Stdio::from(socket)).stdout(Stdio::from(end));
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("GPUWHY_");
    first.envs(command.get_envs().filter_map(|(name, value)| Some((name, value.filter(|_| ours(name))?))));
    // It starts the process and ends: nobody is then a child of the program.
    let started = first.status().is_ok_and(|status| status.success());
    if !started {
        tracing::info!("no watcher: it does not start");
        return None;
    }
    command.env(config::WATCHER, &name);
    Some(move || gpuwhy_inject::control::watcher::end(&name))
}

/// Waits for the end of the program, and says why there is no report. Fails when it cannot start itself.
pub fn run(args: &WatchArgs) -> Result<u8> {
    let (socket, end) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    if !args.detached {
        let mut itself = Command::new(env::current_exe().context("cannot find this program")?);
        itself.args([WATCH_RUN, "--detached", &args.process.to_string(), "--"]).args(&args.command).process_group(0);
        itself.spawn().context("cannot start the watcher")?;
        return Ok(0);
    }
    let begun = SystemTime::now();
    let watch = Watch::from_parts(socket, end);
    let (mut progress, mut unreached, mut looks) = (None, None, 0);
    loop {
        let wait = if progress.is_none() { LOOKS[looks.min(LOOKS.len() - 1)] } else { Duration::from_secs(3600) };
        let ended = watch.wait(wait);
        progress = progress.max(watch.progress());
        if progress == Some(Progress::Done) {
            return Ok(0);
        }
        if ended {
            break;
        }
        if progress.is_none() {
            looks += 1;
            match look(args.process) {
                Some(Found::Measured) => return Ok(0),
                Some(Found::Unreached(process)) => unreached = Some(process),
                None => {}
            }
        }
    }
    let (settings, _) = Settings::from_env();
    // From a process that cannot send.
    let traced = settings.output.as_ref().is_some_and(|pattern| is_new_trace(&pattern.shown(), begun));
    if !traced {
        message::say(&sentence(progress, unreached, &args.command));
    }
    Ok(0)
}

/// What processes show that do not answer.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// One has libprof.so.
    Measured,
    /// One has the CUDA driver, and was not told to load libprof.so.
    Unreached(String),
}

fn look(process: u32) -> Option<Found> {
    let mut waiting = vec![process];
    let mut found = None;
    for _ in 0..MOST_PROCESSES {
        let Some(process) = waiting.pop() else { break };
        let folder = PathBuf::from(format!("/proc/{process}"));
        let tasks = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        waiting.extend(children.flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()));
        let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
        let has =
            |name: &str| maps.lines().any(|line| line.rsplit('/').next().is_some_and(|file| file.starts_with(name)));
        if has(crate::install_paths::LIBRARY) {
            return Some(Found::Measured);
        }
        if has("libcuda.so.")
            && let Ok(environment) = fs::read(folder.join("environ"))
            && !environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(config::CUDA_INJECTION.as_bytes()))
        {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            found = Some(Found::Unreached(format!("process {process} ({})", name.trim())));
        }
    }
    found
}

/// True if the folder of the traces has a file from after `begun`. A folder with placeholders is not searched.
fn is_new_trace(pattern: &str, begun: SystemTime) -> bool {
    let path = Path::new(pattern);
    let (Some(folder), ending) = (path.parent(), path.extension()) else { return false };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let is_new = |path: &Path| {
        path.extension() == ending
            && fs::metadata(path).and_then(|about| about.modified()).is_ok_and(|time| time >= begun)
    };
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| is_new(&entry.path()))
}

fn sentence(progress: Option<Progress>, unreached: Option<String>, command: &[std::ffi::OsString]) -> String {
    match progress {
        Some(Progress::Loaded) => {
            return "no report and no trace: a process used CUDA, but could not be measured; its stderr says why \
                    (GPUWHY_LOG), and so does `gpuwhy doctor`"
                .to_owned();
        }
        Some(_) => {
            return "no report and no trace: a process used CUDA, but ended before GPU work was recorded: it was killed, \
                    crashed or called _exit"
                .to_owned();
        }
        None => {}
    }
    if let Some(process) = unreached {
        return format!(
            "no report: {process} loaded the CUDA driver, but {} is missing in its environment; put `gpuwhy run --` \
             directly before that program",
            config::CUDA_INJECTION
        );
    }
    let hidden = launcher::obstacle(command);
    let lead = match &hidden {
        None => "no report: the command and what it started on this machine did not use CUDA",
        Some(_) => "no report: nothing that the command started on this machine loaded libprof.so",
    };
    let reasons: Vec<_> = [driver::obstacle(), hidden].into_iter().flatten().collect();
    if reasons.is_empty() { lead.to_owned() } else { format!("{lead}: {}", reasons.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_driver_and_without_the_variable_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libcuda.so.1");
        let options = ["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"];
        assert!(Command::new("cc").args(options).arg(&library).status().unwrap().success());
        for (variable, expected) in [("OTHER", true), (config::CUDA_INJECTION, false)] {
            let mut child = Command::new("cat");
            child.env_clear().env("LD_PRELOAD", &library).env(variable, "x").stdin(Stdio::piped());
            let mut child = child.stdout(Stdio::null()).spawn().unwrap();
            let maps = || fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
            while !maps().contains("libcuda.so.1") {
                std::thread::yield_now();
            }
            // Through its parent: the process of this test.
            let found = look(std::process::id());
            let wanted = Found::Unreached(format!("process {} (cat)", child.id()));
            assert_eq!(found.as_ref() == Some(&wanted), expected, "{found:?}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_trace_of_a_process_that_cannot_send_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("x-<pid>.gpuwhy");
        let pattern = pattern.to_str().unwrap();
        fs::write(folder.path().join("other.txt"), "").unwrap();
        assert!(!is_new_trace(pattern, SystemTime::UNIX_EPOCH));
        fs::write(folder.path().join("x-1.gpuwhy"), "").unwrap();
        assert!(is_new_trace(pattern, SystemTime::UNIX_EPOCH));
        assert!(!is_new_trace(pattern, SystemTime::now() + Duration::from_secs(9)), "from an earlier run");
    }
}
