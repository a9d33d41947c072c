//! Hardware counters and gauges of devices, on the clock of the trace.
//!
//! Samples of hardware counters are means over short intervals of a whole device. They say nothing of kernels by
//! themselves; together with the records of the kernels that ran they do. Gauges (power, temperature, clocks) are
//! readings at moments. Nothing here knows where either comes from.
//!
//! Reading order: `metric` (what is sampled), `sample` (a metric set and its samples), `gauge`, `loss`, `log`
//! (what is known of all devices); then what follows from them: `regression` (least squares), `grouped` (how
//! far that may be off), [`estimate`] (counters of
//! kernels), [`roofs`] (what limits them), [`power`] (what gauges add up to), [`engine`] (all of it, of one capture).

pub mod engine;
pub mod estimate;
mod gauge;
mod grouped;
mod loss;
mod metric;
pub mod power;
mod regression;
pub mod roofs;
mod sample;

pub use gauge::{GaugeReading, Throttle};
pub use loss::{CounterLoss, Refusal};
pub use metric::{METRIC_LIMIT, Metric, MetricList, Unit};
pub use sample::{ChipName, MetricSet, Sample};

/// What a trace says of counters, apart from records. Every variant is small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterEvent {
    /// Samples of a device follow, with these metrics; before the first of them.
    Set(MetricSet),
    /// One sample. Samples of one device come in the order of their times.
    Sample(Sample),
    /// One reading of the gauges of a device.
    Gauges(GaugeReading),
    /// What of a device was lost so far. Totals; the last one of a device counts.
    Loss(CounterLoss),
}

impl CounterEvent {
    /// Begin and end of the time that it is about; `None` when it is about none.
    #[must_use]
    pub const fn span(&self) -> Option<(crate::record::Timestamp, crate::record::Timestamp)> {
        match self {
            Self::Sample(sample) => Some((sample.begin, sample.end)),
            Self::Gauges(reading) => Some((reading.at, reading.at)),
            Self::Set(_) | Self::Loss(_) => None,
        }
    }
}
