//! The destinations of events: the engine and the trace file, which get the same events in the same order.
//!
//! The program's own session is a sink too, with a separate router ([`SessionTrace`]): it gets records before
//! their capture is known.
//!
//! [`SessionTrace`]: crate::routing::session_trace::SessionTrace

use std::sync::Arc;

use gpuwhy_report::capture::{Captures, MONITORED};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::own_marks::memory_text;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{CaptureMark, Record, Trigger};
use gpuwhy_trace::utilization::UtilizationReading;

use crate::capture::controller::CaptureController;
use crate::collect::trace_file::TraceFile;

/// Maximum number of records that wait for a trace: a process that only queries the GPU has a few.
const EARLY_LIMIT: usize = 256;

/// The engine and the trace file.
pub struct Sinks {
    pub session: ProcessInfo,
    pub captures: Captures,
    pub trace: TraceFile,
    controller: Arc<CaptureController>,
    /// Records that come before there is a trace, and that do not justify one by themselves.
    early: Vec<Event>,
}

impl Sinks {
    /// Creates the sinks of this process. The engine gets the first events of the run now, the file once it
    /// is opened.
    pub fn new(
        session: ProcessInfo,
        captures: Captures,
        trace: TraceFile,
        controller: Arc<CaptureController>,
        dictionary: &Dictionary,
    ) -> Self {
        let mut sinks = Self { session, captures, trace, controller, early: Vec::new() };
        if let Some(begin) = sinks.begin() {
            sinks.feed_engine(&begin, dictionary);
        }
        sinks
    }

    /// Event for the start of the run in mode auto, which monitors it.
    fn begin(&self) -> Option<Event> {
        let mark = CaptureMark::Begin { number: MONITORED, at: self.session.start, trigger: Trigger::Start };
        self.controller.is_monitored().then_some(Event::Capture(mark))
    }

    /// Passes a record to its capture.
    #[inline]
    pub fn record(&mut self, number: u32, record: &Event, dictionary: &Dictionary) {
        if number != self.captures.selected() && !self.captures.is_empty() {
            self.event(&Event::Capture(CaptureMark::Select { number }), dictionary);
        }
        self.event(record, dictionary);
    }

    /// Passes an event only to the engine: totals, which the file gets less often.
    pub fn feed_engine(&mut self, event: &Event, dictionary: &Dictionary) {
        self.captures.event(event, &self.session, dictionary);
    }

    /// Opens the file if it is not open yet and this event justifies it. Returns true if the event is to be
    /// written.
    fn open_for(&mut self, event: &Event, dictionary: &Dictionary) -> bool {
        match event {
            // PyTorch uses CUDA.
            Event::Record(Record::Range(event)) if memory_text(event, dictionary).is_some() => {}
            // Samples and ranges alone open no trace: that takes GPU activity.
            Event::Record(Record::Sample(_) | Record::Range(_)) if !self.controller.monitors() => return false,
            // Neither do the overhead records that CUPTI makes in every process that initializes CUDA.
            Event::Record(Record::Overhead(_)) if self.early.len() < EARLY_LIMIT => {
                self.early.push(event.clone());
                return false;
            }
            Event::Record(_) | Event::Capture(CaptureMark::Begin { .. }) => {}
            // The reason for its absence is written once there is a file.
            Event::Utilization { reading, .. } if matches!(**reading, UtilizationReading::Absent(_)) => return true,
            // The utilization of a device is GPU activity.
            Event::Utilization { .. } => {}
            _ => return false,
        }
        self.trace.open(&self.session);
        let known = self.begin().into_iter().chain(self.early.drain(..)).chain(self.captures.preamble().events());
        known.for_each(|event| self.trace.event(&event, dictionary));
        true
    }
}

impl Sink for Sinks {
    #[inline]
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        self.feed_engine(event, dictionary);
        if !self.trace.is_waiting() || self.open_for(event, dictionary) {
            self.trace.event(event, dictionary);
        }
    }
}
