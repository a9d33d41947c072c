//! Map by correlation id, optimized for ids that are almost consecutive.
//!
//! An id has one slot, given by its low bits. Consecutive ids are adjacent, so joining a buffer of records
//! walks through memory in order, where a hash map would miss the cache for each. If two ids need the same
//! slot, the newer one gets it and the older one moves to an ordinary map, so no entry is lost and any ids
//! work, only slower. The number of slots is just high enough to make that rare, so that the slots in use
//! stay in the CPU caches.

use rustc_hash::FxHashMap;

/// Initial and maximum number of slots, powers of two (16 bytes each for launches). The maximum exceeds the
/// launches in flight between two flushes of a dense program: eight threads launch 1.1 million times per
/// second.
const FEWEST_SLOTS: usize = 1 << 10;
const MOST_SLOTS: usize = 1 << 18;
/// Slots are doubled when 1/16 of them would move to the ordinary map.
const DISPLACED_PART: usize = 16;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Correlated<T> {
    /// Empty until the first insertion.
    slots: Vec<Option<(u32, T)>>,
    displaced: FxHashMap<u32, T>,
}

impl<T> Default for Correlated<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), displaced: FxHashMap::default() }
    }
}

impl<T> Correlated<T> {
    /// Inserts a value and returns the previous one of this id.
    #[inline]
    pub(crate) fn insert(&mut self, id: u32, value: T) -> Option<T> {
        let index = self.slot(id);
        match self.slots.get_mut(index) {
            Some(slot @ None) if self.displaced.is_empty() => {
                *slot = Some((id, value));
                None
            }
            Some(Some((found, before))) if *found == id => Some(std::mem::replace(before, value)),
            _ => self.insert_beside(id, value),
        }
    }

    /// Inserts when the slot is occupied by another id, or there are no slots.
    #[cold]
    fn insert_beside(&mut self, id: u32, value: T) -> Option<T> {
        if self.slots.len() < MOST_SLOTS && self.displaced.len() >= self.slots.len() / DISPLACED_PART {
            self.grow();
        }
        // The id itself may be among the displaced ones and is moved back.
        let before = self.displaced.remove(&id);
        let index = self.slot(id);
        self.displaced.extend(self.slots[index].replace((id, value)));
        before
    }

    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).max(FEWEST_SLOTS);
        let old = std::mem::replace(&mut self.slots, std::iter::repeat_with(|| None).take(slots).collect());
        for (id, value) in old.into_iter().flatten().chain(std::mem::take(&mut self.displaced)) {
            let index = self.slot(id);
            self.displaced.extend(self.slots[index].replace((id, value)));
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        match self.slots.get(self.slot(id)) {
            Some(Some((found, value))) if *found == id => Some(value),
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.get(&id),
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let index = self.slot(id);
        match self.slots.get_mut(index) {
            Some(entry) if entry.as_ref().is_some_and(|(found, _)| *found == id) => {
                entry.take().map(|(_, value)| value)
            }
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.remove(&id),
        }
    }

    /// Removes the values for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|(_, value)| !keep(value)) {
                *slot = None;
            }
        }
        self.displaced.retain(|_, value| keep(value));
    }

    /// Slot of an id; none as long as there are no slots.
    #[inline]
    fn slot(&self, id: u32) -> usize {
        id as usize & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_share_a_slot_are_kept_apart() {
        let far = 7 + MOST_SLOTS as u32;
        let mut map = Correlated::default();
        assert_eq!(map.remove(7), None);
        assert_eq!(map.insert(7, 'a'), None);
        assert_eq!(map.insert(far, 'b'), None);
        assert_eq!((map.get(7), map.get(far)), (Some(&'a'), Some(&'b')));
        assert_eq!(map.insert(7, 'c'), Some('a'), "a displaced id comes back with its value");
        assert_eq!((map.get(7).copied(), map.get(far).copied()), (Some('c'), Some('b')));
        assert_eq!((map.remove(far), map.remove(far)), (Some('b'), None));
        assert_eq!((map.remove(7), map.get(7)), (Some('c'), None));
    }

    #[test]
    fn slots_grow_with_what_is_in_flight() {
        let mut map = Correlated::default();
        for id in 0..1_000_000u32 {
            assert_eq!(map.insert(id, id), None);
            if id >= 3_000 {
                assert_eq!(map.remove(id - 3_000), Some(id - 3_000));
            }
        }
        assert_eq!((map.slots.len(), map.displaced.len()), (4_096, 0));
        for id in 0..200_000 {
            map.insert(id * 7, id);
        }
        assert_eq!(map.slots.len(), MOST_SLOTS);
        assert!((0..200_000).all(|id| map.get(id * 7) == Some(&id)));
        map.retain(|&id| id >= 150_000);
        assert!((0..200_000).all(|id| map.get(id * 7).is_some() == (id >= 150_000)));
    }
}
