//! The life of the library in one process: start, run, finish; and inert after a fork.
//!
//! ```text
//! start ──> RUNNING ──finish or the end of measuring──> FINISHING ──outcome or timeout──> FINISHED
//!              └────fork (in the child)───────────────────────────────────────────────> FORKED
//! ```
//! While it runs it measures, or waits for a capture to begin: `capture` knows which.
//!
//! There is one profiler in a process, because CUPTI has one set of callbacks in a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use crossbeam_channel::bounded;
#[cfg(feature = "pc-sampling")]
use cupti_sys::ResourceCallback;
use cupti_sys::{Cupti, RecordSizes, Search};
use profiler_core::cost::Mode;
use profiler_core::process_info::End;

use crate::capture::controller::CaptureController;
use crate::collect::collector::Collector;
use crate::config::request::{Range, Request};
use crate::config::{self, CuptiSharing, Graphs, ReportStyle, Sampling, Settings, SettingsError};
use crate::control::server::{self, Control};
use crate::cost::CallbackTimer;
use crate::counters::stop::Stop;
use crate::counters::{Reader, library_calls};
use crate::cupti::callbacks::Callbacks;
use crate::cupti::kinds;
use crate::cupti::ownership::CuptiOwnership;
use crate::cupti::pool::{FlushBacklog, Pool};
use crate::cupti::recorder::{self, ActivityRecorder};
use crate::kernels::KernelProfiler;
use crate::message::{FlusherCommand, Message, RunOutcome, Shared};
use crate::nccl;
use crate::nvtx::{self, range_watch};
use crate::runtime::{NO_EXIT_HANDLER, Profiler, Start, StartError, State};
use crate::sampler::Sampler;
use crate::sampler::launchers::Launchers;
use crate::sampler::queue::SampleQueue;
use crate::sys::{clock, memory, process};
use crate::worker::Worker;
use crate::{command_line, flusher, history, log, process_info};

/// Starts measuring as the environment says; what is wrong with it is said, and the default holds.
///
/// # Errors
/// When no usable libcupti is found, when another tool holds CUPTI, or when the library was started before.
pub fn start_from_env() -> Result<(), StartError> {
    let (settings, errors) = Settings::from_env();
    log::begin(settings.log);
    warn_of(&errors);
    // The driver calls this within `cuInit`: there is no context yet, and nothing may be asked of the driver.
    start(&settings, false)
}

/// Says what is wrong with the settings, unless `gpuwhy run` has said it.
fn warn_of(errors: &[SettingsError]) {
    let warned = env::var(config::WARNED).unwrap_or_default();
    for error in errors.iter().filter(|error| !warned.split(',').any(|variable| variable == error.variable())) {
        tracing::warn!("{error}");
    }
}

/// Starts measuring because the program wants a session. When the collector is linked, nothing but sessions is
/// measured, device work is recorded whatever it costs, and tracing stays on between sessions: tests and benchmarks
/// have many in quick succession, and the first launches after each switching on cost more than others.
///
/// # Errors
/// As [`start`], or what an earlier start failed with.
pub fn start_for_sessions(how: Start) -> Result<(), StartError> {
    if State::now() != State::Idle {
        return FAILURE.get().map_or(Ok(()), |failure| Err(failure.clone()));
    }
    if how == Start::Injected {
        return start_from_env();
    }
    let (settings, errors) = Settings::from_env();
    warn_of(&errors);
    let capture = Request { range: Range::Nothing, ..Request::default() };
    let silent = Settings { output: None, report: ReportStyle::Off, live: None, history: None, ..settings };
    let mode = silent.mode.max(Mode::Light);
    let mut graphs = if silent.graphs == Graphs::Auto { Graphs::Nodes } else { silent.graphs };
    if graphs == Graphs::Whole && !cupti_sys::driver_devices().is_empty() {
        tracing::warn!("CUDA had started before the first session: CUDA graphs are recorded by nodes, not as a whole");
        graphs = Graphs::Nodes;
    }
    let late = cupti_sys::devices_in_use() != 0;
    start(&Settings { capture, mode, graphs, max_overhead: None, bursts: None, ..silent }, late)?;
    if let Some(profiler) = Profiler::measuring() {
        profiler.controller.hold();
    }
    Ok(())
}

/// Starts measuring; `late` says that CUDA has a context already. A second call in the same process is an error and
/// changes nothing.
///
/// # Errors
/// When no usable libcupti is found, when another tool holds CUPTI, or when the library was started before.
fn start(settings: &Settings, late: bool) -> Result<(), StartError> {
    if !State::Idle.advance(State::Starting) {
        return Err(StartError::AlreadyStarted);
    }
    let started = start_once(settings, late);
    let state = if started.is_ok() { State::Running } else { State::Finished };
    if let Err(error) = &started {
        nvtx::stop();
        let _ = FAILURE.set(error.clone());
        // No thread of ours will.
        log::write_waiting();
    }
    // A fork in the meantime has the last word.
    let _ = State::Starting.advance(state);
    started
}

fn start_once(settings: &Settings, late: bool) -> Result<(), StartError> {
    command_line::keep(settings.command_line);
    // First of all: CUPTI brings threads.
    let ranges_note = nvtx::invite();
    let collectives_note = nccl::other_plugin();
    let search = Search { override_path: settings.cupti_path.clone(), ..Search::for_this_process() };
    let cupti = Cupti::load(&search).map_err(|error| StartError::NoCupti(error.to_string()))?;
    tracing::debug!("{} ({})", cupti.path().display(), cupti.found_by());
    let failed = |error: cupti_sys::Error| StartError::of_cupti(&error);
    if let Some(left) = memory::left().filter(|&left| left < memory::TO_START) {
        let [left, wanted] = [left, memory::TO_START].map(|bytes| bytes >> 20);
        return Err(StartError::Refused(format!(
            "the limits of this process (ulimit -v, ulimit -d) leave {left} MiB of memory, and measuring needs {wanted}"
        )));
    }
    // Before anything of CUPTI's is on: without them nothing may be.
    let collecting = start_thread("gpuwhy-collect")?;
    let flushing = start_thread("gpuwhy-flush")?;
    let sampling = if settings.sampling == Sampling::Off { None } else { Some(start_thread("gpuwhy-sample")?) };
    let reader = Reader::prepare(settings);
    let reading = reader.map(|reader| Ok((reader, start_thread("gpuwhy-counters")?))).transpose()?;
    let measuring = settings.kernels.as_ref().map(|_| start_thread("gpuwhy-kernels")).transpose()?;
    let controlling = if settings.control { Some(start_thread("gpuwhy-control")?) } else { None };
    // The subscriber hears of cudaProfilerStart. Monitor mode does without: a subscriber that is never called slows
    // eight launching threads down by a tenth.
    let held = settings.capture.range == Range::ProfilerApi;
    let sharing = if held { CuptiSharing::Exclusive } else { settings.cupti_sharing };
    let ownership = match settings.mode {
        Mode::Monitor if !held => CuptiOwnership::left_alone::<Callbacks>(cupti),
        _ => CuptiOwnership::open::<Callbacks>(cupti, sharing).map_err(failed)?,
    };

    let sizes = RecordSizes::probe(cupti).map_err(failed)?;
    let pool = Pool::new(settings.memory);
    // Every buffer there is, and the marks of a collector that is far behind.
    let (give, take) = bounded(pool.limit() + 4096);
    let (order, commands) = bounded(16);
    let (tell, outcome) = bounded(1);
    let shared = Arc::new(Shared {
        pool,
        messages: give.clone(),
        sizes,
        dropped: 0.into(),
        foreign_bytes: 0.into(),
        undelivered: 0.into(),
        delivered: false.into(),
        unflushed: FlushBacklog::default(),
        flusher: 0.into(),
        launchers: Launchers::new(),
        sample_queue: SampleQueue::default(),
        counters: Stop::default(),
        meters: CallbackTimer::default(),
    });
    let full = settings.mode == Mode::Full;
    let requested = [
        (settings.dependencies || full, kinds::DEPENDENCY_KINDS),
        (settings.memory_usage || full, kinds::MEMORY_KINDS),
    ];
    let requested: Vec<_> =
        requested.iter().filter(|(wanted, _)| *wanted).flat_map(|(_, kinds)| *kinds).copied().collect();
    #[cfg(feature = "pc-sampling")]
    let listening = ownership.with(|subscriber| match settings.kernels.as_ref().and_then(|kernels| kernels.source) {
        Some(_) => [ResourceCallback::MODULE_LOADED, ResourceCallback::CONTEXT_DESTROY_STARTING]
            .into_iter()
            .try_for_each(|callback| subscriber.enable_resource(callback))
            // From the first call on: the gate must know of all threads that are inside one.
            .and_then(|()| subscriber.hear_all(true)),
        None => Ok(()),
    });
    let safe = recorder::whole_graphs_are_safe(cupti);
    let whole_graphs = safe && settings.whole_graphs(sharing);
    let (switch, mut notes) =
        ActivityRecorder::prepare(cupti, ownership, settings.mode, whole_graphs, &requested, late).map_err(failed)?;
    #[cfg(feature = "pc-sampling")]
    notes.extend(listening.and_then(Result::err).map(|error| format!("no source lines of kernels: {error}")));
    let controller =
        Arc::new(CaptureController::new(cupti, switch, settings.capture.clone(), give.clone(), order.clone()));
    let measured_kernels = settings.kernels.clone().map(|request| KernelProfiler::new(cupti, request));
    let profiler = Profiler {
        kernels: measured_kernels.as_ref().map(|(kernels, _)| Arc::clone(kernels)),
        cupti,
        shared: Arc::clone(&shared),
        controller: Arc::clone(&controller),
        commands: order,
        outcome,
        process_id: std::process::id(),
        exit_timeout: settings.exit_timeout,
        report: settings.report,
        history: settings.history.clone(),
        late,
    };
    if !profiler.install() {
        return Err(StartError::AlreadyStarted);
    }
    match controller.start() {
        Ok(more) => notes.extend(more),
        Err(error) => {
            controller.give_up();
            return Err(failed(error));
        }
    }
    if controller.wants_profiler_calls() && !controller.listen() {
        notes.push("this CUPTI does not report cudaProfilerStart, so no capture can begin by it".to_owned());
    }
    if settings.bursts.is_some() && !controller.can_stop_recording() {
        notes.push(format!(
            "{}=auto records nothing here: kernel records of CUPTI before CUDA 13.0 update 1 stay on once they were on",
            config::MODE
        ));
    }
    if let Some(range) = controller.wanted_range() {
        range_watch::arm(range);
    }
    if sharing != settings.cupti_sharing {
        notes.push(format!(
            "{}=yield has no effect: captures by cudaProfilerStart need CUPTI all the time",
            config::CUPTI_SHARING
        ));
    }
    notes.extend(settings.describe_tracing(sharing, safe));
    notes.extend(settings.capture.describe());
    notes.extend(ranges_note);
    notes.extend(collectives_note);
    let (sampler, sampling_notes) =
        Sampler::prepare(settings.sampling, settings.native_stacks, settings.mode.monitors());
    notes.extend(sampling_notes);
    notes.iter().for_each(|note| tracing::info!("{note}"));
    let session = process_info::describe(cupti, clock::now(cupti), settings.run.as_deref(), notes);
    let kernels = measured_kernels.as_ref().map(|(kernels, _)| Arc::clone(kernels));
    let collector = Collector::new(cupti, settings, session, Arc::clone(&shared), Arc::clone(&controller), kernels);
    let period = settings.flush;
    collecting.work(move || collector.run(&take, &tell));
    if let Some((sampler, worker)) = sampler.zip(sampling) {
        let (shared, controller) = (Arc::clone(&shared), Arc::clone(&controller));
        worker.work(move || sampler.run(cupti, &shared, &controller));
    }
    if let Some((reader, worker)) = reading {
        let (shared, controller) = (Arc::clone(&shared), Arc::clone(&controller));
        worker.work(move || reader.run(cupti, &shared, &controller, &shared.counters));
    }
    if let Some(((kernels, chosen), worker)) = measured_kernels.zip(measuring) {
        let (messages, controller) = (give.clone(), Arc::clone(&controller));
        worker.work(move || kernels.run(&chosen, &controller, &messages));
    }
    if let Some(worker) = controlling {
        match Control::open() {
            Ok(control) => {
                let controller = Arc::clone(&controller);
                worker.work(move || control.run(&controller));
            }
            Err(error) => tracing::warn!(
                "no live control: {error}; `gpuwhy top`, `start` and `stop` cannot reach this process ({}=off omits this message)",
                config::CONTROL
            ),
        }
    }
    flushing.work(move || flusher::run(cupti, period, &commands, &controller, &shared, measured));
    watch_forks();
    Profiler::close_counters_before_exit();
    if let Err(error) = process::at_exit(finish) {
        tracing::warn!("{NO_EXIT_HANDLER}: {error}");
    }
    Ok(())
}

fn start_thread(name: &str) -> Result<Worker, StartError> {
    Worker::start(name).map_err(cannot_start_thread)
}

fn cannot_start_thread(error: io::Error) -> StartError {
    StartError::Refused(format!("cannot start a thread: {error}"))
}

/// From now on the child of a fork is inert.
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

/// The child of a fork has our memory but not our threads, and CUDA is of no use in it: stay silent for ever. Before
/// CUDA was used there is nothing to be silent about: the child may use it, and is then measured like any process.
fn forked() {
    library_calls::forked();
    if State::now() == State::Idle {
        nvtx::forked();
    } else {
        nvtx::stop();
        range_watch::disarm();
        log::silence();
        State::Forked.set();
        server::forked();
    }
}

/// Why it did not start. There is one attempt: another tool may have come to rely on CUPTI since.
static FAILURE: OnceLock<StartError> = OnceLock::new();

/// Whether a report is on its way though the program has not ended. `Acquire`/`Release`: whoever sees it gone may end
/// the process.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Measuring has come to its end while the program goes on. On the flushing thread, which cannot wait for itself.
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

/// Ends measuring: fetches what is left, closes the trace, prints the report. Waits at most the exit timeout.
fn finish() {
    if Profiler::installed().is_some_and(|profiler| profiler.process_id != std::process::id()) {
        // A child made without fork handlers (`clone`, `_Fork`): its parent is measured, and it has none of our
        // threads.
        return;
    }
    server::close();
    report(end(FlusherCommand::Finish));
    server::leave_last_numbers();
    let timeout = Profiler::installed().map_or(Duration::ZERO, |profiler| profiler.exit_timeout);
    let deadline = Instant::now() + timeout;
    while REPORTING.load(Ordering::Acquire) && State::now() != State::Forked && Instant::now() < deadline {
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

/// Ends measuring and gives the outcome. `None` when nothing runs, or when the last records were not processed within
/// the exit timeout; the trace then ends abruptly.
fn end(order: FlusherCommand) -> Option<RunOutcome> {
    let profiler = Profiler::installed()?;
    if !State::Running.advance(State::Finishing) {
        return None;
    }
    // Most of the time is CUPTI's, to flush; a part is kept back to close the trace when CUPTI does not return.
    let for_cupti = profiler.exit_timeout.mul_f64(0.8);
    // The channel holds more commands than are ever sent at once, and the flushing thread takes them.
    let _ = profiler.commands.send_timeout(order, for_cupti);
    let mut outcome = profiler.outcome.recv_timeout(for_cupti).ok().or_else(|| {
        tracing::warn!("CUPTI did not hand over its last records within {for_cupti:?}");
        // The flushing thread is stuck, and perhaps CUPTI with it: neither is asked for anything.
        let _ = profiler.shared.messages.try_send(Message::Samples(profiler.shared.sample_queue.close()));
        let last = Message::Finish { at: clock::wall_clock(), end: End::TimedOut, dropped_by_cupti: 0 };
        let _ = profiler.shared.messages.try_send(last);
        profiler.outcome.recv_timeout(profiler.exit_timeout - for_cupti).ok()
    });
    if let Some(outcome) = &mut outcome {
        server::keep_last_numbers(std::mem::take(&mut outcome.metrics));
    }
    State::Finished.set();
    nvtx::stop();
    if outcome.is_none() {
        tracing::error!("no report: the last records were not processed in time; the trace ends abruptly");
    }
    outcome
}
