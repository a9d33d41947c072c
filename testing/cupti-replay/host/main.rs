//! A stand-in for a CUDA program.
//!
//! The driver loads the library named by `CUDA_INJECTION64_PATH` at the first `cuInit`. This program does the
//! same, then lets the replay library play the GPU's history, then ends in a chosen way. It knows nothing
//! about the profiler that it loads.

mod args;
mod exit;
mod libraries;
mod nccl;
mod nccl_ranges;
mod other_tool;
mod ranges;
mod recording;

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use args::{Args, Fork};
use libraries::Replay;
use ranges::Ranges;

/// Exit code if the test could not be set up.
const SET_UP: u8 = 2;

/// Maximum wait for a file: a test that has gone must not leave a program running forever.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why this program stops.
enum Failure {
    /// The test could not be set up.
    SetUp(String),
    /// The test has failed.
    Child(String),
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::SetUp(error)
    }
}

fn main() -> ExitCode {
    let (error, code) = match args::parse(env::args_os().skip(1)).map_err(Failure::from) {
        Ok(None) => {
            println!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Some(args)) => match run(&args) {
            Ok(()) => {
                exit::exit(args.exit, args.exit_code);
                return ExitCode::from(args.exit_code);
            }
            Err(Failure::SetUp(error)) => (error, SET_UP),
            Err(Failure::Child(error)) => (error, exit::VIOLATED),
        },
        Err(Failure::SetUp(error) | Failure::Child(error)) => (error, SET_UP),
    };
    eprintln!("gpuwhy-replay-host: {error}");
    ExitCode::from(code)
}

fn run(args: &Args) -> Result<(), Failure> {
    exit::register(args.counts)?;
    let before = ranges_at(args, args::Ranges::Before)?;
    fork_at(args, Fork::Before)?;
    if let Some(version) = args.nccl {
        libraries::load_profiler()?;
        let recording = env::var_os("GPUWHY_REPLAY").ok_or_else(|| "GPUWHY_REPLAY is not set".to_owned())?;
        match version {
            args::NCCL_RANGES => nccl_ranges::communicate(&recording)?,
            version => nccl::communicate(version, &recording)?,
        }
        if args.nccl_ranges {
            nccl_ranges::communicate("/dev/null".as_ref())?;
        }
    }
    if let Some(step) = &args.other_tool {
        other_tool::run_first(&replay_path()?, step)?;
    }
    let injected = if args.start_on_thread {
        thread::spawn(inject).join().map_err(|_| "the thread that loads the profiler panicked".to_owned())??
    } else {
        inject()?
    };
    let replay = if injected && args.replay { Some(Replay::find(&replay_path()?)?) } else { None };
    let after = ranges_at(args, args::Ranges::After)?;
    fork_at(args, Fork::After)?;
    if let Some(replay) = replay {
        for (at, function) in args.calls.iter().filter(|(at, _)| *at <= args.until) {
            replay.play(*at)?;
            match function.split_once('=') {
                Some(("nvtxRangePushA", name)) => ranges::push(name),
                Some(("launch", what)) => replay.launch(what)?,
                Some(("submit", what)) => replay.submit(what)?,
                Some(("memory", what)) => replay.memory(what)?,
                Some(("waitFor", file)) => wait_until(function, || Path::new(file).exists())?,
                _ if function == "waitForFault" => {
                    wait_until(function, || replay.counts().is_some_and(|counts| counts.faults > 0))?
                }
                Some(("flushes", times)) => replay.flushes(times)?,
                Some(("otherTool", does)) => other_tool::run_step(&replay_path()?, does)?,
                _ if function == "nvtxRangePop" => ranges::pop(),
                _ if function == "exitOnThread" => exit::on_thread(args.exit_code),
                _ => replay.call(function)?,
            }
        }
        replay.play(args.until)?;
    }
    before.or(after).map_or(Ok(()), Ranges::end)?;
    fork_at(args, Fork::End)?;
    if let Some(text) = &args.print {
        println!("{text}");
    }
    Ok(())
}

/// Returns once the condition of `function` holds: the process that runs this program, or the profiler, decides
/// when it continues.
fn wait_until(function: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{function}: that did not happen within {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn replay_path() -> Result<OsString, String> {
    env::var_os("GPUWHY_CUPTI_PATH").ok_or_else(|| "GPUWHY_CUPTI_PATH is not set: name the replay library".to_owned())
}

/// Loads the profiler, if there is one. Without it the program continues, as CUDA programs do.
fn inject() -> Result<bool, Failure> {
    let Some(profiler) = env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        eprintln!("gpuwhy-replay-host: CUDA_INJECTION64_PATH is not set: running without a profiler");
        return Ok(false);
    };
    let answer = libraries::inject(&profiler)?;
    if answer != 1 {
        // Perhaps because it found a CUPTI without a recording to play, which is a mistake in the test.
        if let Ok(replay) = Replay::find(&replay_path()?) {
            replay.ready()?;
        }
        eprintln!("gpuwhy-replay-host: InitializeInjection answered {answer}: running without a profiler");
    }
    Ok(answer == 1)
}

fn ranges_at(args: &Args, when: args::Ranges) -> Result<Option<Ranges>, String> {
    if args.ranges == Some(when) { Ranges::begin().map(Some) } else { Ok(None) }
}

fn fork_at(args: &Args, when: Fork) -> Result<(), Failure> {
    if args.fork == Some(when) { exit::fork(args.child).map_err(Failure::Child) } else { Ok(()) }
}
