//! What a change of kernels gains, by shares of the time and factors.
//!
//! Ranges have two sides: the least and the most that the mechanism allows. The most is never above the time of the
//! kernels and of their launches, which a change can make zero and no less. The middle orders the remedies; only the
//! least is said, because measured gains of programs that no factor had seen were often above the most
//! (`tests/gpu/remedies.md`).

use profiler_core::leaf::Cause;

use super::facts::{Facts, Kernel};
use super::patterns::Class;

/// Least low end of a gain.
pub(super) const WORTH: f64 = 1.05;
/// Least middle of an estimate.
const ESTIMATED: f64 = 1.1;

/// A range of speedups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gain {
    pub(super) speedup: f64,
    pub(super) interval: Option<(f64, f64)>,
    /// From shares of the time and factors, not from a simulation.
    pub(super) is_estimate: bool,
    /// Only a bound is known: it may be anything from nothing to `speedup`.
    pub(super) is_bound: bool,
}

impl Gain {
    pub(super) const NONE: Self = Self { speedup: 1.0, interval: None, is_estimate: false, is_bound: false };

    /// At most this gain.
    pub(super) fn at_most(speedup: f64) -> Self {
        Self { speedup, interval: Some((1.0, speedup)), is_bound: true, ..Self::NONE }
    }

    /// Gain of saving between `low` and `high` of a step, 0 to 1.
    pub(super) fn saving(low: f64, high: f64) -> Self {
        let factor = |saved: f64| 1.0 / (1.0 - saved.clamp(0.0, 0.99));
        let (low, high) = (factor(low.min(high)), factor(high.max(low)));
        // A fault costs most of what it may: of 22 measured gains 16 were in the upper half of the range.
        let speedup = low.cbrt() * high.cbrt().powi(2);
        Self { speedup, interval: Some((low, high)), is_estimate: true, is_bound: false }
    }

    /// Both savings together.
    pub(super) fn and(self, other: Self) -> Self {
        let ends = |gain: Self| gain.interval.unwrap_or((gain.speedup, gain.speedup));
        let saved = |a: f64, b: f64| 2.0 - 1.0 / a.max(1.0) - 1.0 / b.max(1.0);
        let ((low, high), (other_low, other_high)) = (ends(self), ends(other));
        Self::saving(saved(low, other_low), saved(high, other_high))
    }

    pub(super) fn low(self) -> f64 {
        self.interval.map_or(self.speedup, |(low, _)| low)
    }

    /// What the report says: of an estimate the low end alone, if that is a gain.
    pub(super) fn said(self) -> Option<Self> {
        let low = self.low();
        match self.is_estimate {
            true => (low > WORTH).then_some(Self { speedup: low, interval: Some((low, f64::INFINITY)), ..self }),
            false => Some(self),
        }
    }

    /// True if a remedy with this gain is named. The low end of an estimate allows for the worst case.
    pub(super) fn is_worth(self) -> bool {
        if self.is_estimate || self.is_bound { self.speedup > ESTIMATED } else { self.low() > WORTH }
    }
}

impl Facts<'_> {
    /// Part of a saving of kernel time that is sure to make the step shorter. Where the CPU is late, it stays late:
    /// bf16 gained nothing in a program whose GPU was idle a third of the time.
    fn bound(&self) -> f64 {
        const LATE: f64 = 0.65;
        const AHEAD: f64 = 0.9;
        ((self.busy() - LATE) / (AHEAD - LATE)).clamp(0.0, 1.0)
    }

    /// Gain of making a share of kernel time between `low` and `high` times as fast.
    pub(super) fn faster(&self, share: f64, (low, high): (f64, f64)) -> Gain {
        let time = self.time(Cause::GpuCompute) * share;
        Gain::saving(self.bound() * time * (1.0 - 1.0 / low), time * (1.0 - 1.0 / high))
    }

    /// The same for the kernels of some classes, each with its own factors.
    pub(super) fn each_faster(&self, classes: &[Class], factors: impl Fn(&Kernel<'_>) -> (f64, f64)) -> Gain {
        let time = self.time(Cause::GpuCompute);
        let (low, high) = self.of(classes).fold((0.0, 0.0), |(low, high), kernel| {
            let (slow, fast) = factors(kernel);
            (low + kernel.share * (1.0 - 1.0 / slow.max(1.0)), high + kernel.share * (1.0 - 1.0 / fast.max(1.0)))
        });
        Gain::saving(self.bound() * time * low, time * high)
    }

    /// The same for products that get between these rates, relative to theirs. A kernel takes at least two
    /// microseconds, and `extra_ns` are for what a lower rate brings along (casts), at the low end.
    pub(super) fn at_rate(&self, classes: &[Class], (low, high): (f64, f64), extra_ns: f64) -> Gain {
        /// The shortest products in recorded programs on an H200.
        const SHORTEST: f64 = 2_000.0;
        self.each_faster(classes, |kernel| {
            let nanos = kernel.median_ns.max(1) as f64;
            (nanos / (nanos / low + extra_ns), nanos / (nanos / high).max(SHORTEST))
        })
    }

    /// Gain without kernels of this share of kernel time and of the launches. Launches are worth their part of the
    /// time that waits for them; half of it at the low end, because the device runs further behind.
    pub(super) fn without(&self, share: f64, of_count: f64) -> Gain {
        self.without_between((0.8 * share, of_count), (share, of_count))
    }

    /// The same for a range: shares of kernel time and of launches at its low and its high end.
    pub(super) fn without_between(&self, low: (f64, f64), high: (f64, f64)) -> Gain {
        let (time, launches) = (self.time(Cause::GpuCompute), self.time(Cause::Launch));
        let saved = |(share, of_count): (f64, f64), part: f64| {
            time * share.clamp(0.0, 1.0) + part * launches * of_count.clamp(0.0, 1.0)
        };
        Gain::saving(saved(low, 0.5), saved(high, 1.0))
    }
}
