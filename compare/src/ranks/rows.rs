//! Collectives of one rank as rows, and the device time between them.
//!
//! A row is one collective kernel. Rows of one communicator, function and sequence number on several ranks
//! are one collective instance. The times of a rank's rows divide its timeline into pieces; each piece has
//! the device time by leaf, so that the time between any two starts or ends is known by leaf.

use gpuwhy_trace::collective::Function;
use profiler_core::collective::Basis;
use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};

/// True if no rank can finish before all have started, because each needs data from every other one.
pub(super) const fn needs_everybody(function: Function) -> bool {
    matches!(function, Function::AllReduce | Function::AllGather | Function::ReduceScatter | Function::AllToAll)
}

/// All bases; the index is the encoding used by [`RankRows::encode`] and [`RankRows::decode`].
const BASES: [Basis; 4] = [Basis::KernelName, Basis::Order, Basis::Plugin, Basis::Range];

/// Rows of one communicator and function on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowGroup {
    /// Communicator; with [`Basis::KernelName`] a hash of the kernel's name, which is the same on all ranks.
    pub communicator: u64,
    /// Function of its rows.
    pub function: Function,
    /// Number of ranks of the communicator; 0 when unknown. With [`Basis::KernelName`] all compared ranks.
    pub size: u32,
    /// Number of rows, including those that are not kept.
    pub count: u64,
    /// How the rows were matched.
    pub basis: Basis,
}

/// One collective on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveRow {
    /// Index of its group in [`RankRows::groups`].
    pub group: u32,
    /// Its number in its group, the same on all ranks.
    pub sequence: u64,
    /// Start of its kernel, nanoseconds on the clock of its trace.
    pub start: i64,
    /// End of its kernel.
    pub end: i64,
}

/// All rows of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankRows {
    /// Communicators and functions.
    pub groups: Vec<RowGroup>,
    /// Rows by start.
    pub rows: Vec<CollectiveRow>,
    pieces: Pieces,
}

/// Device time by leaf between adjacent starts and ends of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pieces {
    /// Starts and ends of rows, ascending.
    bounds: Vec<i64>,
    /// For each bound, the end index in `times` of the piece before it.
    ends: Vec<u32>,
    times: Vec<(u8, u64)>,
}

impl RankRows {
    /// Builds the rows from these, in any order, with the times by leaf `segments`: start, end, leaf; a
    /// negative one subtracts time. Groups with a count of 0 get the number of their rows.
    pub fn new(mut groups: Vec<RowGroup>, mut rows: Vec<CollectiveRow>, segments: &[LeafTime]) -> Self {
        rows.retain(|row| (row.group as usize) < groups.len() && row.start <= row.end);
        rows.sort_unstable_by_key(|row| (row.start, row.end, row.group, row.sequence));
        let mut counts = vec![0; groups.len()];
        rows.iter().for_each(|row| counts[row.group as usize] += 1);
        for (group, count) in groups.iter_mut().zip(counts) {
            group.count = group.count.max(count);
        }
        let pieces = Pieces::new(&rows, segments);
        Self { groups, rows, pieces }
    }

    /// The time from `from` to `to`, each the start or end of a row, by leaf. It sums to the time between
    /// them: time without a known cause is `unobserved`.
    pub fn between(&self, from: i64, to: i64) -> Leaves {
        let mut leaves = [0; LEAF_COUNT];
        let pieces = &self.pieces;
        let [first, last] = [from, to].map(|at| pieces.bounds.partition_point(|&bound| bound < at));
        for place in first + 1..=last.min(pieces.bounds.len().saturating_sub(1)) {
            for &(leaf, nanos) in pieces.of(place) {
                leaves[leaf as usize] += nanos;
            }
        }
        let known: u64 = leaves.iter().sum();
        let whole = to.saturating_sub(from).max(0).unsigned_abs();
        leaves[Leaf::Unobserved as usize] += whole.saturating_sub(known);
        leaves
    }

    /// Start, end and time by leaf of each piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (i64, i64, &[(u8, u64)])> {
        let bounds = self.pieces.bounds.windows(2).enumerate();
        bounds.map(|(place, bounds)| (bounds[0], bounds[1], self.pieces.of(place + 1)))
    }

    /// Appends everything to `bytes`, for a file that [`decode`](Self::decode) reads in the same process.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut put = |values: &[u64]| values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        let pieces = &self.pieces;
        let counts = [self.groups.len(), self.rows.len(), pieces.bounds.len(), pieces.times.len()];
        put(&counts.map(|count| count as u64));
        for group in &self.groups {
            let basis = BASES.iter().position(|basis| *basis == group.basis).unwrap_or_default() as u64;
            let function = u64::from(group.function.code()) << 32 | basis << 40;
            put(&[group.communicator, u64::from(group.size) | function, group.count]);
        }
        for row in &self.rows {
            put(&[row.group.into(), row.sequence, row.start.cast_unsigned(), row.end.cast_unsigned()]);
        }
        pieces.bounds.iter().for_each(|bound| put(&[bound.cast_unsigned()]));
        pieces.ends.iter().for_each(|&end| put(&[end.into()]));
        // 56 bits of nanoseconds are two years.
        pieces.times.iter().for_each(|&(leaf, nanos)| put(&[nanos << 8 | u64::from(leaf)]));
    }

    /// Reads the output of [`encode`](Self::encode); `None` for other input.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = usize::try_from(words.next()?).ok()?;
        }
        let [groups, rows, bounds, times] = counts;
        let wanted = groups.checked_mul(3)?.checked_add(rows.checked_mul(4)?)?;
        let wanted = wanted.checked_add(bounds.checked_mul(2)?)?.checked_add(times)?;
        if !rest.is_empty() || words.len() != wanted {
            return None;
        }
        let mut next = || words.next().unwrap_or_default();
        let group = |[communicator, packed, count]: [u64; 3]| RowGroup {
            communicator,
            function: Function::from_code(packed >> 32 & 0xff),
            size: packed as u32,
            count,
            basis: BASES.get((packed >> 40) as usize).copied().unwrap_or_default(),
        };
        let groups: Vec<_> = (0..groups).map(|_| group([next(), next(), next()])).collect();
        let rows = (0..rows).map(|_| CollectiveRow {
            group: next() as u32,
            sequence: next(),
            start: next().cast_signed(),
            end: next().cast_signed(),
        });
        let rows: Vec<_> = rows.collect();
        let bounds_read: Vec<_> = (0..bounds).map(|_| next().cast_signed()).collect();
        let ends: Vec<_> = (0..bounds).map(|_| next() as u32).collect();
        let times_read: Vec<_> = (0..times).map(|_| next()).map(|word| (word as u8, word >> 8)).collect();
        let is_complete = rows.iter().all(|row| (row.group as usize) < groups.len())
            && ends.is_sorted()
            && ends.last().is_none_or(|&last| last as usize == times_read.len())
            && times_read.iter().all(|&(leaf, _)| (leaf as usize) < LEAF_COUNT);
        is_complete.then_some(Self { groups, rows, pieces: Pieces { bounds: bounds_read, ends, times: times_read } })
    }
}

/// Device time of one leaf. Time that is `taken` was reported before and now belongs to another leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafTime {
    /// Start, nanoseconds on the clock of the trace.
    pub from: i64,
    /// End.
    pub to: i64,
    /// The leaf.
    pub leaf: Leaf,
    /// True if the time is subtracted from the leaf.
    pub taken: bool,
}

impl Pieces {
    fn new(rows: &[CollectiveRow], segments: &[LeafTime]) -> Self {
        let mut bounds: Vec<i64> = rows.iter().flat_map(|row| [row.start, row.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut sparse: Vec<Vec<(u8, i64)>> = vec![Vec::new(); bounds.len()];
        for segment in segments {
            let first = bounds.partition_point(|&bound| bound <= segment.from).max(1);
            for place in first..bounds.len() {
                let (from, to) = (bounds[place - 1].max(segment.from), bounds[place].min(segment.to));
                if from >= segment.to {
                    break;
                }
                let nanos = if segment.taken { from - to } else { to - from };
                let leaf = segment.leaf as u8;
                match sparse[place].iter_mut().find(|(known, _)| *known == leaf) {
                    Some((_, sum)) => *sum += nanos,
                    None => sparse[place].push((leaf, nanos)),
                }
            }
        }
        let mut pieces = Self { ends: Vec::with_capacity(bounds.len()), bounds, times: Vec::new() };
        for times in sparse {
            let kept = times.into_iter().filter(|&(_, nanos)| nanos > 0);
            pieces.times.extend(kept.map(|(leaf, nanos)| (leaf, nanos.unsigned_abs())));
            pieces.ends.push(u32::try_from(pieces.times.len()).unwrap_or(u32::MAX));
        }
        pieces
    }

    /// Times of the piece that ends at this bound.
    fn of(&self, place: usize) -> &[(u8, u64)] {
        let end = self.ends.get(place).map_or(0, |&end| end as usize);
        let begin = place.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&end| end as usize);
        self.times.get(begin..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RankRows {
        let group = |communicator| RowGroup { communicator, function: Function::AllReduce, ..RowGroup::default() };
        let row = |group, sequence, start, end| CollectiveRow { group, sequence, start, end };
        let time = |from, to, leaf, taken| LeafTime { from, to, leaf, taken };
        let segments = [
            time(0, 120, Leaf::Compute, false),
            time(120, 200, Leaf::Communication, false),
            time(200, 290, Leaf::HostBlocked, false),
            time(250, 270, Leaf::HostBlocked, true),
            time(250, 270, Leaf::Compute, false),
        ];
        RankRows::new(vec![group(7), group(8)], vec![row(1, 0, 300, 400), row(0, 0, 100, 200)], &segments)
    }

    #[test]
    fn time_between_rows_is_reported_by_cause_and_sums() {
        let rows = sample();
        let leaves = rows.between(200, 300);
        assert_eq!(leaves[Leaf::HostBlocked as usize], 70);
        assert_eq!(leaves[Leaf::Compute as usize], 20);
        assert_eq!(leaves[Leaf::Unobserved as usize], 10, "nobody said what happened");
        let whole = rows.between(100, 400);
        assert_eq!(whole.iter().sum::<u64>(), 300);
        assert_eq!(whole[Leaf::Compute as usize], 40, "before the first row is no piece");
        assert_eq!(rows.between(200, 200).iter().sum::<u64>(), 0);
    }

    #[test]
    fn what_is_encoded_is_decoded_and_other_bytes_are_refused() {
        let rows = sample();
        let mut bytes = Vec::new();
        rows.encode(&mut bytes);
        assert_eq!(RankRows::decode(&bytes), Some(rows));
        for cut in [0, 7, 8, bytes.len() - 8, bytes.len() - 1] {
            assert_eq!(RankRows::decode(&bytes[..cut]), None, "{cut}");
        }
        bytes[..8].fill(0xff);
        assert_eq!(RankRows::decode(&bytes), None);
    }
}
