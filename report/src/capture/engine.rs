//! Engines of one capture.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::record::{Record, Timestamp, Trigger};
use profiler_core::attribution::Attributor;
use profiler_core::collective::CollectiveEngine;
use profiler_core::monitoring::Monitoring;

use crate::run::CaptureRow;
use crate::run::bottleneck::LiveBottleneck;

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) row: CaptureRow,
    pub(super) attributor: Attributor,
    /// Divides the time if no device work is recorded.
    pub(super) monitoring: Monitoring,
    pub(super) collectives: CollectiveEngine,
    /// Bottleneck shown in the live line.
    pub(super) live_bottleneck: LiveBottleneck,
}

impl Capture {
    pub(super) fn new(number: u32, at: Timestamp, trigger: Trigger) -> Self {
        let mut attributor = Attributor::new();
        attributor.begin(at);
        Self {
            row: CaptureRow { number, trigger, begin: at, ..CaptureRow::default() },
            attributor,
            monitoring: Monitoring::default(),
            collectives: CollectiveEngine::new(at),
            live_bottleneck: LiveBottleneck::default(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        self.monitoring.push(record, dictionary);
        self.attributor.push(record, dictionary);
        self.collectives.push(record, dictionary);
    }
}

impl Sink for Capture {
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => self.push(record, dictionary),
            Event::Counters(event) => {
                self.attributor.push_counters(event);
                self.monitoring.counters(event);
            }
            Event::Collective(event) => self.collectives.event(event),
            Event::KernelProfile(profile) if profile.launches > 0 => {
                self.attributor.disturbed(profile.begin, profile.end);
            }
            Event::ProgramCounters(window) if window.begin > Timestamp::ZERO => {
                self.attributor.disturbed(window.opened, window.begin);
                self.attributor.disturbed(window.end, window.closed);
            }
            Event::Flush(at) => {
                self.attributor.flushed(*at, dictionary);
                self.collectives.flushed(*at);
            }
            // Events of the run, not of a capture.
            _ => {}
        }
    }
}
