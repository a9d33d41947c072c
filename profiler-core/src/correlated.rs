//! A map by correlation id that is fast for what ids are: almost consecutive.
//!
//! An id has one slot, its low bits. Consecutive ids lie side by side, so joining a buffer of records walks through
//! memory in order, where a hash would miss the cache for each. When two ids want one slot, the newer gets it and the
//! older moves to an ordinary map, so nothing is ever lost and any ids work, only slower.

use rustc_hash::FxHashMap;

/// Slots, a power of two (about 3 MiB of launches): more than are in flight between two flushes of a dense program.
const SLOTS: usize = 65_536;

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
    /// Gives what the id stood for before.
    pub(crate) fn insert(&mut self, id: u32, value: T) -> Option<T> {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let slot = &mut self.slots[slot(id)];
        if slot.is_none() && self.displaced.is_empty() {
            *slot = Some((id, value));
            return None;
        }
        match slot.replace((id, value)) {
            Some((before, value)) if before == id => Some(value),
            other => {
                // The id itself may be among the displaced, and comes back from there.
                let before = if self.displaced.is_empty() { None } else { self.displaced.remove(&id) };
                self.displaced.extend(other);
                before
            }
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        match self.slots.get(slot(id)) {
            Some(Some((found, value))) if *found == id => Some(value),
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.get(&id),
        }
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.slots.get_mut(slot(id)) {
            Some(Some((found, value))) if *found == id => Some(value),
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.get_mut(&id),
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        match self.slots.get_mut(slot(id)) {
            Some(entry) if entry.as_ref().is_some_and(|(found, _)| *found == id) => {
                entry.take().map(|(_, value)| value)
            }
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.remove(&id),
        }
    }
}

const fn slot(id: u32) -> usize {
    id as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_share_a_slot_are_kept_apart() {
        let far = 7 + SLOTS as u32;
        let mut map = Correlated::default();
        assert_eq!(map.get(7), None);
        assert_eq!(map.insert(7, 'a'), None);
        assert_eq!(map.insert(far, 'b'), None);
        assert_eq!((map.get(7), map.get(far)), (Some(&'a'), Some(&'b')));
        assert_eq!(map.insert(7, 'c'), Some('a'), "a displaced id comes back with its value");
        assert_eq!((map.get_mut(7).copied(), map.get_mut(far).copied()), (Some('c'), Some('b')));
        assert_eq!((map.remove(far), map.remove(far)), (Some('b'), None));
        assert_eq!((map.remove(7), map.get(7)), (Some('c'), None));
    }
}
