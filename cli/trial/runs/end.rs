//! How a run is ended: by itself, when it has made enough steps, or when its time is up.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::CpuSet;

use super::drain::{Drain, Part};
use super::launch::{Launch, TRACES};
use super::recorded;
use super::steps::{SECONDS, WARM_SECONDS};
use super::unit::Unit;
use crate::interrupt;
use crate::trial::change::machine;
use crate::trial::refused::Refused;

/// Where the Python side writes what it counted.
pub const RESULT: &str = "result.json";
/// Time to end by itself after an interrupt, and after SIGTERM.
const AFTER_INTERRUPT: Duration = Duration::from_secs(10);
const AFTER_TERM: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// Longest time between two looks whether the program uses CUDA.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks which processes there are once it does: a look takes longer the more the machine has.
const LOOK_WITH_CUDA: Duration = Duration::from_secs(1);
/// Shares of the time of a run that PyTorch gets until the first step: it may have to compile.
const UNTIL_STEPS: u32 = 4;
/// Longest part of the time of a run for which its growing trace is read: a tenth.
const READING: u32 = 9;

/// Why gpuwhy ended a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// It made enough steps, or took its share of the time.
    Limit,
    /// The time for everything was up.
    Budget,
}

/// The end of a run.
pub struct Exit {
    pub status: ExitStatus,
    pub cut: Option<Cut>,
    /// True if a process of it was seen with CUDA.
    pub uses_cuda: bool,
    pub since: SystemTime,
    /// Time from start to end.
    pub wall: Duration,
    pub output: String,
    pub errors: String,
}

/// Runs `command` on these cores, and ends all processes that it leaves. This part of its output is kept. A run of the
/// program has a folder, in which the Python side writes.
pub fn run(
    launch: &Launch,
    unit: Option<&Unit>,
    folder: Option<&Path>,
    mut command: Command,
    cores: Option<CpuSet>,
    part: Part,
) -> Result<Exit> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (since, start) = (SystemTime::now(), Instant::now());
    let mut child = machine::on(cores, || command.spawn())
        .map_err(|error| Refused(crate::run::cannot_start(command.get_program(), &error), String::new()))?;
    launch.processes.add(&child);
    let output = child.stdout.take().map(|stream| Drain::begin(stream, part));
    let errors = child.stderr.take().map(|stream| Drain::begin(stream, Part::Last));
    let waited = wait(launch, unit, folder, &mut child);
    let wall = start.elapsed();
    // Without their parent, those that cleared the variable are not found.
    launch.processes.look();
    let _ = child.kill();
    let _ = child.wait();
    launch.processes.end();
    let (status, cut, uses_cuda) = waited?;
    let [output, errors] = [output, errors].map(|drain| drain.map(Drain::text).unwrap_or_default());
    Ok(Exit { status, cut, uses_cuda, since, wall, output, errors })
}

/// Waits for the end, and brings it about when the steps are measured or the time is up.
fn wait(
    launch: &Launch,
    unit: Option<&Unit>,
    folder: Option<&Path>,
    child: &mut Child,
) -> Result<(ExitStatus, Option<Cut>, bool)> {
    let is_there = |file: &str| folder.is_some_and(|folder| folder.join(file).exists());
    let has_limit = folder.is_some() && unit.is_none_or(Unit::is_cut);
    // Where Python counts no steps, one of several processes may have ended.
    let is_counted = unit.is_none_or(|unit| !unit.is_recorded() && !unit.is_run());
    let (mut asked, mut cut, mut is_told) = (None, None, false);
    let (mut cuda, mut looked, mut next) = (None, Instant::now(), Duration::from_secs_f64(WARM_SECONDS + SECONDS));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, cut, cuda.is_some()));
        }
        if cuda.is_none() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            cuda = launch.processes.use_cuda().then_some(looked);
        } else if looked.elapsed() >= LOOK_WITH_CUDA {
            looked = Instant::now();
            launch.processes.look();
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
        let worked = cuda.map_or(Duration::ZERO, |since| now - since);
        if let Some(since) = asked {
            if now > since + AFTER_INTERRUPT && !is_told {
                is_told = true;
                signal(child, Signal::TERM);
            } else if now > since + AFTER_INTERRUPT + AFTER_TERM {
                child.kill()?;
            }
        } else if is_counted && is_there(RESULT) {
            // The program interrupts itself, or is at its end.
            asked = Some(now);
        } else {
            let limit = launch.limit;
            let is_starting = || unit.is_none() && worked < UNTIL_STEPS * limit && is_there("torch");
            if now > launch.started + launch.budget {
                cut = Some(Cut::Budget);
            } else if has_limit && worked > limit && !is_there("claim") && !is_starting() {
                cut = Some(Cut::Limit);
            } else if worked > next {
                cut = has_enough(launch, unit, folder).then_some(Cut::Limit);
                next = worked + (READING * now.elapsed()).max(Duration::from_secs(1));
            }
            if cut.is_some() {
                signal(child, Signal::INT);
                asked = Some(now);
            }
        }
        thread::sleep(POLL);
    }
}

/// True if the trace of the run, which grows, has enough steps.
fn has_enough(launch: &Launch, unit: Option<&Unit>, folder: Option<&Path>) -> bool {
    let unit = unit.filter(|unit| unit.is_cut() && !launch.is_own);
    let trace = folder.and_then(|folder| recorded::trace_in(&folder.join(TRACES), None));
    let Some(Ok(found)) = unit.zip(trace).map(|(unit, trace)| unit.recorded(&trace)) else { return false };
    let steady = &found.times[found.warm()..];
    let span = steady.first().zip(steady.last()).map_or(0.0, |(first, last)| last - first);
    steady.len() > launch.steps && span >= SECONDS
}

/// Sends a signal to the process group that `child` leads. There may be none any more.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}
