//! The thread that turns buffers into a trace and a verdict.
//!
//! One thread owns everything that grows: dictionary, attributor, trace. Nothing it does can hold up the host: the
//! callbacks only ever put a buffer into a channel. When the disk is full or the trace cannot be written the verdict
//! goes on; when this thread dies, buffers are dropped and counted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{CompletedBuffer, Cupti};
use profiler_core::attribution::Attributor;
use profiler_core::capture::{CaptureMark, Captures};
use profiler_core::record::{ApiCall, HostSample, Loss, RangeEvent, Record, StackId, Timestamp};
use profiler_core::report::Report;
use profiler_core::session::{End, Session};
use profiler_core::trace::{ANSWER_FROM, Answer as KeptAnswer};
use profiler_core::utilisation::{Gauges, Reading};

use crate::activity::{Delivery, Inlet};
use crate::capture::Director;
use crate::capture::plan::Event;
use crate::capture::segments::Segments;
use crate::control::Answer;
use crate::cost::Account;
use crate::decode::{Decoded, Decoder};
use crate::enable;
use crate::flusher;
use crate::log;
use crate::nvtx;
use crate::raw::RawRecording;
use crate::sampler::{Batch, Stacks, Tally};
use crate::session::Command;
use crate::session::trace::SessionTrace;
use crate::settings::{self, Settings, WhatIf};
use crate::trace_file::TraceFile;

/// When one part in so many of all buffers waits to be decoded, the collector is falling behind.
const BACKLOG_PARTS: usize = 4;

/// How often what gauges said is written: a killed program's trace has it too, and the time between two is told apart.
const GAUGES_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// What the run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The trace file, if one was written.
    pub trace: Option<PathBuf>,
    /// No capture began: the report is about nothing.
    pub captured_nothing: bool,
}

/// Everything the thread owns.
pub struct Collector {
    cupti: &'static Cupti,
    inlet: Arc<Inlet>,
    director: Arc<Director>,
    decoder: Decoder,
    ranges: nvtx::Drain,
    stacks: Stacks,
    tally: Tally,
    segments: Segments,
    captures: Captures,
    /// Records that are on their way to their capture, with its number; empty between deliveries.
    routed: Vec<(u32, Record)>,
    events: Vec<RangeEvent>,
    /// The program's own session, while one is open.
    own: Option<Box<SessionTrace>>,
    account: Account,
    /// Counts steps while none are captured.
    step_watch: Option<Attributor>,
    trace: TraceFile,
    raw: Option<RawRecording>,
    gauges: Gauges,
    gauges_due: Timestamp,
    session: Session,
    loss: Loss,
    live: Option<Live>,
    what_if: WhatIf,
    foreign_buffers_said: bool,
}

/// When the next live line is due, on the clock of the records, so that a replay prints the same lines.
#[derive(Debug)]
struct Live {
    interval: Duration,
    next: Timestamp,
}

impl Collector {
    /// A collector for this process.
    pub fn new(
        cupti: &'static Cupti,
        settings: &Settings,
        session: Session,
        inlet: Arc<Inlet>,
        director: Arc<Director>,
    ) -> Self {
        let raw = settings.record.as_ref().and_then(|pattern| {
            let path = pattern.expand(session.process_id, &session.host);
            RawRecording::create(path, settings.record_limit, cupti, &inlet.sizes, &session)
        });
        let mut captures = Captures::new(None);
        if settings.what_if == WhatIf::Off {
            captures.stop_what_if();
        }
        let mut account = Account::new(settings.mode, settings.whole_graphs(), settings.max_overhead);
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
            own: None,
            account,
            step_watch: settings.capture.detects_steps().then(|| {
                let mut watch = Attributor::new();
                watch.stop_what_if();
                watch
            }),
            trace: TraceFile::new(settings, &session),
            raw,
            gauges: Gauges::default(),
            gauges_due: Timestamp::ZERO,
            loss: Loss::default(),
            live: settings.live.map(|interval| Live { interval, next: after(session.start, interval) }),
            session,
            what_if: settings.what_if,
            foreign_buffers_said: false,
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
                Delivery::Ranges => {
                    self.ranges(flusher::wall_clock());
                    self.place();
                }
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
        if let Some(raw) = &mut self.raw {
            raw.buffer(&buffer, &self.inlet.sizes, flusher::now(self.cupti));
        }
        let inlet = Arc::clone(&self.inlet);
        let mut records = buffer.records(&inlet.sizes);
        let flusher = inlet.flusher.load(Ordering::Relaxed);
        for record in &mut records {
            match self.decoder.decode(record) {
                // How other tools are noticed is nothing that the program did.
                Decoded::Record(Record::Api(call)) if call.thread.0 == flusher && self.is_whistle(&call) => {}
                Decoded::Record(record) => {
                    self.account.record(&record);
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
        self.ranges(flusher::wall_clock());
        self.place();
    }

    /// Whether it is the function that is called to notice other tools; asked of calls of the flushing thread.
    fn is_whistle(&self, call: &ApiCall) -> bool {
        let dictionary = self.decoder.dictionary();
        let function = dictionary.api_function(call.function);
        function.is_some_and(|function| dictionary.name(function.name) == enable::WHISTLE)
    }

    /// Takes over the program's ranges and marks up to now. They begin no trace: until there is a record from CUPTI
    /// they stay where they are, unless they can only lie before a capture.
    fn ranges(&mut self, until: Timestamp) {
        if self.trace.is_waiting() && self.segments.is_whole() && !self.director.is_watching() {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        events.extend(self.ranges.events(until, self.decoder.dictionary_mut()));
        for event in events.drain(..) {
            self.record(&Record::Range(event));
        }
        self.events = events;
    }

    fn looks(&mut self, batch: &Batch) {
        self.loss.failed_samples += batch.failed;
        for look in &batch.looks {
            let stack = self.stacks.intern(&look.frames, self.decoder.dictionary_mut());
            self.loss.failed_samples += u64::from(stack.is_none());
            self.record(&Record::Sample(HostSample { stack: stack.unwrap_or(StackId::NONE), ..look.sample }));
        }
        self.place();
    }

    /// Gauges of a device are something of the GPU, so they begin a trace.
    fn gauges(&mut self, reading: Reading) {
        self.gauges.take(reading);
        self.captures.utilisation(reading);
        if matches!(reading, Reading::Device(_)) {
            self.trace.open(&self.session);
        }
    }

    /// Totals, so not every reading has to be written.
    fn write_gauges(&mut self, at: Timestamp) {
        let dictionary = self.decoder.dictionary();
        let absence = self.gauges.absence.map(Reading::Absent);
        for reading in self.gauges.devices.iter().copied().map(Reading::Device).chain(absence) {
            self.trace.write(|trace| trace.utilisation(at, &reading, dictionary));
        }
        self.gauges_due = after(at, GAUGES_WRITTEN_EVERY);
    }

    /// Nothing is recorded, but the program may say what it does.
    fn idle(&mut self) {
        self.ranges(flusher::wall_clock());
        self.place();
        self.tally.publish(&self.inlet.launchers);
        self.account.idle();
    }

    /// Finds out which capture a record belongs to.
    fn record(&mut self, record: &Record) {
        if let Some(watch) = &mut self.step_watch {
            watch.push(record, self.decoder.dictionary());
        }
        if let Some(own) = &mut self.own {
            own.push(record, self.decoder.dictionary());
        }
        if let Some(number) = self.segments.whole(record) {
            self.store(number, record);
            return;
        }
        let routed = &mut self.routed;
        self.segments.route(record, |number, record| routed.push((number, *record)));
    }

    /// Gives the routed records to their captures and to the trace, those of one capture after those of another.
    fn place(&mut self) {
        let mut routed = std::mem::take(&mut self.routed);
        let mixed = routed.windows(2).any(|pair| pair[0].0 != pair[1].0);
        if mixed {
            routed.sort_by_key(|&(number, _)| number);
        }
        for (number, record) in routed.drain(..) {
            self.store(number, &record);
        }
        self.routed = routed;
    }

    #[inline]
    fn store(&mut self, number: u32, record: &Record) {
        if number != self.captures.selected() && !self.captures.is_empty() {
            self.mark(CaptureMark::Select { number });
        }
        let dictionary = self.decoder.dictionary();
        self.captures.push(record, dictionary);
        // Looks and ranges alone open no trace: that takes something of the GPU.
        if !matches!(record, Record::Sample(_) | Record::Range(_)) || self.director.is_watching() {
            self.trace.open(&self.session);
        }
        self.trace.write(|trace| trace.push(record, dictionary));
    }

    /// A capture begins, or its range ends.
    fn capture(&mut self, mark: CaptureMark) {
        match mark {
            CaptureMark::Begin { number, at, .. } => {
                if self.segments.is_full() {
                    self.conclude();
                }
                self.segments.begin(number, at);
                self.account.begun(at);
                self.decoder.describe_devices();
                self.trace.open(&self.session);
                self.mark(mark);
            }
            CaptureMark::End { number, at } => self.segments.end(number, at),
            CaptureMark::Select { .. } => {}
        }
    }

    /// The program begins or ends a session of its own, or wants to see what there is of it.
    fn own_session(&mut self, command: Command) {
        match command {
            Command::Begin(mut session, done) => {
                // Those that were made before are none of the session's.
                self.ranges(flusher::wall_clock());
                self.place();
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
                self.ranges(flusher::wall_clock());
                self.place();
                if let Some(own) = &mut self.own {
                    own.end(at, done);
                }
            }
        }
    }

    /// Ends the oldest capture for good.
    fn conclude(&mut self) {
        // A range of the program may have begun it before CUDA was initialised.
        self.decoder.describe_devices();
        let routed = &mut self.routed;
        let concluded = self.segments.conclude(|number, record| routed.push((number, *record)));
        self.place();
        // One whose range never ended is ended by whatever ends the trace.
        if let Some((number, end)) = concluded {
            if let Some(at) = end {
                self.mark(CaptureMark::End { number, at });
            }
            self.director.concluded();
        }
    }

    fn mark(&mut self, mark: CaptureMark) {
        let dictionary = self.decoder.dictionary();
        self.captures.mark(mark, &self.session, &self.loss, dictionary);
        self.trace.write(|trace| trace.capture(mark, dictionary));
    }

    fn flushed(&mut self, before: Timestamp, dropped_by_cupti: u64) {
        // Before the mark, which vouches for the ranges too. What a thread is just writing down is later than it.
        self.ranges(flusher::wall_clock());
        self.count_loss(dropped_by_cupti);
        self.tally.publish(&self.inlet.launchers);
        let routed = &mut self.routed;
        self.segments.flushed(before, |number, record| routed.push((number, *record)));
        self.place();
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        self.captures.flushed(before, dictionary);
        self.trace.write(|trace| trace.flush(before, &loss, dictionary));
        if self.own.as_mut().is_some_and(|own| own.flushed(before, &loss, dictionary))
            && let Some(own) = self.own.take()
        {
            own.finish(before, End::Clean, &loss, dictionary);
        }
        while let Some(number) = self.segments.drained(before, |number| self.captures.awaits_work(number)) {
            log::debug!("capture {number} is complete as of {} ns after the start", before.since(self.session.start));
            self.conclude();
        }
        self.watch_steps(before);
        self.keep_up();
        self.weigh(before);
        self.publish_contexts();
        if before >= self.gauges_due && !self.gauges.is_empty() {
            self.write_gauges(before);
        }
        if let Some(raw) = &mut self.raw {
            raw.flushed(before, dropped_by_cupti);
        }
        let due = self.live.as_ref().is_some_and(|live| before >= live.next) && !self.captures.is_empty();
        if due {
            let line = self.make_report(End::Abrupt).live_line();
            log::print(&format!("{line}\n"));
            if let Some(live) = &mut self.live {
                live.next = after(before, live.interval);
            }
        }
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
        self.account.finish(at, &self.inlet.meters);
        let cost = self.account.cost();
        self.captures.cost(cost);
        let report = self.make_report(end);
        let captured_nothing = self.director.captures() == 0;
        self.write_gauges(at);
        let (loss, dictionary) = (self.loss, self.decoder.dictionary());
        self.trace.write(|trace| trace.cost(at, &cost, dictionary));
        if let Some(answer) = self.answer_to_keep(&report) {
            self.trace.write(|trace| trace.answer(at, &answer, dictionary));
        }
        let trace = self.trace.finish(|trace| trace.finish(end, at, &loss, dictionary));
        Outcome { report, trace, captured_nothing }
    }

    /// The report as text, where making it again would take long. Not when the replay was left out: a reader makes it up.
    fn answer_to_keep(&self, report: &Report) -> Option<KeptAnswer> {
        (report.completeness.records() >= ANSWER_FROM && self.what_if != WhatIf::Off).then(|| KeptAnswer {
            gpuprof_version: self.session.gpuprof_version.clone(),
            summary: report.summary(),
            full: report.full(),
            ranges: report.range_tables(),
        })
    }

    /// Tells how many steps there were so far, when somebody counts them.
    fn watch_steps(&mut self, before: Timestamp) {
        let Some(watch) = &mut self.step_watch else { return };
        watch.flushed(before, self.decoder.dictionary());
        let seen = watch.devices().map(|account| account.steps().seen).max().unwrap_or(0);
        self.director.event(Event::StepsDetected(seen));
    }

    /// How things are, for somebody outside.
    fn answer(&self) -> Answer {
        let report = self.make_report(End::Abrupt);
        let loss = &self.loss;
        Answer {
            verdict: (report.verdict.group.name(), report.verdict.share),
            line: report.live_line(),
            summary: report.summary(),
            kernels: report.completeness.kernels,
            lost: loss.dropped_by_cupti + loss.dropped_by_gpuprof + loss.dropped_ranges,
            trace: self.trace.path().map(Path::to_owned),
        }
    }

    /// Adds up what tracing takes, and steps down when it is too much.
    fn weigh(&mut self, before: Timestamp) {
        let due = self.account.flushed(before, &self.inlet.meters);
        let cost = self.account.cost();
        self.captures.cost(cost);
        if due.write || due.step_down.is_some() {
            let dictionary = self.decoder.dictionary();
            self.trace.write(|trace| trace.cost(before, &cost, dictionary));
        }
        if let Some(mode) = due.step_down {
            log::warning!(
                "tracing takes more than {} allows: only {} from now on",
                settings::MAX_OVERHEAD,
                mode.name()
            );
            self.director.step_down(mode);
        }
    }

    /// Tells the reader of gauges which devices the program uses.
    fn publish_contexts(&self) {
        let devices = self.decoder.dictionary().contexts().iter().map(|context| context.device.0);
        let mask = devices.filter(|&device| device < u64::BITS).fold(0, |mask, device| mask | 1 << device);
        self.inlet.contexts.store(mask, Ordering::Relaxed);
    }

    /// Sheds what can be made up for later before anything must be lost.
    fn keep_up(&mut self) {
        let backlog = self.inlet.deliveries.len();
        if self.what_if == WhatIf::Auto && backlog * BACKLOG_PARTS > self.inlet.pool.limit() {
            self.what_if = WhatIf::Off;
            self.captures.stop_what_if();
            log::warning!(
                "{backlog} buffers of records wait: the what-if replay is left out here (`gpuprof report` makes it up from the trace)"
            );
        }
    }

    fn make_report(&self, end: End) -> Report {
        self.captures.report(&self.session, self.decoder.dictionary(), &self.loss, end, Vec::new())
    }

    fn count_loss(&mut self, dropped_by_cupti: u64) {
        self.loss.dropped_by_cupti = self.loss.dropped_by_cupti.max(dropped_by_cupti);
        self.loss.dropped_by_gpuprof = self.inlet.dropped.load(Ordering::Relaxed) + self.segments.missed();
        self.loss.beyond_dictionary = self.decoder.dictionary().beyond();
        self.loss.dropped_ranges = nvtx::dropped();
        self.loss.unobserved_ns = self.director.unobserved();
        self.loss.undelivered_buffers = self.inlet.undelivered.load(Ordering::Relaxed);
        let foreign = self.inlet.foreign_bytes.swap(0, Ordering::Relaxed);
        if foreign > 0 && !self.foreign_buffers_said {
            self.foreign_buffers_said = true;
            log::warning!(
                "another profiler's activity buffers come to gpuprof: its records are left alone, and some of ours may \
                 have gone to it; run the two apart"
            );
        }
    }
}

fn after(time: Timestamp, interval: Duration) -> Timestamp {
    let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_nanos(time.nanos().saturating_add(nanos))
}
