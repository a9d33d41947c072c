//! Critical path over ranks: the composition of the duration of the compared time.
//!
//! The path goes backwards from the end of the last collective. Inside a collective, data moves after its
//! last rank has started; at that start the path switches to the rank that started last, and to its work
//! since its previous collective. So the parts of the path are contiguous and sum to its length exactly.

use std::cmp::Reverse;

use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};
use rustc_hash::FxHashMap;

use super::clocks::HostClock;
use super::instances::{Instances, Judgment, NONE, RowSource};
use super::model::{CriticalPath, Straggler};
use super::root_cause::Compared;

/// Maximum number of ranks listed for a path.
const RANKS: usize = 16;

/// Work of a rank on the path, between two collectives.
struct RankWork {
    /// The collective at its end.
    instance: u32,
    from: i64,
    to: i64,
}

/// Returns the path through the compared time; `None` without a resolved collective in it.
pub(super) fn critical_path<S: RowSource>(
    source: &mut S,
    instances: &Instances,
    clocks: &[HostClock],
    compared: Compared,
    straggler: Option<&Straggler>,
) -> Result<Option<CriticalPath>, S::Error> {
    let within = |number: &usize| {
        let one = &instances.all[*number];
        one.judgment == Judgment::Resolved && one.last >= compared.from && one.last_end <= compared.to
    };
    let last = (0..instances.all.len()).filter(within).max_by_key(|&number| instances.all[number].last_end);
    let Some(mut number) = last else { return Ok(None) };
    let mut by_rank: FxHashMap<u32, Leaves> = FxHashMap::default();
    let mut charge = |rank: u32, leaf: Leaf, nanos: i64| {
        by_rank.entry(rank).or_insert([0; LEAF_COUNT])[leaf as usize] += nanos.max(0).unsigned_abs();
    };
    let mut at = &instances.all[number];
    let end = at.last_end;
    charge(at.last_end_rank, Leaf::Communication, at.last_end - at.last);
    let (mut work, mut collectives) = (Vec::new(), 1);
    while at.before != NONE {
        let before = &instances.all[at.before as usize];
        if before.last >= at.last || before.last < compared.from {
            break;
        }
        // Clocks are not exact to the nanosecond: an end may seem to be before the last start.
        let clock = &clocks[instances.hosts[at.last_rank as usize]];
        let from = clock.common(at.before_end).clamp(before.last, at.last);
        work.push(RankWork { instance: number as u32, from, to: at.last });
        charge(at.last_rank, Leaf::Communication, from - before.last);
        collectives += 1;
        number = at.before as usize;
        at = before;
    }
    let total_ns = (end - at.last).max(0).unsigned_abs();
    add_work(source, instances, &mut work, &mut by_rank)?;
    let mut leaves = [0; LEAF_COUNT];
    let mut ranks: Vec<(u32, u64)> = Vec::new();
    for (&rank, of_rank) in &by_rank {
        ranks.push((rank, of_rank.iter().sum()));
        leaves.iter_mut().zip(of_rank).for_each(|(sum, nanos)| *sum += nanos);
    }
    ranks.sort_unstable_by_key(|&(rank, nanos)| (Reverse(nanos), rank));
    ranks.truncate(RANKS);
    let without_excess_ns = straggler.and_then(|straggler| {
        let (leaf, excess) = straggler.excess?;
        let on_path = by_rank.get(&(straggler.row as u32)).map_or(0, |leaves| leaves[leaf as usize]);
        Some(total_ns - excess.min(on_path).min(total_ns))
    });
    Ok(Some(CriticalPath { total_ns, leaves, ranks, collectives, without_excess_ns }))
}

/// Adds the work between collectives by leaf, rank by rank.
fn add_work<S: RowSource>(
    source: &mut S,
    instances: &Instances,
    work: &mut [RankWork],
    by_rank: &mut FxHashMap<u32, Leaves>,
) -> Result<(), S::Error> {
    let rank_of = |part: &RankWork| instances.all[part.instance as usize].last_rank;
    work.sort_unstable_by_key(|part| (rank_of(part), part.instance));
    for of_rank in work.chunk_by(|a, b| rank_of(a) == rank_of(b)) {
        let Some(rank) = of_rank.first().map(rank_of) else { continue };
        let sums = by_rank.entry(rank).or_insert([0; LEAF_COUNT]);
        source.rows(rank as usize, &mut |rows| {
            for row in &rows.rows {
                let Some(number) = instances.of(rows, row) else { continue };
                let Ok(found) = of_rank.binary_search_by_key(&number, |part| part.instance) else { continue };
                let part = &of_rank[found];
                let raw = rows.between(instances.all[number as usize].before_end, row.start);
                let wanted = (part.to - part.from).max(0).unsigned_abs();
                sums.iter_mut().zip(fitted(raw, wanted)).for_each(|(sum, nanos)| *sum += nanos);
            }
        })?;
    }
    Ok(())
}

/// Adjusts these times to the sum `wanted`: the difference, due to drift and errors of clocks, goes to the
/// largest.
fn fitted(mut leaves: Leaves, wanted: u64) -> Leaves {
    let sum: u64 = leaves.iter().sum();
    let mut surplus = sum.saturating_sub(wanted);
    while surplus > 0 {
        let Some(largest) = leaves.iter_mut().max() else { break };
        let taken = surplus.min(*largest);
        *largest -= taken;
        surplus -= taken;
    }
    if let Some(largest) = leaves.iter_mut().max() {
        *largest += wanted.saturating_sub(sum);
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitted_division_has_the_wanted_sum() {
        let mut leaves = [0; LEAF_COUNT];
        (leaves[0], leaves[5]) = (70, 30);
        for wanted in [0, 1, 60, 99, 100, 101, 1_000] {
            assert_eq!(fitted(leaves, wanted).iter().sum::<u64>(), wanted);
        }
        assert_eq!(fitted([0; LEAF_COUNT], 5).iter().sum::<u64>(), 5);
    }
}
