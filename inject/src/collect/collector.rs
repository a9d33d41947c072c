//! The collector thread, which turns buffers into a trace and a bottleneck.
//!
//! One thread owns everything that grows: dictionary, engine, trace. It cannot delay the program: the
//! callbacks only put a buffer into a channel. If the disk is full or the trace cannot be written, the
//! analysis continues; if this thread dies, buffers are dropped and counted.
//!
//! Sources make events, the router finds the capture of each record, and the sinks take them:
//! [`Collector::event`] is the path of each event. The rest handles messages, in order.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{CompletedBuffer, Cupti};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::SourceLines;
use gpuwhy_trace::event::{Event, Sink as _};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{ApiCall, CaptureMark, Kernel, Record, Timestamp};
use gpuwhy_trace::utilization::UtilizationReading;

use crate::capture::controller::CaptureController;
use crate::collect::losses::Losses;
use crate::collect::raw_recording::RawRecording;
use crate::collect::sinks::Sinks;
use crate::collect::source_lines::SourceReader;
use crate::collect::sources::Sources;
use crate::collect::summary::{self, Live};
use crate::collect::trace_file::TraceFile;
use crate::collect::triggers::Triggers;
use crate::config::Settings;
use crate::config::request::CaptureRange;
use crate::cost::CostTracker;
use crate::cupti::decode::{Decoded, Decoder};
use crate::cupti::recorder;
use crate::kernels::{self, KernelProfiler};
use crate::nvtx::submissions;
use crate::routing::router::Router;
use crate::routing::session_trace::SessionTrace;
use crate::shared::{Message, RunOutcome, SessionCommand, Shared};
use crate::sys::{clock, memory};

/// If more than one in this many buffers waits to be decoded, the collector is falling behind.
const BACKLOG_PARTS: usize = 4;

/// State of the collector thread.
pub struct Collector {
    cupti: &'static Cupti,
    shared: Arc<Shared>,
    controller: Arc<CaptureController>,
    sources: Sources,
    /// Events on their way from a source; empty between messages.
    events: Vec<Event>,
    router: Router,
    triggers: Triggers,
    sinks: Sinks,
    /// The program's own session, while one is open.
    own: Option<Box<SessionTrace>>,
    account: CostTracker,
    losses: Losses,
    raw: Option<RawRecording>,
    live: Option<Live>,
    /// True if the run is simulated with one cost removed at a time.
    simulates: bool,
    /// Measures selected kernels, if configured.
    kernels: Option<Arc<KernelProfiler>>,
    /// Reads lines of source code at the end, unless the user does not want that.
    source_reader: Option<SourceReader>,
}

impl Collector {
    /// Creates the collector of this process.
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
        let (is_complete, monitored) = (settings.capture.is_complete(), controller.is_monitored());
        let sources = Sources::new(Decoder::new(cupti));
        let mut captures = Captures::new(None);
        captures.set_calibrations(&session);
        // Sessions do not simulate best cases.
        let simulates = settings.capture.range != CaptureRange::Nothing;
        if !simulates {
            captures.stop_what_if();
        }
        let budget = settings.budget.and_then(|budget| budget.if_bursts(controller.switch.can_be_off()));
        let mut account = CostTracker::new(settings.mode, controller.switch.has_whole_graphs(), budget);
        if is_complete || monitored {
            account.begun(session.start);
        }
        let router = match (is_complete, monitored) {
            (true, _) => Router::of_whole_run(),
            (false, true) => Router::of_monitored_run(),
            (false, false) => Router::default(),
        };
        let live = settings.live.map(|interval| Live::new(interval, session.start));
        let trace = TraceFile::new(settings, &session);
        let source_reader = settings.source_lines.then(SourceReader::new);
        let sinks = Sinks::new(session, captures, trace, Arc::clone(&controller), sources.dictionary());
        Self {
            cupti,
            shared,
            sources,
            events: Vec::new(),
            router,
            triggers: Triggers::new(settings, controller.switch.can_be_off()),
            controller,
            sinks,
            own: None,
            account,
            losses: Losses::default(),
            raw,
            live,
            simulates,
            kernels,
            source_reader,
        }
    }

    /// Handles messages until the last one.
    pub fn run(mut self, messages: &Receiver<Message>, outcome: &Sender<RunOutcome>) {
        for message in messages {
            match message {
                Message::Buffer(buffer) => self.buffer(buffer),
                Message::Flushed { before, dropped_by_cupti } => self.flushed(before, dropped_by_cupti),
                Message::Samples(batch) => {
                    let mut events = mem::take(&mut self.events);
                    self.losses.loss.failed_samples += self.sources.samples(&batch, &mut events);
                    self.take(events);
                    self.hand_over();
                }
                Message::Utilization(reading) => self.utilization(reading),
                Message::Counters(events) => {
                    events.into_iter().for_each(|event| self.event(&event.into()));
                }
                Message::KernelProfile(profile) => self.event(&Event::KernelProfile(Arc::from(profile))),
                Message::Graph { id, nodes } => self.account.instantiated(id, nodes),
                Message::Ranges => self.catch_up(),
                Message::Idle => self.idle(),
                Message::Question(question) => {
                    self.event(&self.losses.loss.into());
                    let dictionary = self.sources.dictionary();
                    let answer = summary::answer(question.detail, &self.losses.loss, &self.sinks, dictionary);
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

    /// Handles one event. A record whose capture is not known yet waits in the router.
    #[inline]
    fn event(&mut self, event: &Event) {
        let dictionary = self.sources.dictionary();
        if let Some(own) = &mut self.own {
            own.event(event, dictionary);
        }
        let Event::Record(record) = event else {
            self.triggers.other(event, &self.controller);
            return self.sinks.event(event, dictionary);
        };
        self.triggers.record(record, dictionary, &self.controller);
        if let Some(number) = self.router.route(record) {
            self.sinks.record(number, event, dictionary);
        }
    }

    /// Handles the events of a source, and keeps the memory.
    fn take(&mut self, mut events: Vec<Event>) {
        events.drain(..).for_each(|event| self.event(&event));
        self.events = events;
    }

    /// Passes the routed records to their captures.
    fn hand_over(&mut self) {
        let (sinks, dictionary) = (&mut self.sinks, self.sources.dictionary());
        self.router.hand_over(|number, event| sinks.record(number, event, dictionary));
    }

    fn buffer(&mut self, buffer: CompletedBuffer) {
        let shared = Arc::clone(&self.shared);
        if memory::check() {
            return self.losses.drop_buffer(buffer, &shared);
        }
        self.callbacks();
        if let Some(raw) = &mut self.raw {
            raw.buffer(&buffer, &shared.sizes, clock::now(self.cupti));
        }
        let mut records = buffer.records(&shared.sizes);
        let flusher = shared.flusher.load(Ordering::Relaxed);
        self.sources.decoder.next_buffer();
        for record in &mut records {
            // By reference: copying each record took some 5 % of this thread (one launching thread, no simulation).
            match &self.sources.decoder.decode(record) {
                // The call that detects other tools is not part of the program.
                Decoded::Event(Event::Record(Record::Api(call))) if call.thread.0 == flusher && self.is_probe(call) => {
                }
                Decoded::Event(Event::Record(Record::Kernel(kernel))) if self.is_own_kernel(kernel) => {
                    self.losses.loss.own_kernels += 1;
                }
                Decoded::Event(event) => {
                    if let Event::Record(record) = event {
                        self.account.record(record, self.sources.dictionary());
                        if let Record::Api(call) = record {
                            self.sources.calls.count(call.thread);
                        }
                    }
                    self.event(event);
                }
                Decoded::Description => {}
                Decoded::Unknown => self.losses.loss.unknown_kinds += 1,
            }
        }
        if let Some(broken) = records.remainder() {
            self.losses.loss.broken_buffers += 1;
            self.losses.loss.broken_bytes += broken.bytes as u64;
        }
        shared.pool.put(buffer.into_buffer());
        self.catch_up();
    }

    /// True if the call is to the function that detects other tools; checked for calls of the flushing
    /// thread.
    fn is_probe(&self, call: &ApiCall) -> bool {
        let dictionary = self.sources.dictionary();
        let function = dictionary.api_function(call.function);
        function.is_some_and(|function| dictionary.name(function.name) == recorder::PROBE_FUNCTION)
    }

    /// True if CUPTI's range profiler launched the kernel, as it does around passes.
    fn is_own_kernel(&self, kernel: &Kernel) -> bool {
        let dictionary = self.sources.dictionary();
        self.kernels.is_some() && kernels::is_of_cupti(dictionary.name(dictionary.launch_config(kernel.config).name))
    }

    /// Takes over the program's ranges and marks up to now. They do not start a trace: until there is a CUPTI
    /// record they stay in their rings, unless they can only lie before a capture.
    fn ranges(&mut self, until: Timestamp) {
        if self.sinks.trace.is_waiting() && self.router.is_complete() && !self.controller.monitors() {
            return;
        }
        let mut events = mem::take(&mut self.events);
        self.sources.ranges(until, &mut events);
        self.take(events);
    }

    /// Takes over what callbacks left: nodes of graphs, before the records that name them, and memory calls.
    fn callbacks(&mut self) {
        let (nodes, calls) = (self.shared.graph_origins.take(), self.shared.memory_calls.take());
        if nodes.is_empty() && calls.is_empty() {
            return;
        }
        if let Some(raw) = &mut self.raw {
            raw.graph_nodes(&nodes);
        }
        let mut events = mem::take(&mut self.events);
        self.sources.graph_nodes(&nodes, &mut events);
        self.sources.memory_calls(&calls, &mut events);
        self.take(events);
    }

    /// Takes over the program's ranges up to now, and places all routed records. If memory is short, ranges
    /// wait in their rings, which have a limit.
    fn catch_up(&mut self) {
        if !memory::is_short() {
            self.callbacks();
            self.ranges(clock::wall_clock());
        }
        self.hand_over();
    }

    /// Called while recording is off; the program may still open ranges.
    fn idle(&mut self) {
        self.catch_up();
        self.sources.calls.publish(&self.shared.launchers);
        self.account.idle();
    }

    /// The utilization of a device opens the trace, and in a run that is only watched CUPTI describes no
    /// device.
    fn utilization(&mut self, reading: UtilizationReading) {
        if matches!(reading, UtilizationReading::Device(_)) {
            self.sources.decoder.describe_devices();
        }
        self.event(&(clock::wall_clock(), reading).into());
    }

    /// Handles the start, the flush or the end of a session of the program.
    fn own_session(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Begin(mut session, done) => {
                // Earlier ranges do not belong to the session.
                self.catch_up();
                session.begin(&self.losses.loss);
                self.sources.decoder.describe_devices();
                let dictionary = self.sources.dictionary();
                self.sinks.captures.preamble().events().for_each(|event| session.event(&event, dictionary));
                self.own = Some(session);
                let _ = done.send(());
            }
            SessionCommand::Flush(at, done) => {
                if let Some(own) = &mut self.own {
                    own.flush(at, done);
                }
            }
            SessionCommand::End(at, done) => {
                // Ranges use the wall clock; those from before the end must be taken over before it.
                self.catch_up();
                if let Some(own) = &mut self.own {
                    own.end(at, done);
                }
            }
        }
    }

    /// A capture starts, or its range ends.
    fn capture(&mut self, mark: CaptureMark) {
        match mark {
            CaptureMark::Begin { number, at, .. } => {
                if self.router.is_full() {
                    self.conclude();
                }
                self.router.begin(number, at);
                self.account.begun(at);
                self.sources.decoder.describe_devices();
                self.event(&Event::Capture(mark));
            }
            CaptureMark::End { number, at } => self.router.end(number, at),
            CaptureMark::Select { .. } => {}
        }
    }

    /// Concludes the captures that expect no more records as of the mark `before`.
    fn conclude_drained(&mut self, before: Timestamp) {
        while let Some(number) = self.router.drained(before, |number| self.sinks.captures.awaits_work(number)) {
            let since = before.since(self.sinks.session.start);
            tracing::debug!("capture {number} is complete as of {since} ns after the start");
            self.conclude();
        }
    }

    /// Concludes the oldest capture.
    fn conclude(&mut self) {
        // A range of the program may have started it before CUDA was initialized.
        self.sources.decoder.describe_devices();
        let concluded = self.router.conclude();
        self.hand_over();
        // If its range never ended, the end of the trace ends it.
        if let Some((number, end)) = concluded {
            if let Some(at) = end {
                self.event(&Event::Capture(CaptureMark::End { number, at }));
            }
            self.controller.concluded();
        }
    }

    fn flushed(&mut self, before: Timestamp, dropped_by_cupti: u64) {
        // Before the mark, which also guarantees that earlier ranges are complete. A range that a thread is
        // just writing is later.
        if !memory::check() {
            self.callbacks();
            self.ranges(clock::wall_clock());
        }
        self.count_loss(dropped_by_cupti);
        // Without records of calls, the thread of a server that is to be sampled is known by its iterations.
        if let Some(thread) = self.sinks.captures.serving_thread() {
            self.sources.calls.count(thread);
            submissions::serves();
        }
        self.sources.calls.publish(&self.shared.launchers);
        self.router.flushed(before);
        self.hand_over();
        self.event(&Event::Flush(before));
        if self.own.as_ref().is_some_and(|own| own.is_over())
            && let Some(own) = self.own.take()
        {
            own.finish(before, End::Clean, self.sources.dictionary());
        }
        self.conclude_drained(before);
        self.triggers.flushed(before, self.sources.dictionary(), &self.controller);
        if let Some(kernels) = &self.kernels {
            kernels.choose(&self.sinks.captures, self.sources.dictionary());
        }
        self.shed_load();
        self.update_cost(before);
        if self.triggers.has_bursts() {
            // Not the time of the mark, which is one flush old: it would make a burst that much longer.
            let (now, view) = (clock::now(self.cupti), self.sinks.captures.monitor_view());
            self.triggers.choose_bursts(now, &view, &mut self.account, &self.controller);
        }
        self.sinks.trace.write_utilization_if_due(before, self.sources.dictionary());
        if let Some(raw) = &mut self.raw {
            raw.flushed(before, dropped_by_cupti);
        }
        if let Some(live) = &mut self.live {
            live.line_if_due(before, &mut self.sinks, self.sources.dictionary());
        }
    }

    fn count_loss(&mut self, dropped_by_cupti: u64) {
        let (missed, dictionary) = (self.router.missed(), self.sources.dictionary());
        self.losses.count(dropped_by_cupti, missed, &self.shared, &self.controller, dictionary);
        self.event(&self.losses.loss.into());
    }

    /// Stops work that can be made up for later, before data must be lost.
    fn shed_load(&mut self) {
        let backlog = self.shared.messages.len();
        if self.simulates && backlog * BACKLOG_PARTS > self.shared.pool.limit() {
            self.simulates = false;
            self.sinks.captures.stop_what_if();
            tracing::warn!(
                "{backlog} buffers wait to be processed: the what-if simulation stops here; `gpuwhy report` computes it from the trace"
            );
        }
    }

    /// Adds up the cost of tracing, and steps down if it is too high.
    fn update_cost(&mut self, before: Timestamp) {
        if self.account.graphs.is_whole() && self.controller.asks_for_nodes_for_others() {
            self.account.record_nodes(before);
        }
        let captures = &self.sinks.captures;
        let due = self.account.flushed(before, &self.shared.meters, || captures.share_of_tracing());
        let cost = self.account.cost();
        let step_down = due.step_down.filter(|&mode| self.triggers.step_down(mode, &cost, &self.controller));
        if let Some(mode) = step_down {
            self.account.stepped_down(before, mode);
        }
        let cost = (before, self.account.cost()).into();
        if due.write || step_down.is_some() {
            self.event(&cost);
        } else {
            self.sinks.feed_engine(&cost, self.sources.dictionary());
        }
    }

    fn finish(mut self, at: Timestamp, end: End, dropped_by_cupti: u64) -> RunOutcome {
        self.callbacks();
        self.ranges(Timestamp::from_nanos(u64::MAX));
        // In mode auto, some records belong to no capture that is concluded below.
        self.hand_over();
        self.count_loss(dropped_by_cupti);
        if end == End::TimedOut {
            self.losses.loss.undelivered_buffers += self.shared.pool.in_use() as u64;
        }
        self.losses.loss.unobserved_ns = self.controller.unobserved_until(at);
        self.event(&self.losses.loss.into());
        self.controller.say_if_yielded_in_vain();
        while !self.router.is_empty() {
            self.conclude();
        }
        self.sinks.captures.finish(at, &self.sinks.session, self.sources.dictionary());
        if let Some(own) = self.own.take() {
            own.finish(at, end, self.sources.dictionary());
        }
        tracing::debug!("{} records belong to no capture", self.router.outside());
        if let Some(raw) = &mut self.raw {
            raw.flushed(at, dropped_by_cupti);
            raw.end();
        }
        self.account.finish(at, &self.shared.meters);
        self.triggers.finish(at, &mut self.account);
        self.sinks.trace.write_utilization(at, self.sources.dictionary());
        self.event(&(at, self.account.cost()).into());
        let captured_nothing = (self.controller.captures() == 0 && !self.controller.is_monitored())
            .then(|| summary::no_capture_reason(&self.controller, &self.sources.opened_ranges()));
        let Sinks { captures, session, mut trace, .. } = self.sinks;
        let mut report = captures.report(&session, self.sources.dictionary(), end, Vec::new());
        if let Some(reader) = self.source_reader {
            reader.read(&report.places(), self.sources.decoder.dictionary_mut());
            report.sources = SourceLines::of(self.sources.dictionary());
        }
        let dictionary = self.sources.dictionary();
        // Not if the simulation stopped: a reader computes it.
        if let Some(answer) = self.simulates.then(|| summary::answer_to_keep(&report)).flatten() {
            trace.answer(at, &answer, dictionary);
        }
        let trace = trace.finish(&Event::End(end, at), dictionary);
        RunOutcome { report, trace, metrics: captures.metrics(&session, dictionary).object(), captured_nothing }
    }
}
