//! The collector's way of a record: to its capture, and into the trace.
//!
//! Which capture a record belongs to is decided by [`CaptureRouter`](crate::collect::capture_router::CaptureRouter),
//! sometimes after it came. So records are first routed, and then placed, those of one capture after those of another:
//! the trace names a capture once for all records behind it.

use profiler_core::capture::MONITORED;
use profiler_core::collective::CollectiveEvent;
use profiler_core::event::Event;
use profiler_core::process_info::ProcessInfo;
use profiler_core::record::{CaptureMark, HostSample, Record, StackId, Timestamp, Trigger};

use crate::collect::collector::Collector;
use crate::sampler::queue::SampleBatch;
use crate::sys::{clock, memory};

/// Records that wait for a trace at most: a process that only queries the GPU has a few.
const EARLY_LIMIT: usize = 256;

/// The run as mode auto monitors it, from its begin to its end.
pub(super) fn monitored(session: &ProcessInfo) -> Event {
    Event::Capture(CaptureMark::Begin { number: MONITORED, at: session.start, trigger: Trigger::Start })
}

impl Collector {
    /// Takes over the program's ranges and marks up to now. They begin no trace: until there is a record from CUPTI
    /// they stay where they are, unless they can only lie before a capture.
    pub(super) fn ranges(&mut self, until: Timestamp) {
        if self.trace.is_waiting() && self.router.is_whole() && !self.controller.monitors() {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        events.extend(self.ranges.events(until, self.decoder.dictionary_mut()));
        for event in events.drain(..) {
            self.record(&Event::Record(Record::Range(event)));
        }
        self.events = events;
        let mut told: Vec<CollectiveEvent> = self.ranges.collectives().collect();
        for event in told.drain(..) {
            self.collective(event);
        }
    }

    /// What NCCL told belongs to the captures that are open, and opens no trace by itself.
    fn collective(&mut self, event: CollectiveEvent) {
        let event = Event::Collective(event);
        self.event(&event);
        if let Some(own) = &mut self.own {
            own.event(&event, self.decoder.dictionary());
        }
    }

    /// Takes over the program's ranges up to now, and places all that was routed. Without memory for them ranges wait
    /// in their rings, which have a limit.
    pub(super) fn catch_up(&mut self) {
        if !memory::is_short() {
            self.ranges(clock::wall_clock());
        }
        self.append_routed();
    }

    pub(super) fn samples(&mut self, batch: &SampleBatch) {
        self.loss.failed_samples += batch.failed;
        for queued in &batch.samples {
            let stack = self.stacks.intern(&queued.frames, self.decoder.dictionary_mut());
            self.loss.failed_samples += u64::from(stack.is_none());
            let stack = stack.unwrap_or(StackId::NONE);
            let earlier = match queued.earlier.is_empty() {
                true => None,
                false => self.earlier_stacks.intern(&queued.earlier, self.decoder.dictionary_mut()),
            };
            self.record(&Event::Record(Record::Sample(HostSample { stack, earlier, ..queued.sample })));
        }
        self.append_routed();
    }

    /// Finds out which capture a record belongs to.
    #[inline]
    pub(super) fn record(&mut self, event: &Event) {
        let Event::Record(record) = event else { return };
        if let Some(watch) = &mut self.step_watch {
            watch.push(record, self.decoder.dictionary());
        }
        if let Some(own) = &mut self.own {
            own.event(event, self.decoder.dictionary());
        }
        if let Some(number) = self.router.whole(record) {
            self.append(number, event);
            return;
        }
        let routed = &mut self.routed;
        let before = routed.len();
        self.router.route(record, |number, record| routed.push((number, Event::Record(*record))));
        // Samples and ranges never wait for their capture, and outside bursts they are the monitor's.
        if let (Some(planner), Record::Sample(_) | Record::Range(_)) = (&mut self.bursts, record) {
            planner.push(record, self.decoder.dictionary());
            if self.routed.len() == before {
                self.routed.push((MONITORED, event.clone()));
            }
        }
    }

    /// Gives the routed records to their captures and to the trace, those of one capture after those of another.
    pub(super) fn append_routed(&mut self) {
        let mut routed = std::mem::take(&mut self.routed);
        let mixed = routed.windows(2).any(|pair| pair[0].0 != pair[1].0);
        if mixed {
            routed.sort_by_key(|&(number, _)| number);
        }
        for (number, event) in routed.drain(..) {
            self.append(number, &event);
        }
        self.routed = routed;
    }

    #[inline]
    fn append(&mut self, number: u32, event: &Event) {
        if number != self.captures.selected() && !self.captures.is_empty() {
            self.mark_trace(CaptureMark::Select { number });
        }
        self.captures.event(event, &self.session, self.decoder.dictionary());
        if self.trace.is_waiting() {
            match event {
                // Samples and ranges alone open no trace: that takes something of the GPU.
                Event::Record(Record::Sample(_) | Record::Range(_)) if !self.controller.monitors() => return,
                // Nor does what CUPTI says of itself in every process that initializes CUDA.
                Event::Record(Record::Overhead(_)) if self.early.len() < EARLY_LIMIT => {
                    return self.early.push(event.clone());
                }
                _ => self.open_trace(),
            }
        }
        let dictionary = self.decoder.dictionary();
        self.trace.write(|trace| trace.event(event, dictionary));
    }

    /// There is something to write.
    pub(super) fn open_trace(&mut self) {
        let was_waiting = self.trace.is_waiting();
        self.trace.open(&self.session);
        let dictionary = self.decoder.dictionary();
        if was_waiting && self.bursts.is_some() {
            let mark = monitored(&self.session);
            self.trace.write(|trace| trace.event(&mark, dictionary));
        }
        for early in self.early.drain(..) {
            self.trace.write(|trace| trace.event(&early, dictionary));
        }
        if was_waiting {
            for event in self.captures.preamble().events() {
                self.trace.write(|trace| trace.event(&event, dictionary));
            }
        }
    }

    /// A capture begins, or its range ends.
    pub(super) fn capture(&mut self, mark: CaptureMark) {
        match mark {
            CaptureMark::Begin { number, at, .. } => {
                if self.router.is_full() {
                    self.conclude();
                }
                self.router.begin(number, at);
                self.account.begun(at);
                self.decoder.describe_devices();
                self.open_trace();
                self.mark_trace(mark);
            }
            CaptureMark::End { number, at } => self.router.end(number, at),
            CaptureMark::Select { .. } => {}
        }
    }

    /// A flush mark: gives out what waited for it.
    pub(super) fn release(&mut self, before: Timestamp) {
        let routed = &mut self.routed;
        self.router.flushed(before, |number, record| routed.push((number, Event::Record(*record))));
        self.append_routed();
    }

    /// Ends those captures for good of which nothing more is to come as of the mark `before`.
    pub(super) fn conclude_drained(&mut self, before: Timestamp) {
        while let Some(number) = self.router.drained(before, |number| self.captures.awaits_work(number)) {
            tracing::debug!(
                "capture {number} is complete as of {} ns after the start",
                before.since(self.session.start)
            );
            self.conclude();
        }
    }

    /// Ends the oldest capture for good.
    pub(super) fn conclude(&mut self) {
        // A range of the program may have begun it before CUDA was initialized.
        self.decoder.describe_devices();
        let routed = &mut self.routed;
        let concluded = self.router.conclude(|number, record| routed.push((number, Event::Record(*record))));
        self.append_routed();
        // One whose range never ended is ended by whatever ends the trace.
        if let Some((number, end)) = concluded {
            if let Some(at) = end {
                self.mark_trace(CaptureMark::End { number, at });
            }
            self.controller.concluded();
        }
    }

    pub(super) fn mark_trace(&mut self, mark: CaptureMark) {
        self.event(&Event::Loss(self.loss));
        self.event(&Event::Capture(mark));
    }

    /// Gives an event to the engine and to the trace.
    pub(super) fn event(&mut self, event: &Event) {
        let dictionary = self.decoder.dictionary();
        self.captures.event(event, &self.session, dictionary);
        self.trace.write(|trace| trace.event(event, dictionary));
    }
}
