//! One thing that a trace says of counters.

use super::{CounterLoss, GaugeReading, MetricSet, Sample};
use crate::record::Timestamp;

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
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        match self {
            Self::Sample(sample) => Some((sample.begin, sample.end)),
            Self::Gauges(reading) => Some((reading.at, reading.at)),
            Self::Set(_) | Self::Loss(_) => None,
        }
    }
}
