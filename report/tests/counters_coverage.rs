//! Validity of the errors of kernel counters: over many synthetic programs, two standard errors contain the
//! truth.
//!
//! The programs include the difficult properties: kernels do less in their first and last part than in
//! between, vary from launch to launch, and repeat in steps that are shorter than a sample.

use gpuwhy_trace::counters::{Metric, MetricList, Sample};
use gpuwhy_trace::record::{DeviceId, LaunchConfigId, Timestamp};
use profiler_core::counters::estimate::{Activity, Estimator};

use crate::counted::set;

const PROGRAMS: u64 = 24;
const KERNELS: usize = 8;
const METRICS: [Metric; 2] = [Metric::Clock, Metric::Tensor];

/// Xorshift random number generator.
struct Random(u64);

impl Random {
    /// Uniformly distributed from `low` to `high`.
    fn within(&mut self, low: f64, high: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + (high - low) * (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Approximately normal, with a standard deviation of 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.within(-0.5, 0.5)).sum()
    }
}

/// Parameters of a program and its samples.
#[derive(Clone, Copy, Debug)]
struct Made {
    interval: u64,
    samples: u64,
    /// Variation between launches of a kernel, points.
    launches: f64,
    /// The longest first and last part of a kernel with less work, as fractions of its time.
    parts: (f64, f64),
}

struct Kernel {
    mean: f64,
    nanos: f64,
    head: f64,
    tail: f64,
}

impl Kernel {
    /// Fraction of the work that is done after the fraction `time` of the time.
    fn done(&self, time: f64) -> f64 {
        const LOW: f64 = 0.3;
        let middle = 1.0 - self.head - self.tail;
        let high = (1.0 - LOW * (self.head + self.tail)) / middle;
        LOW * time.min(self.head)
            + high * (time - self.head).clamp(0.0, middle)
            + LOW * (time - self.head - middle).max(0.0)
    }
}

/// Results for a synthetic program: number of errors that contain the truth, the errors, and the deviations
/// of the values.
fn measure(made: Made, seed: u64) -> (usize, Vec<f64>, Vec<f64>) {
    let mut random = Random(seed * 7_919 + 1);
    let kernels: Vec<Kernel> = (0..KERNELS)
        .map(|_| Kernel {
            mean: random.within(5.0, 90.0),
            nanos: random.within(20e3, 250e3),
            head: random.within(0.0, made.parts.0),
            tail: random.within(0.0, made.parts.1),
        })
        .collect();
    // Three layers of all kernels except the last, which occurs once.
    let order: Vec<usize> = (0..3 * (KERNELS - 1)).map(|place| place % (KERNELS - 1)).chain([KERNELS - 1]).collect();
    let metrics = MetricList::new(&METRICS);
    let mut estimator = Estimator::new(gpuwhy_trace::counters::MetricSet { metrics, ..set(made.interval) }, 0);
    let until = (made.samples * made.interval) as f64;
    let (mut runs, mut at) = (Vec::new(), 1_000.0);
    while at < until {
        for &kernel in &order {
            let nanos = (kernels[kernel].nanos * (1.0 + 0.01 * random.normal())).round();
            runs.push((at, at + nanos, kernel, kernels[kernel].mean + made.launches * random.normal()));
            at += nanos + 1_500.0;
        }
        at += random.within(150e3, 170e3).round();
    }
    let mut sums = [(0.0, 0.0); KERNELS];
    for &(start, end, kernel, value) in &runs {
        let config = LaunchConfigId(kernel as u32);
        estimator.ran(Activity::Kernel(config), start as u64, end as u64);
        sums[kernel].0 += value * (end - start);
        sums[kernel].1 += end - start;
    }
    let mut first = 0;
    for sample in 0..made.samples {
        let (begin, end) = ((sample * made.interval) as f64, ((sample + 1) * made.interval) as f64);
        first += runs[first..].iter().take_while(|run| run.1 <= begin).count();
        let mut counted = 0.0;
        for &(start, stop, kernel, value) in runs[first..].iter().take_while(|run| run.0 < end) {
            let part = |time: f64| ((time - start) / (stop - start)).clamp(0.0, 1.0);
            let of = &kernels[kernel];
            counted += (of.done(part(end)) - of.done(part(begin))) * (stop - start) * value / made.interval as f64;
        }
        let value = (counted + 0.2 * random.normal()).max(0.0) as f32;
        let (begin, end) = (Timestamp::from_nanos(begin as u64), Timestamp::from_nanos(end as u64));
        estimator.sample(Sample::new(DeviceId(0), begin, end, &[1.9e9, value]));
    }
    estimator.advance(u64::MAX);
    let estimates = estimator.solve();
    let (mut held, mut errors, mut off) = (0, Vec::new(), Vec::new());
    for (kernel, (sum, nanos)) in sums.into_iter().enumerate() {
        let activity = Activity::Kernel(LaunchConfigId(kernel as u32));
        let (value, error) = estimates.get(estimator.set(), activity, Metric::Tensor).unwrap();
        off.push((value - sum / nanos).abs());
        errors.push(error);
        held += usize::from((value - sum / nanos).abs() <= 2.0 * error);
    }
    (held, errors, off)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn holds(made: Made) {
    let (mut held, mut errors, mut off) = (0, Vec::new(), Vec::new());
    for seed in 1..=PROGRAMS {
        let (of_this, of_errors, of_off) = measure(made, seed);
        held += of_this;
        errors.extend(of_errors);
        off.extend(of_off);
    }
    let share = held as f64 / errors.len() as f64;
    let (error, off) = (median(errors), median(off));
    println!("{made:?}: {share:.3} held; error {error:.2}, off {off:.2}");
    assert!(share >= 0.9, "{made:?}: {share}; error {error}, off {off}");
    assert!(error < 5.0 * off, "errors say something, too: {made:?}: {error} {off}");
}

#[test]
fn errors_hold_where_samples_are_longer_than_steps() {
    holds(Made { interval: 8_000_000, samples: 400, launches: 3.0, parts: (0.08, 0.25) });
    holds(Made { interval: 8_000_000, samples: 150, launches: 3.0, parts: (0.02, 0.05) });
}

#[test]
fn errors_hold_where_kernels_differ_from_their_begin_to_their_end() {
    holds(Made { interval: 2_400_000, samples: 600, launches: 3.0, parts: (0.08, 0.25) });
    holds(Made { interval: 1_000_000, samples: 800, launches: 0.5, parts: (0.08, 0.25) });
}

#[test]
fn errors_hold_where_only_launches_differ() {
    holds(Made { interval: 2_400_000, samples: 400, launches: 6.0, parts: (0.001, 0.001) });
}
