//! The rank that the others wait for, and the work that it does longer than ranks with the same role.
//!
//! Pipeline stages differ by design, and so do ranks with different roles in the job. So a rank is compared
//! with the ranks of its role: those whose communicators have the same sizes and run the same functions
//! equally often.
//!
//! If groups of ranks are unknown, so is the waiting in them. Then the straggler is the rank of its role that
//! communicates least: the others wait inside their communication for the last rank.

use std::hash::{Hash as _, Hasher as _};

use profiler_core::leaf::{Leaf, Leaves};
use rustc_hash::{FxHashMap, FxHasher};

use super::clocks::quantile;
use super::instances::Instances;
use super::model::{ExcessEvidence, RankRow, Straggler};
use super::root_cause::{Compared, culprits};
use super::summary::{KernelTime, RankSummary};

/// Minimum share of all waiting for a rank to be the straggler: more than all others together.
const STRAGGLER_SHARE: f64 = 0.5;
/// Minimum share of waiting in the collectives' time for a straggler to matter.
const WORTH_SHARE: f64 = 0.05;
/// Minimum distance of a rank's share of communication below the median of its role, as a share of device
/// time.
const BELOW_MEDIAN: f64 = 0.1;
/// Minimum number of ranks of a role for one to stand out.
const FEWEST_RANKS: usize = 3;
/// Number of parts of the compared time that are searched for the straggler, to distinguish permanent from
/// temporary lateness.
const TENTHS: usize = 10;

/// Input of a search for a straggler.
pub(super) struct Search<'a> {
    pub(super) ranks: &'a [RankSummary],
    pub(super) rows: &'a [RankRow],
    pub(super) own: &'a [Leaves],
    pub(super) collective_ns: u64,
}

impl Search<'_> {
    fn is_worth_it(&self, total: u64) -> bool {
        total > 0 && total as f64 >= self.collective_ns as f64 * WORTH_SHARE
    }

    /// The rank that causes most of the waiting.
    pub(super) fn straggler(&self, instances: &Instances, compared: Compared) -> Option<Straggler> {
        let total: u64 = self.rows.iter().map(|row| row.awaited_ns).sum();
        let share = |place: usize| self.rows[place].awaited_ns as f64 / total.max(1) as f64;
        let least = if instances.has_unknown_groups() { self.communicates_least() } else { None };
        let (place, communication) = match least {
            Some((place, own, median)) => (place, Some((own, median))),
            None => {
                let place = (0..self.rows.len()).max_by_key(|&place| self.rows[place].awaited_ns)?;
                if !self.is_worth_it(total) || share(place) <= STRAGGLER_SHARE {
                    return None;
                }
                (place, None)
            }
        };
        let peers = self.peers(place);
        let excess = self.excess(place, &peers);
        Some(Straggler {
            row: place,
            communication,
            share: share(place),
            tenths: tenths(place, instances, compared),
            role: peers.len() as u32,
            excess,
            steps: if compared.is_steady { self.ranks[place].steps } else { 0 },
            evidence: excess.and_then(|(leaf, _)| self.evidence(place, leaf, &peers)),
        })
    }

    /// The one rank that communicates much less than the median of its role, its share of communication, and
    /// the median.
    fn communicates_least(&self) -> Option<(usize, f64, f64)> {
        let mut roles: FxHashMap<u64, Vec<(f64, usize)>> = FxHashMap::default();
        for (place, (rank, row)) in self.ranks.iter().zip(self.rows).enumerate() {
            let share = row.leaves[Leaf::Communication as usize] as f64 / row.window_ns.max(1) as f64;
            roles.entry(role(rank)).or_default().push((share, place));
        }
        let of_role = roles.into_values().filter(|ranks| ranks.len() >= FEWEST_RANKS).filter_map(|mut ranks| {
            ranks.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let (median, (least, place), (next, _)) = (ranks[ranks.len() / 2].0, ranks[0], ranks[1]);
            // Several such ranks differ by design, like the stages of a pipeline.
            let is_alone = next > (least + median) / 2.0;
            (is_alone && median - least > BELOW_MEDIAN).then_some((place, least, median))
        });
        of_role.max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)).then(b.0.cmp(&a.0)))
    }

    /// The host whose ranks together cause most of the waiting.
    pub(super) fn slow_host(&self) -> Option<(String, f64)> {
        let mut hosts: Vec<(&str, u64)> = Vec::new();
        for row in self.rows {
            match hosts.iter_mut().find(|(host, _)| *host == row.host) {
                Some((_, sum)) => *sum += row.awaited_ns,
                None => hosts.push((&row.host, row.awaited_ns)),
            }
        }
        let total: u64 = hosts.iter().map(|(_, sum)| sum).sum();
        let (host, most) = hosts.iter().max_by_key(|(_, sum)| sum).copied().filter(|_| hosts.len() > 1)?;
        let share = most as f64 / total.max(1) as f64;
        (self.is_worth_it(total) && share > STRAGGLER_SHARE).then(|| (host.to_owned(), share))
    }

    /// Other ranks of the same role; all others if there are none.
    fn peers(&self, place: usize) -> Vec<usize> {
        let role = role(&self.ranks[place]);
        let others = || (0..self.ranks.len()).filter(|&other| other != place);
        let same: Vec<usize> = others().filter(|&other| self::role(&self.ranks[other]) == role).collect();
        if same.is_empty() { others().collect() } else { same }
    }

    fn excess(&self, place: usize, peers: &[usize]) -> Option<(Leaf, u64)> {
        let of = |rank: usize, leaf: Leaf| i64::try_from(self.own[rank][leaf as usize]).unwrap_or(i64::MAX);
        let leaves = Leaf::ALL.into_iter().filter(|&leaf| leaf != Leaf::Communication);
        let excess = leaves.filter_map(|leaf| {
            let mut others: Vec<i64> = peers.iter().map(|&peer| of(peer, leaf)).collect();
            let more = of(place, leaf) - quantile(&mut others, 0.5)?;
            (more > 0).then_some((leaf, more.unsigned_abs()))
        });
        excess.max_by_key(|&(_, more)| more)
    }

    fn evidence(&self, place: usize, leaf: Leaf, peers: &[usize]) -> Option<ExcessEvidence> {
        let rank = &self.ranks[place];
        if leaf != Leaf::Compute {
            let line = rank.lines.iter().find(|line| line.cause.leaf() == leaf)?;
            return Some(ExcessEvidence::Line {
                cause: line.cause,
                file: line.file.clone(),
                line: line.line,
                function: line.function.clone(),
                total_ns: line.total_ns,
            });
        }
        let rows = rank.kernels.iter().map(|kernel| {
            let mut times: Vec<i64> = Vec::with_capacity(peers.len());
            let mut counts: Vec<i64> = Vec::with_capacity(peers.len());
            for &peer in peers {
                let (count, time) = of_name(&self.ranks[peer].kernels, &kernel.name);
                times.push(i64::try_from(time).unwrap_or(i64::MAX));
                counts.push(i64::try_from(count).unwrap_or(i64::MAX));
            }
            let median = |values: &mut [i64]| quantile(values, 0.5).unwrap_or_default().unsigned_abs();
            (kernel, median(&mut counts), median(&mut times))
        });
        let longer = rows.filter(|(kernel, _, time)| kernel.total_ns > *time);
        let (kernel, count, time) = longer.max_by_key(|(kernel, _, time)| kernel.total_ns - time)?;
        Some(ExcessEvidence::Kernel {
            name: kernel.name.clone(),
            counts: (kernel.count, count),
            times: (kernel.total_ns, time),
        })
    }
}

/// Count and time of a name in a list of the largest.
fn of_name(kernels: &[KernelTime], name: &str) -> (u64, u64) {
    kernels.iter().find(|kernel| kernel.name == name).map_or((0, 0), |kernel| (kernel.count, kernel.total_ns))
}

fn role(rank: &RankSummary) -> u64 {
    let mut parts: Vec<_> = rank.groups.iter().map(|group| (group.size, group.function, group.count)).collect();
    parts.sort_unstable();
    let mut hasher = FxHasher::default();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Number of tenths of the compared time in which the rank is the root cause of most of the waiting, and
/// number of tenths with any waiting.
fn tenths(place: usize, instances: &Instances, compared: Compared) -> (u32, u32) {
    let mut waited = [(0_u64, 0_u64); TENTHS];
    let whole = (compared.to.saturating_sub(compared.from)).max(1);
    for (culprit, instance) in culprits(instances) {
        if instance.last < compared.from || instance.last >= compared.to {
            continue;
        }
        let tenth = (instance.last - compared.from) as f64 / whole as f64 * TENTHS as f64;
        let (own, all) = &mut waited[(tenth as usize).min(TENTHS - 1)];
        *own += if culprit == place { instance.waited } else { 0 };
        *all += instance.waited;
    }
    let worst = waited.iter().filter(|(own, all)| *own as f64 > *all as f64 * STRAGGLER_SHARE).count();
    (worst as u32, waited.iter().filter(|(_, all)| *all > 0).count() as u32)
}
