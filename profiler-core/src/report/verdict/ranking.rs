//! The share of each group, and which of them is first by what could be had back of it.
//!
//! Shares are medians over steady steps when there are enough, else of the steady time as a whole.
//! Steps are preferred because their median does not follow a few unusual ones and comes with an interval. They are
//! not used when the unusual ones take more time than can be left out, or when those remembered are a small part
//! of the run: then the whole says more.

use super::recoverable::{Ranked, RecoverableBy, gain};
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

/// The groups over all devices.
#[derive(Debug)]
pub(super) struct Ranking {
    rows: Vec<Row>,
    /// Steady steps of the devices, in their order, when the shares rest on them.
    pub(super) steady: Option<Vec<Steady>>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    group: Group,
    share: Interval,
    recoverable: f64,
    by: RecoverableBy,
}

impl Ranking {
    pub(super) fn new(attributor: &Attributor, devices: &[DeviceReport], whole: &Leaves) -> Self {
        let accounts: Vec<&DeviceAccount> = attributor.devices().collect();
        let steady: Option<Vec<Steady>> =
            accounts.iter().zip(devices).map(|(account, device)| judged(account, device.steps.as_ref()?)).collect();
        let steady = steady.filter(|rows| !rows.is_empty());
        let total = whole.iter().sum::<u64>().max(1) as f64;
        let plain = |group: Group| {
            let share = group.total(whole) as f64 / total;
            let share = Interval { median: share, low: share, high: share };
            Row { group, share, recoverable: share.median, by: RecoverableBy::Books }
        };
        let rows = Group::ALL.into_iter().map(|group| {
            let of_steps = steady.as_ref().and_then(|steady| over_steps(group, steady, devices));
            of_steps.unwrap_or_else(|| plain(group))
        });
        Self { rows: rows.collect(), steady }
    }

    pub(super) fn share(&self, group: Group) -> Interval {
        self.row(group).map_or(Interval { median: 0.0, low: 0.0, high: 0.0 }, |row| row.share)
    }

    /// What could be had back of `group`, and what says so.
    pub(super) fn recoverable(&self, group: Group) -> (f64, RecoverableBy) {
        self.row(group).map_or((0.0, RecoverableBy::Books), |row| (row.recoverable, row.by))
    }

    fn row(&self, group: Group) -> Option<&Row> {
        self.rows.iter().find(|row| row.group == group)
    }

    /// The part of the group's share that could be had back, 0 to 1.
    pub(super) fn recoverable_part(&self, group: Group) -> f64 {
        self.row(group).filter(|row| row.share.median > 0.0).map_or(1.0, |row| row.recoverable / row.share.median)
    }

    /// The group that matters most.
    pub(super) fn first(&self) -> Group {
        first_of(|group| self.share(group).median, |group| self.recoverable(group).0)
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
fn over_steps(group: Group, steady: &[Steady], devices: &[DeviceReport]) -> Option<Row> {
    let mut share = Interval { median: 0.0, low: 0.0, high: 0.0 };
    let (mut recoverable, mut by, mut weights) = (0.0, RecoverableBy::Replay, 0.0);
    for (steady, device) in steady.iter().zip(devices) {
        let shares = steady.rows.iter().map(|row| share_of(group, row)).collect();
        let (interval, weight) = (Interval::of(shares)?, device.steady_leaves.iter().sum::<u64>() as f64);
        share.median += weight * interval.median;
        share.low += weight * interval.low;
        share.high += weight * interval.high;
        recoverable += weight
            * match gain(group, device, steady) {
                Some(gain) => gain.min(interval.median),
                None => {
                    by = RecoverableBy::Books;
                    interval.median
                }
            };
        weights += weight;
    }
    let [median, low, high] = [share.median, share.low, share.high].map(|sum| sum / weights);
    (weights > 0.0).then(|| Row {
        group,
        share: Interval { median, low, high },
        recoverable: recoverable / weights,
        by,
    })
}

/// Lower median of the durations, nanoseconds; 0 without any.
pub(super) fn median_duration(rows: &[Step]) -> u64 {
    let mut durations: Vec<u64> = rows.iter().map(Step::duration).collect();
    durations.sort_unstable();
    durations.get(durations.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

fn share_of(group: Group, step: &Step) -> f64 {
    group.total(&step.leaves) as f64 / step.duration().max(1) as f64
}

/// The group of which most could be had back, if that is worth it or if it has more time than computation has (then
/// it is what the device is busy with, even where no single remedy is known to help); else computation.
fn first_of(share: impl Fn(Group) -> f64, recoverable: impl Fn(Group) -> f64) -> Group {
    let worth = |group: &Group| recoverable(*group) >= WORTH_SHARE || share(*group) > share(Group::GpuCompute);
    let others = Group::ALL.into_iter().filter(|&group| can_be_first(group)).filter(worth);
    let order = |group: Group| (recoverable(group), share(group));
    let first = others.max_by(|&a, &b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    first.unwrap_or(Group::GpuCompute)
}

/// What a display that is followed live should name, and its median share of the newest steps: it changes only when
/// another group leads for some time. `part` of a group's share could be had back. `None` with fewer steps than that
/// takes.
///
/// The answer is worked out from the remembered steps, so that it depends on them alone and not on how often it
/// was asked for.
pub(super) fn held(rows: &[Step], part: impl Fn(Group) -> f64) -> Option<(Group, f64)> {
    let median = |group: Group, rows: &[Step]| {
        Interval::of(rows.iter().map(|row| share_of(group, row)).collect()).map_or(0.0, |interval| interval.median)
    };
    let first = rows.get(..LEAD_STEPS)?;
    let mut group = first_of(|group| median(group, first), |group| median(group, first) * part(group));
    let (mut lead, mut leader) = (0, group);
    for row in rows {
        let recoverable = |group: Group| share_of(group, row) * part(group);
        let now = first_of(|group| share_of(group, row), recoverable);
        let leads = now != group && lead_of(now, group, recoverable) > LEAD_SHARE;
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
fn lead_of(now: Group, group: Group, recoverable: impl Fn(Group) -> f64) -> f64 {
    match (now, group) {
        (Group::GpuCompute, _) => WORTH_SHARE - recoverable(group),
        (_, Group::GpuCompute) => recoverable(now),
        _ => recoverable(now) - recoverable(group),
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
        let group = |rows: Vec<Step>| held(&rows, |_| 1.0).map(|(group, _)| group);
        assert_eq!(held(&dispatch().collect::<Vec<_>>(), |_| 1.0), Some((Group::Launch, 0.6)));
        assert_eq!(group(dispatch().chain(drain(9)).collect()), Some(Group::Launch));
        assert_eq!(group(dispatch().chain(drain(9)).chain(dispatch()).chain(drain(9)).collect()), Some(Group::Launch));
        assert_eq!(group(dispatch().chain(drain(10)).collect()), Some(Group::Sync));
        assert_eq!(group(drain(9).collect()), None);
        let half = |group: Group| if group == Group::Launch { 0.2 } else { 1.0 };
        let held_by_half = held(&dispatch().chain(drain(10)).collect::<Vec<_>>(), half).map(|(group, _)| group);
        assert_eq!(held_by_half, Some(Group::Sync));
        let unknown = std::iter::repeat_n(step(Leaf::GraphWait, 600), 12);
        assert_eq!(group(unknown.collect()), None, "nothing is named where the verdict would be withheld");
    }
}
