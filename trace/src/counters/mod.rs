//! Recorded hardware counters and NVML readings of devices.
//!
//! Samples of hardware counters are averages of a whole device over short intervals; readings (power,
//! temperature, clocks) are taken at single points in time. This module does not depend on their sources.
//!
//! Reading order: `metric` (sampled metrics), `sample` (a metric set and its samples), `gauge`, `process`,
//! `loss`, [`CounterEvent`] (any of these).

mod gauge;
mod loss;
mod metric;
mod process;
mod sample;

pub use gauge::{GaugeReading, Throttle};
pub use loss::{CounterLoss, UnavailableReason};
pub use metric::{METRIC_LIMIT, Metric, MetricList, Unit};
pub use process::{ProcessReading, ProgramName};
pub use sample::{ChipName, MetricSet, Sample};

use crate::record::Timestamp;

/// Counter events of a trace other than records. Every variant is small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterEvent {
    /// Metrics of a device's following samples; precedes the first one.
    Set(MetricSet),
    /// One sample. The samples of one device are in time order.
    Sample(Sample),
    /// One NVML reading of a device.
    Gauges(GaugeReading),
    /// One reading of another process on a device.
    Process(ProcessReading),
    /// Losses of a device since the start. Totals; the last event of a device counts.
    Loss(CounterLoss),
}

impl CounterEvent {
    /// Start and end of the time that the event covers; `None` if it has no time.
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        match self {
            Self::Sample(sample) => Some((sample.begin, sample.end)),
            Self::Gauges(reading) => Some((reading.at, reading.at)),
            Self::Process(reading) => Some((reading.at, reading.at)),
            Self::Set(_) | Self::Loss(_) => None,
        }
    }
}
