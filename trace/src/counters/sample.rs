//! The metric set of a device and its samples.

use super::metric::{METRIC_LIMIT, Metric, MetricList};
use crate::record::{DeviceId, Timestamp};
use crate::short_text::short_text;

short_text! {
    /// Name of a chip, such as `GH100`; at most 15 bytes.
    ChipName, 15
}

/// Sampling setup of a device. Announced once for each device and session, and again after changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSet {
    /// The device.
    pub device: DeviceId,
    /// Its chip.
    pub chip: ChipName,
    /// The metrics, in the order of a sample's values.
    pub metrics: MetricList,
    /// Requested sampling interval, nanoseconds.
    pub interval_ns: u64,
    /// Highest core clock of the device, Hz; 0 if unknown. A lower clock counts as throttled.
    pub highest_clock_hz: u64,
    /// Number of SMs; 0 if unknown.
    pub multiprocessors: u32,
}

/// Averages of a device's metrics over an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The device.
    pub device: DeviceId,
    /// Start of the interval, on the clock of the kernel records.
    pub begin: Timestamp,
    /// End of the interval.
    pub end: Timestamp,
    /// Values in the order and units of the device's [`MetricSet`]. NaN marks a missing value. Entries after
    /// the set's last metric have no meaning.
    pub values: [f32; METRIC_LIMIT],
}

impl Sample {
    /// Creates a sample from `values`, rounded to 13 significant bits to keep traces small. The relative
    /// error is at most 1.2e-4, far below the accuracy of the counters. Further values are missing.
    pub fn new(device: DeviceId, begin: Timestamp, end: Timestamp, values: &[f32]) -> Self {
        let mut all = [f32::NAN; METRIC_LIMIT];
        for (own, &value) in all.iter_mut().zip(values) {
            *own = rounded(value);
        }
        Self { device, begin, end, values: all }
    }

    /// Value of `metric`, if both the set and the sample have it.
    pub fn value(&self, set: &MetricSet, metric: Metric) -> Option<f32> {
        let value = self.values[set.metrics.position(metric)?];
        value.is_finite().then_some(value)
    }
}

/// Rounds to the nearest value with 13 significant bits; values that are not finite numbers are unchanged.
fn rounded(value: f32) -> f32 {
    const DROPPED: u32 = (1 << 11) - 1;
    let nearest = f32::from_bits(value.to_bits().saturating_add(DROPPED / 2 + 1) & !DROPPED);
    if value.is_finite() && nearest.is_finite() { nearest } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_a_little_and_numbers_stay_numbers() {
        for value in [37.123_456, 1.712_345_6e9, 4.056_789e12, 0.001_234_567, -3.718_281_8, 99.999_99] {
            let found = rounded(value);
            assert!((found / value - 1.0).abs() <= 1.3e-4, "{value} {found}");
            assert_eq!(found.to_bits() & 0x7ff, 0);
            assert_eq!(rounded(found), found);
        }
        assert_eq!([0.0, f32::MAX, f32::INFINITY].map(rounded), [0.0, f32::MAX, f32::INFINITY]);
        assert!(rounded(f32::NAN).is_nan());
    }

    #[test]
    fn a_chip_name_is_cut_between_characters() {
        assert_eq!(ChipName::new("GH100").as_str(), "GH100");
        assert_eq!(ChipName::new("0123456789abcdef").as_str(), "0123456789abcde");
        assert_eq!(ChipName::new("0123456789abcdé").as_str(), "0123456789abcd");
    }

    #[test]
    fn a_value_that_is_not_there_is_none() {
        let metrics = MetricList::new(&[Metric::Clock, Metric::Tensor, Metric::Dram]);
        let set = MetricSet {
            device: DeviceId(0),
            chip: ChipName::default(),
            metrics,
            interval_ns: 5_000_000,
            highest_clock_hz: 0,
            multiprocessors: 132,
        };
        let sample =
            Sample::new(DeviceId(0), Timestamp::from_nanos(1), Timestamp::from_nanos(2), &[1.5e9, f32::INFINITY]);
        assert_eq!(sample.value(&set, Metric::Clock), Some(rounded(1.5e9)));
        for missing in [Metric::Tensor, Metric::Dram, Metric::Issue] {
            assert_eq!(sample.value(&set, missing), None, "{missing:?}");
        }
    }
}
