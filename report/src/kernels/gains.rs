//! What a step gains from a better kernel.
//!
//! The newest steps are simulated once more with the kernel shortened, so that what runs beside it, what waits for it,
//! and a host that is late anyway are counted. Where the simulation is not believed, the gain is by subtraction: the
//! time that goes, taken off the step.

use gpuwhy_trace::record::{DeviceId, LaunchConfigId};
use profiler_core::attribution::leaf::Group;
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::whatif::Ceiling;
use rustc_hash::FxHashMap;

/// Of a normal distribution, 90 % lies within so many standard errors: the level of all intervals of gains.
const NINE_OF_TEN: f64 = 1.645;
/// A step never goes altogether.
const LARGEST_SAVED: f64 = 0.99;

/// How many times as fast a step is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepGain {
    /// 1 is no gain.
    pub speedup: f64,
    /// The interval in which nine of ten programs come out, for a simulated gain; `None` for one by subtraction.
    pub interval: Option<(f64, f64)>,
}

/// What a step gains if kernels use their nearest roof better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelGains {
    /// If they use 80 % of it.
    pub at_80: StepGain,
    /// If they use 90 % of it.
    pub at_90: StepGain,
    /// The bottleneck at 90 %; `None` where that cannot be told.
    pub then: Option<Group>,
}

/// Kernels of one launch configuration, made shorter.
#[derive(Clone, Copy, Debug)]
pub struct Shorter {
    /// Which.
    pub config: LaunchConfigId,
    /// Their time, nanoseconds.
    pub nanos: u64,
    /// The part of it that is left, 0 to 1.
    pub remains: f64,
    /// The standard error of that part.
    pub error: f64,
}

impl Shorter {
    /// Kernels that use the part `used` of a roof, with this standard error, and would use `wanted`.
    pub fn at_roof(config: LaunchConfigId, nanos: u64, (used, error): (f64, f64), wanted: f64) -> Self {
        let remains = (used / wanted).clamp(0.0, 1.0);
        Self { config, nanos, remains, error: if remains < 1.0 { error / wanted } else { 0.0 } }
    }

    fn gone(&self) -> f64 {
        self.nanos as f64 * (1.0 - self.remains)
    }
}

impl StepGain {
    /// By simulation; `None` where that is not to be had.
    pub fn simulated(attributor: &Attributor, device: DeviceId, shorter: &[Shorter]) -> Option<Self> {
        let parts: FxHashMap<LaunchConfigId, f64> = shorter.iter().map(|row| (row.config, row.remains)).collect();
        let remains =
            |on: DeviceId, config: LaunchConfigId| parts.get(&config).copied().filter(|_| on == device).unwrap_or(1.0);
        let ceiling = attributor.with_shorter_kernels(device, &remains)?;
        let gone: f64 = shorter.iter().map(Shorter::gone).sum();
        let error: f64 = shorter.iter().map(|row| row.nanos as f64 * row.error).sum();
        let relative = if gone > 0.0 { NINE_OF_TEN * error / gone } else { 0.0 };
        Some(Self { speedup: ceiling.speedup, interval: Some(widened(&ceiling, relative)) })
    }

    /// A step of which the part `gone` goes, 0 to 1.
    pub fn by_subtraction(gone: f64) -> Self {
        Self { speedup: 1.0 / (1.0 - gone.clamp(0.0, LARGEST_SAVED)), interval: None }
    }

    /// Whether it was simulated.
    pub const fn is_simulated(&self) -> bool {
        self.interval.is_some()
    }

    /// In words: `about 1.12x faster (1.08x to 1.15x)`.
    pub fn faster(&self) -> String {
        crate::words::faster(self.speedup, self.interval)
    }
}

/// The interval of a gain, where what goes is known with this relative error. In proportion to what goes, so does what
/// is saved; that error and the one of the simulation are independent.
fn widened(ceiling: &Ceiling, relative: f64) -> (f64, f64) {
    let (speedup, saved) = (ceiling.speedup, ceiling.saved());
    let (low, high) = ceiling.interval.unwrap_or((speedup, speedup));
    let with = |part: f64| 1.0 / (1.0 - (saved * part).clamp(0.0, LARGEST_SAVED));
    let below = (speedup - low).hypot(speedup - with(1.0 - relative));
    let above = (high - speedup).hypot(with(1.0 + relative) - speedup);
    ((speedup - below).max(1.0), speedup + above)
}

/// The bottleneck of the device once kernels are shorter and a step is `gain` times as fast.
///
/// What goes of computation and is not saved becomes time in which the device waits, for which no cause is known yet:
/// where that decides, nothing is said.
pub fn bottleneck_then(account: &DeviceAccount, shorter: &[Shorter], gain: f64) -> Option<Group> {
    let leaves = account.steady_leaves();
    let total = leaves.iter().sum::<u64>().saturating_sub(Group::NoWork.total(&leaves)) as f64;
    let all = account.statistics().kernels().filter(|(_, row)| !row.communication);
    let all = all.fold(0u64, |sum, (_, row)| sum.saturating_add(row.durations.total())) as f64;
    if total <= 0.0 || all <= 0.0 {
        return None;
    }
    let computing = Group::GpuCompute.total(&leaves) as f64 / total;
    let gone = (shorter.iter().map(Shorter::gone).sum::<f64>() / all).min(1.0) * computing;
    let uncovered = (gone - (1.0 - 1.0 / gain.max(1.0))).max(0.0);
    let others = Group::ALL.into_iter().filter(|group| !matches!(group, Group::GpuCompute | Group::NoWork));
    let largest = others.map(|group| (group, group.total(&leaves) as f64 / total));
    let (group, other) = largest.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let left = computing - gone;
    if left >= other + uncovered {
        return Some(Group::GpuCompute);
    }
    (other > left && group != Group::CannotTell).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::whatif::ScenarioKind;

    #[test]
    fn a_gain_is_as_sure_as_the_simulation_and_the_use_of_the_roof() {
        let ceiling = |interval| Ceiling {
            kind: ScenarioKind::KernelsAtRoof,
            step_ns: 80,
            speedup: 1.25,
            interval: Some(interval),
        };
        assert_eq!(widened(&ceiling((1.2, 1.3)), 0.0), (1.2, 1.3));
        let (low, high) = widened(&ceiling((1.25, 1.25)), 0.5);
        assert!((low - 1.0 / 0.9).abs() < 1e-12 && (high - 1.0 / 0.7).abs() < 1e-12, "{low} {high}");
        assert_eq!(widened(&ceiling((1.0, 1.3)), 2.0).0, 1.0, "never slower");
        assert!(widened(&ceiling((1.2, 1.3)), 50.0).1.is_finite());
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
