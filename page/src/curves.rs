//! Rows of the timeline with values over time: launches that have not started, utilization readings, hardware
//! counters, memory.
//!
//! The run has equal intervals, finer than samples in runs of some seconds. Each has the time-weighted mean
//! of the known values, or the largest value where peaks matter.

use std::collections::{BTreeMap, BTreeSet};
use std::{io, iter};

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, Metric, MetricSet, Sample, Unit};
use gpuwhy_trace::record::{ApiCall, CorrelationId, DeviceId, MemoryEvent, MemoryKind, Timestamp};
use profiler_core::memory::Holdings;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::block::{BlockId, Blocks, planes, zigzag};

/// Number of intervals of the run: two for each pixel column of a large screen.
const INTERVALS: usize = 4_096;
/// Maximum number of curves, by device and name.
const CURVES: usize = 512;
/// Number of newest launching calls, and of operations whose call has not arrived, among which the two ends
/// of a launch are matched. CUPTI delivers calls and operations in separate buffers, some 30,000 records
/// apart.
const CALLS: usize = 1 << 17;
const EARLY: usize = 1 << 18;
/// Maximum time before a reading that it covers, nanoseconds.
const READING: u64 = 2_000_000_000;
/// Counters with a row; the others are in the view "Inside the GPU".
const COUNTERS: [Metric; 8] = [
    Metric::MultiprocessorsActive,
    Metric::Tensor,
    Metric::Dram,
    Metric::Clock,
    Metric::PcieRead,
    Metric::PcieWrite,
    Metric::NvlinkRead,
    Metric::NvlinkWrite,
];

/// Quantity of a curve. The order is that of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Queue,
    Power,
    SmClock,
    Counter(Metric),
    Memory,
    /// What allocations of the program hold: the row of a device without readings.
    Held,
}

impl Shown {
    fn label(self) -> String {
        match self {
            Self::Queue => "launches not begun".to_owned(),
            Self::Power => "power".to_owned(),
            Self::SmClock => "SM clock".to_owned(),
            Self::Counter(Metric::MultiprocessorsActive) => "SMs active".to_owned(),
            Self::Counter(Metric::Tensor) => "tensor cores".to_owned(),
            Self::Counter(Metric::Dram) => "memory bandwidth".to_owned(),
            Self::Counter(metric) => metric.name().replace('_', " "),
            Self::Memory | Self::Held => "memory".to_owned(),
        }
    }

    /// The unit, and its size in the page's whole numbers.
    fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Queue => ("", 100.0),
            Self::Power => ("W", 10.0),
            Self::SmClock | Self::Counter(Metric::Clock) => ("Hz", 1e-6),
            Self::Counter(metric) if metric.unit() == Unit::Percent => ("%", 10.0),
            Self::Counter(_) => ("B/s", 1e-3),
            Self::Memory | Self::Held => ("B", 1e-3),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Curve {
    device: u32,
    label: String,
    unit: &'static str,
    /// Size of a step of the numbers in the block, in units.
    step: f64,
    /// The largest value, in units.
    most: f64,
    intervals: usize,
    /// Length of an interval, nanoseconds.
    span_ns: u64,
    /// The value plus one for each interval, 0 if unknown; as differences.
    block: BlockId,
}

/// Sums of one curve: value times nanoseconds, and nanoseconds, of each interval.
#[derive(Debug)]
struct Sum(Vec<(f64, u64)>);

impl Sum {
    fn new() -> Self {
        Self(vec![(0.0, 0); INTERVALS])
    }

    fn each(&mut self, span: u64, (mut from, to): (u64, u64), change: impl Fn(&mut (f64, u64), u64)) {
        while from < to {
            let interval = ((from / span) as usize).min(INTERVALS - 1);
            let edge = if interval == INTERVALS - 1 { to } else { to.min((interval as u64 + 1) * span) };
            change(&mut self.0[interval], edge - from);
            from = edge;
        }
    }

    /// Adds a value between two times, nanoseconds after the origin.
    fn mean(&mut self, span: u64, time: (u64, u64), value: f64) {
        self.each(span, time, |(sum, known), nanos| {
            *sum += value * nanos as f64;
            *known += nanos;
        });
    }

    /// Like `mean`, but keeps the largest value of an interval.
    fn largest(&mut self, span: u64, time: (u64, u64), value: f64) {
        self.each(span, time, |(most, known), _| {
            *most = most.max(value);
            *known = 1;
        });
    }
}

/// A launching call in the table of the newest calls by number.
#[derive(Clone, Copy, Debug, Default)]
struct LaunchEntry {
    correlation: u32,
    /// End of the call, nanoseconds after the origin.
    at: u64,
}

/// Device and start of an operation.
type Begun = (DeviceId, u64);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Curves {
    origin: u64,
    window: u64,
    span: u64,
    sums: BTreeMap<(DeviceId, Shown), Sum>,
    sets: BTreeMap<DeviceId, MetricSet>,
    read: BTreeMap<DeviceId, u64>,
    calls: Vec<LaunchEntry>,
    /// Operations whose call has not arrived, by its number: one, and the others of a graph.
    early: FxHashMap<u32, (Begun, Vec<Begun>)>,
    early_count: usize,
    holdings: Holdings,
    held: BTreeMap<DeviceId, (u64, u64)>,
    /// Number of operations with an unknown launching call.
    pub(crate) launches_unknown: u64,
}

impl Curves {
    /// Covers the `window` nanoseconds from `origin` on.
    pub(crate) fn new(origin: u64, window: u64) -> Self {
        Self {
            origin,
            window,
            span: window.div_ceil(INTERVALS as u64).max(1),
            sums: BTreeMap::new(),
            sets: BTreeMap::new(),
            read: BTreeMap::new(),
            calls: Vec::new(),
            early: FxHashMap::default(),
            early_count: 0,
            holdings: Holdings::default(),
            held: BTreeMap::new(),
            launches_unknown: 0,
        }
    }

    fn since(&self, at: Timestamp) -> u64 {
        at.nanos().saturating_sub(self.origin).min(self.window)
    }

    fn sum(&mut self, device: DeviceId, shown: Shown) -> Option<&mut Sum> {
        if self.sums.len() >= CURVES && !self.sums.contains_key(&(device, shown)) {
            return None;
        }
        Some(self.sums.entry((device, shown)).or_insert_with(Sum::new))
    }

    /// Adds a call that launches device work.
    pub(crate) fn launched(&mut self, call: &ApiCall) {
        let correlation = call.correlation.0;
        if correlation == 0 {
            return;
        }
        let at = self.since(call.end);
        self.calls.resize(CALLS, LaunchEntry::default());
        self.calls[correlation as usize % CALLS] = LaunchEntry { correlation, at };
        if let Some((one, others)) = self.early.remove(&correlation) {
            self.early_count -= 1 + others.len();
            iter::once(one).chain(others).for_each(|(device, begun)| self.queued(device, at, begun));
        }
    }

    pub(crate) fn began(&mut self, device: DeviceId, start: Timestamp, correlation: CorrelationId) {
        let (correlation, begun) = (correlation.0, self.since(start));
        let call = self.calls.get(correlation as usize % CALLS).filter(|call| call.correlation == correlation);
        if correlation == 0 {
            self.launches_unknown += 1;
        } else if let Some(&LaunchEntry { at, .. }) = call {
            self.queued(device, at, begun);
        } else if self.early_count < EARLY {
            // Its call may arrive with later records.
            let known = self.early.entry(correlation);
            known
                .and_modify(|(_, others)| others.push((device, begun)))
                .or_insert_with(|| ((device, begun), Vec::new()));
            self.early_count += 1;
        } else {
            self.launches_unknown += 1;
        }
    }

    fn queued(&mut self, device: DeviceId, launched: u64, begun: u64) {
        let span = self.span;
        if let Some(sum) = self.sum(device, Shown::Queue) {
            sum.mean(span, (launched, begun), 1.0);
        }
    }

    /// Adds an allocation or release of memory.
    pub(crate) fn memory(&mut self, event: &MemoryEvent) {
        let Some(((device, MemoryKind::Device), holding)) = self.holdings.take(event) else { return };
        let at = self.since(event.at);
        self.hold(device, at);
        self.held.insert(device, (at, holding.current));
    }

    /// Extends the amount held on a device to `until`.
    fn hold(&mut self, device: DeviceId, until: u64) {
        let (from, bytes) = self.held.get(&device).copied().unwrap_or((0, 0));
        let span = self.span;
        if let Some(sum) = self.sum(device, Shown::Held) {
            sum.largest(span, (from, until.max(from)), bytes as f64);
        }
    }

    /// Adds samples and readings.
    pub(crate) fn counters(&mut self, event: &CounterEvent) {
        match event {
            CounterEvent::Set(set) if self.sets.len() < CURVES || self.sets.contains_key(&set.device) => {
                self.sets.insert(set.device, *set);
            }
            CounterEvent::Sample(sample) => self.sample(sample),
            CounterEvent::Gauges(reading) => self.gauges(reading),
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(set) = self.sets.get(&sample.device).copied() else { return };
        let time = (self.since(sample.begin), self.since(sample.end));
        let span = self.span;
        for metric in COUNTERS {
            if let Some(value) = sample.value(&set, metric)
                && let Some(sum) = self.sum(sample.device, Shown::Counter(metric))
            {
                sum.mean(span, time, f64::from(value));
            }
        }
    }

    fn gauges(&mut self, reading: &GaugeReading) {
        let at = self.since(reading.at);
        // The first reading covers only itself.
        let before = self.read.insert(reading.device, at).unwrap_or(at.saturating_sub(1));
        let (time, span) = ((before.max(at.saturating_sub(READING)), at), self.span);
        for (shown, value) in [
            (Shown::Power, reading.power_mw.map(|power| f64::from(power) / 1e3)),
            (Shown::SmClock, reading.sm_clock_mhz.map(|clock| f64::from(clock) * 1e6)),
            (Shown::Memory, reading.memory_used_bytes.map(|bytes| bytes as f64)),
        ] {
            if let Some(value) = value
                && let Some(sum) = self.sum(reading.device, shown)
            {
                sum.mean(span, time, value);
            }
        }
    }

    /// Writes everything; no further records follow.
    pub(crate) fn finish(&mut self, blocks: &mut Blocks<'_>) -> io::Result<Vec<Curve>> {
        let holders: Vec<DeviceId> = self.held.keys().copied().collect();
        holders.into_iter().for_each(|device| self.hold(device, self.window));
        self.launches_unknown += self.early_count as u64;
        let mut sums = std::mem::take(&mut self.sums);
        // A sampled clock is finer than the polled one; readings of memory have what allocations lack; counters that
        // stay 0 have no row.
        for device in sums.keys().map(|&(device, _)| device).collect::<BTreeSet<_>>() {
            for (better, other) in [(Shown::Counter(Metric::Clock), Shown::SmClock), (Shown::Memory, Shown::Held)] {
                if sums.contains_key(&(device, better)) {
                    sums.remove(&(device, other));
                }
            }
        }
        let mut curves = Vec::new();
        for ((device, shown), sum) in sums {
            let (unit, steps) = shown.unit();
            let value = |&(sum, known): &(f64, u64)| match shown {
                // The complete interval is known.
                Shown::Queue => Some(sum / self.span as f64),
                Shown::Held => (known > 0).then_some(sum),
                _ => (known > 0).then(|| sum / known as f64),
            };
            let most = sum.0.iter().filter_map(value).fold(0.0, f64::max);
            let optional = matches!(shown, Shown::Counter(_));
            if optional && most == 0.0 {
                continue;
            }
            let mut before = 0_i64;
            let changes = sum.0.iter().map(|sum| {
                let number = value(sum).map_or(0, |value| (value.max(0.0) * steps).round() as i64 + 1);
                zigzag(number - std::mem::replace(&mut before, number))
            });
            let mut parts = Vec::new();
            planes(changes, &mut parts);
            curves.push(Curve {
                device: device.0,
                label: shown.label(),
                unit,
                step: 1.0 / steps,
                most,
                intervals: INTERVALS,
                span_ns: self.span,
                block: blocks.within(u64::MAX, Box::new(move || parts))?,
            });
        }
        Ok(curves)
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::counters::{ChipName, MetricList};
    use gpuwhy_trace::record::MemoryOperation;

    use super::*;
    use gpuwhy_page_reader::{self as read, Numbers};

    const ORIGIN: u64 = 5_000;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(ORIGIN + nanos)
    }

    /// Curves by label: values of the intervals, of 1,000 ns each.
    fn shown(mut curves: Curves) -> BTreeMap<String, Vec<Option<f64>>> {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(&mut out);
        let rows = curves.finish(&mut blocks).unwrap();
        blocks.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = |curve: Curve| {
            let bytes = read::block(&text, &curve.block.to_string()).unwrap();
            let mut number = 0_i64;
            let changes = Numbers(&bytes).column(curve.intervals);
            let numbers = changes.into_iter().map(|change| {
                number += (change >> 1) as i64 ^ -((change & 1) as i64);
                (number > 0).then(|| (number - 1) as f64 * curve.step)
            });
            (format!("{} {}", curve.device, curve.label), numbers.collect())
        };
        rows.into_iter().map(row).collect()
    }

    fn curves() -> Curves {
        Curves::new(ORIGIN, 1_000 * INTERVALS as u64)
    }

    #[test]
    fn a_launch_waits_from_its_call_to_its_begin_whichever_comes_first() {
        let mut curves = curves();
        let call =
            |correlation, end| ApiCall { end: at(end), correlation: CorrelationId(correlation), ..ApiCall::default() };
        curves.launched(&call(1, 500));
        curves.began(DeviceId(0), at(2_500), CorrelationId(1));
        // A graph: two operations of one call.
        curves.began(DeviceId(0), at(1_500), CorrelationId(1));
        curves.began(DeviceId(1), at(3_000), CorrelationId(2));
        curves.began(DeviceId(1), at(1_500), CorrelationId(2));
        curves.launched(&call(2, 1_000));
        // It started before the call was over, and one has no call.
        curves.launched(&call(3, 9_000));
        curves.began(DeviceId(0), at(8_000), CorrelationId(3));
        curves.began(DeviceId(0), at(8_000), CorrelationId(4));
        curves.began(DeviceId(0), at(8_000), CorrelationId(0));
        let lost =
            |curves: &mut Curves| curves.finish(&mut Blocks::new(&mut Vec::new())).map(|_| curves.launches_unknown);
        let mut other = Curves::new(ORIGIN, 10);
        other.began(DeviceId(0), at(1), CorrelationId(7));
        assert_eq!((curves.launches_unknown, lost(&mut other).unwrap()), (1, 1));
        let rows = shown(curves);
        assert_eq!(rows["0 launches not begun"][..4], [Some(1.0), Some(1.5), Some(0.5), Some(0.0)]);
        assert_eq!(rows["1 launches not begun"][..4], [Some(0.0), Some(1.5), Some(1.0), Some(0.0)]);
    }

    #[test]
    fn memory_shows_its_peaks_and_readings_if_there_are_any() {
        let mut curves = curves();
        let used = |at_ns, device| {
            let memory_used_bytes = Some(9_000_000);
            GaugeReading { at: at(at_ns), device: DeviceId(device), memory_used_bytes, ..GaugeReading::default() }
        };
        curves.counters(&CounterEvent::Gauges(used(1_000, 1)));
        curves.counters(&CounterEvent::Gauges(used(2_000, 1)));
        for (operation, nanos, address, bytes) in [
            (MemoryOperation::Allocation, 1_500, 1, 4_000),
            (MemoryOperation::Allocation, 2_100, 2, 8_000),
            (MemoryOperation::Release, 2_200, 2, 8_000),
            (MemoryOperation::Release, 4_000, 1, 4_000),
        ] {
            for (device, address) in [(DeviceId(0), address), (DeviceId(1), address + 10)] {
                let event = MemoryEvent { at: at(nanos), operation, address, bytes, device, ..MemoryEvent::default() };
                curves.memory(&MemoryEvent { kind: MemoryKind::Device, ..event });
            }
        }
        let rows = shown(curves);
        assert_eq!((rows.len(), rows["1 memory"][1]), (2, Some(9_000_000.0)));
        let held = &rows["0 memory"];
        assert_eq!(held[..5], [Some(0.0), Some(4_000.0), Some(12_000.0), Some(4_000.0), Some(0.0)]);
        assert_eq!(held[INTERVALS - 1], Some(0.0));
    }

    #[test]
    fn samples_and_readings_are_means_by_time() {
        let device = DeviceId(3);
        let mut curves = curves();
        let reading = |nanos, watts: u32| {
            CounterEvent::Gauges(GaugeReading {
                device,
                at: at(nanos),
                power_mw: Some(watts * 1_000),
                sm_clock_mhz: Some(1_500),
                ..GaugeReading::default()
            })
        };
        let metrics = MetricList::new(&[Metric::Clock, Metric::Tensor, Metric::PcieRead]);
        let chip = ChipName::new("GH100");
        let set = MetricSet { device, chip, metrics, interval_ns: 1_000, highest_clock_hz: 0, multiprocessors: 132 };
        let sample =
            |begin, end, tensor| CounterEvent::Sample(Sample::new(device, at(begin), at(end), &[1.9e9, tensor, 0.0]));
        // Before its set a sample has no meaning.
        for event in [
            sample(0, 1_000, 99.0),
            CounterEvent::Set(set),
            sample(1_000, 1_500, 10.0),
            sample(1_500, 3_000, 50.0),
            reading(1_500, 100),
            reading(3_500, 300),
        ] {
            curves.counters(&event);
        }
        let rows = shown(curves);
        assert_eq!(rows["3 tensor cores"][..4], [None, Some(30.0), Some(50.0), None]);
        let power: Vec<_> = rows["3 power"][..5].iter().map(|value| value.map(f64::round)).collect();
        assert_eq!(power, [None, Some(300.0), Some(300.0), Some(300.0), None]);
        assert!(rows.contains_key("3 core clock") && !rows.contains_key("3 SM clock"), "{:?}", rows.keys());
        assert!(!rows.contains_key("3 pcie read"), "nothing was read");
    }
}
