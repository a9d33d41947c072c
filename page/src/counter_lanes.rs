//! Hardware counters over the run: the mean of each metric that is a fraction of a peak, in equal intervals.

use std::collections::BTreeMap;

use gpuwhy_trace::counters::{CounterEvent, METRIC_LIMIT, Metric, MetricSet, Sample, Unit};
use gpuwhy_trace::record::DeviceId;
use serde::Serialize;

/// Number of intervals of the run: some pixels each.
const INTERVALS: usize = 400;
const DEVICES: usize = 64;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct CounterLanes {
    origin: u64,
    window: u64,
    sets: BTreeMap<DeviceId, MetricSet>,
    /// By device and metric: value times nanoseconds, and nanoseconds, of each interval.
    sums: BTreeMap<(DeviceId, Metric), Vec<(f64, u64)>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CounterLane {
    device: u32,
    rows: Vec<CounterRow>,
}

#[derive(Debug, Serialize)]
struct CounterRow {
    name: &'static str,
    /// Percent of the peak, to a tenth; `None` without samples.
    values: Vec<Option<f64>>,
}

impl CounterLanes {
    /// Covers the `window` nanoseconds from `origin` on.
    pub(crate) fn new(origin: u64, window: u64) -> Self {
        Self { origin, window, ..Self::default() }
    }

    pub(crate) fn take(&mut self, event: &CounterEvent) {
        match event {
            CounterEvent::Set(set) if self.sets.len() < DEVICES || self.sets.contains_key(&set.device) => {
                self.sets.insert(set.device, *set);
            }
            CounterEvent::Sample(sample) => self.sample(sample),
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(set) = self.sets.get(&sample.device) else { return };
        let since = |nanos: u64| nanos.saturating_sub(self.origin).min(self.window);
        let (begin, end) = (since(sample.begin.nanos()), since(sample.end.nanos()));
        let span = self.window.div_ceil(INTERVALS as u64).max(1);
        for &metric in set.metrics.as_slice().iter().take(METRIC_LIMIT) {
            let Some(value) = sample.value(set, metric).filter(|_| metric.unit() == Unit::Percent) else { continue };
            let sums = self.sums.entry((sample.device, metric)).or_insert_with(|| vec![(0.0, 0); INTERVALS]);
            let mut from = begin;
            while from < end {
                let interval = (from / span).min(INTERVALS as u64 - 1);
                let to = if interval == INTERVALS as u64 - 1 { end } else { end.min((interval + 1) * span) };
                let (sum, nanos) = &mut sums[interval as usize];
                *sum += f64::from(value) * (to - from) as f64;
                *nanos += to - from;
                from = to;
            }
        }
    }

    /// Returns a row for each metric, by device.
    pub(crate) fn into_lanes(self) -> Vec<CounterLane> {
        let mut lanes: Vec<CounterLane> = Vec::new();
        for ((device, metric), sums) in self.sums {
            let mean = |(sum, nanos): (f64, u64)| (nanos > 0).then(|| (sum / nanos as f64 * 10.0).round() / 10.0);
            let row = CounterRow { name: metric.name(), values: sums.into_iter().map(mean).collect() };
            match lanes.last_mut() {
                Some(lane) if lane.device == device.0 => lane.rows.push(row),
                _ => lanes.push(CounterLane { device: device.0, rows: vec![row] }),
            }
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::counters::{ChipName, MetricList};
    use gpuwhy_trace::record::Timestamp;

    use super::*;

    #[test]
    fn a_interval_has_the_mean_by_time() {
        let device = DeviceId(3);
        let set = MetricSet {
            device,
            chip: ChipName::new("GH100"),
            metrics: MetricList::new(&[Metric::Clock, Metric::Tensor]),
            interval_ns: 1_000,
            highest_clock_hz: 0,
            multiprocessors: 132,
        };
        // An interval has 1,000 ns.
        let mut lanes = CounterLanes::new(5_000, 400_000);
        let sample = |begin: u64, end: u64, tensor: f32| {
            let (begin, end) = (Timestamp::from_nanos(5_000 + begin), Timestamp::from_nanos(5_000 + end));
            CounterEvent::Sample(Sample::new(device, begin, end, &[1.9e9, tensor]))
        };
        lanes.take(&sample(0, 1_000, 99.0));
        lanes.take(&CounterEvent::Set(set));
        lanes.take(&sample(1_000, 1_500, 10.0));
        lanes.take(&sample(1_500, 3_000, 50.0));
        lanes.take(&sample(399_500, 900_000, 80.0));
        let lanes = lanes.into_lanes();
        assert_eq!((lanes.len(), lanes[0].device, lanes[0].rows.len()), (1, 3, 1), "the clock has no peak");
        let values = &lanes[0].rows[0].values;
        assert_eq!(values[..4], [None, Some(30.0), Some(50.0), None]);
        assert_eq!(values[398..], [None, Some(80.0)]);
    }
}
