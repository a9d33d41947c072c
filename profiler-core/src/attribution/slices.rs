//! The window cut into equal slices, so that the verdict can leave out start-up.
//!
//! The number of slices is bounded: when the window outgrows it, neighbours are merged and slices become twice as
//! long. A slice knows whether something appeared in it for the first time (a kernel name, loaded code); the last
//! such slice in the first half of the window ends the start-up.

use super::leaf::{LEAF_COUNT, Leaf, Leaves};

/// Slices at most; half as many at least, once the window is long enough.
const LIMIT: usize = 512;
/// Length of a slice at the beginning: short enough to see the start-up of a 100 ms program.
const FIRST_LENGTH: u64 = 1_000_000;

/// Nanoseconds by leaf and slice.
#[derive(Debug, Default)]
pub(super) struct Slices {
    origin: u64,
    length: u64,
    rows: Vec<Slice>,
}

#[derive(Clone, Debug)]
struct Slice {
    leaves: Leaves,
    novel: bool,
}

impl Slices {
    /// Slices of a window that begins at `origin`.
    pub(super) fn new(origin: u64) -> Self {
        Self { origin, length: FIRST_LENGTH, rows: Vec::new() }
    }

    /// Gives `from..to` to `leaf`.
    pub(super) fn add(&mut self, leaf: Leaf, from: u64, to: u64) {
        self.each(from, to, |slice, nanos| slice.leaves[leaf as usize] += nanos);
    }

    /// Takes `from..to` from one leaf and gives it to another.
    pub(super) fn transfer(&mut self, was: Leaf, is: Leaf, from: u64, to: u64) {
        self.each(from, to, |slice, nanos| {
            slice.leaves[was as usize] = slice.leaves[was as usize].saturating_sub(nanos);
            slice.leaves[is as usize] += nanos;
        });
    }

    /// Something was seen for the first time at `at`. Times before the window are ignored.
    pub(super) fn mark_novel(&mut self, at: u64) {
        if at >= self.origin {
            let index = self.index(at);
            self.rows[index].novel = true;
        }
    }

    /// Leaves after start-up, and where in the window start-up ended, nanoseconds from its beginning.
    ///
    /// Without a slice that is new in the first half, or with a window of fewer than four slices, everything counts.
    pub(super) fn steady(&self) -> (Leaves, u64) {
        let half = if self.rows.len() < 4 { 0 } else { self.rows.len() / 2 };
        let skip = self.rows[..half].iter().rposition(|slice| slice.novel).map_or(0, |last| last + 1);
        let mut leaves = [0; LEAF_COUNT];
        for slice in &self.rows[skip..] {
            for (sum, nanos) in leaves.iter_mut().zip(slice.leaves) {
                *sum += nanos;
            }
        }
        (leaves, skip as u64 * self.length)
    }

    fn each(&mut self, from: u64, to: u64, mut apply: impl FnMut(&mut Slice, u64)) {
        let mut at = from.max(self.origin);
        if to <= at {
            return;
        }
        // Makes the rows up to the end first: merging changes the length, and with it every index.
        self.index(to - 1);
        while at < to {
            let index = self.index(at);
            let end = self.origin.saturating_add((index as u64 + 1).saturating_mul(self.length)).min(to);
            apply(&mut self.rows[index], end - at);
            at = end;
        }
    }

    fn index(&mut self, at: u64) -> usize {
        while (at - self.origin) / self.length >= LIMIT as u64 {
            self.merge();
        }
        let index = ((at - self.origin) / self.length) as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Slice { leaves: [0; LEAF_COUNT], novel: false });
        }
        index
    }

    fn merge(&mut self) {
        self.length *= 2;
        self.rows = self
            .rows
            .chunks(2)
            .map(|pair| {
                let mut merged = pair[0].clone();
                if let Some(second) = pair.get(1) {
                    merged.novel |= second.novel;
                    for (sum, nanos) in merged.leaves.iter_mut().zip(second.leaves) {
                        *sum += nanos;
                    }
                }
                merged
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_every_nanosecond() {
        let mut slices = Slices::new(1_000);
        let mut at = 1_000;
        for step in 0..5_000u64 {
            let leaf = Leaf::ALL[step as usize % LEAF_COUNT];
            slices.add(leaf, at, at + 777_777);
            at += 777_777;
        }
        assert!(slices.rows.len() <= LIMIT);
        let (leaves, start_up) = slices.steady();
        assert_eq!(start_up, 0);
        assert_eq!(leaves.iter().sum::<u64>(), at - 1_000);
    }

    #[test]
    fn start_up_ends_with_the_last_novelty_of_the_first_half() {
        let mut slices = Slices::new(0);
        slices.add(Leaf::HostCpu, 0, 3_000_000);
        slices.add(Leaf::Compute, 3_000_000, 10_000_000);
        slices.mark_novel(100);
        slices.mark_novel(2_999_999);
        slices.mark_novel(9_000_000);
        let (leaves, start_up) = slices.steady();
        assert_eq!(start_up, 3_000_000);
        assert_eq!(leaves[Leaf::Compute as usize], 7_000_000);
        assert_eq!(leaves[Leaf::HostCpu as usize], 0);
    }
}
