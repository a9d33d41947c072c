//! The share of each group: by the median over steady steps when there are enough, else of the steady time as a whole.
//!
//! Steps are preferred because their median does not follow a few unusual ones and comes with an interval. They are
//! not used when the unusual ones take more time than can be left out, or when those remembered are a small part
//! of the run: then the whole says more.

use super::{UNKNOWN_SHARE, WORTH_SHARE};
use crate::attribution::leaf::{Group, Leaves};
use crate::attribution::{Attributor, DeviceAccount};
use crate::report::DeviceReport;
use crate::steps::{FEWEST_STEADY, Interval, Steady, Step, Steps};

/// Steps that were set aside may take this part of the time of all.
const SET_ASIDE_SHARE: f64 = 0.10;
/// Steady steps must make up half of the steady time of a device, or this much, nanoseconds.
const ENOUGH_NANOS: u64 = 1_000_000_000;
/// The live display changes to another group when that leads by more than this share of a step...
const LEAD_SHARE: f64 = 0.05;
/// ...in this many steps one after the other.
const LEAD_STEPS: usize = 10;

/// Shares of the groups over all devices.
#[derive(Debug)]
pub(super) struct Ranking {
    shares: Vec<(Group, Interval)>,
    /// Steady steps of the devices, in their order, when the shares rest on them.
    pub(super) steady: Option<Vec<Steady>>,
}

impl Ranking {
    pub(super) fn new(attributor: &Attributor, devices: &[DeviceReport], whole: &Leaves) -> Self {
        let accounts: Vec<&DeviceAccount> = attributor.devices().collect();
        let steady: Option<Vec<Steady>> =
            accounts.iter().zip(devices).map(|(account, device)| judged(account, device.steps.as_ref()?)).collect();
        let total = whole.iter().sum::<u64>().max(1) as f64;
        let plain = |group: Group| {
            let share = group.total(whole) as f64 / total;
            Interval { median: share, low: share, high: share }
        };
        let shares = Group::ALL.into_iter().map(|group| {
            let of_steps = steady.as_ref().filter(|rows| !rows.is_empty());
            (group, of_steps.and_then(|rows| over_steps(group, rows, devices)).unwrap_or_else(|| plain(group)))
        });
        Self { shares: shares.collect(), steady: steady.filter(|rows| !rows.is_empty()) }
    }

    pub(super) fn share(&self, group: Group) -> Interval {
        let found = self.shares.iter().find(|(other, _)| *other == group).map(|&(_, interval)| interval);
        found.unwrap_or(Interval { median: 0.0, low: 0.0, high: 0.0 })
    }

    /// The group that matters most.
    pub(super) fn first(&self) -> Group {
        first_of(|group| self.share(group).median)
    }

    /// A group that cannot be told from `group` in size: its interval reaches into that of `group`.
    pub(super) fn rival(&self, group: Group) -> Option<(Group, Interval)> {
        let low = self.share(group).low;
        let other = |&(other, interval): &(Group, Interval)| {
            other != group && !matches!(other, Group::GpuCompute | Group::CannotTell) && interval.high > low
        };
        self.steady.as_ref()?;
        let rivals = self.shares.iter().copied().filter(other);
        rivals.max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }
}

/// The steady steps of a device, if the verdict can rest on them.
fn judged(account: &DeviceAccount, steps: &Steps) -> Option<Steady> {
    let steady = steps.steady(account.steady_start());
    let time = |rows: &[Step]| rows.iter().map(Step::duration).sum::<u64>();
    let (typical, unusual) = (time(&steady.rows), time(&steady.set_aside));
    let whole: u64 = account.steady_leaves().iter().sum();
    let few_unusual = unusual as f64 <= SET_ASIDE_SHARE * (typical + unusual) as f64;
    let enough = steady.rows.len() >= FEWEST_STEADY && typical >= ENOUGH_NANOS.min(whole / 2) && typical > 0;
    (few_unusual && enough).then_some(steady)
}

/// Median share over the steps of each device, weighted by the steady time of the devices.
fn over_steps(group: Group, steady: &[Steady], devices: &[DeviceReport]) -> Option<Interval> {
    let mut sum = Interval { median: 0.0, low: 0.0, high: 0.0 };
    let mut weights = 0.0;
    for (steady, device) in steady.iter().zip(devices) {
        let shares = steady.rows.iter().map(|row| share_of(group, row)).collect();
        let (interval, weight) = (Interval::of(shares)?, device.steady_leaves.iter().sum::<u64>() as f64);
        sum.median += weight * interval.median;
        sum.low += weight * interval.low;
        sum.high += weight * interval.high;
        weights += weight;
    }
    (weights > 0.0).then(|| Interval { median: sum.median / weights, low: sum.low / weights, high: sum.high / weights })
}

fn share_of(group: Group, step: &Step) -> f64 {
    group.total(&step.leaves) as f64 / step.duration().max(1) as f64
}

/// Everything but computation could be had back, so the largest other group is first when it is worth it.
fn first_of(share: impl Fn(Group) -> f64) -> Group {
    let others = Group::ALL.into_iter().filter(|group| !matches!(group, Group::GpuCompute | Group::CannotTell));
    let largest = others.max_by(|&a, &b| share(a).total_cmp(&share(b))).unwrap_or(Group::CannotTell);
    if share(largest) >= WORTH_SHARE || share(largest) > share(Group::GpuCompute) { largest } else { Group::GpuCompute }
}

/// What a display that is followed live should name, and its median share of the newest steps: it changes only when
/// another group leads for some time. `None` with fewer steps than that takes.
///
/// The answer is worked out from the remembered steps, so that it depends on them alone and not on how often it
/// was asked for.
pub(super) fn held(rows: &[Step]) -> Option<(Group, f64)> {
    let median = |group: Group, rows: &[Step]| {
        Interval::of(rows.iter().map(|row| share_of(group, row)).collect()).map_or(0.0, |interval| interval.median)
    };
    let first = rows.get(..LEAD_STEPS)?;
    let mut group = first_of(|group| median(group, first));
    let (mut lead, mut leader) = (0, group);
    for row in rows {
        let now = first_of(|group| share_of(group, row));
        let leads = now != group && lead_of(now, group, row) > LEAD_SHARE;
        lead = match leads {
            true if now == leader => lead + 1,
            true => 1,
            false => 0,
        };
        leader = now;
        if lead >= LEAD_STEPS {
            (group, lead) = (now, 0);
        }
    }
    let newest = &rows[rows.len() - LEAD_STEPS..];
    (median(Group::CannotTell, newest) <= UNKNOWN_SHARE).then(|| (group, median(group, newest)))
}

/// By how much of the step `now` is ahead of `group`. Computation is first by default, when nothing else is worth it,
/// so it leads by what `group` has less than that.
fn lead_of(now: Group, group: Group, step: &Step) -> f64 {
    match (now, group) {
        (Group::GpuCompute, _) => WORTH_SHARE - share_of(group, step),
        (_, Group::GpuCompute) => share_of(now, step),
        _ => share_of(now, step) - share_of(group, step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::leaf::{LEAF_COUNT, Leaf};
    use crate::record::Timestamp;

    fn step(leaf: Leaf, nanos: u64) -> Step {
        let mut leaves = [0; LEAF_COUNT];
        leaves[Leaf::Compute as usize] = 1_000 - nanos;
        leaves[leaf as usize] += nanos;
        Step { start: Timestamp::from_nanos(1), end: Timestamp::from_nanos(1_001), operations: 1, leaves }
    }

    #[test]
    fn the_live_group_changes_after_ten_steps_and_not_for_a_few() {
        let dispatch = || std::iter::repeat_n(step(Leaf::Dispatch, 600), 20);
        let drain = |count| std::iter::repeat_n(step(Leaf::SyncDrain, 600), count);
        let group = |rows: Vec<Step>| held(&rows).map(|(group, _)| group);
        assert_eq!(held(&dispatch().collect::<Vec<_>>()), Some((Group::Launch, 0.6)));
        assert_eq!(group(dispatch().chain(drain(9)).collect()), Some(Group::Launch));
        assert_eq!(group(dispatch().chain(drain(9)).chain(dispatch()).chain(drain(9)).collect()), Some(Group::Launch));
        assert_eq!(group(dispatch().chain(drain(10)).collect()), Some(Group::Sync));
        assert_eq!(group(drain(9).collect()), None);
        let unknown = std::iter::repeat_n(step(Leaf::GraphWait, 600), 12);
        assert_eq!(group(unknown.collect()), None, "nothing is named where the verdict would be withheld");
    }
}
