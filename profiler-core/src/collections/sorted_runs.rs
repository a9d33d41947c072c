//! Sorting of input that comes in runs: each buffer is in order, the buffers are not.
//!
//! Merging item by item costs the same for runs that do not overlap as for runs that do. So complete runs are
//! ordered by their first item and cut where another one falls in between. Only input that is interleaved
//! more than that is sorted item by item.

use std::cmp::Ordering;
use std::ops::Range;

use crate::collections::queue::Queue;

/// Runs with a shorter mean length are not buffers.
const SHORTEST_RUN: usize = 8;
/// Maximum cuts per run where another one starts: some items are left over from before. Beyond that, sorting
/// everything is cheaper.
const CUTS: usize = 4;

/// Items that are added in any order and taken in order.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    items: Queue<T>,
    /// Number of items at the end that are not sorted yet.
    new: usize,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { items: Queue::default(), new: 0 }
    }
}

impl<T: Copy> InOrder<T> {
    /// Adds `item`.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
        self.new += 1;
    }

    /// Sorts the items; required between adding and reading. Not stable.
    pub(crate) fn sort(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        let new = std::mem::take(&mut self.new);
        if new == 0 {
            return;
        }
        let mut runs = runs(&self.items, self.items.len() - new, &compare);
        if runs.len() == 1 {
            return; // Already sorted.
        }
        let mut ordered = Vec::with_capacity(self.items.capacity());
        if self.items.len() / runs.len() >= SHORTEST_RUN {
            merge(&self.items, &mut runs, &mut ordered, &compare);
        }
        if ordered.len() < self.items.len() {
            ordered.clear();
            ordered.extend_from_slice(&self.items);
            ordered.sort_by(compare);
        }
        self.items.replace(ordered);
    }

    /// Releases memory far beyond that for `count` items, unless there are more.
    pub(crate) fn keep_room_for(&mut self, count: usize) {
        if self.items.capacity() / 4 > count.max(self.items.len()) {
            self.items.shrink_to(count);
        }
    }

    /// All items, in order.
    #[inline]
    pub(crate) fn waiting(&self) -> &[T] {
        &self.items
    }

    /// Drops items from the front as long as `before` holds. `before` must not hold for any item after one
    /// for which it does not.
    pub(crate) fn skip_while(&mut self, before: impl Fn(&T) -> bool) {
        self.items.skip_first(self.items.partition_point(before));
    }

    /// Removes items from the front as long as `before` holds, as in [`skip_while`](Self::skip_while).
    pub(crate) fn take_while(&mut self, before: impl Fn(&T) -> bool) -> &[T] {
        self.items.take_first(self.items.partition_point(before))
    }

    /// Removes the first item.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&T> {
        self.items.take()
    }
}

/// Longest ordered runs of `items`; the items before `sorted` are in order.
fn runs<T>(items: &[T], sorted: usize, compare: impl Fn(&T, &T) -> Ordering) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for index in sorted.max(1)..items.len() {
        if compare(&items[index - 1], &items[index]).is_gt() {
            runs.push(begin..index);
            begin = index;
        }
    }
    runs.push(begin..items.len());
    runs
}

/// Appends the runs to `ordered`, each up to the start of the next one; stops if they are interleaved too
/// much.
fn merge<T: Copy>(
    items: &[T],
    runs: &mut Vec<Range<usize>>,
    ordered: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) {
    let mut cuts = CUTS * runs.len();
    // The first run is last.
    runs.sort_by(|a, b| compare(&items[b.start], &items[a.start]));
    while let Some(mut run) = runs.pop() {
        if let Some(next) = runs.last().map(|next| &items[next.start])
            && compare(&items[run.end - 1], next).is_gt()
        {
            if cuts == 0 {
                return;
            }
            cuts -= 1;
            let cut = run.start + items[run.clone()].partition_point(|item| compare(item, next).is_le());
            let index = runs.partition_point(|other| compare(&items[other.start], &items[cut]).is_gt());
            runs.insert(index, cut..run.end);
            run.end = cut;
        }
        ordered.extend_from_slice(&items[run]);
    }
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
        for items in [buffers(1, 0), buffers(3, 20), noise.collect(), vec![], vec![1], vec![2, 1]] {
            let mut expected = items.clone();
            expected.sort_unstable();
            // Existing items are merged with new ones.
            for half in [0, items.len() / 2] {
                let mut sorted = InOrder::default();
                items[..half].iter().for_each(|&item| sorted.push(item));
                sorted.sort(u32::cmp);
                items[half..].iter().for_each(|&item| sorted.push(item));
                sorted.sort(u32::cmp);
                assert_eq!(sorted.waiting(), expected);
            }
        }
    }

    #[test]
    fn what_was_taken_does_not_come_back() {
        let mut items = InOrder::default();
        [5, 1, 3].into_iter().for_each(|item| items.push(item));
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [1, 3, 5]);
        assert_eq!(
            [items.take().copied(), items.take().copied(), items.waiting().first().copied()],
            [Some(1), Some(3), Some(5)]
        );
        [9, 4].into_iter().for_each(|item| items.push(item));
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [4, 5, 9]);
        items.skip_while(|&item| item < 6);
        assert_eq!(items.waiting(), [9]);
        while items.take().is_some() {}
        assert!(items.waiting().is_empty());
        items.push(2);
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [2]);
    }
}
