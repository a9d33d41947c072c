//! The rows that matter most, of any number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps the largest rows by a key.
#[derive(Debug)]
pub(super) struct Largest<K, T> {
    /// The smallest of those that are kept is on top.
    kept: BinaryHeap<Reverse<Ranked<K, T>>>,
    limit: usize,
    seen: u64,
}

#[derive(Debug)]
struct Ranked<K, T> {
    key: K,
    /// Of equal ones the earlier stays.
    order: Reverse<u64>,
    row: T,
}

impl<K: Ord, T> Largest<K, T> {
    pub fn new(limit: usize) -> Self {
        Self { kept: BinaryHeap::new(), limit, seen: 0 }
    }

    pub fn push(&mut self, key: K, row: T) {
        self.seen += 1;
        self.kept.push(Reverse(Ranked { key, order: Reverse(self.seen), row }));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
    }

    /// The rows, the largest first, and how many were left out.
    pub fn finish(self) -> (Vec<T>, u64) {
        let left_out = self.seen - self.kept.len() as u64;
        (self.kept.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked.row).collect(), left_out)
    }
}

impl<K: Ord, T> Ord for Ranked<K, T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.key, &self.order).cmp(&(&other.key, &other.order))
    }
}

impl<K: Ord, T> PartialOrd for Ranked<K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, T> PartialEq for Ranked<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Ord, T> Eq for Ranked<K, T> {}

#[cfg(test)]
mod tests {
    use super::Largest;

    #[test]
    fn the_largest_stay_and_the_others_are_counted() {
        let mut largest = Largest::new(3);
        for (key, row) in [(5, 'a'), (9, 'b'), (1, 'c'), (5, 'd'), (7, 'e')] {
            largest.push(key, row);
        }
        assert_eq!(largest.finish(), (vec!['b', 'e', 'a'], 2));
    }
}
