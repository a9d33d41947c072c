//! Items with stable indices: sorting moves only small keys that hold the indices.

use std::ops::{Index, IndexMut};

/// Freed slots are reused, so memory is bounded by the maximum number of items at one time.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Returns the index. There must be fewer than 2^32 items, which the limits of every user guarantee.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.items[slot as usize] = item;
            return slot;
        }
        self.items.push(item);
        (self.items.len() - 1) as u32
    }

    /// Frees a slot that is in use.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.free.push(slot);
        // The slab is frequently empty: resetting it stores the next items in order.
        if self.free.len() == self.items.len() {
            self.items.clear();
            self.free.clear();
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.items[slot as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.items[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let [a, b] = ['a', 'b'].map(|item| slab.insert(item));
        slab.remove(a);
        assert_eq!(slab.insert('c'), a);
        assert_eq!((slab[a], slab[b]), ('c', 'b'));
        slab.remove(b);
        slab.remove(a);
        assert_eq!((slab.insert('d'), slab.items.len()), (0, 1), "nothing was left");
    }
}
