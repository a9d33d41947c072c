//! Where events go: the engine and the trace file, which get the same ones in the same order.
//!
//! The program's own session is a sink too, with a router of its own ([`SessionTrace`]): it gets records before it is
//! known which capture they belong to.
//!
//! [`SessionTrace`]: super::session_trace::SessionTrace

use std::sync::Arc;

use gpuwhy_report::capture::{Captures, MONITORED};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{CaptureMark, Record, Trigger};
use gpuwhy_trace::utilization::UtilizationReading;

use crate::capture::controller::CaptureController;
use crate::collect::trace_file::TraceFile;

/// Records that wait for a trace at most: a process that only queries the GPU has a few.
const EARLY_LIMIT: usize = 256;

/// The engine and the trace file.
pub struct Sinks {
    pub session: ProcessInfo,
    pub captures: Captures,
    pub trace: TraceFile,
    controller: Arc<CaptureController>,
    /// Records that come before there is a trace, and alone are no reason for one.
    early: Vec<Event>,
}

impl Sinks {
    /// Those of this process. The engine gets what the run begins with; the file gets it when it is opened.
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

    /// The begin of the run as mode auto monitors it.
    fn begin(&self) -> Option<Event> {
        let mark = CaptureMark::Begin { number: MONITORED, at: self.session.start, trigger: Trigger::Start };
        self.controller.has_bursts().then_some(Event::Capture(mark))
    }

    /// Gives a record to its capture.
    #[inline]
    pub fn record(&mut self, number: u32, record: &Event, dictionary: &Dictionary) {
        if number != self.captures.selected() && !self.captures.is_empty() {
            self.event(&Event::Capture(CaptureMark::Select { number }), dictionary);
        }
        self.event(record, dictionary);
    }

    /// Gives an event to the engine alone: totals, which the file gets more seldom.
    pub fn feed_engine(&mut self, event: &Event, dictionary: &Dictionary) {
        self.captures.event(event, &self.session, dictionary);
    }

    /// Opens the file, which waits, if this event is something to write. Answers whether the event is written.
    fn open_for(&mut self, event: &Event, dictionary: &Dictionary) -> bool {
        match event {
            // Samples and ranges alone open no trace: that takes something of the GPU.
            Event::Record(Record::Sample(_) | Record::Range(_)) if !self.controller.monitors() => return false,
            // Nor does what CUPTI says of itself in every process that initializes CUDA.
            Event::Record(Record::Overhead(_)) if self.early.len() < EARLY_LIMIT => {
                self.early.push(event.clone());
                return false;
            }
            Event::Record(_) | Event::Capture(CaptureMark::Begin { .. }) => {}
            // Why there is none is told once there is a file.
            Event::Utilization { reading, .. } if matches!(**reading, UtilizationReading::Absent(_)) => return true,
            // Utilization of a device is something of the GPU.
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
