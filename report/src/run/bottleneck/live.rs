//! Bottleneck for the line of a run that is still going: with hysteresis, so that a reader can follow it.
//!
//! The bottleneck of the report covers all steady time, so it reacts late to a change of the program. The
//! newest second alone would alternate where two causes are about equal. The line therefore works in units of
//! at least a second, and switches to another cause once that cause has led by a margin in several
//! consecutive units. Each unit is evaluated once, so the result does not depend on how often a line is
//! printed, except for units that are dropped before (1,024 are kept). The bottleneck in the final report
//! does not depend on this state.

use gpuwhy_trace::record::Timestamp;
use profiler_core::attribution::Attributor;
use profiler_core::leaf::Cause;
use profiler_core::steps::{Interval, Step, StepSource, WINDOW_NANOS};
use profiler_core::thresholds::WORTH_SHARE;

use super::ranking::{first_of, share_of};
use crate::run::Bottleneck;

/// Minimum lead in recoverable time, as a share of a unit, for another cause to be named: a third of the
/// share that makes a cause the bottleneck.
pub(crate) const LEAD_SHARE: f64 = WORTH_SHARE / 3.0;
/// Number of consecutive units with that lead. Five seconds are two or three lines of `--live 2s`: long
/// enough for a checkpoint or an evaluation of some seconds to pass, short enough to follow a change.
pub(crate) const LEAD_UNITS: usize = 5;

/// The current bottleneck of the line, and its challenger.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBottleneck {
    /// `None` before there are enough units.
    named: Option<Cause>,
    /// First cause in the newest unit, and the number of consecutive units in which it was ahead of `named`.
    leader: Option<Cause>,
    lead: usize,
    /// End of the newest unit.
    until: Timestamp,
}

impl LiveBottleneck {
    /// Returns the bottleneck for the line and its current share.
    ///
    /// Before there are enough units, this is the report's bottleneck. If the report has none, that shows at
    /// once, because it is a matter of reliability and not of size.
    pub(crate) fn follow(&mut self, attributor: &Attributor, bottleneck: &Bottleneck) -> (Cause, f64) {
        let judged = (bottleneck.cause, bottleneck.share);
        let Some(account) = attributor.devices().max_by_key(|account| account.window_ns()) else { return judged };
        let steps = account.steps();
        let long = steps.source != StepSource::Window && steps.duration_percentile(50) >= WINDOW_NANOS;
        let units = if long { steps.rows } else { account.windows() };
        let part = |cause: Cause| {
            let row = bottleneck.ranking.iter().find(|row| row.cause == cause && row.share > 0.0);
            row.map_or(1.0, |row| row.recoverable / row.share)
        };
        let withheld = matches!(bottleneck.cause, Cause::CannotTell | Cause::NoWork);
        let Some(first) = units.len().checked_sub(LEAD_UNITS).filter(|_| !withheld) else { return judged };
        let cause = self.take(&units, bottleneck.cause, part);
        let shares = units[first..].iter().map(|unit| share_of(cause, unit)).collect();
        (cause, Interval::of(shares).map_or(0.0, |interval| interval.median))
    }

    /// Adds the units that are new, and returns the bottleneck for the line: at first `cause`. `part` is the
    /// recoverable fraction of a cause's share.
    fn take(&mut self, units: &[Step], cause: Cause, part: impl Fn(Cause) -> f64) -> Cause {
        let mut named = self.named.unwrap_or(cause);
        for unit in units.iter().filter(|unit| unit.start >= self.until) {
            let recoverable = |cause: Cause| share_of(cause, unit) * part(cause);
            let now = first_of(|cause| share_of(cause, unit), recoverable);
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

/// Lead of `now` over `named`, as a share of the unit. Computation is the default when nothing else is worth
/// it, so its lead is the amount by which `named` falls short of that threshold.
fn lead_of(now: Cause, named: Cause, recoverable: impl Fn(Cause) -> f64) -> f64 {
    match (now, named) {
        (Cause::GpuCompute, _) => WORTH_SHARE - recoverable(named),
        (_, Cause::GpuCompute) => recoverable(now),
        _ => recoverable(now) - recoverable(named),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use profiler_core::leaf::{LEAF_COUNT, Leaf};

    /// Units in which the device waits for launches and for a waiting host, in per mille, and computes
    /// otherwise.
    fn units(shares: &[(u64, u64)]) -> Vec<Step> {
        let unit = |(number, &(dispatch, drain)): (u64, &(u64, u64))| {
            let mut leaves = [0; LEAF_COUNT];
            leaves[Leaf::Compute as usize] = 1_000 - dispatch - drain;
            leaves[Leaf::Dispatch as usize] = dispatch;
            leaves[Leaf::SyncDrain as usize] = drain;
            let at = |number: u64| Timestamp::from_nanos(1_000 * number);
            Step { start: at(number), end: at(number + 1), operations: 1, leaves, iteration: None }
        };
        (1..).zip(shares).map(unit).collect()
    }

    fn named(shares: &[(u64, u64)], part: impl Fn(Cause) -> f64) -> Cause {
        LiveBottleneck::default().take(&units(shares), Cause::Launch, part)
    }

    const LAUNCH: (u64, u64) = (600, 0);
    const SYNC: (u64, u64) = (0, 600);

    #[test]
    fn another_group_is_named_after_five_units_in_a_row() {
        let all = |_| 1.0;
        assert_eq!(named(&[SYNC; 4], all), Cause::Launch);
        assert_eq!(named(&[SYNC, SYNC, SYNC, SYNC, LAUNCH, SYNC, SYNC, SYNC, SYNC], all), Cause::Launch);
        assert_eq!(named(&[SYNC; 5], all), Cause::Sync);
        assert_eq!(named(&[(0, 0); 5], all), Cause::GpuCompute);
        assert_eq!(named(&[(0, 0), SYNC, (0, 0), SYNC, (0, 0), SYNC], all), Cause::Launch, "never the same one ahead");
        assert_eq!(named(&[(300, 340); 50], all), Cause::Launch, "not by a margin");
        // Computation leads when nothing else is worth naming: its lead is the distance to that threshold.
        assert_eq!(named(&[(101, 0); 50], all), Cause::Launch);
        assert_eq!(named(&[(99, 0); 50], all), Cause::GpuCompute);
        assert_eq!(named(&[(340, 300); 50], |cause| if cause == Cause::Launch { 0.2 } else { 1.0 }), Cause::Sync);
    }

    proptest! {
        #[test]
        fn a_change_is_to_a_group_that_led_by_the_margin_in_each_of_five_units(
            shares in prop::collection::vec((0..500u64, 0..500u64), 1..120),
            every in 1..7usize,
            remembered in 10..40usize,
        ) {
            let units = units(&shares);
            let mut each = LiveBottleneck::default();
            let mut some = LiveBottleneck::default();
            let (mut before, mut changed) = (Cause::Launch, 0);
            for now in 1..=units.len() {
                let seen = &units[now.saturating_sub(remembered)..now];
                let cause = each.take(seen, Cause::Launch, |_| 1.0);
                if cause != before {
                    prop_assert!(now >= changed + LEAD_UNITS, "two changes in {} units", now - changed);
                    for unit in &seen[seen.len() - LEAD_UNITS..] {
                        prop_assert!(lead_of(cause, before, |cause| share_of(cause, unit)) > LEAD_SHARE);
                    }
                    (before, changed) = (cause, now);
                }
                if now % every == 0 {
                    prop_assert_eq!(some.take(seen, Cause::Launch, |_| 1.0), cause, "asked for less often");
                }
            }
        }

        #[test]
        fn what_flaps_faster_than_five_units_does_not_flap_the_line(
            intervals in prop::collection::vec((1..5usize, 200..900u64), 1..60),
        ) {
            let sync_first = intervals.iter().enumerate();
            let shares: Vec<_> = sync_first
                .flat_map(|(index, &(count, share))| {
                    std::iter::repeat_n(if index % 2 == 0 { (0, share) } else { (share, 0) }, count)
                })
                .collect();
            let (units, mut follower) = (units(&shares), LiveBottleneck::default());
            for now in 1..=units.len() {
                prop_assert_eq!(follower.take(&units[..now], Cause::Launch, |_| 1.0), Cause::Launch);
            }
        }
    }
}
