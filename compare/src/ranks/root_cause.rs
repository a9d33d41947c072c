//! Waiting between ranks, and the root cause of lateness.
//!
//! A rank that is last in one communicator may be late only because it waited in another one: tensor,
//! pipeline and data parallel groups pass lateness on. So the time since its previous collective in the same
//! communicator is examined. If at least half of its lateness is time that it waited in other collectives,
//! the largest of these is the reason, and the search continues from there.

use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};
use rustc_hash::FxHashMap;

use super::clocks::{HostClock, quantile};
use super::instances::{Instances, Judgment, NONE, RowSource};
use super::model::RankRow;
use super::rows::RankRows;
use super::summary::RankSummary;

/// Maximum number of communicators in a chain: tensor, context, expert, data and pipeline parallel groups,
/// and some spare.
const HOPS: usize = 8;
/// Maximum number of awaited ranks per row.
const WAITED_FOR: usize = 16;

/// The time in which ranks are compared, on the common clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) from: i64,
    pub(super) to: i64,
    /// True if it is steady time of all ranks.
    pub(super) is_steady: bool,
}

impl Compared {
    /// The steady time common to all ranks; if there is none, the time of all resolved collectives.
    pub(super) fn new(ranks: &[RankSummary], instances: &Instances, clocks: &[HostClock]) -> Self {
        let steady = ranks.iter().zip(&instances.hosts).map(|(rank, &host)| {
            let ((from, _), (_, to)) = rank.steady.first().zip(rank.steady.last())?;
            Some((clocks[host].common(*from), clocks[host].common(*to)))
        });
        let shared = steady.reduce(|a, b| {
            let (a, b) = a.zip(b)?;
            Some((a.0.max(b.0), a.1.min(b.1)))
        });
        if let Some((from, to)) = shared.flatten()
            && from < to
        {
            return Self { from, to, is_steady: true };
        }
        let reported = instances.all.iter().filter(|instance| instance.judgment == Judgment::Resolved);
        let (from, to) =
            reported.fold((i64::MAX, i64::MIN), |(from, to), one| (from.min(one.first), to.max(one.last_end)));
        Self { from, to, is_steady: false }
    }
}

/// State of a pass over the rows of one rank.
pub(super) struct RootCause<'a> {
    pub(super) instances: &'a mut Instances,
    pub(super) clocks: &'a [HostClock],
    pub(super) compared: Compared,
}

/// A row whose collective is resolved.
struct ResolvedRow {
    number: u32,
    start: i64,
    end: i64,
    raw_end: i64,
    waited: u64,
}

impl RootCause<'_> {
    /// Processes all ranks: fills `rows`, returns the time of each rank by leaf in the compared time, and
    /// reports each wait to `wait`: the waiting rank, the awaited rank, and the duration.
    pub(super) fn pass<S: RowSource>(
        &mut self,
        source: &mut S,
        ranks: &[RankSummary],
        rows: &mut [RankRow],
        mut wait: impl FnMut(usize, usize, u64),
    ) -> Result<(Vec<Leaves>, u64), S::Error> {
        let mut own = vec![[0; LEAF_COUNT]; rows.len()];
        let mut collective_ns = 0;
        for (place, row) in rows.iter_mut().enumerate() {
            source.rows(place, &mut |of_rank| {
                own[place] = self.own_time(place, of_rank, &ranks[place]);
                let reported = self.resolved_rows(place, of_rank);
                collective_ns +=
                    reported.iter().map(|one| one.end.saturating_sub(one.start).max(0).unsigned_abs()).sum::<u64>();
                self.waits(place, &reported, row, &mut wait);
                self.reasons(place, &reported);
            })?;
        }
        Ok((own, collective_ns))
    }

    fn resolved_rows(&self, place: usize, rows: &RankRows) -> Vec<ResolvedRow> {
        let clock = &self.clocks[self.instances.hosts[place]];
        let reported = rows.rows.iter().filter_map(|row| {
            let number = self.instances.of(rows, row)?;
            let instance = &self.instances.all[number as usize];
            let (start, end) = (clock.common(row.start), clock.common(row.end));
            let waited = instance.waiting(start, end);
            let reported = ResolvedRow { number, start, end, raw_end: row.end, waited };
            (instance.judgment == Judgment::Resolved).then_some(reported)
        });
        reported.collect()
    }

    fn waits(
        &mut self,
        place: usize,
        reported: &[ResolvedRow],
        row: &mut RankRow,
        wait: &mut impl FnMut(usize, usize, u64),
    ) {
        let mut waited_for: FxHashMap<u32, u64> = FxHashMap::default();
        let mut late: Vec<i64> = Vec::with_capacity(reported.len());
        for one in reported {
            let instance = &mut self.instances.all[one.number as usize];
            instance.waited += one.waited;
            late.push(one.start.saturating_sub(instance.first));
            row.last += u64::from(instance.last_rank as usize == place);
            row.waited_ns += one.waited;
            if one.waited > 0 {
                *waited_for.entry(instance.last_rank).or_default() += one.waited;
                wait(place, instance.last_rank as usize, one.waited);
            }
        }
        row.late_ns = quantile(&mut late, 0.5).unwrap_or_default().unsigned_abs();
        row.waited_for = waited_for.into_iter().collect();
        row.waited_for.sort_unstable_by_key(|&(who, nanos)| (std::cmp::Reverse(nanos), who));
        row.waited_for.truncate(WAITED_FOR);
    }

    /// For each collective that this rank was the last to start: the previous collective, and the reason for
    /// the lateness.
    fn reasons(&mut self, place: usize, reported: &[ResolvedRow]) {
        let mut by_end: Vec<usize> = (0..reported.len()).collect();
        by_end.sort_unstable_by_key(|&index| reported[index].end);
        let mut newest_of_group: FxHashMap<u32, i64> = FxHashMap::default();
        for (index, one) in reported.iter().enumerate() {
            let instance = self.instances.all[one.number as usize];
            let since = newest_of_group.insert(instance.group, one.end).unwrap_or(i64::MIN);
            if instance.last_rank as usize != place {
                continue;
            }
            let before = by_end.partition_point(|&other| reported[other].end <= one.start);
            let before = before.checked_sub(1).map(|place| &reported[by_end[place]]);
            let mut waited = 0_u64;
            let mut most: Option<&ResolvedRow> = None;
            for other in reported[..index].iter().rev().take_while(|other| other.start >= since) {
                waited += other.waited;
                if other.waited > most.map_or(0, |most| most.waited) {
                    most = Some(other);
                }
            }
            let is_passed_on = waited > 0 && waited.saturating_mul(2) >= instance.lateness();
            let instance = &mut self.instances.all[one.number as usize];
            if let Some(before) = before {
                (instance.before, instance.before_end) = (before.number, before.raw_end);
            }
            instance.because_of = most.filter(|_| is_passed_on).map_or(NONE, |most| most.number);
        }
    }

    /// Steady time of a rank by leaf, without communication, in the compared time.
    fn own_time(&self, place: usize, rows: &RankRows, rank: &RankSummary) -> Leaves {
        let clock = &self.clocks[self.instances.hosts[place]];
        let mut leaves = [0; LEAF_COUNT];
        for (from, to, times) in rows.pieces() {
            let middle = from + (to - from) / 2;
            let at = clock.common(middle);
            let interval = rank.steady.partition_point(|&(_, end)| end <= middle);
            let is_steady = rank.steady.get(interval).is_some_and(|&(begin, _)| begin <= middle);
            if at < self.compared.from || at >= self.compared.to || (self.compared.is_steady && !is_steady) {
                continue;
            }
            times.iter().for_each(|&(leaf, nanos)| leaves[leaf as usize] += nanos);
        }
        leaves[Leaf::Communication as usize] = 0;
        leaves
    }
}

/// Rank that is the root cause of the lateness of each resolved collective, with the collective.
pub(super) fn culprits(instances: &Instances) -> impl Iterator<Item = (usize, &super::instances::Instance)> {
    let reported = instances.all.iter().filter(|instance| instance.judgment == Judgment::Resolved);
    reported.map(|instance| {
        let mut at = instance;
        for _ in 0..HOPS {
            match instances.all.get(at.because_of as usize) {
                Some(earlier) => at = earlier,
                None => break,
            }
        }
        (at.last_rank as usize, instance)
    })
}
