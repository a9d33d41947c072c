//! Starts measuring, step by step. If a step fails, all CUPTI records are off.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use cupti_sys::{Cupti, Kind, RecordSizes, Search};
use gpuwhy_report::cupti::Bug;
use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::process_info::ProcessInfo;

use crate::capture::controller::CaptureController;
use crate::collect::collector::Collector;
use crate::config::request::CaptureRange;
use crate::config::{self, CuptiSharing, Sampling, Settings};
use crate::control::server::Control;
use crate::counters::ReaderConfig;
use crate::cupti::callbacks::Callbacks;
use crate::cupti::kinds;
use crate::cupti::ownership::CuptiOwnership;
use crate::cupti::recorder::{self, ActivityRecorder};
use crate::kernels::{Chosen, KernelProfiler};
use crate::nvtx::{self, range_watch, submissions};
use crate::runtime::{Profiler, StartError};
use crate::sampler::Sampler;
use crate::shared::pool::Pool;
use crate::shared::{FlusherCommand, Message, RunOutcome, Shared};
use crate::sys::{clock, memory};
use crate::worker::Worker;
use crate::{command_line, flusher, nccl, process_info};

/// Maximum number of messages that wait for the collector, in addition to all buffers: the marks during a
/// backlog.
const MARKS: usize = 4096;

/// Starts measuring. `late`: CUDA has a context already. `over` is called if measuring ends before the
/// program does. Fails if no usable libcupti is found, if another tool holds CUPTI, if the system refuses a
/// thread, or if measuring was started before.
pub fn start(settings: &Settings, late: bool, over: fn()) -> Result<(), StartError> {
    command_line::keep(settings.command_line);
    // First of all: CUPTI starts threads.
    let libraries_notes = [nvtx::invite(), nccl::other_plugin()];
    let cupti = load_cupti(settings)?;
    require_memory()?;
    let threads = Threads::start(settings)?;
    let watches = watches_submissions(settings);
    let (ownership, sharing) = own_cupti(cupti, settings, watches)?;

    let (pool, sizes) = (Pool::new(settings.memory), RecordSizes::probe(cupti)?);
    let (messages, received) = bounded(pool.limit() + MARKS);
    let (commands, ordered) = bounded(16);
    let (outcomes, outcome) = bounded(1);
    let shared = Arc::new(Shared::new(pool, messages.clone(), sizes, settings.sampling != Sampling::Off));

    let (recorder, mut notes) = prepare_recorder(cupti, ownership, settings, sharing, late)?;
    let controller =
        Arc::new(CaptureController::new(cupti, recorder, settings.capture.clone(), messages, commands.clone()));
    let (kernels, chosen) = settings.kernels.clone().map(|request| KernelProfiler::new(cupti, request)).unzip();
    let profiler = Profiler {
        kernels: kernels.clone(),
        cupti,
        shared: Arc::clone(&shared),
        controller: Arc::clone(&controller),
        commands,
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
    notes.extend(start_recording(&controller)?);
    if let Some(range) = controller.wanted_range() {
        range_watch::arm(range);
    }
    if settings.memory_usage {
        shared.memory_calls.switch_on();
        if !controller.watch_memory_calls() {
            notes.push("owners of device memory are not found: CUPTI is left to other tools or refuses".to_owned());
        }
    }
    if watches {
        submissions::prepare();
        if !controller.watch_submissions(true) {
            notes.push("iterations of a server are not found: CUPTI is left to other tools or refuses".to_owned());
        }
    }
    notes.extend(limits_of(cupti, settings, sharing, &controller));
    notes.extend(settings.describe_tracing(sharing, recorder::sentence_of(&Bug::WHOLE_GRAPHS_FAIL, cupti)));
    notes.extend(settings.capture.describe());
    notes.extend(libraries_notes.into_iter().flatten());
    let (sampler, sampling_notes) =
        Sampler::prepare(settings.sampling, settings.native_stacks, settings.mode.monitors());
    notes.extend(sampling_notes);
    notes.iter().for_each(|note| tracing::info!("{note}"));
    let bugs =
        Bug::ALL.iter().filter(|bug| settings.meets(bug.when)).filter_map(|bug| recorder::sentence_of(bug, cupti));
    bugs.for_each(|sentence| tracing::warn!("{sentence}"));

    let session = process_info::describe(Some(cupti), clock::now(cupti), settings.run.as_deref(), notes);
    let work = ThreadWork { cupti, shared, controller, kernels: kernels.zip(chosen), sampler };
    work.begin(threads, settings, (session, received, outcomes), (ordered, over));
    Ok(())
}

fn load_cupti(settings: &Settings) -> Result<&'static Cupti, StartError> {
    let search = Search { override_path: settings.cupti_path.clone(), ..Search::for_this_process() };
    let cupti = Cupti::load(&search).map_err(|error| match error.no_driver() {
        Some(_) => StartError::NoDriver(error.to_string()),
        None => StartError::NoCupti(error.to_string()),
    })?;
    tracing::debug!("{} ({})", cupti.path().display(), cupti.found_by());
    Ok(cupti)
}

fn require_memory() -> Result<(), StartError> {
    let Some(left) = memory::left().filter(|&left| left < memory::TO_START) else { return Ok(()) };
    let [left, wanted] = [left, memory::TO_START].map(|bytes| bytes >> 20);
    Err(StartError::Refused(format!(
        "the limits of this process (ulimit -v, ulimit -d) leave {left} MiB of memory, and measuring needs {wanted}"
    )))
}

/// True if copies and launches of CUDA graphs are watched, which shows the iterations of a server: where no device work
/// is recorded. Mode auto has the subscriber anyway.
fn watches_submissions(settings: &Settings) -> bool {
    settings.mode == Mode::Auto || settings.mode == Mode::Monitor && submissions::is_server()
}

/// Subscribes to CUPTI; returns whether it is shared with other tools.
fn own_cupti(
    cupti: &'static Cupti,
    settings: &Settings,
    watches: bool,
) -> Result<(CuptiOwnership, CuptiSharing), StartError> {
    // The subscriber receives cudaProfilerStart. Monitor mode does without unless the program is a server: a
    // subscriber that is never called slows eight launching threads down by a tenth.
    let held = settings.capture.range == CaptureRange::ProfilerApi;
    let sharing =
        if held || no_turns(cupti, settings).is_some() { CuptiSharing::Exclusive } else { settings.cupti_sharing };
    let ownership = match settings.mode {
        // Without it a server is monitored like any other program.
        Mode::Monitor if watches && !held => CuptiOwnership::open::<Callbacks>(cupti, sharing)
            .unwrap_or_else(|_| CuptiOwnership::left_alone::<Callbacks>(cupti)),
        Mode::Monitor if !held => CuptiOwnership::left_alone::<Callbacks>(cupti),
        _ => CuptiOwnership::open::<Callbacks>(cupti, sharing)?,
    };
    Ok((ownership, sharing))
}

/// Why CUPTI's buffers cannot be left to another tool and taken back, if this version does not allow that.
fn no_turns(cupti: &Cupti, settings: &Settings) -> Option<String> {
    let bugs = [Bug::KERNELS_STAY_ON, Bug::NO_TURNS];
    bugs.iter().find_map(|bug| recorder::sentence_of(bug, cupti)).filter(|_| settings.mode != Mode::Monitor)
}

/// Creates the recorder, with notes about its limitations.
fn prepare_recorder(
    cupti: &'static Cupti,
    ownership: CuptiOwnership,
    settings: &Settings,
    sharing: CuptiSharing,
    late: bool,
) -> Result<(ActivityRecorder, Vec<String>), StartError> {
    let full = settings.mode == Mode::Full;
    let requested: Vec<Kind> = [
        (settings.dependencies || full, kinds::DEPENDENCY_KINDS),
        (settings.memory_usage || full, kinds::MEMORY_KINDS),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .flat_map(|(_, kinds)| kinds.iter().copied())
    .collect();
    let whole_graphs =
        settings.whole_graphs(sharing) && recorder::sentence_of(&Bug::WHOLE_GRAPHS_FAIL, cupti).is_none();
    let faults = settings.faults;
    Ok(ActivityRecorder::prepare(cupti, ownership, settings.mode, whole_graphs, &requested, late, faults)?)
}

/// Switches recording on, and returns notes about what CUPTI refused.
fn start_recording(controller: &CaptureController) -> Result<Vec<String>, StartError> {
    let mut notes = controller.start().inspect_err(|_| controller.switch.ownership().give_back())?;
    if controller.wants_profiler_calls() && !controller.listen() {
        notes.push("this CUPTI does not report cudaProfilerStart, so no capture can begin by it".to_owned());
    }
    Ok(notes)
}

/// Notes on settings without effect in this process.
fn limits_of(cupti: &Cupti, settings: &Settings, sharing: CuptiSharing, controller: &CaptureController) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.bursts.is_some() && !controller.switch.can_be_off() {
        notes.push(format!("{}=auto records nothing here, because recording cannot be switched off", config::MODE));
    }
    if sharing != settings.cupti_sharing {
        let why = no_turns(cupti, settings);
        let why = why.as_deref().unwrap_or("captures by cudaProfilerStart need CUPTI all the time");
        notes.push(format!("{}=yield has no effect: {why}", config::CUPTI_SHARING));
    }
    notes
}

/// The threads, which wait for their work. They are started before any CUPTI record is enabled: without them
/// none may be.
struct Threads {
    collect: Worker,
    flush: Worker,
    sample: Option<Worker>,
    counters: Option<(ReaderConfig, Worker)>,
    kernels: Option<Worker>,
    control: Option<Worker>,
}

impl Threads {
    fn start(settings: &Settings) -> Result<Self, StartError> {
        let refused = |error: io::Error| StartError::Refused(format!("cannot start a thread: {error}"));
        let start = |name| Worker::start(name).map_err(refused);
        let start_if = |wanted: bool, name| wanted.then(|| start(name)).transpose();
        Ok(Self {
            collect: start("gpuwhy-collect")?,
            flush: start("gpuwhy-flush")?,
            sample: start_if(settings.sampling != Sampling::Off, "gpuwhy-sample")?,
            counters: match ReaderConfig::prepare(settings) {
                Some(reader) => Some((reader, start("gpuwhy-counters")?)),
                None => None,
            },
            kernels: start_if(settings.kernels.is_some(), "gpuwhy-kernels")?,
            control: start_if(settings.control, "gpuwhy-control")?,
        })
    }
}

/// State that the threads need.
struct ThreadWork {
    cupti: &'static Cupti,
    shared: Arc<Shared>,
    controller: Arc<CaptureController>,
    kernels: Option<(Arc<KernelProfiler>, Receiver<Chosen>)>,
    sampler: Option<Sampler>,
}

impl ThreadWork {
    /// Assigns each thread its work.
    fn begin(
        self,
        threads: Threads,
        settings: &Settings,
        (session, messages, outcomes): (ProcessInfo, Receiver<Message>, Sender<RunOutcome>),
        (commands, over): (Receiver<FlusherCommand>, fn()),
    ) {
        let Self { cupti, shared, controller, kernels, sampler } = self;
        // Created on its thread: the program's may have a small stack.
        let collector = {
            let (shared, controller, settings) = (Arc::clone(&shared), Arc::clone(&controller), settings.clone());
            let kernels = kernels.as_ref().map(|(kernels, _)| Arc::clone(kernels));
            move || Collector::new(cupti, &settings, session, shared, controller, kernels)
        };
        assign(threads.collect, &shared, move |_| collector().run(&messages, &outcomes));
        if let Some((sampler, worker)) = sampler.zip(threads.sample) {
            let controller = Arc::clone(&controller);
            assign(worker, &shared, move |shared| sampler.run(cupti, shared, &controller));
        }
        if let Some((reader, worker)) = threads.counters {
            let controller = Arc::clone(&controller);
            assign(worker, &shared, move |shared| reader.run(cupti, shared, &controller, &shared.counters));
        }
        if let Some(((kernels, chosen), worker)) = kernels.zip(threads.kernels) {
            let controller = Arc::clone(&controller);
            assign(worker, &shared, move |shared| kernels.run(&chosen, &controller, &shared.messages));
        }
        if let Some(worker) = threads.control {
            begin_control(worker, &shared, &controller);
        }
        let period = settings.flush;
        assign(threads.flush, &shared, move |shared| {
            flusher::run(cupti, period, &commands, &controller, shared, over);
        });
    }
}

/// Assigns work to a thread, whose CPU time is a cost of tracing from then on.
fn assign(worker: Worker, shared: &Arc<Shared>, work: impl FnOnce(&Shared) + Send + 'static) {
    let shared = Arc::clone(shared);
    worker.work(move || {
        shared.meters.add_this_thread();
        work(&shared);
    });
}

fn begin_control(worker: Worker, shared: &Arc<Shared>, controller: &Arc<CaptureController>) {
    match Control::open() {
        Ok(control) => {
            let controller = Arc::clone(controller);
            assign(worker, shared, move |_| control.run(&controller));
        }
        Err(error) => tracing::warn!(
            "no live control: {error}; `gpuwhy top`, `start` and `stop` cannot reach this process ({}=off omits this message)",
            config::CONTROL
        ),
    }
}
