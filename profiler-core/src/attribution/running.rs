//! The operations that run on a device at one instant: how many of each leaf, and which ends first.
//!
//! Mostly there is one, so that the one which ends first lies apart and the heap of the others is left alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::leaf::{BUSY_COUNT, Leaf};

/// Operations that may run at once (16 bytes each): five hundred times as many as a device runs kernels.
const LIMIT: usize = 1 << 16;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Running {
    /// End and leaf of the one that ends first.
    first: Option<(u64, u8)>,
    others: BinaryHeap<Reverse<(u64, u8)>>,
    counts: [u32; BUSY_COUNT],
    /// Bit by leaf: whether its counter is not zero.
    mask: u32,
}

impl Running {
    /// A bit for each leaf that runs.
    #[inline]
    pub(super) fn leaves(&self) -> u32 {
        self.mask
    }

    /// When the first of them ends.
    #[inline]
    pub(super) fn next_end(&self) -> Option<u64> {
        self.first.map(|(end, _)| end)
    }

    /// Whether no more can run at once.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.others.len() >= LIMIT
    }

    /// An operation begins that ends at `end`.
    #[inline]
    pub(super) fn begin(&mut self, leaf: Leaf, end: u64) {
        self.counts[leaf as usize] += 1;
        self.mask |= 1 << leaf as u8;
        let new = (end, leaf as u8);
        match self.first {
            None => self.first = Some(new),
            Some(first) => {
                self.first = Some(first.min(new));
                self.others.push(Reverse(first.max(new)));
            }
        }
    }

    /// The one that ends first ends.
    #[inline]
    pub(super) fn end(&mut self) {
        let Some((_, leaf)) = self.first else { return };
        self.first = if self.others.is_empty() { None } else { self.others.pop().map(|Reverse(next)| next) };
        let leaf = usize::from(leaf);
        self.counts[leaf] -= 1;
        if self.counts[leaf] == 0 {
            self.mask &= !(1 << leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_runs_so_many_at_once() {
        let mut running = Running::default();
        (0..=LIMIT as u64).for_each(|end| running.begin(Leaf::Compute, end));
        assert!(running.is_full());
        running.end();
        assert!(!running.is_full());
    }

    #[test]
    fn they_end_in_order_and_each_leaf_runs_until_its_last_ends() {
        let mut running = Running::default();
        let (compute, memset) = (1 << Leaf::Compute as u8, 1 << Leaf::Memset as u8);
        for (leaf, end) in [(Leaf::Compute, 50), (Leaf::Memset, 20), (Leaf::Compute, 30), (Leaf::Compute, 90)] {
            running.begin(leaf, end);
        }
        let mut seen = Vec::new();
        while let Some(end) = running.next_end() {
            seen.push((end, running.leaves()));
            running.end();
        }
        assert_eq!(seen, [(20, compute | memset), (30, compute), (50, compute), (90, compute)]);
        assert_eq!(running.leaves(), 0);
    }
}
