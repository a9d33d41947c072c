//! Sorting what comes in runs: each buffer is in order, the buffers are not.
//!
//! Merging runs that do not overlap costs as much as merging ones that do. So whole runs are put in the order in which they
//! begin, and only then what still overlaps is merged. What waited from before is mostly earlier than all that is new.

use std::cmp::Ordering;
use std::ops::Range;

use crate::line::Line;

/// Runs of a mean length below this are no buffers.
const SHORTEST_RUN: usize = 8;

/// Things that wait to be taken in order, put aside in any.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    items: Line<T>,
    /// So many of the last are not in order yet.
    new: usize,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { items: Line::default(), new: 0 }
    }
}

impl<T: Copy> InOrder<T> {
    /// Puts `item` aside.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
        self.new += 1;
    }

    /// Puts what waits in order; must come between pushing and looking. The order of equal ones is not kept.
    pub(crate) fn sort(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        let new = std::mem::take(&mut self.new);
        if new == 0 {
            return;
        }
        let (waiting, new) = self.items.split_at(self.items.len() - new);
        let follows = |before: Option<&T>, next: Option<&T>| {
            before.zip(next).is_none_or(|(before, next)| compare(before, next).is_le())
        };
        let mut runs = runs(new, &compare);
        if runs.len() == 1 && follows(waiting.last(), new.first()) {
            return; // In order already.
        }
        if new.len() / runs.len() >= SHORTEST_RUN {
            runs.sort_by(|a, b| compare(&new[a.start], &new[b.start]));
        }
        let mut ordered = Vec::with_capacity(self.items.capacity());
        ordered.extend_from_slice(waiting);
        let mut apart = true;
        for run in runs {
            apart &= follows(ordered.last(), new.get(run.start));
            ordered.extend_from_slice(&new[run]);
        }
        if !apart {
            ordered.sort_by(compare);
        }
        self.items.replace(ordered);
    }

    /// What waits, the first first.
    #[inline]
    pub(crate) fn waiting(&self) -> &[T] {
        &self.items
    }

    /// Takes the first of what waits.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&T> {
        self.items.take()
    }
}

/// The longest stretches of `items` that are in order.
fn runs<T>(items: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for (index, pair) in items.windows(2).enumerate() {
        if compare(&pair[0], &pair[1]).is_gt() {
            runs.push(begin..index + 1);
            begin = index + 1;
        }
    }
    runs.push(begin..items.len());
    runs
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
            // What waits already is merged with what comes.
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
        while items.take().is_some() {}
        assert_eq!(items.waiting(), []);
        items.push(2);
        items.sort(u32::cmp);
        assert_eq!(items.waiting(), [2]);
    }
}
