//! Life cycle of the library in one process: start, run, finish; and inert after a fork.
//!
//! ```text
//! start ──> RUNNING ──finish or the end of measuring──> FINISHING ──outcome or timeout──> FINISHED
//!              └────fork (in the child)───────────────────────────────────────────────> FORKED
//! ```
//! While running it measures, or waits for a capture to start: `capture` has that state.
//!
//! There is one profiler per process, because CUPTI has one set of callbacks per process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::process_info::End;

use crate::config::request::{CaptureRange, Request};
use crate::config::{self, Graphs, ReportStyle, Settings, SettingsError};
use crate::control::server;
use crate::control::watcher::{self, Progress};
use crate::counters::library_calls;
use crate::nvtx::range_watch;
use crate::rings::lanes;
use crate::runtime::{LibraryState, NO_EXIT_HANDLER, Profiler, Start, StartError};
use crate::shared::{FlusherCommand, Message, RunOutcome};
use crate::sys::{clock, process};
use crate::worker::Worker;
use crate::{history, log};

/// Starts measuring with the settings of the environment. Reports invalid ones and uses their defaults. Fails if no
/// usable libcupti is found, if another tool holds CUPTI, or if the library was started before.
pub fn start_from_env() -> Result<(), StartError> {
    let (settings, errors) = Settings::from_env();
    log::begin(settings.log);
    refuse_privileges()?;
    warn_of(&errors);
    // The driver calls this within `cuInit`: there is no context yet, and the driver must not be called.
    start(&settings, false)
}

/// The environment, which names libraries to load and files to write, is that of a user with fewer rights.
fn refuse_privileges() -> Result<(), StartError> {
    match process::is_privileged() {
        true => Err(StartError::Refused(
            "it runs with more rights than its caller (setuid, setgid or file capabilities), so the caller's variables are \
             not used"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

/// Reports errors in the settings, unless `gpuwhy run` has reported them.
fn warn_of(errors: &[SettingsError]) {
    let warned = env::var(config::WARNED).unwrap_or_default();
    for error in errors.iter().filter(|error| !warned.split(',').any(|variable| variable == error.variable())) {
        tracing::warn!("{error}");
    }
}

/// Starts measuring for a session of the program. If the collector is linked, only sessions are measured,
/// device work is recorded at any cost, and tracing stays on between sessions: tests and benchmarks have many
/// in quick succession, and the first launches after each switching on cost more than others. Fails as [`start`], or
/// with the error of an earlier start.
pub fn start_for_sessions(how: Start) -> Result<(), StartError> {
    if LibraryState::now() != LibraryState::Idle {
        return FAILURE.get().map_or(Ok(()), |failure| Err(failure.clone()));
    }
    if how == Start::Injected {
        return start_from_env();
    }
    refuse_privileges()?;
    let (settings, errors) = Settings::from_env();
    warn_of(&errors);
    let capture = Request { range: CaptureRange::Nothing, ..Request::default() };
    let silent = Settings { output: None, report: ReportStyle::Off, live: None, history: None, ..settings };
    let mode = silent.mode.max(Mode::Light);
    let mut graphs = silent.graphs;
    if graphs == Graphs::Whole && !cupti_sys::driver_devices().is_empty() {
        tracing::warn!("CUDA had started before the first session: CUDA graphs are recorded by nodes, not as a whole");
        graphs = Graphs::Nodes;
    }
    let late = cupti_sys::devices_in_use() != 0;
    start(&Settings { capture, mode, graphs, budget: None, bursts: None, faults: true, ..silent }, late)?;
    if let Some(profiler) = Profiler::measuring() {
        profiler.controller.hold();
    }
    Ok(())
}

/// Starts measuring; `late` means that CUDA has a context already. A second call in the same process is an error
/// without any effect. Fails if no usable libcupti is found, if another tool holds CUPTI, or if the library was started
/// before.
fn start(settings: &Settings, late: bool) -> Result<(), StartError> {
    if !LibraryState::Idle.advance(LibraryState::Starting) {
        return Err(StartError::AlreadyStarted);
    }
    watcher::tell(Progress::Loaded);
    let started = crate::start::start(settings, late, measured).map(|()| watch_the_end());
    let state = if started.is_ok() { LibraryState::Running } else { LibraryState::Finished };
    if let Err(error) = &started {
        lanes::stop();
        let _ = FAILURE.set(error.clone());
        // There is no thread of this library to do it.
        log::write_waiting();
    }
    if started.is_ok() {
        watcher::tell(Progress::Measuring);
    }
    // A fork in the meantime takes precedence.
    let _ = LibraryState::Starting.advance(state);
    started
}

/// Registers handlers: the exit of the program ends measuring, and the child of a fork is inert.
fn watch_the_end() {
    watch_forks();
    Profiler::close_counters_before_exit();
    if let Err(error) = process::at_exit(finish) {
        tracing::warn!("{NO_EXIT_HANDLER}: {error}");
    }
    process::at_python_exit(|| {
        // As at the end of the main thread, which comes later.
        Profiler::close_counters();
        finish();
    });
}

/// Registers the handler that makes the child of a fork inert.
pub fn watch_forks() {
    let handlers = process::ForkHandlers {
        before: library_calls::fork_begins,
        in_parent: library_calls::fork_ends,
        in_child: forked,
    };
    if let Err(error) = process::at_fork(handlers) {
        tracing::warn!("no fork handler can be registered: {error}");
    }
}

/// The child of a fork has this library's memory but not its threads, and CUDA is unusable in it: stay
/// silent. If CUDA was not used before, the child may use it, and is then measured like any process.
fn forked() {
    library_calls::forked();
    if LibraryState::now() == LibraryState::Idle {
        lanes::forked();
    } else {
        lanes::stop();
        range_watch::disarm();
        log::silence();
        LibraryState::Forked.set();
        server::forked();
    }
}

/// Error of the start. There is only one attempt: another tool may rely on CUPTI since.
static FAILURE: OnceLock<StartError> = OnceLock::new();

/// True while a report is being made although the program has not ended. `Acquire`/`Release`: the thread that
/// sees it cleared may end the process.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Called when measuring ends before the program. On the flushing thread, which cannot wait for itself.
fn measured() {
    REPORTING.store(true, Ordering::Release);
    let finish = || {
        report(end(FlusherCommand::ShutDown));
        REPORTING.store(false, Ordering::Release);
    };
    match Worker::start("gpuwhy-finish") {
        Ok(worker) => worker.work(finish),
        Err(error) => {
            REPORTING.store(false, Ordering::Release);
            tracing::warn!("cannot start a thread: {error}; the report comes at the end of the program");
        }
    }
}

/// Ends measuring: fetches the remaining records, closes the trace, prints the report. Waits at most the exit
/// timeout.
fn finish() {
    if Profiler::installed().is_some_and(|profiler| profiler.process_id != std::process::id()) {
        // A child made without fork handlers (`clone`, `_Fork`): its parent is measured, and it lacks the
        // threads of this library.
        return;
    }
    server::close();
    report(end(FlusherCommand::Finish));
    server::leave_last_numbers();
    let timeout = Profiler::installed().map_or(Duration::ZERO, |profiler| profiler.exit_timeout);
    let deadline = Instant::now() + timeout;
    while REPORTING.load(Ordering::Acquire) && LibraryState::now() != LibraryState::Forked && Instant::now() < deadline
    {
        thread::sleep(Duration::from_millis(1));
    }
    log::write_waiting();
}

fn report(outcome: Option<RunOutcome>) {
    let Some(outcome) = outcome else { return };
    if let Some(profiler) = Profiler::installed()
        && let Some(path) = &profiler.history
        && outcome.captured_nothing.is_none()
    {
        history::add(path, &outcome, profiler.exit_timeout);
    }
    watcher::tell(Progress::Done);
    let style = Profiler::installed().map_or(ReportStyle::Off, |profiler| profiler.report);
    let mut text = match (style, &outcome.captured_nothing) {
        (ReportStyle::Off, _) => return,
        (_, Some(why)) => format!("gpuwhy: nothing was captured: {why}\n"),
        (ReportStyle::Summary, None) => outcome.report.summary(),
        (ReportStyle::Full, None) => outcome.report.full(),
    };
    if let Some(trace) = outcome.trace {
        text.push_str(&format!("trace: {}\n", trace.display()));
    }
    log::print(&text);
}

/// Ends measuring and returns the outcome. `None` if the library is not running, or if the last records were
/// not processed within the exit timeout; the trace then ends abruptly.
fn end(order: FlusherCommand) -> Option<RunOutcome> {
    let profiler = Profiler::installed()?;
    if !LibraryState::Running.advance(LibraryState::Finishing) {
        return None;
    }
    // Most of the time is for CUPTI's flush; a part is reserved to close the trace if CUPTI does not return.
    let for_cupti = profiler.exit_timeout.mul_f64(0.8);
    // The channel holds more commands than are ever sent at once, and the flushing thread takes them.
    let _ = profiler.commands.send_timeout(order, for_cupti);
    let mut outcome = profiler.outcome.recv_timeout(for_cupti).ok().or_else(|| {
        tracing::warn!("CUPTI did not hand over its last records within {for_cupti:?}");
        // The flushing thread hangs, and perhaps CUPTI with it: neither is used any more.
        let _ = profiler.shared.messages.try_send(Message::Samples(profiler.shared.sample_queue.close()));
        let last = Message::Finish { at: clock::wall_clock(), end: End::TimedOut, dropped_by_cupti: 0 };
        let _ = profiler.shared.messages.try_send(last);
        profiler.outcome.recv_timeout(profiler.exit_timeout - for_cupti).ok()
    });
    if let Some(outcome) = &mut outcome {
        server::keep_last_numbers(std::mem::take(&mut outcome.metrics));
    }
    LibraryState::Finished.set();
    lanes::stop();
    if outcome.is_none() {
        tracing::error!("no report: the last records were not processed in time; the trace ends abruptly");
    }
    outcome
}
