//! The records that the client wants, and since when.
//!
//! The real library decides when an activity happens; the replay library decides when it delivers, which may
//! be later. So each change stores the play time at which it was made, and a record is filtered by its own
//! time.

use std::collections::BTreeMap;

/// One change of a setting.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Play time in nanoseconds.
    at: u64,
    /// The API function that it applies to; `None`: the complete kind.
    function: Option<u32>,
    on: bool,
}

/// The settings of all kinds, with their history.
#[derive(Clone, Debug, Default)]
pub struct Filter(BTreeMap<u32, Vec<Change>>);

impl Filter {
    /// Enables or disables a kind from play time `at` on. Overrides earlier settings of single functions.
    pub fn set_kind(&mut self, kind: u32, on: bool, at: u64) {
        self.push(kind, Change { at, function: None, on });
    }

    /// Enables or disables one API function from play time `at` on. `kind` is that of its API records.
    pub fn set_function(&mut self, kind: u32, function: u32, on: bool, at: u64) {
        self.push(kind, Change { at, function: Some(function), on });
    }

    /// True if no record is wanted from play time `at` on.
    #[must_use]
    pub fn is_idle(&self, at: u64) -> bool {
        self.0.iter().all(|(&kind, changes)| {
            let functions = changes.iter().map(|change| change.function);
            !functions.chain([None]).any(|function| self.wants(kind, function, at))
        })
    }

    /// True if a record of this kind, and of this function if it is an API record, was wanted at play time
    /// `at`.
    #[must_use]
    pub fn wants(&self, kind: u32, function: Option<u32>, at: u64) -> bool {
        let applies = |change: &&Change| change.at <= at && (change.function.is_none() || change.function == function);
        self.0.get(&kind).and_then(|changes| changes.iter().rev().find(applies)).is_some_and(|change| change.on)
    }

    /// True if any single function of this kind of API records was enabled at play time `at`.
    #[must_use]
    pub fn had_function_at(&self, kind: u32, at: u64) -> bool {
        let functions = self.0.get(&kind).into_iter().flatten().filter_map(|change| change.function);
        functions.into_iter().any(|function| self.wants(kind, Some(function), at))
    }

    fn push(&mut self, kind: u32, change: Change) {
        let changes = self.0.entry(kind).or_default();
        // An earlier setting of the same thing at the same time was never in effect.
        changes.retain(|old| old.at != change.at || (change.function.is_some() && old.function != change.function));
        changes.push(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_turned_off_again_leaves_it_idle() {
        let mut filter = Filter::default();
        assert!(filter.is_idle(5));
        filter.set_function(4, 211, true, 1);
        filter.set_kind(10, true, 2);
        filter.set_kind(10, false, 3);
        assert!(!filter.is_idle(3));
        filter.set_function(4, 211, false, 4);
        assert!(filter.is_idle(4) && !filter.is_idle(2));
    }

    #[test]
    fn nothing_is_wanted_until_enabled() {
        let mut filter = Filter::default();
        assert!(!filter.wants(10, None, 5));
        filter.set_kind(10, true, 5);
        assert!(filter.wants(10, None, 5));
        assert!(!filter.wants(10, None, 4), "the record is older than the switch");
        assert!(!filter.wants(3, None, 9), "another kind");
    }

    #[test]
    fn functions_that_were_on_at_the_start_are_remembered() {
        let mut filter = Filter::default();
        filter.set_function(5, 211, true, 7);
        assert!(!filter.had_function_at(5, 0), "enabled later");
        filter.set_function(5, 3, true, 0);
        filter.set_function(5, 3, false, 9);
        assert!(filter.had_function_at(5, 0));
        assert!(!filter.had_function_at(4, 0));
    }

    #[test]
    fn a_disabled_kind_keeps_its_older_records() {
        let mut filter = Filter::default();
        filter.set_kind(10, true, 0);
        filter.set_kind(10, false, 100);
        assert!(filter.wants(10, None, 99));
        assert!(!filter.wants(10, None, 100));
    }

    #[test]
    fn single_functions_without_the_kind() {
        let mut filter = Filter::default();
        filter.set_function(5, 211, true, 0);
        filter.set_function(5, 41, true, 0);
        assert!(filter.wants(5, Some(211), 1) && filter.wants(5, Some(41), 1));
        assert!(!filter.wants(5, Some(3), 1));
    }

    #[test]
    fn the_last_word_counts() {
        let mut filter = Filter::default();
        filter.set_kind(5, true, 0);
        filter.set_function(5, 3, false, 0);
        assert!(filter.wants(5, Some(211), 1) && !filter.wants(5, Some(3), 1));
        filter.set_kind(5, true, 2);
        assert!(filter.wants(5, Some(3), 2) && !filter.wants(5, Some(3), 1));
    }
}
