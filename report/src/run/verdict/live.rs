//! What the line of a run that is still going names: with hysteresis, so that it can be followed.
//!
//! The verdict looks at all steady time, so it says late that a program has changed; the newest second alone would say
//! so again and again where two groups are about as large. So the line goes by units of at least a second, and names
//! another group once that has led by a margin in each of several units one after the other. Each unit is looked at
//! once, so what is named does not depend on how often a line is printed, but for units that are forgotten before
//! (1,024 are remembered). Nothing here is part of the verdict: the report at the end knows nothing of what was named.

use gpuwhy_trace::record::Timestamp;
use profiler_core::attribution::Attributor;
use profiler_core::attribution::leaf::Group;
use profiler_core::steps::{Interval, Step, StepSource, WINDOW_NANOS};
use profiler_core::thresholds::WORTH_SHARE;

use super::ranking::{first_of, share_of};
use crate::run::Verdict;

/// Another group is named when more than this share of a unit more could be had back of it: a third of what makes a
/// group worth a verdict.
pub(crate) const LEAD_SHARE: f64 = WORTH_SHARE / 3.0;
/// In this many units one after the other. Five seconds are two or three lines of `--live 2s`: long enough for a
/// checkpoint or an evaluation of some seconds to pass, short enough to follow a change.
pub(crate) const LEAD_UNITS: usize = 5;

/// What is named, and who is about to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveVerdict {
    /// `None` before there are enough units.
    named: Option<Group>,
    /// First in the newest unit, and in how many units in a row ahead of what is named.
    leader: Option<Group>,
    lead: usize,
    /// End of the newest unit.
    until: Timestamp,
}

impl LiveVerdict {
    /// The group that the line should name and its share now.
    ///
    /// Before there are enough units that is the verdict. Where there is no verdict at all, that is said at once: it is
    /// a matter of trust and not of size.
    pub(crate) fn follow(&mut self, attributor: &Attributor, verdict: &Verdict) -> (Group, f64) {
        let judged = (verdict.group, verdict.share);
        let Some(account) = attributor.devices().max_by_key(|account| account.window_ns()) else { return judged };
        let steps = account.steps();
        let long = steps.source != StepSource::Window && steps.duration_percentile(50) >= WINDOW_NANOS;
        let units = if long { steps.rows } else { account.windows() };
        let part = |group: Group| {
            let row = verdict.ranking.iter().find(|row| row.group == group && row.share > 0.0);
            row.map_or(1.0, |row| row.recoverable / row.share)
        };
        let withheld = matches!(verdict.group, Group::CannotTell | Group::NoWork);
        let Some(first) = units.len().checked_sub(LEAD_UNITS).filter(|_| !withheld) else { return judged };
        let group = self.take(&units, verdict.group, part);
        let shares = units[first..].iter().map(|unit| share_of(group, unit)).collect();
        (group, Interval::of(shares).map_or(0.0, |interval| interval.median))
    }

    /// Takes in the units that it has not seen, and says what is named now: at first `group`. `part` of a group's share
    /// could be had back.
    fn take(&mut self, units: &[Step], group: Group, part: impl Fn(Group) -> f64) -> Group {
        let mut named = self.named.unwrap_or(group);
        for unit in units.iter().filter(|unit| unit.start >= self.until) {
            let recoverable = |group: Group| share_of(group, unit) * part(group);
            let now = first_of(|group| share_of(group, unit), recoverable);
            let leads = now != named && lead_of(now, named, recoverable) > LEAD_SHARE;
            self.lead = match leads {
                true if self.leader == Some(now) => self.lead + 1,
                true => 1,
                false => 0,
            };
            self.leader = Some(now);
            if self.lead >= LEAD_UNITS {
                (named, self.lead) = (now, 0);
            }
        }
        self.until = units.last().map_or(self.until, |unit| unit.end.max(self.until));
        *self.named.insert(named)
    }
}

/// By how much of the unit `now` is ahead of `named`. Computation is first by default, when nothing else is worth it,
/// so it leads by what `named` has less than that.
fn lead_of(now: Group, named: Group, recoverable: impl Fn(Group) -> f64) -> f64 {
    match (now, named) {
        (Group::GpuCompute, _) => WORTH_SHARE - recoverable(named),
        (_, Group::GpuCompute) => recoverable(now),
        _ => recoverable(now) - recoverable(named),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use profiler_core::attribution::leaf::{LEAF_COUNT, Leaf};

    /// Units in which the device waits for launches and for the host to wait, per mille, and computes the rest.
    fn units(shares: &[(u64, u64)]) -> Vec<Step> {
        let unit = |(number, &(dispatch, drain)): (u64, &(u64, u64))| {
            let mut leaves = [0; LEAF_COUNT];
            leaves[Leaf::Compute as usize] = 1_000 - dispatch - drain;
            leaves[Leaf::Dispatch as usize] = dispatch;
            leaves[Leaf::SyncDrain as usize] = drain;
            let at = |number: u64| Timestamp::from_nanos(1_000 * number);
            Step { start: at(number), end: at(number + 1), operations: 1, leaves }
        };
        (1..).zip(shares).map(unit).collect()
    }

    fn named(shares: &[(u64, u64)], part: impl Fn(Group) -> f64) -> Group {
        LiveVerdict::default().take(&units(shares), Group::Launch, part)
    }

    const LAUNCH: (u64, u64) = (600, 0);
    const SYNC: (u64, u64) = (0, 600);

    #[test]
    fn another_group_is_named_after_five_units_in_a_row() {
        let all = |_| 1.0;
        assert_eq!(named(&[SYNC; 4], all), Group::Launch);
        assert_eq!(named(&[SYNC, SYNC, SYNC, SYNC, LAUNCH, SYNC, SYNC, SYNC, SYNC], all), Group::Launch);
        assert_eq!(named(&[SYNC; 5], all), Group::Sync);
        assert_eq!(named(&[(0, 0); 5], all), Group::GpuCompute);
        assert_eq!(named(&[(0, 0), SYNC, (0, 0), SYNC, (0, 0), SYNC], all), Group::Launch, "never the same one ahead");
        assert_eq!(named(&[(300, 340); 50], all), Group::Launch, "not by a margin");
        // Computation is first where nothing else is worth a verdict: it leads by what is missing from that.
        assert_eq!(named(&[(101, 0); 50], all), Group::Launch);
        assert_eq!(named(&[(99, 0); 50], all), Group::GpuCompute);
        assert_eq!(named(&[(340, 300); 50], |group| if group == Group::Launch { 0.2 } else { 1.0 }), Group::Sync);
    }

    proptest! {
        #[test]
        fn a_change_is_to_a_group_that_led_by_the_margin_in_each_of_five_units(
            shares in prop::collection::vec((0..500u64, 0..500u64), 1..120),
            every in 1..7usize,
            remembered in 10..40usize,
        ) {
            let units = units(&shares);
            let mut each = LiveVerdict::default();
            let mut some = LiveVerdict::default();
            let (mut before, mut changed) = (Group::Launch, 0);
            for now in 1..=units.len() {
                let seen = &units[now.saturating_sub(remembered)..now];
                let group = each.take(seen, Group::Launch, |_| 1.0);
                if group != before {
                    prop_assert!(now >= changed + LEAD_UNITS, "two changes in {} units", now - changed);
                    for unit in &seen[seen.len() - LEAD_UNITS..] {
                        prop_assert!(lead_of(group, before, |group| share_of(group, unit)) > LEAD_SHARE);
                    }
                    (before, changed) = (group, now);
                }
                if now % every == 0 {
                    prop_assert_eq!(some.take(seen, Group::Launch, |_| 1.0), group, "asked for less often");
                }
            }
        }

        #[test]
        fn what_flaps_faster_than_five_units_does_not_flap_the_line(
            stretches in prop::collection::vec((1..5usize, 200..900u64), 1..60),
        ) {
            let sync_first = stretches.iter().enumerate();
            let shares: Vec<_> = sync_first
                .flat_map(|(index, &(count, share))| {
                    std::iter::repeat_n(if index % 2 == 0 { (0, share) } else { (share, 0) }, count)
                })
                .collect();
            let (units, mut follower) = (units(&shares), LiveVerdict::default());
            for now in 1..=units.len() {
                prop_assert_eq!(follower.take(&units[..now], Group::Launch, |_| 1.0), Group::Launch);
            }
        }
    }
}
