//! Samples of hardware counters and NVML readings as individual values, the common basis of all formats.

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, Metric, Unit};
use gpuwhy_trace::preamble::Preamble;
use gpuwhy_trace::record::{DeviceId, Timestamp};
use rustc_hash::FxHashMap;

/// A counter of a device, sampled or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// A hardware metric, averaged over a sample.
    Metric(Metric),
    /// An NVML reading.
    Gauge(Gauge),
}

/// Defines the readings. A row contains: variant, display name, unit, conversion from a reading,
/// documentation.
macro_rules! gauges {
    ($($gauge:ident = $name:literal, $unit:literal, |$reading:ident| $value:expr, $doc:literal;)*) => {
        /// A value in an NVML reading.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gauge {
            $(#[doc = $doc] $gauge,)*
        }

        impl Gauge {
            pub const ALL: &[Self] = &[$(Self::$gauge),*];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$gauge => $name,)*
                }
            }

            const fn unit(self) -> &'static str {
                match self {
                    $(Self::$gauge => $unit,)*
                }
            }

            /// Value in `reading`; for traffic, the total bytes.
            fn of(self, reading: &GaugeReading) -> Option<f64> {
                match self {
                    $(Self::$gauge => { let $reading = reading; $value })*
                }
            }
        }
    };
}

gauges! {
    Power = "power", "W", |of| of.power_mw.map(|power| f64::from(power) / 1e3), "Power of the board.";
    Temperature = "temperature", "C", |of| of.temperature_c.map(f64::from), "Temperature of the chip.";
    Clock = "sm_clock", "MHz", |of| of.sm_clock_mhz.map(f64::from), "Clock of the multiprocessors.";
    MemoryClock = "memory_clock", "MHz", |of| of.memory_clock_mhz.map(f64::from), "Clock of the memory.";
    MemoryUsed = "memory_used", "bytes", |of| of.memory_used_bytes.map(|bytes| bytes as f64),
        "Device memory in use by all processes.";
    Reasons = "lowered_clock_reasons", "bits", |of| of.throttle.map(|reasons| reasons as f64),
        "Why clocks are lowered: bits of `nvmlClocksEventReasons`.";
    PcieReceived = "pcie_received", "bytes/s", |of| of.pcie_received_bytes.map(|bytes| bytes as f64),
        "Received over PCI Express.";
    PcieSent = "pcie_sent", "bytes/s", |of| of.pcie_sent_bytes.map(|bytes| bytes as f64), "Sent over PCI Express.";
    NvlinkReceived = "nvlink_received", "bytes/s", |of| of.nvlink_received_bytes.map(|bytes| bytes as f64),
        "Received over NVLink.";
    NvlinkSent = "nvlink_sent", "bytes/s", |of| of.nvlink_sent_bytes.map(|bytes| bytes as f64), "Sent over NVLink.";
}

impl Gauge {
    const fn is_traffic(self) -> bool {
        matches!(self, Self::PcieReceived | Self::PcieSent | Self::NvlinkReceived | Self::NvlinkSent)
    }
}

impl Counter {
    /// Display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metric(metric) => metric.name(),
            Self::Gauge(gauge) => gauge.name(),
        }
    }

    pub const fn unit(self) -> &'static str {
        match self {
            Self::Metric(Metric::Clock) => "Hz",
            Self::Metric(metric) => match metric.unit() {
                Unit::Percent => "%",
                Unit::PerSecond => "bytes/s",
                Unit::Count => "",
            },
            Self::Gauge(gauge) => gauge.unit(),
        }
    }

    /// Unique number below 256.
    pub const fn number(self) -> u32 {
        match self {
            Self::Metric(metric) => metric as u32,
            Self::Gauge(gauge) => 128 + gauge as u32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterValue {
    pub device: DeviceId,
    pub counter: Counter,
    /// Start of the interval.
    pub begin: Timestamp,
    /// End of the interval; equal to the start for readings other than rates.
    pub end: Timestamp,
    /// Value in the unit of the counter.
    pub value: f64,
}

/// Converts counter events to values, in order.
#[derive(Debug, Default)]
pub struct CounterValues {
    preamble: Preamble,
    /// Total bytes at the previous reading, and its time.
    totals: FxHashMap<(DeviceId, Gauge), (Timestamp, f64)>,
}

impl CounterValues {
    /// Values of an event. Values that are not numbers, or whose metric is unknown to this version, are left
    /// out.
    pub fn of(&mut self, event: &CounterEvent) -> Vec<CounterValue> {
        self.preamble.note_counters(event);
        match event {
            CounterEvent::Sample(sample) => {
                let Some(set) = self.preamble.set(sample.device) else { return Vec::new() };
                let known = set.metrics.as_slice().iter().filter(|metric| **metric != Metric::Unknown);
                let value = |&metric: &Metric| {
                    Some(CounterValue {
                        device: sample.device,
                        counter: Counter::Metric(metric),
                        begin: sample.begin,
                        end: sample.end,
                        value: sample.value(set, metric)?.into(),
                    })
                };
                known.filter_map(value).collect()
            }
            CounterEvent::Gauges(reading) => {
                let (device, end) = (reading.device, reading.at);
                let value = |gauge: Gauge| {
                    let (mut begin, mut value) = (end, gauge.of(reading)?);
                    if gauge.is_traffic() {
                        let (before, total) = self.totals.insert((device, gauge), (end, value))?;
                        // A total that decreased was reset.
                        if end <= before || value < total {
                            return None;
                        }
                        (begin, value) = (before, (value - total) / end.since(before) as f64 * 1e9);
                    }
                    Some(CounterValue { device, counter: Counter::Gauge(gauge), begin, end, value })
                };
                Gauge::ALL.iter().copied().filter_map(value).collect()
            }
            CounterEvent::Set(_) | CounterEvent::Process(_) | CounterEvent::Loss(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::counters::{ChipName, MetricList, MetricSet, Sample};

    use super::*;

    #[test]
    fn values_are_those_that_are_there() {
        let mut values = CounterValues::default();
        let at = Timestamp::from_nanos;
        let sample = CounterEvent::Sample(Sample::new(DeviceId(0), at(10), at(20), &[1.5e9, f32::NAN, 50.0]));
        assert!(values.of(&sample).is_empty(), "nobody said what it is of");
        let set = MetricSet {
            device: DeviceId(0),
            chip: ChipName::new("GH100"),
            metrics: MetricList::new(&[Metric::Clock, Metric::Issue, Metric::Dram]),
            interval_ns: 10,
            highest_clock_hz: 0,
            multiprocessors: 132,
        };
        assert!(values.of(&CounterEvent::Set(set)).is_empty());
        let found: Vec<_> = values.of(&sample).iter().map(|value| (value.counter.name(), value.value)).collect();
        assert_eq!(found[1], ("dram", 50.0));
        assert_eq!(found.len(), 2);
        let reading = GaugeReading { at: at(30), power_mw: Some(250_500), ..GaugeReading::default() };
        let found = values.of(&CounterEvent::Gauges(reading));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].counter.name(), found[0].counter.unit(), found[0].value), ("power", "W", 250.5));
        let mut sent = |nanos, bytes| {
            let reading = GaugeReading { at: at(nanos), pcie_sent_bytes: Some(bytes), ..GaugeReading::default() };
            values.of(&CounterEvent::Gauges(reading)).first().map(|value| (value.begin.nanos(), value.value))
        };
        assert_eq!(sent(1_000, 500), None, "a total alone is no rate");
        assert_eq!(sent(3_000, 2_500), Some((1_000, 1e9)));
        assert_eq!(sent(4_000, 7), None, "it was reset");
    }

    #[test]
    fn numbers_are_each_their_own() {
        let all: Vec<_> = Metric::ALL
            .iter()
            .map(|&metric| Counter::Metric(metric))
            .chain(Gauge::ALL.iter().copied().map(Counter::Gauge))
            .map(Counter::number)
            .collect();
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        assert!(distinct.iter().all(|number| *number < 256));
    }
}
