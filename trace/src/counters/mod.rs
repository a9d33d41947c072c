//! Hardware counters and gauges of devices, as they are recorded.
//!
//! Samples of hardware counters are means over short intervals of a whole device; gauges (power, temperature, clocks)
//! are readings at moments. Nothing here knows where either comes from.
//!
//! Reading order: `metric` (what is sampled), `sample` (a metric set and its samples), `gauge`, `loss`, `event` (one of
//! them).

mod event;
mod gauge;
mod loss;
mod metric;
mod sample;

pub use event::CounterEvent;
pub use gauge::{GaugeReading, Throttle};
pub use loss::{CounterLoss, Refusal};
pub use metric::{METRIC_LIMIT, Metric, MetricList, Unit};
pub use sample::{ChipName, MetricSet, Sample};
