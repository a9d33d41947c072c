//! The thread that turns buffers into a trace and a verdict.
//!
//! One thread owns everything that grows: dictionary, attributor, trace. Nothing it does can hold up the host: the
//! callbacks only ever put a buffer into a channel. When the disk is full or the trace cannot be written the verdict
//! goes on; when this thread dies, buffers are dropped and counted.
//!
//! Here is what comes and in which order it is worked off; [`place`] finds the capture of each record, [`upkeep`] is what
//! falls due with the flush marks, [`answer`] what is said about it all.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{CompletedBuffer, Cupti};
use profiler_core::attribution::Attributor;
use profiler_core::capture::Captures;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::{ApiCall, Loss, RangeEvent, Record, Timestamp};
use profiler_core::text_format::printable;
use profiler_core::utilization::Utilization;

use crate::capture::controller::Director;
use crate::collect::capture_router::Segments;
use crate::collect::live::Live;
use crate::collect::raw_recording::RawRecording;
use crate::collect::session_trace::SessionTrace;
use crate::collect::trace_file::TraceFile;
use crate::config::{Graphs, Settings, WhatIf};
use crate::cost::Account;
use crate::cupti::decode::{Decoded, Decoder};
use crate::cupti::graphs::Census;
use crate::cupti::recorder;
use crate::message::{Command, Delivery, Inlet, Outcome};
use crate::sampler::launchers::Tally;
use crate::sampler::stacks::Stacks;
use crate::sys::{clock, memory};
use crate::{log, nvtx};

/// Everything the thread owns.
pub struct Collector {
    pub(super) cupti: &'static Cupti,
    pub(super) inlet: Arc<Inlet>,
    pub(super) director: Arc<Director>,
    pub(super) decoder: Decoder,
    pub(super) ranges: nvtx::Drain,
    pub(super) stacks: Stacks,
    pub(super) tally: Tally,
    pub(super) segments: Segments,
    pub(super) captures: Captures,
    /// Records that are on their way to their capture, with its number; empty between deliveries.
    pub(super) routed: Vec<(u32, Record)>,
    pub(super) events: Vec<RangeEvent>,
    /// Records that come before there is a trace, and alone are no reason for one.
    pub(super) early: Vec<Record>,
    /// The program's own session, while one is open.
    pub(super) own: Option<Box<SessionTrace>>,
    pub(super) account: Account,
    /// Counts CUDA graphs, while they are one record.
    pub(super) census: Option<Census>,
    /// Counts steps while none are captured.
    pub(super) step_watch: Option<Attributor>,
    pub(super) trace: TraceFile,
    pub(super) raw: Option<RawRecording>,
    pub(super) gauges: Utilization,
    pub(super) gauges_due: Timestamp,
    pub(super) session: ProcessInfo,
    pub(super) loss: Loss,
    pub(super) live: Option<Live>,
    pub(super) what_if: WhatIf,
    pub(super) foreign_buffers_said: bool,
    pub(super) shortage_said: bool,
}

impl Collector {
    /// A collector for this process.
    pub fn new(
        cupti: &'static Cupti,
        settings: &Settings,
        session: ProcessInfo,
        inlet: Arc<Inlet>,
        director: Arc<Director>,
    ) -> Self {
        let raw = settings.record.as_ref().and_then(|pattern| {
            let path = pattern.expand(session.process_id, &session.host).path;
            RawRecording::create(path, settings.record_limit, cupti, &inlet.sizes, &session)
        });
        let census = match settings.graphs {
            Graphs::Auto => Census::new(settings.max_overhead),
            Graphs::Whole | Graphs::Nodes => Census::of_whole_graphs(),
        };
        let census = director.has_whole_graphs().then_some(census);
        let mut captures = Captures::new(None);
        if settings.what_if == WhatIf::Off {
            captures.stop_what_if();
        }
        let mut account = Account::new(settings.mode, director.has_whole_graphs(), settings.max_overhead);
        if settings.capture.is_whole() {
            account.begun(session.start);
        }
        Self {
            cupti,
            inlet,
            decoder: Decoder::new(cupti),
            ranges: nvtx::Drain::default(),
            stacks: Stacks::new(),
            tally: Tally::default(),
            director,
            segments: Segments::new(settings.capture.is_whole()),
            captures,
            routed: Vec::new(),
            events: Vec::new(),
            early: Vec::new(),
            own: None,
            account,
            census,
            step_watch: settings.capture.detects_steps().then(|| {
                let mut watch = Attributor::new();
                watch.stop_what_if();
                watch
            }),
            trace: TraceFile::new(settings, &session),
            raw,
            gauges: Utilization::default(),
            gauges_due: Timestamp::ZERO,
            loss: Loss::default(),
            live: settings.live.map(|interval| Live::new(interval, session.start)),
            session,
            what_if: settings.what_if,
            foreign_buffers_said: false,
            shortage_said: false,
        }
    }

    /// Takes deliveries until the last one.
    pub fn run(mut self, deliveries: &Receiver<Delivery>, outcome: &Sender<Outcome>) {
        self.inlet.meters.add_this_thread();
        for delivery in deliveries {
            match delivery {
                Delivery::Buffer(buffer) => self.buffer(buffer),
                Delivery::Flushed { before, dropped_by_cupti } => self.flushed(before, dropped_by_cupti),
                Delivery::Looks(batch) => self.looks(&batch),
                Delivery::Gauges(reading) => self.gauges(reading),
                Delivery::Graph { id, nodes } => {
                    if let Some(census) = &mut self.census {
                        census.instantiated(id, nodes);
                    }
                }
                Delivery::Ranges => self.catch_up(),
                Delivery::Idle => self.idle(),
                Delivery::Question(question) => question.answer(self.answer()),
                Delivery::Capture(mark) => self.capture(mark),
                Delivery::Session(command) => self.own_session(command),
                Delivery::Finish { at, end, dropped_by_cupti } => {
                    let _ = outcome.send(self.finish(at, end, dropped_by_cupti));
                    return;
                }
            }
        }
    }

    fn buffer(&mut self, buffer: CompletedBuffer) {
        if memory::look() {
            return self.drop_buffer(buffer);
        }
        if let Some(raw) = &mut self.raw {
            raw.buffer(&buffer, &self.inlet.sizes, clock::now(self.cupti));
        }
        let inlet = Arc::clone(&self.inlet);
        let mut records = buffer.records(&inlet.sizes);
        let flusher = inlet.flusher.load(Ordering::Relaxed);
        self.decoder.next_buffer();
        for record in &mut records {
            match self.decoder.decode(record) {
                // How other tools are noticed is nothing that the program did.
                Decoded::Record(Record::Api(call)) if call.thread.0 == flusher && self.is_whistle(&call) => {}
                Decoded::Record(record) => {
                    self.account.record(&record);
                    if let Some(census) = &mut self.census
                        && let Record::Kernel(kernel) = &record
                    {
                        census.ran(kernel);
                    }
                    if let Record::Api(call) = &record {
                        self.tally.count(call.thread);
                    }
                    self.record(&record);
                }
                Decoded::Description => {}
                Decoded::Unknown => self.loss.unknown_kinds += 1,
            }
        }
        if let Some(broken) = records.remainder() {
            self.loss.broken_buffers += 1;
            self.loss.broken_bytes += broken.bytes as u64;
        }
        self.inlet.pool.put(buffer.into_buffer());
        self.catch_up();
    }

    /// There is no memory for what is in it.
    fn drop_buffer(&mut self, buffer: CompletedBuffer) {
        let records = buffer.records(&self.inlet.sizes).count();
        self.inlet.dropped.fetch_add(records as u64, Ordering::Relaxed);
        self.inlet.pool.put(buffer.into_buffer());
        if !mem::replace(&mut self.shortage_said, true) {
            log::warning!(
                "the limits of this process (ulimit -v, ulimit -d) leave too little memory: records are dropped, and counted"
            );
        }
    }

    /// Whether it is the function that is called to notice other tools; asked of calls of the flushing thread.
    fn is_whistle(&self, call: &ApiCall) -> bool {
        let dictionary = self.decoder.dictionary();
        let function = dictionary.api_function(call.function);
        function.is_some_and(|function| dictionary.name(function.name) == recorder::WHISTLE)
    }

    /// Nothing is recorded, but the program may say what it does.
    fn idle(&mut self) {
        self.catch_up();
        self.tally.publish(&self.inlet.launchers);
        self.account.idle();
    }

    /// The program begins or ends a session of its own, or wants to see what there is of it.
    fn own_session(&mut self, command: Command) {
        match command {
            Command::Begin(mut session, done) => {
                // Those that were made before are none of the session's.
                self.catch_up();
                session.begin(&self.loss);
                self.decoder.describe_devices();
                self.own = Some(session);
                let _ = done.send(());
            }
            Command::Flush(at, done) => {
                if let Some(own) = &mut self.own {
                    own.flush(at, done);
                }
            }
            Command::End(at, done) => {
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
        if !memory::look() {
            self.ranges(clock::wall_clock());
        }
        self.count_loss(dropped_by_cupti);
        self.tally.publish(&self.inlet.launchers);
        self.release(before);
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        self.captures.flushed(before, dictionary);
        self.trace.write(|trace| trace.flush(before, &loss, dictionary));
        if self.own.as_mut().is_some_and(|own| own.flushed(before, &loss, dictionary))
            && let Some(own) = self.own.take()
        {
            own.finish(before, End::Clean, &loss, dictionary);
        }
        self.conclude_drained(before);
        self.watch_steps(before);
        self.keep_up();
        self.judge_graphs(before);
        self.weigh(before);
        self.gauges_if_due(before);
        if let Some(raw) = &mut self.raw {
            raw.flushed(before, dropped_by_cupti);
        }
        self.live_line_if_due(before);
    }

    fn finish(mut self, at: Timestamp, end: End, dropped_by_cupti: u64) -> Outcome {
        self.ranges(Timestamp::from_nanos(u64::MAX));
        self.count_loss(dropped_by_cupti);
        if end == End::TimedOut {
            self.loss.undelivered_buffers += self.inlet.pool.in_use() as u64;
        }
        self.loss.unobserved_ns = self.director.unobserved_until(at);
        self.director.say_if_yielded_in_vain();
        while !self.segments.is_empty() {
            self.conclude();
        }
        self.captures.finish(at, &self.session, &self.loss, self.decoder.dictionary());
        if let Some(own) = self.own.take() {
            own.finish(at, end, &self.loss, self.decoder.dictionary());
        }
        log::debug!("{} records belong to no capture", self.segments.outside());
        if let Some(raw) = &mut self.raw {
            raw.flushed(at, dropped_by_cupti);
            raw.end();
        }
        self.count_nodes();
        self.account.finish(at, &self.inlet.meters);
        let cost = self.account.cost();
        self.captures.cost(cost);
        let report = self.make_report(end);
        let captured_nothing = (self.director.captures() == 0).then(|| self.waited_in_vain());
        self.write_gauges(at);
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        self.trace.write(|trace| trace.cost(at, &cost, dictionary));
        if let Some(answer) = self.answer_to_keep(&report) {
            self.trace.write(|trace| trace.answer(at, &answer, dictionary));
        }
        let trace = self.trace.finish(|trace| trace.finish(end, at, &loss, dictionary));
        Outcome { report, trace, captured_nothing }
    }

    /// What no capture came of.
    fn waited_in_vain(&self) -> String {
        let Some(wanted) = self.director.wanted_range() else { return "no capture began".to_owned() };
        let opened = self.ranges.opened(self.decoder.dictionary());
        let opened = if opened.is_empty() {
            "the program opened no range".to_owned()
        } else {
            format!("the first ranges that the program opened: {}", opened.join(", "))
        };
        printable(&format!("no capture began by the range {wanted}; {opened}")).into_owned()
    }
}
