//! The life of the library in one process: start, run, finish; and inert after a fork.
//!
//! ```text
//! start ──> RUNNING ──finish or the end of measuring──> FINISHING ──outcome or timeout──> FINISHED
//!              └────fork (in the child)───────────────────────────────────────────────> FORKED
//! ```
//! While it runs it measures, or waits for a capture to begin: `capture` knows which.
//!
//! There is one profiler in a process, because CUPTI has one set of callbacks in a process.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use cupti_sys::{Cupti, CuptiResult, RecordSizes, ResourceCallback, Search};
use profiler_core::cost::Mode;
use profiler_core::process_info::End;

use crate::activity::{Callbacks, Delivery, Inlet};
use crate::capture::request::{Range, Request};
use crate::capture::{Director, watch};
use crate::collector::{Collector, Outcome};
use crate::command_line;
use crate::control::{self, Control};
use crate::cost::Meters;
use crate::enable::{self, NO_UNIFIED_MEMORY, Neighbors, Slot, Switch};
use crate::flusher::{self, Order};
use crate::log;
use crate::nvtx;
use crate::pool::Pool;
use crate::process;
use crate::room;
use crate::sampler::{Launchers, Outbox, Sampler};
use crate::session::Start;
use crate::settings::{Graphs, ReportStyle, Sampling, Settings, WhatIf};
use crate::threads::Worker;
use crate::unflushed::Unflushed;
use crate::{border, interest, settings};

/// The one profiler. Set once, never taken away: CUPTI may call at any time until the process is gone.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// Why it did not start. There is one attempt: another tool may have come to rely on CUPTI since.
static FAILURE: OnceLock<StartError> = OnceLock::new();

/// One of the states below. `Acquire`/`Release`: whoever sees RUNNING sees the profiler behind it complete.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const STARTING: u8 = 1;
const RUNNING: u8 = 2;
const FINISHING: u8 = 3;
const FINISHED: u8 = 4;
const FORKED: u8 = 5;

/// What is left for the callbacks and the exit handler.
#[derive(Debug)]
pub struct Profiler {
    cupti: &'static Cupti,
    inlet: Arc<Inlet>,
    director: Arc<Director>,
    orders: Sender<Order>,
    outcome: Receiver<Outcome>,
    /// The process that is measured: a child made without fork handlers has all this in its memory too.
    process_id: u32,
    exit_timeout: Duration,
    report: ReportStyle,
    /// Sent to the process when measuring ended before it.
    kill: Option<i32>,
}

/// Why nothing is measured in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Measuring was started before.
    AlreadyStarted,
    /// There is no libcupti that can be used: where it was looked for, and what to install.
    NoCupti(String),
    /// Another tool holds CUPTI.
    Taken,
    /// CUPTI or the system refused.
    Refused(String),
}

impl StartError {
    fn of_cupti(error: &cupti_sys::Error) -> Self {
        if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
            return Self::Taken;
        }
        Self::Refused(format!("{error}; `gpuwhy doctor` shows what is missing"))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("gpuwhy is already running in this process"),
            Self::Taken => f.write_str(
                "another profiler already holds CUPTI in this process (nsys, ncu, torch.profiler, a debugger); run the \
                 program without it",
            ),
            Self::NoCupti(why) => write!(f, "{why}\n{} names one that lies elsewhere", settings::CUPTI_PATH),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

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
        match border::initialize_other(other) {
            Ok(1) => log::info!("{}: initialized", other.display()),
            Ok(answer) => log::warning!("{}: its InitializeInjection answered {answer}", other.display()),
            Err(error) => log::warning!("{} is not loaded: {error}", settings::CHAIN),
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
    if STATE.load(Ordering::Acquire) != IDLE {
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
    if STATE.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(StartError::AlreadyStarted);
    }
    let started = start_once(settings);
    let state = if started.is_ok() { RUNNING } else { FINISHED };
    if let Err(error) = &started {
        nvtx::stop();
        let _ = FAILURE.set(error.clone());
        // No thread of ours will.
        log::write_waiting();
    }
    // A fork in the meantime has the last word.
    let _ = STATE.compare_exchange(STARTING, state, Ordering::AcqRel, Ordering::Acquire);
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
    if let Some(left) = room::left().filter(|&left| left < room::TO_START) {
        let [left, wanted] = [left, room::TO_START].map(|bytes| bytes >> 20);
        return Err(StartError::Refused(format!(
            "the limits of this process (ulimit -v, ulimit -d) leave {left} MiB of memory, and measuring takes {wanted}"
        )));
    }
    // Before anything of CUPTI's is on: without them nothing may be.
    let collecting = Worker::start("gpuwhy-collect")?;
    let flushing = Worker::start("gpuwhy-flush")?;
    let sampling = if settings.sampling == Sampling::Off { None } else { Some(Worker::start("gpuwhy-sample")?) };
    let controlling = if settings.control { Some(Worker::start("gpuwhy-control")?) } else { None };
    // The slot is what tells of cudaProfilerStart, and that CUDA is initialized. Who only watches needs neither it nor
    // anything else of CUPTI's: a subscriber that never hears anything costs eight launching threads a tenth already.
    let managed = interest::unified_memory(settings.um_cpu_page_faults, settings.um_gpu_page_faults);
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
        (settings.dependencies || full, interest::DEPENDENCY_KINDS),
        (settings.memory_usage || full, interest::MEMORY_KINDS),
    ];
    let requested: Vec<_> =
        requested.iter().filter(|(wanted, _)| *wanted).flat_map(|(_, kinds)| *kinds).copied().collect();
    // Managed memory can be switched on when CUDA is initialized, and not before.
    let wanted = !managed.is_empty();
    let told = slot.with(|subscriber| match wanted {
        true => subscriber.enable_resource(ResourceCallback::CU_INIT_FINISHED),
        false => Ok(()),
    });
    let safe = enable::whole_graphs_are_safe(cupti);
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
    if PROFILER.set(profiler).is_err() {
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
        watch::arm(range);
    }
    if neighbors != settings.neighbors {
        notes.push(format!(
            "{}=yield has no effect: whoever waits for cudaProfilerStart or records page faults has to hold CUPTI",
            settings::CUPTI_SHARING
        ));
    }
    notes.extend(settings.describe_tracing(neighbors, safe));
    notes.extend(settings.capture.describe());
    notes.extend(ranges_note);
    let (sampler, note) = Sampler::prepare(settings.sampling);
    notes.extend(note);
    notes.iter().for_each(|note| log::info!("{note}"));
    let session = process::describe(cupti, flusher::now(cupti), notes);
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
                settings::CONTROL
            ),
        }
    }
    flushing.work(move || flusher::run(cupti, period, &orders, &director, &inlet, measured));
    border::at_fork(forked);
    border::at_exit(finish);
    Ok(())
}

impl Profiler {
    /// The profiler, while its callbacks have something to do.
    pub fn running() -> Option<&'static Self> {
        matches!(STATE.load(Ordering::Acquire), STARTING | RUNNING | FINISHING).then(|| PROFILER.get())?
    }

    /// Whether captures can still begin and end.
    pub fn is_measuring() -> bool {
        STATE.load(Ordering::Acquire) == RUNNING
    }

    /// Whether measuring is about to begin, or to be refused.
    pub fn is_starting() -> bool {
        STATE.load(Ordering::Acquire) == STARTING
    }

    /// The profiler, while it measures or could.
    pub fn measuring() -> Option<&'static Self> {
        Self::is_measuring().then(|| PROFILER.get())?
    }

    /// The library that is listened to.
    pub fn cupti(&self) -> &'static Cupti {
        self.cupti
    }

    /// What the callbacks touch.
    pub fn inlet(&self) -> &Inlet {
        &self.inlet
    }

    /// Who decides what is measured.
    pub fn director(&self) -> &Director {
        &self.director
    }

    /// Much has come since the last flush: the next one is due. On a thread of CUPTI's, and never waits.
    pub fn flush_soon(&self) {
        // Full means that the flushing thread has reason enough to look.
        let _ = self.orders.try_send(Order::Look);
    }

    /// A context exists, so the driver has registered its own exit handler by now. Handlers run last in, first out:
    /// ours, registered once more, runs while the driver still answers. The second run finds nothing to do.
    pub fn context_created(&self) {
        border::at_exit_once(finish);
    }
}

/// The child of a fork has our memory but not our threads, and CUDA is of no use in it: stay silent for ever. Before
/// CUDA was used there is nothing to be silent about: the child may use it, and is then measured like any process.
pub fn forked() {
    if STATE.load(Ordering::Acquire) == IDLE {
        nvtx::forked();
    } else {
        nvtx::stop();
        STATE.store(FORKED, Ordering::Release);
        control::forked();
    }
}

/// Whether a report is on its way though the program has not ended. `Acquire`/`Release`: whoever sees it gone may end
/// the process.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Measuring has come to its end while the program goes on. On the flushing thread, which cannot wait for itself.
fn measured() {
    REPORTING.store(true, Ordering::Release);
    let finish = || {
        report(end(Order::ShutDown));
        REPORTING.store(false, Ordering::Release);
        if let Some(signal) = PROFILER.get().and_then(|profiler| profiler.kill) {
            border::signal_this_process(signal);
        }
    };
    match Worker::start("gpuwhy-finish") {
        Ok(worker) => worker.work(finish),
        Err(error) => {
            REPORTING.store(false, Ordering::Release);
            log::warning!("{error}; the report comes at the end of the program");
        }
    }
}

/// Ends measuring: fetches what is left, closes the trace, prints the report. Waits at most the exit timeout.
fn finish() {
    if PROFILER.get().is_some_and(|profiler| profiler.process_id != std::process::id()) {
        // A child made without fork handlers (`clone`, `_Fork`): its parent is measured, and it has none of our threads.
        return;
    }
    control::close();
    report(end(Order::Finish));
    let patience = PROFILER.get().map_or(Duration::ZERO, |profiler| profiler.exit_timeout);
    let deadline = Instant::now() + patience;
    while REPORTING.load(Ordering::Acquire) && STATE.load(Ordering::Acquire) != FORKED && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    log::write_waiting();
}

fn report(outcome: Option<Outcome>) {
    let Some(outcome) = outcome else { return };
    let style = PROFILER.get().map_or(ReportStyle::Off, |profiler| profiler.report);
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
    let profiler = PROFILER.get()?;
    STATE.compare_exchange(RUNNING, FINISHING, Ordering::AcqRel, Ordering::Acquire).ok()?;
    // Most of the time is CUPTI's, to flush; a part is kept back to close the trace when CUPTI does not return.
    let for_cupti = profiler.exit_timeout.mul_f64(0.8);
    // The channel holds more orders than are ever given at once, and the flushing thread takes them.
    let _ = profiler.orders.send_timeout(order, for_cupti);
    let outcome = profiler.outcome.recv_timeout(for_cupti).ok().or_else(|| {
        log::warning!(
            "CUPTI did not hand over its last records within {for_cupti:?} ({} sets the limit)",
            settings::EXIT_TIMEOUT
        );
        // The flushing thread is stuck, and perhaps CUPTI with it: neither is asked for anything.
        let _ = profiler.inlet.deliveries.try_send(Delivery::Looks(profiler.inlet.outbox.close()));
        let last = Delivery::Finish { at: flusher::wall_clock(), end: End::TimedOut, dropped_by_cupti: 0 };
        let _ = profiler.inlet.deliveries.try_send(last);
        profiler.outcome.recv_timeout(profiler.exit_timeout - for_cupti).ok()
    });
    STATE.store(FINISHED, Ordering::Release);
    nvtx::stop();
    if outcome.is_none() {
        log::error!("no report: the last records were not processed in time; the trace ends abruptly");
    }
    outcome
}
