//! The thread that turns buffers into a trace and a verdict.
//!
//! One thread owns everything that grows: dictionary, attributor, trace. Nothing it does can hold up the host: the
//! callbacks only ever put a buffer into a channel. When the disk is full or the trace cannot be written the verdict
//! goes on; when this thread dies, buffers are dropped and counted.
//!
//! Here is what comes and in which order it is worked off; [`routing`] finds the capture of each record, [`on_flush`]
//! is what falls due with the flush marks, [`summary`] what is said about it all.
//!
//! [`routing`]: super::routing
//! [`on_flush`]: super::on_flush
//! [`summary`]: super::summary

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{CompletedBuffer, Cupti};
use profiler_core::attribution::Attributor;
use profiler_core::capture::Captures;
use profiler_core::event::Event;
use profiler_core::monitoring::{BurstLimits, BurstPlanner};
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::{ApiCall, Kernel, Loss, RangeEvent, Record, Timestamp};
use profiler_core::text_format::printable;
use profiler_core::utilization::Utilization;

use crate::capture::controller::CaptureController;
use crate::collect::capture_router::CaptureRouter;
use crate::collect::live::Live;
use crate::collect::raw_recording::RawRecording;
use crate::collect::routing;
use crate::collect::session_trace::SessionTrace;
use crate::collect::trace_file::TraceFile;
use crate::config::request::Range;
use crate::config::{Graphs, Settings};
use crate::cost::CostTracker;
use crate::cupti::decode::{Decoded, Decoder};
use crate::cupti::graphs::GraphNodeBudget;
use crate::cupti::recorder;
use crate::kernels::{self, KernelProfiler};
use crate::message::{Message, RunOutcome, SessionCommand, Shared};
use crate::nvtx;
use crate::sampler::launchers::CallCounter;
use crate::sampler::stacks::PythonStacks;
use crate::sys::{clock, memory};

/// Everything the thread owns.
pub struct Collector {
    pub(super) cupti: &'static Cupti,
    pub(super) shared: Arc<Shared>,
    pub(super) controller: Arc<CaptureController>,
    pub(super) decoder: Decoder,
    pub(super) ranges: nvtx::Drain,
    pub(super) stacks: PythonStacks,
    /// Interns the native functions that stand alone.
    pub(super) earlier_stacks: PythonStacks,
    pub(super) calls: CallCounter,
    pub(super) router: CaptureRouter,
    pub(super) captures: Captures,
    /// Records that are on their way to their capture, with its number; empty between messages.
    pub(super) routed: Vec<(u32, Event)>,
    pub(super) events: Vec<RangeEvent>,
    /// Records that come before there is a trace, and alone are no reason for one.
    pub(super) early: Vec<Event>,
    /// The program's own session, while one is open.
    pub(super) own: Option<Box<SessionTrace>>,
    pub(super) account: CostTracker,
    /// Decides when mode auto records.
    pub(super) bursts: Option<BurstPlanner>,
    /// Counts CUDA graphs, while they are one record.
    pub(super) graph_nodes: Option<GraphNodeBudget>,
    /// Counts steps while none are captured.
    pub(super) step_watch: Option<Attributor>,
    pub(super) trace: TraceFile,
    pub(super) raw: Option<RawRecording>,
    pub(super) utilization: Utilization,
    pub(super) utilization_due: Timestamp,
    pub(super) session: ProcessInfo,
    pub(super) loss: Loss,
    pub(super) live: Option<Live>,
    /// Whether the run is simulated without one cost at a time.
    pub(super) simulates: bool,
    pub(super) foreign_buffers_logged: bool,
    pub(super) shortage_logged: bool,
    /// Measures chosen kernels, where that is wanted.
    pub(super) kernels: Option<Arc<KernelProfiler>>,
}

impl Collector {
    /// A collector for this process.
    pub fn new(
        cupti: &'static Cupti,
        settings: &Settings,
        session: ProcessInfo,
        shared: Arc<Shared>,
        controller: Arc<CaptureController>,
        kernels: Option<Arc<KernelProfiler>>,
    ) -> Self {
        let raw = settings.record.as_ref().and_then(|pattern| {
            let path = pattern.expand(session.process_id, &session.host).path;
            RawRecording::create(path, cupti, &shared.sizes, &session)
        });
        let can_stop = controller.can_stop_recording();
        let graph_nodes = match settings.graphs {
            Graphs::Auto => GraphNodeBudget::new(settings.max_overhead),
            Graphs::Whole | Graphs::Nodes => GraphNodeBudget::of_whole_graphs(),
        };
        let graph_nodes = controller.has_whole_graphs().then_some(graph_nodes);
        let decoder = Decoder::new(cupti);
        let mut captures = Captures::new(None);
        captures.set_calibrations(&session);
        // Sessions have no ceilings.
        let simulates = settings.capture.range != Range::Nothing;
        if !simulates {
            captures.stop_what_if();
        }
        let mut account = CostTracker::new(settings.mode, controller.has_whole_graphs(), settings.max_overhead);
        if settings.capture.is_whole() || settings.bursts.is_some() {
            account.begun(session.start);
        }
        if settings.bursts.is_some() {
            captures.event(&routing::monitored(&session), &session, decoder.dictionary());
        }
        Self {
            cupti,
            shared,
            decoder,
            ranges: nvtx::Drain::default(),
            stacks: PythonStacks::new(),
            earlier_stacks: PythonStacks::new(),
            calls: CallCounter::default(),
            controller,
            router: CaptureRouter::new(settings.capture.is_whole()),
            captures,
            routed: Vec::new(),
            events: Vec::new(),
            early: Vec::new(),
            own: None,
            account,
            bursts: settings.bursts.map(|limits| {
                // Without a budget there is none.
                let budget = if can_stop { limits.budget } else { 0.0 };
                BurstPlanner::new(BurstLimits { budget, ..limits })
            }),
            graph_nodes,
            step_watch: settings.capture.detects_steps().then(|| {
                let mut watch = Attributor::new();
                watch.stop_what_if();
                watch
            }),
            trace: TraceFile::new(settings, &session),
            raw,
            utilization: Utilization::default(),
            utilization_due: Timestamp::ZERO,
            loss: Loss::default(),
            live: settings.live.map(|interval| Live::new(interval, session.start)),
            session,
            simulates,
            foreign_buffers_logged: false,
            shortage_logged: false,
            kernels,
        }
    }

    /// Takes messages until the last one.
    pub fn run(mut self, messages: &Receiver<Message>, outcome: &Sender<RunOutcome>) {
        self.shared.meters.add_this_thread();
        for message in messages {
            match message {
                Message::Buffer(buffer) => self.buffer(buffer),
                Message::Flushed { before, dropped_by_cupti } => self.flushed(before, dropped_by_cupti),
                Message::Samples(batch) => self.samples(&batch),
                Message::Utilization(reading) => self.utilization(reading),
                Message::Counters(events) => self.counters(&events),
                Message::KernelProfile(profile) => self.kernel_profile(*profile),
                #[cfg(feature = "pc-sampling")]
                Message::ProgramCounters(sampled) => self.program_counters(*sampled),
                Message::Graph { id, nodes } => {
                    if let Some(graph_nodes) = &mut self.graph_nodes {
                        graph_nodes.instantiated(id, nodes);
                    }
                }
                Message::Ranges => self.catch_up(),
                Message::Idle => self.idle(),
                Message::Question(question) => {
                    let answer = self.answer(question.detail);
                    question.answer(answer);
                }
                Message::Capture(mark) => self.capture(mark),
                Message::Session(command) => self.own_session(command),
                Message::Finish { at, end, dropped_by_cupti } => {
                    let _ = outcome.send(self.finish(at, end, dropped_by_cupti));
                    return;
                }
            }
        }
    }

    fn buffer(&mut self, buffer: CompletedBuffer) {
        if memory::check() {
            return self.drop_buffer(buffer);
        }
        if let Some(raw) = &mut self.raw {
            raw.buffer(&buffer, &self.shared.sizes, clock::now(self.cupti));
        }
        let shared = Arc::clone(&self.shared);
        let mut records = buffer.records(&shared.sizes);
        let flusher = shared.flusher.load(Ordering::Relaxed);
        self.decoder.next_buffer();
        for record in &mut records {
            // By reference: copying each record took some 5 % of this thread (one launching thread, no simulation).
            match &self.decoder.decode(record) {
                // How other tools are noticed is nothing that the program did.
                Decoded::Event(Event::Record(Record::Api(call)))
                    if call.thread.0 == flusher && self.is_canary(call) => {}
                Decoded::Event(Event::Record(Record::Kernel(kernel))) if self.is_own_kernel(kernel) => {
                    self.loss.own_kernels += 1
                }
                Decoded::Event(event) => {
                    let Event::Record(record) = event else { continue };
                    self.account.record(record);
                    if let Some(graph_nodes) = &mut self.graph_nodes
                        && let Record::Kernel(kernel) = record
                    {
                        graph_nodes.ran(kernel);
                    }
                    if let Record::Api(call) = record {
                        self.calls.count(call.thread);
                    }
                    self.record(event);
                }
                Decoded::Description => {}
                Decoded::Unknown => self.loss.unknown_kinds += 1,
            }
        }
        if let Some(broken) = records.remainder() {
            self.loss.broken_buffers += 1;
            self.loss.broken_bytes += broken.bytes as u64;
        }
        self.shared.pool.put(buffer.into_buffer());
        self.catch_up();
    }

    /// There is no memory for what is in it.
    fn drop_buffer(&mut self, buffer: CompletedBuffer) {
        let records = buffer.records(&self.shared.sizes).count();
        self.shared.dropped.fetch_add(records as u64, Ordering::Relaxed);
        self.shared.pool.put(buffer.into_buffer());
        if !mem::replace(&mut self.shortage_logged, true) {
            tracing::warn!(
                "the limits of this process (ulimit -v, ulimit -d) leave too little memory: records are dropped, and counted"
            );
        }
    }

    /// Whether it is the function that is called to notice other tools; asked of calls of the flushing thread.
    fn is_canary(&self, call: &ApiCall) -> bool {
        let dictionary = self.decoder.dictionary();
        let function = dictionary.api_function(call.function);
        function.is_some_and(|function| dictionary.name(function.name) == recorder::CANARY_FUNCTION)
    }

    /// Whether CUPTI's range profiler launched it, as it does around passes.
    fn is_own_kernel(&self, kernel: &Kernel) -> bool {
        let dictionary = self.decoder.dictionary();
        self.kernels.is_some() && kernels::is_of_cupti(dictionary.name(dictionary.launch_config(kernel.config).name))
    }

    /// Nothing is recorded, but the program may say what it does.
    fn idle(&mut self) {
        self.catch_up();
        self.calls.publish(&self.shared.launchers);
        self.account.idle();
    }

    /// The program begins or ends a session of its own, or wants to see what there is of it.
    fn own_session(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Begin(mut session, done) => {
                // Those that were made before are none of the session's.
                self.catch_up();
                session.begin(&self.loss);
                self.decoder.describe_devices();
                let dictionary = self.decoder.dictionary();
                self.captures.preamble().events().for_each(|event| session.event(&event, dictionary));
                self.own = Some(session);
                let _ = done.send(());
            }
            SessionCommand::Flush(at, done) => {
                if let Some(own) = &mut self.own {
                    own.flush(at, done);
                }
            }
            SessionCommand::End(at, done) => {
                // Ranges are on the wall clock; those that were made before the end have to come before it.
                self.catch_up();
                if let Some(own) = &mut self.own {
                    own.end(at, done);
                }
            }
        }
    }

    fn flushed(&mut self, before: Timestamp, dropped_by_cupti: u64) {
        // Before the mark, which vouches for the ranges too. What a thread is just writing down is later than it.
        if !memory::check() {
            self.ranges(clock::wall_clock());
        }
        self.count_loss(dropped_by_cupti);
        self.calls.publish(&self.shared.launchers);
        self.release(before);
        self.event(&Event::Loss(self.loss));
        self.event(&Event::Flush(before));
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        if self.own.as_mut().is_some_and(|own| own.flushed(before, &loss, dictionary))
            && let Some(own) = self.own.take()
        {
            own.finish(before, End::Clean, &loss, dictionary);
        }
        self.conclude_drained(before);
        self.watch_steps(before);
        self.choose_kernels();
        self.shed_load();
        self.choose_graph_records(before);
        self.update_cost(before);
        self.choose_bursts();
        self.write_utilization_if_due(before);
        if let Some(raw) = &mut self.raw {
            raw.flushed(before, dropped_by_cupti);
        }
        self.live_line_if_due(before);
    }

    fn finish(mut self, at: Timestamp, end: End, dropped_by_cupti: u64) -> RunOutcome {
        self.ranges(Timestamp::from_nanos(u64::MAX));
        self.count_loss(dropped_by_cupti);
        if end == End::TimedOut {
            self.loss.undelivered_buffers += self.shared.pool.in_use() as u64;
        }
        self.loss.unobserved_ns = self.controller.unobserved_until(at);
        self.controller.say_if_yielded_in_vain();
        while !self.router.is_empty() {
            self.conclude();
        }
        self.event(&Event::Loss(self.loss));
        self.captures.finish(at, &self.session, self.decoder.dictionary());
        if let Some(own) = self.own.take() {
            own.finish(at, end, &self.loss, self.decoder.dictionary());
        }
        tracing::debug!("{} records belong to no capture", self.router.outside());
        if let Some(raw) = &mut self.raw {
            raw.flushed(at, dropped_by_cupti);
            raw.end();
        }
        self.count_nodes();
        self.account.finish(at, &self.shared.meters);
        if let Some(planner) = &mut self.bursts {
            planner.finish(at, &self.account.cost());
            self.account.bursts(planner.summary());
        }
        let cost = Event::Cost { at, cost: self.account.cost() };
        self.captures.event(&cost, &self.session, self.decoder.dictionary());
        let report = self.make_report(end);
        let metrics = self.metrics();
        let captured_nothing =
            (self.controller.captures() == 0 && self.bursts.is_none()).then(|| self.waited_in_vain());
        self.write_utilization(at);
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        self.trace.write(|trace| trace.event(&cost, dictionary));
        if let Some(answer) = self.answer_to_keep(&report) {
            self.trace.write(|trace| trace.answer(at, &answer, dictionary));
        }
        let trace = self.trace.finish(|trace| trace.finish(end, at, &loss, dictionary));
        RunOutcome { report, trace, metrics, captured_nothing }
    }

    /// What no capture came of.
    fn waited_in_vain(&self) -> String {
        if self.controller.waits_for_commands() {
            return "no capture began: `gpuwhy start` asked for none".to_owned();
        }
        let Some(wanted) = self.controller.wanted_range() else { return "no capture began".to_owned() };
        let opened = self.ranges.opened(self.decoder.dictionary());
        let opened = if opened.is_empty() {
            "the program opened no range".to_owned()
        } else {
            format!("the first ranges that the program opened: {}", opened.join(", "))
        };
        printable(&format!("no capture began by the range {wanted}; {opened}")).into_owned()
    }
}
