//! Table of names that are defined once and used often: domains, registered strings, categories.
//!
//! It only grows, up to a limit, and is read while it grows. No lock: a fork may happen while any thread is
//! in here, and a lock held at that time would be held in the child forever.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a segment.
const SEGMENT: usize = 1024;

type Segment<T> = Box<[OnceLock<T>]>;

/// At most `1024 * SEGMENTS` rows.
#[derive(Debug)]
pub struct RowTable<T, const SEGMENTS: usize> {
    router: [OnceLock<Segment<T>>; SEGMENTS],
    /// Number of assigned rows. `Relaxed`: the rows themselves are published by their `OnceLock`.
    used: AtomicUsize,
}

impl<T, const SEGMENTS: usize> RowTable<T, SEGMENTS> {
    pub const fn new() -> Self {
        Self { router: [const { OnceLock::new() }; SEGMENTS], used: AtomicUsize::new(0) }
    }

    /// Adds a row and returns its index, or `None` if the table is full.
    pub fn add(&self, row: T) -> Option<usize> {
        let next = |used| (used < SEGMENT * SEGMENTS).then_some(used + 1);
        let at = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let segment = self.router[at / SEGMENT].get_or_init(|| (0..SEGMENT).map(|_| OnceLock::new()).collect());
        segment[at % SEGMENT].set(row).ok().map(|()| at)
    }

    /// Row at an index; `None` if it does not exist, or not yet.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.router.get(at / SEGMENT)?.get()?[at % SEGMENT].get()
    }

    /// Rows from an index on, up to the first that does not exist yet.
    pub fn from(&self, at: usize) -> impl Iterator<Item = &T> {
        (at..).map_while(|at| self.get(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_where_they_were_put_until_the_table_is_full() {
        let table = RowTable::<String, 2>::new();
        assert_eq!((table.get(0), table.from(0).count()), (None, 0));
        for number in 0..2 * SEGMENT {
            assert_eq!(table.add(number.to_string()), Some(number));
        }
        assert_eq!(table.add("one too many".to_owned()), None);
        assert_eq!(table.get(1500).map(String::as_str), Some("1500"));
        assert_eq!((table.from(2000).count(), table.get(2 * SEGMENT)), (48, None));
    }

    #[test]
    fn threads_get_places_of_their_own() {
        let table = RowTable::<usize, 4>::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || (0..1000).for_each(|row| assert!(table.add(thread * 1000 + row).is_some())));
            }
        });
        let mut rows: Vec<_> = table.from(0).copied().collect();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..4000));
    }
}
