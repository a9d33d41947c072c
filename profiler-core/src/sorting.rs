//! Sorting of rows in little machine code.
//!
//! The standard library compiles its sort anew for each type and each comparison, 6 to 10 KB each time. Reports sort
//! in a hundred places, and libprof.so is loaded into the user's program: so these methods sort numbers of rows, with
//! one sort for all types, and then move the rows. Input of the engine, millions of records, keeps the standard sort.

use std::cmp::Ordering;

/// Stable sorts of a slice.
pub trait SortRows<T> {
    /// Sorts like [`slice::sort_by`].
    fn sort_rows_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts like [`slice::sort_by_key`].
    fn sort_rows_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_rows_by(|a, b| key(a).cmp(&key(b)));
    }
}

impl<T> SortRows<T> for [T] {
    fn sort_rows_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut order = ordered(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for to in 0..order.len() {
            let mut from = order[to];
            // A row before `to` has been moved to where the row that belonged there was.
            while from < to {
                from = order[from];
            }
            order[to] = from;
            self.swap(to, from);
        }
    }
}

/// The numbers below `len` in the order of `compare`. It has no type parameter, so that it exists once.
#[inline(never)]
fn ordered(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    #[test]
    fn rows_are_sorted_as_by_the_standard_library() {
        let mut state = 7_u64;
        for len in [0, 1, 2, 3, 20, 21, 50, 1_000] {
            for keys in [1, 3, 1_000] {
                let mut rows: Vec<(u64, usize)> = (0..len)
                    .map(|index| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        ((state >> 33) % keys, index)
                    })
                    .collect();
                let mut expected = rows.clone();
                expected.sort_by_key(|row| Reverse(row.0));
                rows.sort_rows_by_key(|row| Reverse(row.0));
                assert_eq!(rows, expected, "{len} rows, {keys} keys");
            }
        }
    }
}
