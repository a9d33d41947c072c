//! Limits of computation: divides the time of a kernel, and of a device, by its nearest roofline.
//!
//! For a kernel, `u` is the largest utilization of its units, as a fraction of their peak. That fraction of
//! its time is at the roofline; the fraction in which multiprocessors had no warp is idle; in the rest no
//! unit was near its peak: warps waited (latency). At a lowered clock, the time at the roofline would be
//! proportionally shorter at the highest clock: that difference belongs to the clock, except for device
//! memory, which has a separate clock. The parts sum to the time to the nanosecond.
//!
//! Source: docs/design/counters.md, with the measurements on an H200 against 10 kHz samples and the range
//! profiler.

use gpuwhy_trace::counters::Metric;
use gpuwhy_trace::counters::MetricSet;
use gpuwhy_trace::geometry::Geometry;
use gpuwhy_trace::named;

use super::estimate::{Activity, Estimates};
use crate::sorting::SortRows as _;

named! {
    /// Limit of a part of the kernel time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    pub enum Limit: name {
        /// Tensor cores.
        Tensor "tensor",
        /// Memory: device memory, the L2 cache, or the L1 cache and shared memory.
        Memory "memory",
        /// Instruction issue other than to tensor cores.
        Issue "issue",
        /// Latency: no unit near its peak.
        Latency "latency",
        /// Latency, with fewer resident warps to hide it than half of the maximum.
        Occupancy "occupancy",
        /// Multiprocessors without a warp.
        IdleMultiprocessors "idle_multiprocessors",
        /// A core clock below the highest.
        LoweredClock "lowered_clock",
        /// Not sampled, or unresolved by the samples.
        Unresolved "unresolved",
    }
}

/// Time by limit, nanoseconds, indexed by [`Limit`].
pub type LimitTimes = [u64; Limit::ALL.len()];

named! {
    /// A unit that can be at its peak.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Roof: name {
        /// Tensor cores.
        Tensor "tensor",
        /// Device memory.
        Dram "dram",
        /// The L2 cache.
        L2 "l2",
        /// The L1 cache and shared memory.
        L1 "l1",
        /// Instruction issue.
        Issue "issue",
    }
}

impl Roof {
    /// Metric with its utilization.
    pub const fn metric(self) -> Metric {
        match self {
            Self::Tensor => Metric::Tensor,
            Self::Dram => Metric::Dram,
            Self::L2 => Metric::L2,
            Self::L1 => Metric::L1,
            Self::Issue => Metric::Issue,
        }
    }

    const fn limit(self) -> Limit {
        match self {
            Self::Tensor => Limit::Tensor,
            Self::Dram | Self::L2 | Self::L1 => Limit::Memory,
            Self::Issue => Limit::Issue,
        }
    }
}

/// Maximum standard error of the nearest roofline's utilization, percentage points; above it, a kernel gets
/// no result.
pub const LARGEST_ERROR: f64 = 10.0;
/// With fewer resident warps than this fraction of the maximum, latency counts as [`Limit::Occupancy`].
/// NVIDIA's best-practices guide ("Occupancy") puts the end of the benefit there.
pub const FEW_WARPS: f64 = 0.5;
/// Tensor core utilization, percent, from which few warps are normal: such kernels keep tiles in registers.
const TENSOR_KERNEL: f64 = 10.0;
/// A clock lower by less than this fraction does not count as lowered: the samples' own error on an H200.
const CLOCK_ERROR: f64 = 0.01;
/// Fraction of the peak that the best kernels achieve: 90 % was the best of cuBLAS on an H200.
pub const REACHABLE: f64 = 0.9;

/// Limits of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelLimits {
    /// Fractions of its time, 0 to 1, indexed by [`Limit`]; they sum to 1.
    pub parts: [f64; Limit::ALL.len()],
    /// Its nearest roofline, utilization (0 to 1), and standard error; `None` if the samples do not resolve
    /// it.
    pub roof: Option<(Roof, f64, f64)>,
    /// Fraction of multiprocessors with a warp, 0 to 1, if known.
    pub active: Option<f64>,
    /// Core clock while it ran, Hz, if known.
    pub clock_hz: Option<f64>,
    /// True if it is estimated separately; otherwise its values are the means of the joined kernels.
    pub own: bool,
}

impl KernelLimits {
    /// Unknown limits.
    pub const UNKNOWN: Self =
        Self { parts: [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], roof: None, active: None, clock_hz: None, own: false };

    /// Limits of a kernel whose counters are in `estimates`, as [`Activity::Kernel`].
    pub fn of(activity: Activity, estimates: &Estimates, set: &MetricSet) -> Self {
        let value = |metric| estimates.get(set, activity, metric);
        let own = matches!(activity, Activity::Kernel(config) if estimates.tells(config));
        let used =
            Roof::ALL.into_iter().filter_map(|roof| value(roof.metric()).map(|(used, error)| (roof, used, error)));
        let nearest = used.fold(
            None,
            |best: Option<(Roof, f64, f64)>, found| {
                if best.is_none_or(|best| found.1 > best.1) { Some(found) } else { best }
            },
        );
        let clock = value(Metric::Clock).map(|(clock, _)| clock);
        let active = value(Metric::MultiprocessorsActive);
        let unknown = Self { active: active.map(|(active, _)| active / 100.0), clock_hz: clock, own, ..Self::UNKNOWN };
        let Some((roof, used, error)) = nearest.filter(|(.., error)| *error <= LARGEST_ERROR) else { return unknown };
        let used = used / 100.0;
        let active = active.filter(|(_, error)| *error <= LARGEST_ERROR).map(|(active, _)| active / 100.0);
        let mut parts = [0.0; Limit::ALL.len()];
        let idle = (1.0 - active.unwrap_or(1.0)).clamp(0.0, 1.0 - used);
        let lowered = match clock {
            Some(clock) if roof != Roof::Dram && set.highest_clock_hz > 0 => {
                let lowered = 1.0 - clock / set.highest_clock_hz as f64;
                if lowered > CLOCK_ERROR { lowered.min(1.0) } else { 0.0 }
            }
            _ => 0.0,
        };
        parts[roof.limit() as usize] = used * (1.0 - lowered);
        parts[Limit::LoweredClock as usize] = used * lowered;
        parts[Limit::IdleMultiprocessors as usize] = idle;
        let resident =
            value(Metric::WarpsActive).zip(active).map(|((warps, _), active)| warps / 100.0 / active.max(0.01));
        let tensor = value(Metric::Tensor).map_or(0.0, |(tensor, _)| tensor);
        let few = resident.is_some_and(|resident| resident < FEW_WARPS) && tensor < TENSOR_KERNEL;
        parts[if few { Limit::Occupancy } else { Limit::Latency } as usize] = (1.0 - used - idle).max(0.0);
        Self { parts, roof: Some((roof, used, error / 100.0)), active, clock_hz: clock, own }
    }

    /// Fraction (0 to 1) of its time that remains if it runs at [`REACHABLE`] of its nearest roofline, at the
    /// same clock.
    pub fn at_roof(&self, reachable: f64) -> f64 {
        self.roof.map_or(1.0, |(_, used, _)| (used / reachable).clamp(0.0, 1.0))
    }
}

/// Kernels of one launch configuration, for [`divide`].
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    /// Their limits.
    pub limits: KernelLimits,
    /// Sum of their durations, nanoseconds.
    pub nanos: u64,
    /// Unused part of their grids: [`Geometry::tail_loss`] and [`Geometry::empty_multiprocessors`], if known.
    pub grid: Option<(f64, f64)>,
}

impl Weighed {
    /// Combines the limits with the losses in `geometry`.
    pub fn new(limits: KernelLimits, nanos: u64, geometry: Option<&Geometry>) -> Self {
        Self { limits, nanos, grid: geometry.map(|of| (of.tail_loss, of.empty_multiprocessors())) }
    }
}

/// A time divided by limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// By limit. Sums to the time that was divided.
    pub times: LimitTimes,
    /// Part of the time of idle multiprocessors that grids explain: the last blocks of a grid (tail), fewer
    /// blocks than multiprocessors (small grids), nanoseconds.
    pub tail_ns: u64,
    /// See [`tail_ns`](Self::tail_ns).
    pub small_grids_ns: u64,
}

impl Division {
    /// Scales the same proportions to `total` nanoseconds.
    pub fn of(&self, total: u64) -> Self {
        let times = whole(total, &self.times.map(|nanos| nanos as f64));
        let idle = |of: &LimitTimes| of[Limit::IdleMultiprocessors as usize];
        let part = |nanos: u64| (nanos as f64 * idle(&times) as f64 / idle(&self.times).max(1) as f64) as u64;
        Self { times, tail_ns: part(self.tail_ns), small_grids_ns: part(self.small_grids_ns) }
    }
}

/// Divides by limit the `total` nanoseconds in which any of these kernels ran.
///
/// Utilization adds up over kernels that run at once, so the parts at a roofline keep their length, and the
/// rest of `total` is idle or latency.
pub fn divide(total: u64, kernels: &[Weighed]) -> Division {
    let all: f64 = kernels.iter().map(|kernel| kernel.nanos as f64).sum();
    if all <= 0.0 {
        let mut times = LimitTimes::default();
        times[Limit::Unresolved as usize] = total;
        return Division { times, ..Division::default() };
    }
    let mut sums = [0.0; Limit::ALL.len()];
    let (mut tail, mut small) = (0.0, 0.0);
    for kernel in kernels {
        for (sum, part) in sums.iter_mut().zip(kernel.limits.parts) {
            *sum += kernel.nanos as f64 * part;
        }
        let idle = kernel.limits.parts[Limit::IdleMultiprocessors as usize];
        if let Some((tail_loss, empty)) = kernel.grid {
            let explained = empty.min(idle);
            small += kernel.nanos as f64 * explained;
            tail += kernel.nanos as f64 * tail_loss.min(idle - explained);
        }
    }
    // Concurrent kernels shrink to the available time: first the parts without work, then all parts equally.
    let total_f = total as f64;
    let unresolved = sums[Limit::Unresolved as usize] * (total_f / all).min(1.0);
    let waits = [Limit::Latency as usize, Limit::Occupancy as usize, Limit::IdleMultiprocessors as usize];
    let work: f64 = [Limit::Tensor, Limit::Memory, Limit::Issue, Limit::LoweredClock]
        .iter()
        .map(|&limit| sums[limit as usize])
        .sum();
    let room = total_f - unresolved;
    let at_roofs = work.min(room);
    let waited: f64 = waits.iter().map(|&limit| sums[limit]).sum();
    let scale = |sum: f64, of: f64| if of > 0.0 { sum / of } else { 0.0 };
    let idle_before = sums[Limit::IdleMultiprocessors as usize];
    for (limit, sum) in sums.iter_mut().enumerate() {
        *sum *= match limit {
            _ if limit == Limit::Unresolved as usize => scale(unresolved, *sum),
            _ if waits.contains(&limit) => scale(room - at_roofs, waited),
            _ => scale(at_roofs, work),
        };
    }
    // Missing time counts as latency if there is no wait to absorb it.
    let missing = total_f - sums.iter().sum::<f64>();
    if missing > 0.0 {
        sums[Limit::Latency as usize] += missing;
    }
    let times = whole(total, &sums);
    let shrunk = scale(times[Limit::IdleMultiprocessors as usize] as f64, idle_before);
    Division { times, tail_ns: (tail * shrunk) as u64, small_grids_ns: (small * shrunk) as u64 }
}

/// Splits `total` in the proportions of `sums`, to the nanosecond (largest remainders).
pub fn whole(total: u64, sums: &[f64; Limit::ALL.len()]) -> LimitTimes {
    let all: f64 = sums.iter().sum();
    let mut times = LimitTimes::default();
    if all.is_nan() || all <= 0.0 {
        times[Limit::Unresolved as usize] = total;
        return times;
    }
    let exact = sums.map(|sum| sum.max(0.0) / all * total as f64);
    let mut left = total;
    for (time, exact) in times.iter_mut().zip(exact) {
        *time = (exact.floor() as u64).min(left);
        left -= *time;
    }
    let mut order: Vec<usize> = (0..times.len()).filter(|&limit| sums[limit] > 0.0).collect();
    order.sort_rows_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    // Above 2^53 ns, rounding down is coarse: then more than one per limit is left.
    if let (Some(&largest), true) = (order.first(), left > order.len() as u64) {
        times[largest] += left - order.len() as u64;
        left = order.len() as u64;
    }
    for &limit in order.iter().take(left as usize) {
        times[limit] += 1;
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(roof: Roof, used: f64, idle: f64) -> KernelLimits {
        let mut parts = [0.0; 8];
        parts[roof.limit() as usize] = used;
        parts[Limit::IdleMultiprocessors as usize] = idle;
        parts[Limit::Latency as usize] = 1.0 - used - idle;
        KernelLimits { parts, roof: Some((roof, used, 0.01)), active: Some(1.0 - idle), clock_hz: None, own: true }
    }

    #[test]
    fn kernels_one_after_the_other_keep_their_parts() {
        let gemm = Weighed { limits: limits(Roof::Tensor, 0.8, 0.1), nanos: 700, grid: Some((0.05, 0.0)) };
        let copy = Weighed { limits: limits(Roof::Dram, 0.9, 0.0), nanos: 300, grid: None };
        let Division { times, tail_ns, small_grids_ns } = divide(1_000, &[gemm, copy]);
        assert_eq!(times[..6], [560, 270, 0, 100, 0, 70]);
        assert_eq!((tail_ns, small_grids_ns), (35, 0));
    }

    #[test]
    fn work_that_runs_at_once_adds_up_and_waits_shrink() {
        let half = Weighed { limits: limits(Roof::Issue, 0.4, 0.5), nanos: 1_000, grid: None };
        let Division { times, .. } = divide(1_000, &[half, half]);
        assert_eq!(times[Limit::Issue as usize], 800);
        assert_eq!(times[Limit::Latency as usize] + times[Limit::IdleMultiprocessors as usize], 200);
    }

    #[test]
    fn what_no_sample_reported_stays_apart() {
        let known = Weighed { limits: limits(Roof::Dram, 1.0, 0.0), nanos: 600, grid: None };
        let unknown = Weighed { limits: KernelLimits::UNKNOWN, nanos: 400, grid: None };
        let Division { times, .. } = divide(500, &[known, unknown]);
        assert_eq!(times[Limit::Unresolved as usize], 200);
        assert_eq!(times[Limit::Memory as usize], 300);
        assert_eq!(divide(500, &[]).times[Limit::Unresolved as usize], 500);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn parts_sum_to_the_time_to_the_nanosecond(
            total in prop_oneof![0..10_000u64, 0..u64::MAX / 4],
            kernels in prop::collection::vec((0..5usize, 0.0..1.0f64, 0.0..1.0f64, 0..u64::MAX / 64), 0..12),
        ) {
            let kernels: Vec<_> = kernels.into_iter().map(|(roof, used, idle, nanos)| {
                Weighed { limits: limits(Roof::ALL[roof], used, idle * (1.0 - used)), nanos, grid: Some((0.3, 0.2)) }
            }).collect();
            let division = divide(total, &kernels);
            prop_assert_eq!(division.times.iter().sum::<u64>(), total);
            let idle = division.times[Limit::IdleMultiprocessors as usize];
            prop_assert!(division.tail_ns as f64 + division.small_grids_ns as f64 <= idle as f64 * 1.000_001 + 1.0);
        }
    }
}
