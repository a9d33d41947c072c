//! Sorting what comes in runs: each buffer is in order, the buffers are not.
//!
//! Merging runs that do not overlap costs as much as merging ones that do. So whole runs are put in the order in which they
//! begin, and only then what still overlaps is merged.

use std::cmp::Ordering;
use std::ops::Range;

/// Runs of a mean length below this are no buffers.
const SHORTEST_RUN: usize = 8;

/// Things that wait to be taken in order, put aside in any.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    items: Vec<T>,
    /// So many of the first were taken.
    taken: usize,
    /// So many of the first are in order.
    sorted: usize,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { items: Vec::new(), taken: 0, sorted: 0 }
    }
}

impl<T: Copy> InOrder<T> {
    /// Puts `item` aside.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.taken == self.items.len() {
            self.items.clear();
            (self.taken, self.sorted) = (0, 0);
        }
        self.items.push(item);
    }

    /// Puts what waits in order; must come between pushing and looking. The order of equal ones is not kept.
    pub(crate) fn sort(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        if self.sorted < self.items.len() {
            self.items.drain(..self.taken);
            self.taken = 0;
            sort_by(&mut self.items, compare);
            self.sorted = self.items.len();
        }
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> &[T] {
        &self.items[self.taken..]
    }

    /// The first of what waits.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.items.get(self.taken)
    }

    /// Takes the first of what waits.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&T> {
        let first = self.items.get(self.taken)?;
        self.taken += 1;
        Some(first)
    }
}

/// Sorts `items`. The order of equal ones is not kept.
pub(crate) fn sort_by<T: Copy>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let mut runs = Vec::new();
    let mut begin = 0;
    for index in 1..items.len() {
        if compare(&items[index - 1], &items[index]) == Ordering::Greater {
            runs.push(begin..index);
            begin = index;
        }
    }
    if runs.is_empty() {
        return; // In order already.
    }
    runs.push(begin..items.len());
    if items.len() / runs.len() >= SHORTEST_RUN {
        runs.sort_by(|a, b| compare(&items[a.start], &items[b.start]));
        let follows = |pair: &[Range<usize>]| compare(&items[pair[0].end - 1], &items[pair[1].start]).is_le();
        let apart = runs.windows(2).all(follows);
        let mut ordered = Vec::with_capacity(items.capacity());
        for run in runs {
            ordered.extend_from_slice(&items[run]);
        }
        *items = ordered;
        if apart {
            return;
        }
    }
    items.sort_by(compare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_any_order_and_what_is_no_buffer_are_sorted() {
        let buffers = |step: u32, overlap: u32| -> Vec<u32> {
            (0..20)
                .rev()
                .flat_map(|buffer| (0..50).map(move |index| buffer * (50 - overlap) * step + index * step))
                .collect()
        };
        let mut state = 7u32;
        let noise = (0..500).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 20
        });
        for mut items in [buffers(1, 0), buffers(3, 20), noise.collect(), vec![], vec![1], vec![2, 1]] {
            let mut expected = items.clone();
            expected.sort_unstable();
            sort_by(&mut items, u32::cmp);
            assert_eq!(items, expected);
        }
    }

    #[test]
    fn what_was_taken_does_not_come_back() {
        let mut items = InOrder::default();
        [5, 1, 3].into_iter().for_each(|item| items.push(item));
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [1, 3, 5]);
        assert_eq!([items.take().copied(), items.take().copied(), items.first().copied()], [Some(1), Some(3), Some(5)]);
        [9, 4].into_iter().for_each(|item| items.push(item));
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [4, 5, 9]);
        while items.take().is_some() {}
        assert_eq!(items.first(), None);
        items.push(2);
        items.sort(u32::cmp);
        assert_eq!((items.waiting(), items.items.len()), (&[2][..], 1), "what was taken needs no memory");
    }
}
