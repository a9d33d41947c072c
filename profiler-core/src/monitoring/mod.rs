//! Causes of idle device time without a record of device work: samples of hardware counters show how long the
//! device was busy, host samples show the activity of the launching thread, and together they bound the share
//! of each cause.
//!
//! Reading order: `seen` (activity of a thread, and the possible causes), `sums` (shares and their bounds),
//! `history` (sums by time), [`division`](MonitoredTime) (intervals, and the bottleneck), `changes`
//! (bottleneck over time), `iterations` (those of a server), `bursts` (when mode auto records; `drift` and
//! `named_steps` are its parts). This file joins the samples of both kinds. docs/design/monitoring.md has the
//! reasoning and the measurements.

mod bursts;
mod changes;
mod division;
mod drift;
mod history;
mod iterations;
mod named_steps;
mod seen;
mod sums;

use std::collections::VecDeque;

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, Metric, MetricSet, Sample};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{DeviceId, HostSample, Record, ThreadId, ThreadState};

pub use bursts::{BurstDecision, BurstLimits, BurstPlanner, MonitorView};
pub use changes::BottleneckChange;
pub use changes::Changes;
pub use division::{MonitoredPart, MonitoredTime};
pub use iterations::MonitoredIterations;

use self::history::History;
use self::iterations::Submissions;
use self::seen::SeenParts;
use self::sums::{Between, DeviceSpan, IDLE, Sums};
use crate::attribution::host_activity::HostActivities;

/// Maximum number of devices; samples of further ones are counted.
const DEVICE_LIMIT: usize = 16;
/// Device samples that wait for host samples of the same time (48 bytes each): three seconds at 5,000 per
/// second.
const SPAN_LIMIT: usize = 16_384;
/// Host samples that wait for a device sample of the same time.
const HOST_LIMIT: usize = 4_096;
/// Traffic readings kept per device: they come ten times per second, and samples are at most one second late.
const TRAFFIC_LIMIT: usize = 64;

/// Upper limit of the link to the host, bytes per nanosecond: PCI Express 5.0 with 16 lanes moves 63.
const FASTEST_LINK: f64 = 64.0;
/// Minimum rate of copies from pinned memory, bytes per nanosecond: 12 to 55 were measured
/// (docs/design/overhead.md). For copies from pageable memory, a thread is in the call the entire time.
const SLOWEST_COPY: f64 = 12.0;
/// Minimum rate of any copy: 3 was measured.
const SLOWEST_STAGED: f64 = 1.0;
/// Maximum traffic over that link without any copy, bytes per nanosecond: caused by a loop of empty launches
/// alone.
const LAUNCHING_TRAFFIC: f64 = 0.5;
/// Time without a sample after which a device no longer counts as sampled, nanoseconds.
const OVERDUE: u64 = 5_000_000_000;
/// Fraction of active multiprocessors below which no kernel runs: samples are rounded.
const NO_KERNEL: f64 = 0.002;
/// Maximum error of the engine counter.
const ENGINE_ERROR: f64 = 0.01;

/// Joins samples of devices and of the launching thread. Memory is bounded.
#[derive(Debug, Default)]
pub struct Monitoring {
    devices: Vec<MonitoredDevice>,
    /// The launching thread, as far as known: the first one of the process.
    thread: Option<ThreadId>,
    activities: HostActivities,
    submissions: Submissions,
    /// Samples of the thread that wait for device samples, in order.
    waiting: VecDeque<(HostSample, SeenParts)>,
    history: History,
    /// Host samples without a device sample of the same time, and device samples that came too late or were
    /// too many.
    unmatched: u64,
    /// True if device work is recorded, which has more detail.
    has_records: bool,
}

#[derive(Debug)]
struct MonitoredDevice {
    id: DeviceId,
    set: MetricSet,
    spans: VecDeque<DeviceSpan>,
    /// End of the newest sample.
    newest: u64,
    traffic: VecDeque<Traffic>,
    last_reading: Option<GaugeReading>,
}

/// Traffic over the link to the host between two readings, bytes per nanosecond.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    from: u64,
    to: u64,
    rate: f64,
}

impl Monitoring {
    /// Processes a record: host samples and marks until records of device work come, which have more detail.
    #[inline]
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            _ if self.has_records => {}
            Record::Sample(sample) => self.host(sample, dictionary),
            Record::Range(event) => self.submissions.push(event, dictionary),
            Record::Kernel(_) | Record::Copy(_) | Record::Memset(_) => {
                *self = Self { has_records: true, ..Self::default() }
            }
            _ => {}
        }
    }

    /// Processes an event of hardware counters.
    pub fn counters(&mut self, event: &CounterEvent) {
        if self.has_records {
            return;
        }
        match event {
            CounterEvent::Set(set) => self.set(set),
            CounterEvent::Sample(sample) => self.sample(sample),
            CounterEvent::Gauges(reading) => {
                if let Some(device) = self.devices.iter_mut().find(|device| device.id == reading.device) {
                    device.read(reading);
                }
            }
            CounterEvent::Process(_) | CounterEvent::Loss(_) => {}
        }
    }

    fn set(&mut self, set: &MetricSet) {
        if let Some(device) = self.devices.iter_mut().find(|device| device.id == set.device) {
            device.set = *set;
        } else if self.devices.len() < DEVICE_LIMIT {
            self.devices.push(MonitoredDevice {
                id: set.device,
                set: *set,
                spans: VecDeque::new(),
                newest: 0,
                traffic: VecDeque::new(),
                last_reading: None,
            });
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(device) = self.devices.iter_mut().find(|device| device.id == sample.device) else {
            self.unmatched += 1;
            return;
        };
        let Some(span) = device.span(sample).filter(|span| span.begin >= device.newest) else {
            self.unmatched += 1;
            return;
        };
        device.newest = span.end;
        device.spans.push_back(span);
        if device.spans.len() > SPAN_LIMIT {
            device.spans.pop_front();
        }
        self.history.add(span.begin, |sums| sums.device(&span));
        self.join();
    }

    /// Processes a host sample. Those of threads other than the launching one are ignored.
    pub fn host(&mut self, sample: &HostSample, dictionary: &Dictionary) {
        if sample.since.nanos() == 0 || sample.at <= sample.since {
            return;
        }
        // The first thread of a process has the smallest id, and is usually the one that launches; in a server that of
        // the iterations is known.
        let wanted = self.serving_thread().or_else(|| self.thread.filter(|&known| known <= sample.thread));
        let wanted = wanted.unwrap_or(sample.thread);
        if self.thread != Some(wanted) {
            self.thread = Some(wanted);
            self.waiting.clear();
        }
        if self.thread != Some(sample.thread) {
            return;
        }
        let activity = self.activities.judge(sample, dictionary);
        let parts = SeenParts::new(&activity, sample.state == ThreadState::Running);
        self.waiting.push_back((*sample, parts));
        if self.waiting.len() > HOST_LIMIT {
            self.waiting.pop_front();
            self.unmatched += 1;
        }
        self.join();
    }

    /// Adds host samples whose device samples have arrived.
    fn join(&mut self) {
        let newest = self.devices.iter().map(|device| device.newest);
        let limit = newest.clone().max().unwrap_or(0).saturating_sub(OVERDUE);
        let Some(newest) = newest.filter(|&newest| newest > limit).min() else { return };
        while let Some((sample, parts)) = self.waiting.front().copied()
            && sample.at.nanos() <= newest
        {
            self.waiting.pop_front();
            let (since, at) = (sample.since.nanos(), sample.at.nanos());
            let mut found = false;
            for device in &mut self.devices {
                found |= device.enter(since, at, &parts, &mut self.history);
            }
            if found {
                self.history.add(at, |sums| sums.host_samples += 1);
            } else {
                self.unmatched += 1;
            }
        }
    }

    /// Division of the run up to now, without its start-up; `None` without samples of a device.
    pub fn time(&self) -> Option<MonitoredTime> {
        MonitoredTime::of(self.history.whole(), true)
    }

    /// Division of the complete run up to now, including start-up.
    pub fn whole_time(&self) -> Option<MonitoredTime> {
        MonitoredTime::of(self.history.whole(), false)
    }

    /// Division of the last 20 s.
    pub fn recent_time(&self) -> Option<MonitoredTime> {
        MonitoredTime::of(self.history.recent(), false)
    }

    /// Completed seconds of the last 20, in order: the start of each in nanoseconds, and the fraction of it in
    /// which devices were busy.
    pub fn busy_seconds(&self) -> impl Iterator<Item = (u64, f64)> {
        self.history.complete().map(|(begin, sums)| (begin, sums.busy().low.midpoint(sums.busy().high)))
    }

    /// The thread that runs the iterations of a server.
    pub fn serving_thread(&self) -> Option<ThreadId> {
        self.submissions.thread()
    }

    /// Iterations of a server.
    pub fn iterations(&self) -> Option<MonitoredIterations> {
        self.submissions.iterations()
    }

    /// Number of unusable samples: host samples without a device sample of the same time, and device samples
    /// out of order, without values or of unknown devices.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }
}

impl MonitoredDevice {
    /// Bounds derived from a sample; `None` if it has no value for the busy time.
    fn span(&self, sample: &Sample) -> Option<DeviceSpan> {
        let (begin, end) = (sample.begin.nanos(), sample.end.nanos());
        let part = |metric| sample.value(&self.set, metric).map(|percent| f64::from(percent) / 100.0);
        // Mean fraction of active multiprocessors: a kernel ran for at least this fraction of the time, and
        // at most all of it.
        let filled = part(Metric::MultiprocessorsActive);
        let busy = match (part(Metric::EngineActive), filled) {
            (Some(active), filled) => {
                Between::new((active - ENGINE_ERROR).max(filled.unwrap_or(0.0)), active + ENGINE_ERROR)
            }
            (None, Some(filled)) if filled <= NO_KERNEL => Between::new(0.0, IDLE),
            (None, Some(filled)) => Between::new(filled, 1.0),
            (None, None) => return None,
        };
        if end <= begin {
            return None;
        }
        let rate = |metric| sample.value(&self.set, metric).map(|rate| f64::from(rate) / 1e9);
        let sampled = rate(Metric::PcieRead).zip(rate(Metric::PcieWrite)).map(|(read, write)| read + write);
        let idle = Between::new(1.0 - busy.high, 1.0 - busy.low);
        let traffic = sampled.or_else(|| self.traffic_at(begin.midpoint(end)));
        let moved = traffic.map_or(f64::INFINITY, |rate| (rate - LAUNCHING_TRAFFIC).max(0.0));
        let staged = (moved / SLOWEST_STAGED).min(idle.high);
        let copying = match traffic {
            // Traffic readings are too coarse to prove that these bytes were moved within this sample.
            Some(rate) => {
                let least = if sampled.is_some() { rate / FASTEST_LINK - busy.high } else { 0.0 };
                Between::new(least.min(idle.low), (moved / SLOWEST_COPY).min(idle.high))
            }
            None => Between::new(0.0, idle.high),
        };
        let has_engine = part(Metric::EngineActive).is_some();
        Some(DeviceSpan { begin, end, busy, copying, staged, traffic, has_engine })
    }

    fn traffic_at(&self, at: u64) -> Option<f64> {
        let found = self.traffic.iter().rev().find(|traffic| (traffic.from..traffic.to).contains(&at));
        found.or(self.traffic.back()).map(|traffic| traffic.rate)
    }

    fn read(&mut self, reading: &GaugeReading) {
        let total = |reading: &GaugeReading| reading.pcie_received_bytes.zip(reading.pcie_sent_bytes);
        let Some((received, sent)) = total(reading) else { return };
        if let Some(last) = self.last_reading.replace(*reading)
            && let Some((received_before, sent_before)) = total(&last)
            && reading.at > last.at
        {
            let bytes = received.saturating_sub(received_before) + sent.saturating_sub(sent_before);
            let (from, to) = (last.at.nanos(), reading.at.nanos());
            self.traffic.push_back(Traffic { from, to, rate: bytes as f64 / (to - from) as f64 });
            if self.traffic.len() > TRAFFIC_LIMIT {
                self.traffic.pop_front();
            }
        }
    }

    /// Adds the activity of a thread, where there are device samples of that time. A thread that was off the
    /// cores in one place was there the entire time; otherwise a sample represents its moment, weighted with
    /// the time that it covers.
    fn enter(&mut self, since: u64, at: u64, parts: &SeenParts, history: &mut History) -> bool {
        let keep = if parts.is_still { since } else { at };
        // The next sample starts where this one was taken.
        let passed = self.spans.partition_point(|span| span.end <= keep);
        self.spans.drain(..passed);
        if !parts.is_still {
            let Some(span) = self.spans.front().copied().filter(|span| span.begin <= at) else { return false };
            history.add(span.begin, |sums: &mut Sums| {
                for (seen, nanos) in parts.parts {
                    sums.host(&span, seen.with_traffic(span.traffic), nanos as f64);
                }
            });
            return true;
        }
        let mut found = false;
        for span in self.spans.iter().take_while(|span| span.begin < at) {
            let nanos = span.end.min(at).saturating_sub(span.begin.max(since)) as f64;
            let seen = parts.parts[2].0.with_traffic(span.traffic);
            history.add(span.begin, |sums: &mut Sums| sums.host(span, seen, nanos));
            found = true;
        }
        found
    }
}
