//! Changes in the limits of computation, if hardware counters of both runs show them.

use profiler_core::counters::roofs::{Limit, LimitTimes};
use profiler_core::leaf::Leaf;

use super::compared::{change, ranked};
use gpuwhy_report::run::ComputeLimits;
use gpuwhy_report::run::unit::Representative;

/// Computation of one unit of each run by limit. Each sums to the leaf `compute` of its unit exactly, and the
/// changes sum to the change of that leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitChanges {
    /// Time in A, nanoseconds by limit.
    pub a: LimitTimes,
    /// Time in B, nanoseconds by limit.
    pub b: LimitTimes,
    /// Limits that changed, nanoseconds, the largest change first.
    pub changes: Vec<(Limit, i64)>,
}

impl LimitChanges {
    /// Divides the computation of both units in the proportions of the runs' typical steps (without these, of
    /// their steady time). `None` if a run has no samples, or neither computes.
    pub(super) fn of(
        a: (Option<&ComputeLimits>, &Representative),
        b: (Option<&ComputeLimits>, &Representative),
    ) -> Option<Self> {
        let compute = |unit: &Representative| unit.leaves[Leaf::Compute as usize];
        let (first, second) = a.0.zip(b.0)?;
        if compute(a.1).max(compute(b.1)) == 0 {
            return None;
        }
        let (a, b) = (first.division().of(compute(a.1)).times, second.division().of(compute(b.1)).times);
        let changes = ranked(&Limit::ALL, |limit| change(a[limit as usize], b[limit as usize]));
        Some(Self { a, b, changes })
    }
}

/// Sentence that the two runs were sampled too differently to compare their limits: at rates that differ by
/// half, or on different chips.
pub(super) fn caveat(a: &ComputeLimits, b: &ComputeLimits) -> Option<String> {
    let every = |limits: &ComputeLimits| limits.samples.mean_interval_ns().unwrap_or(limits.set.interval_ns);
    let (first, second) = (every(a), every(b));
    if a.set.chip != b.set.chip {
        return Some("The chips differ: their units have other peaks, and parts of these do not compare.".to_owned());
    }
    let differ = first.max(second) as f64 >= 1.5 * first.min(second) as f64;
    differ.then(|| {
        format!(
            "Counters were sampled every {} in A and every {} in B: limits may differ by some points for that alone.",
            gpuwhy_report::text_format::duration(first),
            gpuwhy_report::text_format::duration(second)
        )
    })
}
