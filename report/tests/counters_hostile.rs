//! Samples and records in any order and number: no panic, bounded memory, values within their bounds.

use gpuwhy_trace::counters::{Metric, Sample};
use gpuwhy_trace::record::{DeviceId, LaunchConfigId, Timestamp};
use profiler_core::counters::estimate::{Activity, Estimator};
use proptest::prelude::*;

use crate::counted::set;

fn sample(begin: u64, length: u64, value: f32) -> Sample {
    let end = Timestamp::from_nanos(begin.saturating_add(length));
    Sample::new(DeviceId(0), Timestamp::from_nanos(begin), end, &[value; 10])
}

#[test]
fn memory_stays_within_limits_when_one_side_never_comes() {
    let mut estimator = Estimator::new(set(1_000), 0);
    for index in 0..1_000_000u64 {
        estimator.ran(Activity::Kernel(LaunchConfigId(index as u32)), 1_000 * index, 1_000 * index + 900);
    }
    for index in 0..100_000u64 {
        estimator.sample(sample(1_000 * index, 1_000, 50.0));
    }
    estimator.advance(u64::MAX);
    let counts = estimator.counts();
    assert_eq!(counts.used + counts.unusable + counts.unplaced, 100_000);
    assert_eq!(counts.used, 0, "the records beside these samples were forgotten: {counts:?}");
}

#[test]
fn more_kernels_than_unknowns_are_joined_and_the_large_ones_stay() {
    let mut estimator = Estimator::new(set(1_000), 0);
    let mut at = 0;
    for index in 0..6_000u32 {
        // Half of each sample is one of two large kernels, the rest one that occurs once.
        let large = index % 2;
        estimator.ran(Activity::Kernel(LaunchConfigId(large)), at, at + 300 + u64::from(index % 5) * 50);
        estimator.ran(Activity::Kernel(LaunchConfigId(2 + index)), at + 500, at + 1_000);
        let part = (300.0 + f32::from((index % 5) as u8) * 50.0) / 1_000.0;
        let value = part * if large == 0 { 90.0 } else { 30.0 } + 0.5 * 10.0;
        estimator.sample(sample(at, 1_000, value));
        estimator.advance(at + 1_000);
        at += 1_000;
    }
    let estimates = estimator.solve();
    let value = |activity| estimates.get(&set(1_000), activity, Metric::Tensor).unwrap();
    for (config, wanted) in [(0, 90.0), (1, 30.0)] {
        let (found, error) = value(Activity::Kernel(LaunchConfigId(config)));
        assert!((found - wanted).abs() < 0.5 && error < 1.0, "{found} {error}");
    }
    let (joined, _) = value(Activity::Joined);
    assert!((joined - 10.0).abs() < 0.5, "{joined}");
    assert!(!estimates.tells(LaunchConfigId(77)) && estimates.tells(LaunchConfigId(1)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn values_are_within_bounds_and_errors_are_numbers(
        runs in prop::collection::vec((0..6u32, 0..100_000u64, 0..5_000u64), 0..200),
        samples in prop::collection::vec((0..100_000u64, 0..3_000u64, prop::num::f32::ANY), 0..200),
    ) {
        let mut estimator = Estimator::new(set(1_000), 0);
        for (config, start, length) in runs {
            estimator.ran(Activity::Kernel(LaunchConfigId(config)), start, start + length);
        }
        for (begin, length, value) in &samples {
            estimator.sample(sample(*begin, *length, *value));
        }
        estimator.advance(u64::MAX);
        let counts = estimator.counts();
        prop_assert_eq!(counts.used + counts.unusable + counts.unplaced, samples.len() as u64);
        let estimates = estimator.solve();
        for config in 0..6 {
            let Some((value, error)) =
                estimates.get(&set(1_000), Activity::Kernel(LaunchConfigId(config)), Metric::Tensor)
            else {
                continue;
            };
            prop_assert!((0.0..=100.0).contains(&value), "{}", value);
            prop_assert!(!error.is_nan());
        }
    }
}
