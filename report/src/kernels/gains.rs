//! Gain of a step from a better kernel.
//!
//! The newest steps are simulated once more with a shorter kernel. This accounts for overlapping work, for
//! work that waits for the kernel, and for a host that is late anyway. If the simulation is not validated,
//! the gain is computed by subtracting the removed time from the step.

use gpuwhy_trace::record::{DeviceId, LaunchConfigId};
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::leaf::Cause;
use profiler_core::whatif::BestCase;
use rustc_hash::FxHashMap;

/// Number of standard errors that contain 90 % of a normal distribution: the level of all intervals of gains.
const NINE_OF_TEN: f64 = 1.645;
/// Maximum share of a step that can be removed.
const LARGEST_SAVED: f64 = 0.99;

/// Speedup of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepGain {
    /// Factor; 1 is no gain.
    pub speedup: f64,
    /// Interval that contains the result of nine of ten programs, for a simulated gain; `None` for one by
    /// subtraction.
    pub interval: Option<(f64, f64)>,
}

/// Gain of a step if kernels get closer to their nearest roofline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelGains {
    /// Gain at 80 % of the roofline.
    pub at_80: StepGain,
    /// Gain at 90 % of the roofline.
    pub at_90: StepGain,
    /// Bottleneck at 90 %; `None` if unknown.
    pub then: Option<Cause>,
}

/// Kernels of one launch configuration, shortened.
#[derive(Clone, Copy, Debug)]
pub struct Shorter {
    /// The launch configuration.
    pub config: LaunchConfigId,
    /// Their current time, nanoseconds.
    pub nanos: u64,
    /// Remaining fraction of that time, 0 to 1.
    pub remains: f64,
    /// Standard error of `remains`.
    pub error: f64,
}

impl Shorter {
    /// Shortens kernels that reach the fraction `used` of a roofline, with this standard error, so that they
    /// reach `wanted`.
    pub fn at_roof(config: LaunchConfigId, nanos: u64, (used, error): (f64, f64), wanted: f64) -> Self {
        let remains = (used / wanted).clamp(0.0, 1.0);
        Self { config, nanos, remains, error: if remains < 1.0 { error / wanted } else { 0.0 } }
    }

    fn gone(&self) -> f64 {
        self.nanos as f64 * (1.0 - self.remains)
    }
}

impl StepGain {
    /// Computes the gain by simulation; `None` if that is unavailable.
    pub fn simulated(attributor: &Attributor, device: DeviceId, shorter: &[Shorter]) -> Option<Self> {
        let parts: FxHashMap<LaunchConfigId, f64> = shorter.iter().map(|row| (row.config, row.remains)).collect();
        let remains =
            |on: DeviceId, config: LaunchConfigId| parts.get(&config).copied().filter(|_| on == device).unwrap_or(1.0);
        let best_case = attributor.with_shorter_kernels(device, &remains)?;
        let gone: f64 = shorter.iter().map(Shorter::gone).sum();
        let error: f64 = shorter.iter().map(|row| row.nanos as f64 * row.error).sum();
        let relative = if gone > 0.0 { NINE_OF_TEN * error / gone } else { 0.0 };
        Some(Self { speedup: best_case.speedup, interval: Some(widened(&best_case, relative)) })
    }

    /// Computes the gain of a step without the fraction `gone`, 0 to 1.
    pub fn by_subtraction(gone: f64) -> Self {
        Self { speedup: 1.0 / (1.0 - gone.clamp(0.0, LARGEST_SAVED)), interval: None }
    }

    /// True if it was simulated.
    pub const fn is_simulated(&self) -> bool {
        self.interval.is_some()
    }

    /// In words: `about 1.12x faster (1.08x to 1.15x)`.
    pub fn faster(&self) -> String {
        crate::words::faster(self.speedup, self.interval)
    }
}

/// Interval of a gain if the removed time has this relative error. The saving is proportional to the removed
/// time; that error and the simulation's are independent.
fn widened(best_case: &BestCase, relative: f64) -> (f64, f64) {
    let (speedup, saved) = (best_case.speedup, best_case.saved());
    let (low, high) = best_case.interval.unwrap_or((speedup, speedup));
    let with = |part: f64| 1.0 / (1.0 - (saved * part).clamp(0.0, LARGEST_SAVED));
    let below = (speedup - low).hypot(speedup - with(1.0 - relative));
    let above = (high - speedup).hypot(with(1.0 + relative) - speedup);
    ((speedup - below).max(1.0), speedup + above)
}

/// Bottleneck of the device if kernels are shorter and a step is `gain` times as fast.
///
/// Removed computation time that is not saved becomes idle time of unknown cause; `None` if that time
/// decides.
pub fn bottleneck_then(account: &DeviceAccount, shorter: &[Shorter], gain: f64) -> Option<Cause> {
    let leaves = account.steady_leaves();
    let total = leaves.iter().sum::<u64>().saturating_sub(Cause::NoWork.total(&leaves)) as f64;
    let all = account.statistics().kernels().filter(|(_, row)| !row.communication);
    let all = all.fold(0u64, |sum, (_, row)| sum.saturating_add(row.durations.total())) as f64;
    if total <= 0.0 || all <= 0.0 {
        return None;
    }
    let computing = Cause::GpuCompute.total(&leaves) as f64 / total;
    let gone = (shorter.iter().map(Shorter::gone).sum::<f64>() / all).min(1.0) * computing;
    let uncovered = (gone - (1.0 - 1.0 / gain.max(1.0))).max(0.0);
    let others = Cause::ALL.into_iter().filter(|cause| !matches!(cause, Cause::GpuCompute | Cause::NoWork));
    let largest = others.map(|cause| (cause, cause.total(&leaves) as f64 / total));
    let (cause, other) = largest.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let left = computing - gone;
    if left >= other + uncovered {
        return Some(Cause::GpuCompute);
    }
    (other > left && cause != Cause::CannotTell).then_some(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::whatif::ScenarioKind;

    #[test]
    fn a_gain_is_as_sure_as_the_simulation_and_the_use_of_the_roof() {
        let best_case = |interval| BestCase {
            kind: ScenarioKind::KernelsAtRoof,
            step_ns: 80,
            speedup: 1.25,
            interval: Some(interval),
        };
        assert_eq!(widened(&best_case((1.2, 1.3)), 0.0), (1.2, 1.3));
        let (low, high) = widened(&best_case((1.25, 1.25)), 0.5);
        assert!((low - 1.0 / 0.9).abs() < 1e-12 && (high - 1.0 / 0.7).abs() < 1e-12, "{low} {high}");
        assert_eq!(widened(&best_case((1.0, 1.3)), 2.0).0, 1.0, "never slower");
        assert!(widened(&best_case((1.2, 1.3)), 50.0).1.is_finite());
    }

    #[test]
    fn a_kernel_at_its_roof_stays_as_it_is() {
        let at = |used| Shorter::at_roof(LaunchConfigId(1), 1_000, (used, 0.04), 0.8);
        assert_eq!(at(0.4).remains, 0.5);
        assert!((at(0.4).error - 0.05).abs() < 1e-12);
        assert_eq!((at(0.9).remains, at(0.9).error), (1.0, 0.0));
        assert_eq!(StepGain::by_subtraction(0.2), StepGain { speedup: 1.25, interval: None });
        assert!(StepGain::by_subtraction(1.0).speedup <= 100.001);
    }
}
