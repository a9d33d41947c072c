//! Unit of comparison of two runs: one representative step of each, or a number of operations if steps are
//! unsuitable.
//!
//! A representative must keep the accounting exact: its leaves sum to its duration, so that the differences
//! of the leaves sum to the difference of the durations. Medians of the leaves do not; the mean over the
//! steps between the quartiles does, and is equally robust against outliers.

use profiler_core::leaf::{LEAF_COUNT, Leaves};
use profiler_core::quantile::lower_median;
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{Step, StepSource, Steps};

use super::DeviceReport;

/// Minimum number of steps for a comparison by steps.
pub const FEWEST_STEPS: usize = 5;
/// Number of first steps of a run that are excluded: caches fill, code loads lazily, algorithms are tuned.
pub const WARM_UP_STEPS: usize = 3;
/// Number of operations to compare when neither run has comparable steps.
pub const OPERATIONS: u64 = 1_000;

/// Unit of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Basis {
    /// One step.
    Step,
    /// As many device operations as in a step of the run that has steps, else [`OPERATIONS`]; with the time
    /// between them.
    Operations,
}

/// The time of one unit (a step, or a number of operations) of one run on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Representative {
    /// Number of averaged steps: those between the quartiles. 0 without steps.
    pub averaged: usize,
    /// Number of considered steps. 0 without steps.
    pub considered: usize,
    /// How steps were found; `None` without steps.
    pub source: Option<StepSource>,
    /// Number of device operations in one unit: the median over the steps considered.
    pub operations: u64,
    /// Duration of one unit, nanoseconds, rounded down.
    pub unit_ns: u64,
    /// Lower median of the durations of the steps considered; `None` without steps.
    pub median_ns: Option<u64>,
    /// The duration by leaf. Sums to `unit_ns` exactly.
    pub leaves: Leaves,
}

/// Returns the steps that can be compared: found by repetition, after start-up, and numerous enough.
pub fn comparable(steps: Option<&Steps>) -> Option<(StepSource, &[Step])> {
    let steps = steps.filter(|steps| steps.source != StepSource::Window)?;
    // The ring drops the oldest steps; the rest of a long run is after start-up.
    let forgotten = usize::try_from(steps.seen).unwrap_or(usize::MAX).saturating_sub(steps.rows.len());
    let rows = steps.rows.get(WARM_UP_STEPS.saturating_sub(forgotten)..)?;
    (rows.len() >= FEWEST_STEPS).then_some((steps.source, rows))
}

/// Step durations in order, nanoseconds.
pub fn durations(rows: &[Step]) -> Vec<u64> {
    rows.iter().map(duration).collect()
}

/// A step's duration is the sum of its leaves, so that the accounting is exact even if a reader set other
/// ends.
fn duration(step: &Step) -> u64 {
    step.leaves.iter().sum()
}

/// Averages the steps between the quartiles: a quarter of the steps, rounded down, is excluded at each end.
pub fn representative(source: StepSource, rows: &[Step]) -> Representative {
    let mut sorted: Vec<_> = rows.iter().collect();
    sorted.sort_rows_by_key(|step| (duration(step), step.start));
    let inner = &sorted[sorted.len() / 4..sorted.len() - sorted.len() / 4];
    let (unit_ns, leaves) = scaled(&sum(inner.iter().map(|step| &step.leaves)), 1, inner.len() as u64);
    let mut operations: Vec<_> = rows.iter().map(|step| step.operations).collect();
    operations.sort_unstable();
    Representative {
        averaged: inner.len(),
        considered: rows.len(),
        source: Some(source),
        operations: lower_median(&operations).unwrap_or(0),
        unit_ns,
        median_ns: lower_median(&sorted).map(duration),
        leaves,
    }
}

/// Device time by leaf, and the number of operations in it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSum {
    leaves: [u128; LEAF_COUNT],
    operations: u64,
}

impl DeviceSum {
    /// The complete window of a device, start-up included.
    pub fn whole(device: &DeviceReport, operations: u64) -> Self {
        Self { leaves: sum(std::iter::once(&device.leaves)), operations }
    }

    /// The time of a device after start-up: the comparable steps, or the windows of fixed length that start
    /// after start-up. `None` when fewer than [`OPERATIONS`] ran in it.
    pub fn warm(device: &DeviceReport) -> Option<Self> {
        let steps = device.steps.as_ref();
        let rows = match (comparable(steps), steps) {
            (Some((_, rows)), _) => rows,
            (None, Some(steps)) if steps.source == StepSource::Window => after_start_up(device, steps),
            (None, _) => return None,
        };
        let operations = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.operations));
        (operations >= OPERATIONS).then(|| Self { leaves: sum(rows.iter().map(|row| &row.leaves)), operations })
    }

    /// The time of `unit` operations.
    pub fn of_operations(&self, unit: u64) -> Representative {
        let (unit_ns, leaves) = scaled(&self.leaves, unit, self.operations);
        Representative { averaged: 0, considered: 0, source: None, operations: unit, unit_ns, median_ns: None, leaves }
    }
}

/// The first window starts with the device's; it ends before the device's does, so start-up is counted from
/// the start.
fn after_start_up<'a>(device: &DeviceReport, steps: &'a Steps) -> &'a [Step] {
    let remembers_all = usize::try_from(steps.seen).is_ok_and(|seen| seen == steps.rows.len());
    let start_up = device.window_ns.saturating_sub(device.steady_leaves.iter().sum());
    let Some(first) = steps.rows.first().filter(|_| remembers_all) else { return &steps.rows };
    let warm = first.start.nanos().saturating_add(start_up);
    &steps.rows[steps.rows.partition_point(|row| row.start.nanos() < warm)..]
}

fn sum<'a>(rows: impl Iterator<Item = &'a Leaves>) -> [u128; LEAF_COUNT] {
    let mut total = [0; LEAF_COUNT];
    for row in rows {
        for (sum, &nanos) in total.iter_mut().zip(row) {
            *sum += u128::from(nanos);
        }
    }
    total
}

/// `leaves * numerator / denominator` in whole nanoseconds, and the total.
///
/// The total is rounded down. Leaves are rounded down as well, and the missing nanoseconds go to the leaves
/// with the largest remainders, one each, the earlier leaf first. So the leaves sum to the total, and each is
/// less than 1 ns from its exact value. Without a denominator all are 0.
fn scaled(leaves: &[impl Copy + Into<u128>; LEAF_COUNT], numerator: u64, denominator: u64) -> (u64, Leaves) {
    let mut whole = [0; LEAF_COUNT];
    if denominator == 0 {
        return (0, whole);
    }
    let (numerator, denominator) = (u128::from(numerator), u128::from(denominator));
    let parts = leaves.map(|nanos| nanos.into().saturating_mul(numerator));
    for (slot, part) in whole.iter_mut().zip(&parts) {
        *slot = u64::try_from(part / denominator).unwrap_or(u64::MAX);
    }
    let remainders = parts.map(|part| part % denominator);
    let missing = usize::try_from(remainders.iter().sum::<u128>() / denominator).unwrap_or(0);
    let mut order: [usize; LEAF_COUNT] = std::array::from_fn(|index| index);
    order.sort_rows_by_key(|&index| std::cmp::Reverse(remainders[index]));
    for &index in &order[..missing] {
        whole[index] = whole[index].saturating_add(1);
    }
    (whole.iter().fold(0, |sum: u64, &nanos| sum.saturating_add(nanos)), whole)
}

#[cfg(feature = "serde")]
gpuwhy_trace::document::document! {
    from: Representative {
        unit_ns: from.unit_ns,
        median_ns: from.median_ns,
        operations: from.operations,
        steps_averaged: from.averaged,
        steps_considered: from.considered,
        step_source: from.source,
        leaves: profiler_core::document::leaves(&from.leaves),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;
    use profiler_core::leaf::Leaf;

    fn step(index: u64, compute: u64, data_loading: u64) -> Step {
        let mut leaves = [0; LEAF_COUNT];
        leaves[Leaf::Compute as usize] = compute;
        leaves[Leaf::DataLoading as usize] = data_loading;
        let start = Timestamp::from_nanos(1_000 + index);
        Step {
            start,
            end: Timestamp::from_nanos(1_000 + index + compute + data_loading),
            operations: 10,
            leaves,
            iteration: None,
        }
    }

    #[test]
    fn rounded_leaves_still_sum_to_the_rounded_total() {
        let leaves: [u128; LEAF_COUNT] = std::array::from_fn(|index| (index * index + 7) as u128);
        let exact: u128 = leaves.iter().sum();
        for denominator in 1..40 {
            let (total, parts) = scaled(&leaves, 3, denominator);
            assert_eq!(total, u64::try_from(exact * 3).unwrap() / denominator);
            assert_eq!(total, parts.iter().sum::<u64>());
            for (part, leaf) in parts.iter().zip(&leaves) {
                let wanted = *leaf as f64 * 3.0 / denominator as f64;
                assert!((*part as f64 - wanted).abs() < 1.0, "{part} for {wanted}");
            }
        }
        assert_eq!(scaled(&leaves, 3, 0), (0, [0; LEAF_COUNT]));
    }

    #[test]
    fn outliers_at_both_ends_are_left_out() {
        let mut rows: Vec<_> = (0..8).map(|index| step(index, 100, 50)).collect();
        rows[2] = step(2, 100, 90_000);
        rows[5] = step(5, 1, 0);
        let representative = representative(StepSource::Period, &rows);
        assert_eq!((representative.averaged, representative.considered), (4, 8));
        assert_eq!((representative.unit_ns, representative.median_ns), (150, Some(150)));
        assert_eq!(representative.leaves[Leaf::DataLoading as usize], 50);
    }

    #[test]
    fn warm_up_is_left_out_unless_the_ring_has_forgotten_it() {
        let rows: Vec<_> = (0..8).map(|index| step(index, 100, 50)).collect();
        let mut steps = Steps { source: StepSource::Period, period: Some(10), seen: 8, rows };
        assert_eq!(comparable(Some(&steps)).unwrap().1.len(), 5);
        steps.seen = 10;
        assert_eq!(comparable(Some(&steps)).unwrap().1.len(), 7);
        steps.seen = 1_000;
        assert_eq!(comparable(Some(&steps)).unwrap().1.len(), 8);
    }

    #[test]
    fn windows_and_few_steps_do_not_serve() {
        let rows: Vec<_> = (0..8).map(|index| step(index, 100, 50)).collect();
        let mut steps = Steps { source: StepSource::Window, period: None, seen: 8, rows };
        assert!(comparable(Some(&steps)).is_none());
        steps.source = StepSource::Anchor;
        assert!(comparable(Some(&steps)).is_some());
        steps.rows.truncate(7);
        steps.seen = 7;
        assert!(comparable(Some(&steps)).is_none());
        assert!(comparable(None).is_none());
    }
}
