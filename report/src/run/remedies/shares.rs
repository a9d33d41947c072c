//! Gains of kernels that get shorter or are no longer launched, by their shares of the time and factors.

use profiler_core::leaf::Cause;

use super::facts::{Facts, Kernel};
use super::gain::Gain;
use super::patterns::Class;

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
