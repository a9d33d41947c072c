//! `gpuwhy run`: starts a command so that the CUDA driver loads `libprof.so` into it.
//!
//! gpuwhy becomes the command (`exec`) instead of waiting for it as a parent. So the process id, the
//! terminal, job control, signals from any sender and the exit status are right by construction, and no
//! process stays alive when a scheduler kills the process it started. `libprof.so` prints the report, and
//! [`watch`] says why there is none.

mod launcher;
mod pytorch;
pub mod watch;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use gpuwhy_inject::config::{self, Level, ReportStyle, Settings, SettingsError};
use tracing::{debug, info};

use crate::args::run::{RunArgs, name};
use crate::install_paths::{INJECTION, NVTX_INJECTION, other_library};
use crate::{history, install_paths, message, output};

/// Exit code when gpuwhy fails before the command starts, as for `env`, `timeout` and `docker run`.
pub const OWN_FAILURE: u8 = 125;
/// Exit code when a variable of libprof.so has an invalid value, as for an invalid option.
const BAD_SETTINGS: u8 = 2;
/// Exit code of a command that exists but cannot be executed, as in POSIX shells.
const CANNOT_EXECUTE: u8 = 126;
/// Exit code of a command that does not exist, as in POSIX shells.
const NOT_FOUND: u8 = 127;

/// Variable that names the NCCL profiler plugin.
pub const NCCL_PLUGIN: &str = config::NCCL_PLUGIN;

/// Becomes the command. Returns the exit code only when that failed or was refused. Fails when `libprof.so`
/// is not found, when another tool is already set to be injected or will be, or when a path cannot be made
/// absolute.
pub fn run(args: &RunArgs) -> Result<u8> {
    let mut command = match prepare(args, &[])? {
        Ok(command) => command,
        Err(refused) => return Ok(refused),
    };
    let inherited: Vec<_> = command.get_envs().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect();
    let (settings, _) = settings(&inherited);
    let watcher = watch::start(&mut command, &settings);
    let error = command.exec();
    if let Some(end) = watcher {
        end();
    }
    Ok(cannot_start(command.get_program(), &error))
}

/// Builds the command to start, with its environment, which includes `more`; `Err` with the exit code when
/// the settings are refused.
///
/// # Errors
/// As [`run`].
pub fn prepare(args: &RunArgs, more: &[(&'static str, String)]) -> Result<Result<Command, u8>> {
    let Some((program, arguments)) = args.command.split_first() else {
        bail!("no command given");
    };
    let library = install_paths::library()?;
    if let Some(other) = other_library(INJECTION, &library)
        && !args.force
    {
        bail!(
            "{INJECTION} is set to {} already, and the driver loads only one library. Unset the variable, or pass --force \
             to replace it.",
            Path::new(&other).display()
        );
    }
    if let Some(tool) = tool_that_injects(program)
        && !args.force
    {
        bail!(
            "{tool} replaces {INJECTION} for the program that it starts, or refuses to start it, so gpuwhy would measure \
             nothing. Run the two tools separately, or pass --force."
        );
    }
    let mut options = variables(args)?;
    options.extend(more.iter().map(|(variable, value)| (*variable, value.into())));
    let set: Vec<_> = options.iter().map(|(name, value)| (name.into(), value.clone())).collect();
    let (settings, complaints) = settings(&set);
    complaints.iter().for_each(|complaint| message::say(&complaint.to_string()));
    let unusable = settings.output.as_ref().and_then(output::problem);
    if let Some(problem) = &unusable {
        message::say(problem);
    }
    let elsewhere = launcher::is_elsewhere(&args.command);
    if complaints.iter().any(SettingsError::is_serious) || (unusable.is_some() && !elsewhere) {
        message::say("the program was not started");
        return Ok(Err(BAD_SETTINGS));
    }
    let mut command = Command::new(program);
    command.args(arguments).env(INJECTION, &library).envs(options);
    // Tells the library not to print the same warnings again.
    command.env(config::WARNED, config::warned(&complaints));
    match other_library(NVTX_INJECTION, &library) {
        Some(other) if !args.force => message::say(&format!(
            "{NVTX_INJECTION} is set to {}: the program's NVTX ranges go to that library and will be missing from the report. \
             Unset the variable, or pass --force to replace it.",
            Path::new(&other).display()
        )),
        _ => {
            command.env(NVTX_INJECTION, &library);
        }
    }
    match std::env::var_os(NCCL_PLUGIN).filter(|value| !value.is_empty() && value != config::NCCL_PLUGIN_NAME) {
        _ if !args.nccl => {}
        Some(other) if !args.force => message::say(&format!(
            "{NCCL_PLUGIN} is set to {}: NCCL tells that plugin what it does, so sizes and communicators of collectives will \
             be missing from the report. Unset the variable, or pass --force to replace it.",
            Path::new(&other).display()
        )),
        // A bare name: NCCL 2.27 refuses paths, and the C library finds the library by its name because it is
        // already loaded.
        _ => {
            command.env(NCCL_PLUGIN, config::NCCL_PLUGIN_NAME);
        }
    }
    if let Some(mode) = args.pytorch {
        command.env("PYTHONPATH", pytorch::python_path(&name(mode))?);
    }
    if io::stderr().is_terminal()
        && let Some(line) = announcement(&settings)
    {
        message::note(&line);
    }
    info!(library = ?library, "the CUDA driver will load this library");
    for (name, value) in command.get_envs() {
        debug!(?name, ?value, "environment of the program");
    }
    Ok(Ok(command))
}

/// Prints why `program` did not start, and returns the matching exit code.
pub fn cannot_start(program: &OsStr, error: &io::Error) -> u8 {
    let program = Path::new(program).display();
    if error.kind() == io::ErrorKind::NotFound {
        // The kernel returns the same error when the interpreter in a script's first line is missing.
        message::say(&format!("cannot start {program}: the command or its interpreter was not found"));
        NOT_FOUND
    } else {
        message::say(&format!("cannot start {program}: {error}"));
        CANNOT_EXECUTE
    }
}

/// Settings that libprof.so will read in the program's environment, and their errors. libprof.so would
/// continue with defaults, which could waste an hour's run. Here the program has not started yet.
fn settings(options: &[(OsString, OsString)]) -> (Settings, Vec<SettingsError>) {
    let set: Vec<_> = std::env::vars_os().chain(options.iter().cloned()).collect();
    Settings::from_variables(&set)
}

/// Message to a terminal before the program starts.
fn announcement(settings: &Settings) -> Option<String> {
    if settings.report == ReportStyle::Off || settings.log < Level::Warn {
        return None;
    }
    Some(match &settings.output {
        None => "the report comes at the end, if the program uses CUDA".to_owned(),
        Some(trace) => format!(
            "the report comes at the end, the trace is {} (also after Ctrl-C), if the program uses CUDA",
            trace.shown()
        ),
    })
}

/// Name of the program if it is a tool that does not pass the variable to the processes it starts: `nsys
/// profile` replaces it, `ncu` refuses to run with it (both seen on an H200, Nsight Compute 2025.3.1 and the
/// nsys in it).
fn tool_that_injects(program: &OsStr) -> Option<&str> {
    let name = Path::new(program).file_name()?.to_str()?;
    ["nsys", "ncu"].contains(&name).then_some(name)
}

/// Environment variables for the options.
///
/// Paths are made absolute: they are relative to the folder in which gpuwhy was called, and the program may
/// change it.
fn variables(args: &RunArgs) -> Result<Vec<(&'static str, OsString)>> {
    let absolute = |option: &str, path: &Path| {
        std::path::absolute(path).map(PathBuf::into_os_string).with_context(|| format!("{option} {}", path.display()))
    };
    let mut variables = Vec::new();
    if let Some(pattern) = &args.output {
        let value = if pattern == "off" { pattern.into() } else { absolute("--output", Path::new(pattern))? };
        variables.push(("GPUWHY_OUTPUT", value));
    }
    if let Some(path) = &args.cupti {
        variables.push(("GPUWHY_CUPTI_PATH", absolute("--cupti-path", path)?));
    }
    match &args.history {
        Some(path) if path.as_os_str() == "off" => variables.push((config::HISTORY, "off".into())),
        Some(path) => variables.push((config::HISTORY, absolute("--history", path)?)),
        None => variables.extend(history::file::ready().map(|path| (config::HISTORY, path.into_os_string()))),
    }
    let given = [
        (config::CAPTURE_RANGE, &args.capture_range),
        (config::NVTX_CAPTURE, &args.nvtx_capture),
        (config::CAPTURE_RANGE_END, &args.capture_range_end),
        (config::STEPS, &args.steps),
        (config::DELAY, &args.delay),
        (config::DURATION, &args.duration),
        (config::CUPTI_SHARING, &args.cupti_sharing),
        (config::MEMORY_USAGE, &args.cuda_memory_usage),
        (config::GPU_METRICS, &args.gpu_metrics),
        (config::MODE, &args.mode),
        (config::RUN, &args.run_name),
        (config::MAX_OVERHEAD, &args.max_overhead),
        (config::CUDA_GRAPH_TRACE, &args.cuda_graph_trace),
        (config::REPORT, &args.report),
        (config::LIVE, &args.live),
        (config::LOG, &args.log),
    ];
    variables.extend(given.into_iter().filter_map(|(variable, value)| Some((variable, value.as_ref()?.into()))));
    Ok(variables)
}
