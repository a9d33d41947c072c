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
use std::{io, thread};

use crossbeam_channel::bounded;
use cupti_sys::{Cupti, RecordSizes, ResourceCallback, Search};
use profiler_core::cost::Mode;
use profiler_core::process_info::End;

use crate::capture::controller::Director;
use crate::collect::collector::Collector;
use crate::config::request::{Range, Request};
use crate::config::{self, Graphs, Neighbors, ReportStyle, Sampling, Settings, WhatIf};
use crate::control::server::{self, Control};
use crate::cost::Meters;
use crate::cupti::callbacks::Callbacks;
use crate::cupti::flush_backlog::Unflushed;
use crate::cupti::kinds;
use crate::cupti::ownership::Slot;
use crate::cupti::pool::Pool;
use crate::cupti::recorder::{self, NO_UNIFIED_MEMORY, Switch};
use crate::message::{Delivery, Inlet, Order, Outcome};
use crate::nvtx::{self, range_watch};
use crate::runtime::{NO_EXIT_HANDLER, Profiler, Start, StartError, State};
use crate::sampler::Sampler;
use crate::sampler::launchers::Launchers;
use crate::sampler::queue::Outbox;
use crate::sys::{clock, memory, process, signals};
use crate::worker::Worker;
use crate::{command_line, flusher, log, process_info};

/// Starts measuring as the environment says; what is wrong with it is said, and the default holds. Then, whether that
/// succeeded or not, initializes the other injection library, if one is named.
///
/// # Errors
/// When no usable libcupti is found, when another tool holds CUPTI, or when the library was started before.
pub fn start_from_env() -> Result<(), StartError> {
    let (settings, complaints) = Settings::from_env();
    log::begin(settings.log);
    complaints.iter().for_each(|complaint| log::warning!("{complaint}"));
    let started = start(&settings);
    if let Some(other) = &settings.chain {
        match process::initialize_other(other) {
            Ok(1) => log::info!("{}: initialized", other.display()),
            Ok(answer) => log::warning!("{}: its InitializeInjection answered {answer}", other.display()),
            Err(error) => log::warning!("{} is not loaded: {error}", config::CHAIN),
        }
    }
    started
}

/// Starts measuring because the program wants a session. When the collector is linked, nothing but sessions is measured,
/// device work is recorded whatever it costs, and tracing stays on between sessions: tests and benchmarks have many in
/// quick succession, and the first launches after each switching on cost more than others.
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
    let (settings, complaints) = Settings::from_env();
    log::begin(settings.log);
    complaints.iter().for_each(|complaint| log::warning!("{complaint}"));
    let capture = Request { range: Range::Nothing, ..Request::default() };
    let silent = Settings { output: None, report: ReportStyle::Off, live: None, what_if: WhatIf::Off, ..settings };
    let mode = silent.mode.max(Mode::Light);
    let mut graphs = if silent.graphs == Graphs::Auto { Graphs::Nodes } else { silent.graphs };
    if graphs == Graphs::Whole && !cupti_sys::driver_devices().is_empty() {
        log::warning!("CUDA had started before the first session: CUDA graphs are recorded by nodes, not as a whole");
        graphs = Graphs::Nodes;
    }
    start(&Settings { capture, chain: None, mode, graphs, max_overhead: None, ..silent })?;
    if let Some(profiler) = Profiler::measuring() {
        profiler.director.hold();
    }
    Ok(())
}

/// Starts measuring. A second call in the same process is an error and changes nothing.
///
/// # Errors
/// When no usable libcupti is found, when another tool holds CUPTI, or when the library was started before.
pub fn start(settings: &Settings) -> Result<(), StartError> {
    if !State::Idle.advance(State::Starting) {
        return Err(StartError::AlreadyStarted);
    }
    let started = start_once(settings);
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

fn start_once(settings: &Settings) -> Result<(), StartError> {
    command_line::keep(settings.command_line);
    // First of all: CUPTI brings threads.
    let ranges_note = nvtx::invite();
    let search = Search { override_path: settings.cupti_path.clone(), ..Search::for_this_process() };
    let cupti = Cupti::load(&search).map_err(|error| StartError::NoCupti(error.to_string()))?;
    log::debug!("{} ({})", cupti.path().display(), cupti.found_by());
    let failed = |error: cupti_sys::Error| StartError::of_cupti(&error);
    if let Some(left) = memory::left().filter(|&left| left < memory::TO_START) {
        let [left, wanted] = [left, memory::TO_START].map(|bytes| bytes >> 20);
        return Err(StartError::Refused(format!(
            "the limits of this process (ulimit -v, ulimit -d) leave {left} MiB of memory, and measuring takes {wanted}"
        )));
    }
    // Before anything of CUPTI's is on: without them nothing may be.
    let collecting = start_thread("gpuwhy-collect")?;
    let flushing = start_thread("gpuwhy-flush")?;
    let sampling = if settings.sampling == Sampling::Off { None } else { Some(start_thread("gpuwhy-sample")?) };
    let controlling = if settings.control { Some(start_thread("gpuwhy-control")?) } else { None };
    // The slot is what tells of cudaProfilerStart, and that CUDA is initialized. Who only watches needs neither it nor
    // anything else of CUPTI's: a subscriber that never hears anything costs eight launching threads a tenth already.
    let managed = kinds::unified_memory(settings.um_cpu_page_faults, settings.um_gpu_page_faults);
    let held = settings.capture.range == Range::ProfilerApi || !managed.is_empty();
    let neighbors = if held { Neighbors::Exclusive } else { settings.neighbors };
    let slot = match settings.mode {
        Mode::Monitor if !held => Slot::left_alone::<Callbacks>(cupti),
        _ => Slot::open::<Callbacks>(cupti, neighbors).map_err(failed)?,
    };

    let sizes = RecordSizes::probe(cupti).map_err(failed)?;
    let pool = Pool::new(settings.memory);
    // Every buffer there is, and the marks of a collector that is far behind.
    let (give, take) = bounded(pool.limit() + 4096);
    let (order, orders) = bounded(16);
    let (tell, outcome) = bounded(1);
    let inlet = Arc::new(Inlet {
        pool,
        deliveries: give.clone(),
        sizes,
        dropped: 0.into(),
        foreign_bytes: 0.into(),
        undelivered: 0.into(),
        delivered: false.into(),
        unflushed: Unflushed::default(),
        flusher: 0.into(),
        launchers: Launchers::new(),
        outbox: Outbox::default(),
        meters: Meters::default(),
    });
    let full = settings.mode == Mode::Full;
    let requested = [
        (settings.dependencies || full, kinds::DEPENDENCY_KINDS),
        (settings.memory_usage || full, kinds::MEMORY_KINDS),
    ];
    let requested: Vec<_> =
        requested.iter().filter(|(wanted, _)| *wanted).flat_map(|(_, kinds)| *kinds).copied().collect();
    // Managed memory can be switched on when CUDA is initialized, and not before.
    let wanted = !managed.is_empty();
    let told = slot.with(|subscriber| match wanted {
        true => subscriber.enable_resource(ResourceCallback::CU_INIT_FINISHED),
        false => Ok(()),
    });
    let safe = recorder::whole_graphs_are_safe(cupti);
    let whole_graphs = safe && settings.whole_graphs(neighbors);
    let (switch, mut notes) =
        Switch::prepare(cupti, slot, settings.mode, whole_graphs, &requested, managed).map_err(failed)?;
    notes.extend(told.and_then(Result::err).map(|error| format!("{NO_UNIFIED_MEMORY}: {error}")));
    let director = Arc::new(Director::new(cupti, switch, settings.capture.clone(), give.clone(), order.clone()));
    let profiler = Profiler {
        cupti,
        inlet: Arc::clone(&inlet),
        director: Arc::clone(&director),
        orders: order,
        outcome,
        process_id: std::process::id(),
        exit_timeout: settings.exit_timeout,
        report: settings.report,
        kill: settings.capture.kill,
    };
    if !profiler.install() {
        return Err(StartError::AlreadyStarted);
    }
    match director.start() {
        Ok(more) => notes.extend(more),
        Err(error) => {
            director.give_up();
            return Err(failed(error));
        }
    }
    if director.wants_profiler_calls() && !director.listen() {
        notes.push("this CUPTI does not tell of cudaProfilerStart: no capture can begin by it".to_owned());
    }
    if let Some(range) = director.wanted_range() {
        range_watch::arm(range);
    }
    if neighbors != settings.neighbors {
        notes.push(format!(
            "{}=yield has no effect: whoever waits for cudaProfilerStart or records page faults has to hold CUPTI",
            config::CUPTI_SHARING
        ));
    }
    notes.extend(settings.describe_tracing(neighbors, safe));
    notes.extend(settings.capture.describe());
    notes.extend(ranges_note);
    let (sampler, note) = Sampler::prepare(settings.sampling);
    notes.extend(note);
    notes.iter().for_each(|note| log::info!("{note}"));
    let session = process_info::describe(cupti, clock::now(cupti), notes);
    let collector = Collector::new(cupti, settings, session, Arc::clone(&inlet), Arc::clone(&director));
    let period = settings.flush;
    collecting.work(move || collector.run(&take, &tell));
    if let Some((sampler, worker)) = sampler.zip(sampling) {
        let (inlet, director) = (Arc::clone(&inlet), Arc::clone(&director));
        worker.work(move || sampler.run(cupti, &inlet, &director));
    }
    if let Some(worker) = controlling {
        match Control::open() {
            Ok(control) => {
                let director = Arc::clone(&director);
                worker.work(move || control.run(&director));
            }
            Err(error) => log::warning!(
                "no live control: {error}; `gpuwhy status`, `start` and `stop` do not reach this process ({}=off: no such line)",
                config::CONTROL
            ),
        }
    }
    flushing.work(move || flusher::run(cupti, period, &orders, &director, &inlet, measured));
    watch_forks();
    if let Err(error) = process::at_exit(finish) {
        log::warning!("{NO_EXIT_HANDLER}: {error}");
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
    if let Err(error) = process::at_fork(forked) {
        log::warning!("no fork handler can be registered: {error}");
    }
}

/// The child of a fork has our memory but not our threads, and CUDA is of no use in it: stay silent for ever. Before
/// CUDA was used there is nothing to be silent about: the child may use it, and is then measured like any process.
fn forked() {
    if State::now() == State::Idle {
        nvtx::forked();
    } else {
        nvtx::stop();
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
        report(end(Order::ShutDown));
        REPORTING.store(false, Ordering::Release);
        if let Some(signal) = Profiler::installed().and_then(|profiler| profiler.kill) {
            if let Err(error) = signals::signal_this_process(signal) {
                log::warning!("signal {signal} could not be sent: {error}");
            }
        }
    };
    match Worker::start("gpuwhy-finish") {
        Ok(worker) => worker.work(finish),
        Err(error) => {
            REPORTING.store(false, Ordering::Release);
            log::warning!("cannot start a thread: {error}; the report comes at the end of the program");
        }
    }
}

/// Ends measuring: fetches what is left, closes the trace, prints the report. Waits at most the exit timeout.
fn finish() {
    if Profiler::installed().is_some_and(|profiler| profiler.process_id != std::process::id()) {
        // A child made without fork handlers (`clone`, `_Fork`): its parent is measured, and it has none of our threads.
        return;
    }
    server::close();
    report(end(Order::Finish));
    let patience = Profiler::installed().map_or(Duration::ZERO, |profiler| profiler.exit_timeout);
    let deadline = Instant::now() + patience;
    while REPORTING.load(Ordering::Acquire) && State::now() != State::Forked && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    log::write_waiting();
}

fn report(outcome: Option<Outcome>) {
    let Some(outcome) = outcome else { return };
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
fn end(order: Order) -> Option<Outcome> {
    let profiler = Profiler::installed()?;
    if !State::Running.advance(State::Finishing) {
        return None;
    }
    // Most of the time is CUPTI's, to flush; a part is kept back to close the trace when CUPTI does not return.
    let for_cupti = profiler.exit_timeout.mul_f64(0.8);
    // The channel holds more orders than are ever given at once, and the flushing thread takes them.
    let _ = profiler.orders.send_timeout(order, for_cupti);
    let outcome = profiler.outcome.recv_timeout(for_cupti).ok().or_else(|| {
        log::warning!(
            "CUPTI did not hand over its last records within {for_cupti:?} ({} sets the limit)",
            config::EXIT_TIMEOUT
        );
        // The flushing thread is stuck, and perhaps CUPTI with it: neither is asked for anything.
        let _ = profiler.inlet.deliveries.try_send(Delivery::Looks(profiler.inlet.outbox.close()));
        let last = Delivery::Finish { at: clock::wall_clock(), end: End::TimedOut, dropped_by_cupti: 0 };
        let _ = profiler.inlet.deliveries.try_send(last);
        profiler.outcome.recv_timeout(profiler.exit_timeout - for_cupti).ok()
    });
    State::Finished.set();
    nvtx::stop();
    if outcome.is_none() {
        log::error!("no report: the last records were not processed in time; the trace ends abruptly");
    }
    outcome
}
