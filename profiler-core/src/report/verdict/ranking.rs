//! The share of each group, and which of them is first by what could be had back of it.
//!
//! Shares are medians over steady steps when there are enough, else of the steady time as a whole.
//! Steps are preferred because their median does not follow a few unusual ones and comes with an interval. They are
//! not used when the unusual ones take more time than can be left out, or when those remembered are a small part
//! of the run: then the whole says more.

use super::recoverable::gain;
use crate::attribution::Attributor;
use crate::attribution::leaf::{Group, LEAF_COUNT, Leaves};
use crate::report::untraced::{WithoutTracing, made_by_tracing};
use crate::report::{DeviceReport, Ranked, RecoverableBy};
use crate::steps::{Interval, Steady, Step};
use crate::thresholds::WORTH_SHARE;

/// The groups over all devices.
#[derive(Debug)]
pub(super) struct Ranking {
    rows: Vec<Row>,
    /// Steady steps of the devices, in their order, when the shares rest on them.
    pub(super) steady: Option<Vec<Steady>>,
    /// What of a step of each device remains without tracing, 0 to 1; 1 where shares and gains are of steps with it.
    pub(super) untraced: Vec<f64>,
    /// The group that would be first if all were of steps with tracing, and its share of them.
    with_tracing: (Group, f64),
}

#[derive(Clone, Copy, Debug)]
struct Row {
    group: Group,
    share: Interval,
    recoverable: f64,
    by: RecoverableBy,
}

impl Ranking {
    pub(super) fn new(attributor: &Attributor, devices: &[DeviceReport]) -> Self {
        let steady: Option<Vec<Steady>> = attributor.devices().map(|account| account.typical_steps()).collect();
        let steady = steady.filter(|rows| !rows.is_empty());
        let of_device = |(index, device): (usize, &DeviceReport)| {
            let steps = steady.as_ref().and_then(|steady| steady.get(index));
            let leaves = steps.map_or(device.steady_leaves, |steady| sum(steady.rows.iter().map(|row| &row.leaves)));
            WithoutTracing::of(device, &leaves)
        };
        let without: Vec<_> = devices.iter().enumerate().map(of_device).collect();
        let rows = |without: &[WithoutTracing]| -> Vec<Row> {
            Group::ALL.into_iter().map(|group| Row::of(group, steady.as_deref(), devices, without)).collect()
        };
        let untraced = without.iter().map(|without| without.step).collect();
        let mut ranking = Self {
            rows: rows(&vec![WithoutTracing::NOTHING; devices.len()]),
            steady: None,
            untraced,
            with_tracing: (Group::CannotTell, 0.0),
        };
        let first = ranking.first();
        ranking.with_tracing = (first, ranking.share(first).median);
        ranking.rows = rows(&without);
        ranking.steady = steady;
        ranking
    }

    /// That tracing changes which group is first, if it does.
    pub(super) fn changed_by_tracing(&self) -> Option<String> {
        let (first, with) = self.with_tracing;
        (first != self.first()).then(|| made_by_tracing(first, self.share(first).median, with))
    }

    pub(super) fn share(&self, group: Group) -> Interval {
        self.row(group).map_or(Interval { median: 0.0, low: 0.0, high: 0.0 }, |row| row.share)
    }

    /// What could be had back of `group`.
    fn recoverable(&self, group: Group) -> f64 {
        self.row(group).map_or(0.0, |row| row.recoverable)
    }

    fn row(&self, group: Group) -> Option<&Row> {
        self.rows.iter().find(|row| row.group == group)
    }

    /// The group that matters most.
    pub(super) fn first(&self) -> Group {
        first_of(|group| self.share(group).median, |group| self.recoverable(group))
    }

    /// Groups that could be the verdict and have any time, the most recoverable first.
    pub(super) fn ranked(&self) -> Vec<Ranked> {
        let rows = self.rows.iter().filter(|row| can_be_first(row.group) && row.share.median > 0.0);
        let ranked =
            |row: &Row| Ranked { group: row.group, share: row.share.median, recoverable: row.recoverable, by: row.by };
        let mut rows: Vec<Ranked> = rows.map(ranked).collect();
        rows.sort_by(|a, b| b.recoverable.total_cmp(&a.recoverable).then(b.share.total_cmp(&a.share)));
        rows
    }

    /// A group that cannot be told from `group` in size: its interval reaches into that of `group`.
    pub(super) fn rival(&self, group: Group) -> Option<(Group, Interval)> {
        let low = self.share(group).low;
        self.steady.as_ref()?;
        let others = self.rows.iter().filter(|row| row.group != group && can_be_first(row.group));
        let rivals = others.filter(|row| row.share.high > low).map(|row| (row.group, row.share));
        rivals.max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }
}

/// Whether a group is something that could be had back.
fn can_be_first(group: Group) -> bool {
    !matches!(group, Group::GpuCompute | Group::CannotTell)
}

impl Row {
    /// The share of `group` on each device (the median over its steady steps, else that of its steady time) and what
    /// could be had back of it, weighted by the steady time of the devices; `without` what tracing takes of each.
    fn of(group: Group, steady: Option<&[Steady]>, devices: &[DeviceReport], without: &[WithoutTracing]) -> Self {
        let mut share = Interval { median: 0.0, low: 0.0, high: 0.0 };
        let (mut recoverable, mut by, mut weights) = (0.0, RecoverableBy::Simulation, 0.0);
        for (index, device) in devices.iter().enumerate() {
            let steady = steady.and_then(|steady| steady.get(index));
            let weight = device.steady_leaves.iter().sum::<u64>() as f64;
            let whole = group.total(&device.steady_leaves) as f64 / weight.max(1.0);
            let of_steps =
                steady.and_then(|steady| Interval::of(steady.rows.iter().map(|row| share_of(group, row)).collect()));
            let traced = of_steps.unwrap_or(Interval { median: whole, low: whole, high: whole });
            let without = without.get(index).unwrap_or(&WithoutTracing::NOTHING);
            let [median, low, high] = [traced.median, traced.low, traced.high].map(|share| without.share(group, share));
            let interval = Interval { median, low, high };
            share.median += weight * interval.median;
            share.low += weight * interval.low;
            share.high += weight * interval.high;
            recoverable += weight
                * match gain(group, device, steady) {
                    Some(gain) if without.step < 1.0 => gain.min(interval.median),
                    Some(gain) => with_tracing(gain, device).min(interval.median),
                    None => {
                        by = RecoverableBy::Additive;
                        interval.median
                    }
                };
            weights += weight;
        }
        let weights: f64 = if weights > 0.0 { weights } else { 1.0 };
        let [median, low, high] = [share.median, share.low, share.high].map(|sum| sum / weights);
        Self { group, share: Interval { median, low, high }, recoverable: recoverable / weights, by }
    }
}

/// Leaf by leaf.
pub(super) fn sum<'a>(rows: impl Iterator<Item = &'a Leaves>) -> Leaves {
    let mut total = [0; LEAF_COUNT];
    for row in rows {
        for (sum, nanos) in total.iter_mut().zip(row) {
            *sum += nanos;
        }
    }
    total
}

/// A gain that is relative to steps without tracing, relative to those with it.
fn with_tracing(gain: f64, device: &DeviceReport) -> f64 {
    let untraced = device.what_if.as_ref().and_then(|what_if| what_if.untraced);
    1.0 - (1.0 - gain) * untraced.unwrap_or(1.0)
}

pub(super) fn share_of(group: Group, step: &Step) -> f64 {
    group.total(&step.leaves) as f64 / step.duration().max(1) as f64
}

/// The group of which most could be had back, if that is worth it or if it has more time than computation has (then
/// it is what the device is busy with, even where no single remedy is known to help); else computation.
pub(super) fn first_of(share: impl Fn(Group) -> f64, recoverable: impl Fn(Group) -> f64) -> Group {
    let worth = |group: &Group| recoverable(*group) >= WORTH_SHARE || share(*group) > share(Group::GpuCompute);
    let others = Group::ALL.into_iter().filter(|&group| can_be_first(group)).filter(worth);
    let order = |group: Group| (recoverable(group), share(group));
    let first = others.max_by(|&a, &b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    first.unwrap_or(Group::GpuCompute)
}
