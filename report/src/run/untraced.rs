//! The program without gpuwhy: predicted step duration, and its division by cause.
//!
//! The simulation predicts a step without the overhead of tracing. The saved time was idle time of the
//! device, because tracing delays the launching threads and adds pauses between operations. It is subtracted
//! first from launch time, then from other idle time, and from busy time only if no idle time is left. All
//! shares refer to the shorter step, and still sum to 1.

use gpuwhy_trace::cost::PriceSource;
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::steps::{Steady, StepSource, Steps};
use profiler_core::whatif::WhatIf;

use super::model::Untraced;
use super::{DeviceReport, Report};
use crate::text_format::{duration, percent};

/// Minimum share of a step for which the report mentions tracing overhead and shows shares without it. The
/// prediction is no more accurate than that (docs/design/overhead.md).
pub(super) const NOTABLE: f64 = 0.02;

/// Percentiles of the steps to which the range of a step extends. With them, the steps of 17 of 19 programs on an H200
/// were in their range without gpuwhy; with the error of its overhead alone, those of 6.
const SHORT_STEP: usize = 10;
const LONG_STEP: usize = 90;

impl Untraced {
    /// Returns the simulated steps of a device; `None` if no simulation is validated or no overhead is known.
    pub(super) fn of(what_if: Option<&WhatIf>, account: &DeviceAccount, attributor: &Attributor) -> Option<Self> {
        let (source, what_if) = (attributor.price_source(), what_if?);
        let part = what_if.untraced.filter(|_| source != PriceSource::Unknown)?;
        // As in the headline: of two kinds of steps, the mean.
        let kinds = account.typical_steps().filter(Steady::are_of_kinds);
        let mean = kinds.map(|steps| steps.mean_duration());
        let steps = account.steps();
        let measured_step_ns = mean.or_else(|| median(&steps)).or_else(|| what_if.step_ns())?;
        let of_step = |part: f64| (measured_step_ns as f64 * part).round() as u64;
        // Where steps of one run differ, runs do, too.
        let end = |percent| median(&steps).filter(|_| mean.is_none()).map(|_| steps.duration_percentile(percent));
        let spread = |percent| end(percent).map_or(1.0, |nanos| nanos as f64 / measured_step_ns as f64);
        let (least, most) = what_if.untraced_range()?;
        let step_range_ns = (of_step(least * spread(SHORT_STEP)), of_step(most * spread(LONG_STEP)));
        Some(Self { step_ns: of_step(part), step_range_ns, measured_step_ns, share_of_tracing: 1.0 - part, source })
    }

    /// True if the report mentions it without being requested to.
    pub(super) fn is_notable(&self) -> bool {
        self.share_of_tracing >= NOTABLE
    }
}

fn median(steps: &Steps) -> Option<u64> {
    let found = !steps.rows.is_empty() && steps.source != StepSource::Window;
    found.then(|| steps.duration_percentile(50)).filter(|&nanos| nanos > 0)
}

/// Sentence about the step without gpuwhy on a device, with the source of the overhead table.
pub(super) fn sentence(device: &DeviceReport) -> Option<String> {
    let of_one_kind = device.step_kinds.is_empty();
    let length = |percent| device.steps.as_ref().map_or(0, |steps| steps.duration_percentile(percent)) as f64;
    let differ = of_one_kind && length(LONG_STEP) > (1.0 + NOTABLE) * length(SHORT_STEP);
    Some(of_step(device.untraced.as_ref()?, device.step_meaning.noun(), differ))
}

/// `differ`: the range is also that of the steps.
fn of_step(untraced: &Untraced, noun: &str, differ: bool) -> String {
    let (least, most) = untraced.step_range_ns;
    let [without, least, most, with] = [untraced.step_ns, least, most, untraced.measured_step_ns].map(duration);
    let of = if differ { format!("eight of ten {noun}s: ") } else { String::new() };
    let range = if least == most { String::new() } else { format!("{of}{least} to {most}; ") };
    let article = if noun == "iteration" { "an" } else { "a" };
    format!(
        "Without gpuwhy {article} {noun} takes about {without} ({range}measured with it: {with}), {}.",
        untraced.source.words()
    )
}

/// Sentence for the first screen about the device with the longest window, if tracing takes enough of its
/// steps.
pub(super) fn line(report: &Report) -> Option<String> {
    let device = longest_device(report)?;
    device.untraced.as_ref().filter(|untraced| untraced.is_notable()).and_then(|_| sentence(device))
}

/// Steps without gpuwhy on the device with the longest window.
pub(super) fn longest(report: &Report) -> Option<&Untraced> {
    longest_device(report)?.untraced.as_ref()
}

fn longest_device(report: &Report) -> Option<&DeviceReport> {
    report.devices.iter().max_by_key(|device| device.window_ns)
}

/// Change of each cause's share on a device without tracing, if tracing takes enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithoutTracing {
    /// Remaining fraction of a step, 0 to 1.
    pub(super) step: f64,
    /// Share without tracing divided by the share with it, in the order of [`Cause::ALL`].
    factors: [f64; Cause::ALL.len()],
}

impl WithoutTracing {
    /// No change.
    pub(super) const NOTHING: Self = Self { step: 1.0, factors: [1.0; Cause::ALL.len()] };

    /// Returns the change for steps with these leaves.
    pub(super) fn of(device: &DeviceReport, leaves: &Leaves) -> Self {
        match device.untraced.as_ref().filter(|untraced| untraced.is_notable()) {
            Some(untraced) => Self::taking(untraced.share_of_tracing, leaves),
            None => Self::NOTHING,
        }
    }

    /// Returns the change for the typical steps of `device`, or else its steady time.
    pub(super) fn of_steps(device: &DeviceReport) -> Self {
        Self::of(device, &device.typical.map_or(device.steady_leaves, |typical| typical.leaves))
    }

    /// Returns the change if tracing takes the fraction `part` of steps with these leaves, 0 to 1.
    fn taking(part: f64, leaves: &Leaves) -> Self {
        let total = leaves.iter().sum::<u64>() as f64;
        let part = part.clamp(0.0, 1.0);
        if total <= 0.0 || part >= 1.0 {
            return Self::NOTHING;
        }
        let sum = |wanted: &dyn Fn(Leaf) -> bool| -> f64 {
            Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(|leaf| leaves[leaf as usize]).sum::<u64>() as f64
        };
        let launch = sum(&|leaf| leaf.cause() == Cause::Launch);
        let other_idle = sum(&|leaf| !leaf.is_busy() && leaf.cause() != Cause::Launch);
        let busy = sum(&Leaf::is_busy);
        // Fraction subtracted from each of the three.
        let mut rest = part * total;
        let [launch, other_idle, busy] = [launch, other_idle, busy].map(|nanos| {
            let taken = rest.min(nanos);
            rest -= taken;
            if nanos > 0.0 { taken / nanos } else { 0.0 }
        });
        let kept = |leaf: Leaf| match leaf {
            _ if leaf.cause() == Cause::Launch => 1.0 - launch,
            _ if leaf.is_busy() => 1.0 - busy,
            _ => 1.0 - other_idle,
        };
        let factors = Cause::ALL.map(|cause| {
            let of = Leaf::ALL.into_iter().filter(|leaf| leaf.cause() == cause);
            let (before, after) = of.fold((0.0, 0.0), |(before, after), leaf| {
                let nanos = leaves[leaf as usize] as f64;
                (before + nanos, after + nanos * kept(leaf))
            });
            if before > 0.0 { after / before / (1.0 - part) } else { 1.0 }
        });
        Self { step: 1.0 - part, factors }
    }

    /// Share of `cause` without tracing, 0 to 1; `share` is the share with it.
    pub(super) fn share(&self, cause: Cause, share: f64) -> f64 {
        let place = Cause::ALL.into_iter().position(|known| known == cause);
        (share * place.map_or(1.0, |place| self.factors[place])).min(1.0)
    }
}

/// Sentence about the ranking with tracing, where another cause leads: `first` has the share `with` of a step
/// then, and `without` of a step without tracing.
pub(super) fn made_by_tracing(first: Cause, without: f64, with: f64) -> String {
    let made = if first == Cause::Launch {
        "makes this program launch-bound"
    } else {
        "hides what this program waits for most"
    };
    let spent = crate::words::spent(first);
    format!("Tracing itself {made}: without it, {spent} takes {} of a step, not {}.", percent(without), percent(with))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::leaf::LEAF_COUNT;

    fn leaves(of: &[(Leaf, u64)]) -> Leaves {
        let mut leaves = [0; LEAF_COUNT];
        for &(leaf, nanos) in of {
            leaves[leaf as usize] = nanos;
        }
        leaves
    }

    #[test]
    fn tracing_is_taken_off_launches_then_other_idle_time_then_the_rest() {
        let leaves = leaves(&[(Leaf::Compute, 50), (Leaf::LaunchApi, 10), (Leaf::SyncDrain, 30), (Leaf::HostCpu, 10)]);
        let of = |part: f64| {
            let without = WithoutTracing::taking(part, &leaves);
            let total = leaves.iter().sum::<u64>() as f64;
            let share = |cause: Cause| without.share(cause, cause.total(&leaves) as f64 / total);
            let sum: f64 = Cause::ALL.into_iter().map(share).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{sum}");
            [Cause::GpuCompute, Cause::Launch, Cause::Sync, Cause::HostCpu].map(|cause| (share(cause) * 1e3).round())
        };
        assert_eq!(of(0.0), [500.0, 100.0, 300.0, 100.0]);
        assert_eq!(of(0.05), [526.0, 53.0, 316.0, 105.0]);
        assert_eq!(of(0.10), [556.0, 0.0, 333.0, 111.0]);
        assert_eq!(of(0.20), [625.0, 0.0, 281.0, 94.0]);
        assert_eq!(of(0.60), [1000.0, 0.0, 0.0, 0.0]);
        assert_eq!(WithoutTracing::taking(0.5, &[0; LEAF_COUNT]).step, 1.0);
    }

    #[test]
    fn the_sentence_names_both_steps_and_whose_prices() {
        let of = |source| {
            let untraced = Untraced {
                step_ns: 3_720_000,
                step_range_ns: (3_180_000, 3_910_000),
                measured_step_ns: 4_100_000,
                share_of_tracing: 0.093,
                source,
            };
            assert!(untraced.is_notable());
            of_step(&untraced, "step", true)
        };
        assert_eq!(
            of(PriceSource::Measured),
            "Without gpuwhy a step takes about 3.7 ms (eight of ten steps: 3.2 ms to 3.9 ms; measured with it: 4.1 ms), estimated from tracing overhead \
             measured on this machine."
        );
        assert!(of(PriceSource::OtherMachine).contains("measured on another machine"));
    }
}
