//! Queue in contiguous memory, so that its items form a slice.
//!
//! A ring needs two slices for that, and pays for it on each access. Here the front moves on, and the room it
//! leaves is reused when the memory would have to grow, which costs O(1) amortized per item. It takes at most
//! four times the memory of the longest queue.

use std::ops::{Deref, DerefMut};

/// The items are moved to the front when they are less than 1/8 of the removed ones: an eighth more of
/// moving.
const MOVED_PART: usize = 8;

/// See the [module](self). As a slice: the items, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    items: Vec<T>,
    /// Number of removed items at the front.
    gone: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Vec::new(), gone: 0 }
    }
}

impl<T> Deref for Queue<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[self.gone..]
    }
}

impl<T> DerefMut for Queue<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[self.gone..]
    }
}

impl<T: Copy> Queue<T> {
    /// Appends the newest item.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.gone == self.items.len() {
            self.items.clear();
            self.gone = 0;
        } else if self.items.len() == self.items.capacity() {
            self.make_room();
        }
        self.items.push(item);
    }

    /// Inserts an item after the `index` oldest ones.
    pub(crate) fn insert(&mut self, index: usize, item: T) {
        self.make_room();
        self.items.insert(self.gone + index, item);
    }

    /// Removes the newest item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() { None } else { self.items.pop() }
    }

    /// Removes the oldest item.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&T> {
        let first = self.items.get(self.gone)?;
        self.gone += 1;
        Some(first)
    }

    /// Removes and returns the `count` oldest items, which must exist.
    pub(crate) fn take_first(&mut self, count: usize) -> &[T] {
        let from = self.gone;
        self.gone += count;
        &self.items[from..self.gone]
    }

    /// Removes the `count` oldest items, or all.
    #[inline]
    pub(crate) fn skip_first(&mut self, count: usize) {
        self.gone = self.items.len().min(self.gone.saturating_add(count));
        // Few items are left: moved now, they stay in the CPU caches.
        if self.items.len() - self.gone < self.gone / MOVED_PART {
            self.items.drain(..self.gone);
            self.gone = 0;
        }
    }

    /// Shrinks the memory to `count` items, unless there are more.
    pub(crate) fn shrink_to(&mut self, count: usize) {
        self.items.drain(..self.gone);
        self.gone = 0;
        self.items.shrink_to(count);
    }

    /// Replaces all items.
    pub(crate) fn replace(&mut self, items: Vec<T>) {
        (self.items, self.gone) = (items, 0);
    }

    /// Capacity in items.
    pub(crate) fn capacity(&self) -> usize {
        self.items.capacity()
    }

    #[cold]
    fn make_room(&mut self) {
        if self.gone >= self.items.len().div_ceil(2) {
            self.items.drain(..self.gone);
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn what_is_gone_makes_room_for_what_comes() {
        let (mut line, mut model) = (Queue::default(), VecDeque::new());
        for number in 0..10_000u32 {
            line.push(number);
            model.push_back(number);
            match number % 7 {
                0 | 3 => assert_eq!(line.take().copied(), model.pop_front()),
                1 => assert_eq!(line.pop(), model.pop_back()),
                2 if model.len() > 40 => {
                    line.skip_first(30);
                    model.drain(..30);
                }
                5 => {
                    line.insert(line.len() / 2, number);
                    model.insert(model.len() / 2, number);
                }
                _ => {}
            }
            assert_eq!(*line, *model.make_contiguous());
            assert!(line.capacity() <= 256, "{} for {}", line.capacity(), line.len());
        }
        line.skip_first(usize::MAX);
        assert_eq!((line.take().copied(), line.pop(), line.len()), (None, None, 0));
        line.shrink_to(0);
        assert_eq!(line.capacity(), 0);
    }
}
