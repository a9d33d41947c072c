//! Recorded hardware counters and NVML readings of devices.
//!
//! Samples of hardware counters are averages of a whole device over short intervals; readings (power,
//! temperature, clocks) are taken at single points in time. This module does not depend on their sources.
//!
//! Reading order: `metric` (sampled metrics), `sample` (a metric set and its samples), `gauge`, `process`,
//! `loss`, `event` (any of these).

mod event;
mod gauge;
mod loss;
mod metric;
mod process;
mod sample;

pub use event::CounterEvent;
pub use gauge::{GaugeReading, Throttle};
pub use loss::{CounterLoss, UnavailableReason};
pub use metric::{METRIC_LIMIT, Metric, MetricList, Unit};
pub use process::{ProcessReading, ProgramName};
pub use sample::{ChipName, MetricSet, Sample};
