//! The entries, by subject.

mod arrays;
mod attention;
mod builds;
mod code;
mod communication;
mod copies;
mod elementwise;
mod host;
mod kernels;
mod launches;
mod layout;
mod loading;
mod memory;
mod others;
mod precision;
mod waits;

use self::others::OTHERS;
use super::entry::RemedyEntry;
use super::trial::Trial;
use crate::run::Results;

/// Entries that records alone open. Reports at the exit of a program know no others.
const BY_RECORDS: [&[RemedyEntry]; 14] = [
    precision::ENTRIES,
    layout::ENTRIES,
    attention::ENTRIES,
    elementwise::ENTRIES,
    kernels::ENTRIES,
    launches::ENTRIES,
    waits::ENTRIES,
    copies::ENTRIES,
    loading::ENTRIES,
    host::ENTRIES,
    builds::ENTRIES,
    memory::ENTRIES,
    communication::ENTRIES,
    arrays::ENTRIES,
];

/// Entries that only a line of source code opens.
pub(super) const OPENED_BY_LINES: &[RemedyEntry] = code::ENTRIES;

/// Remedies that records alone open.
pub(super) fn by_records() -> impl Iterator<Item = &'static RemedyEntry> {
    BY_RECORDS.iter().copied().flatten()
}

/// All remedies, by subject.
pub fn remedies() -> impl Iterator<Item = &'static RemedyEntry> {
    by_records().chain(OPENED_BY_LINES)
}

/// Ids of the remedies that only a line of source code opens.
#[doc(hidden)]
pub fn opened_by_lines() -> impl Iterator<Item = &'static str> {
    OPENED_BY_LINES.iter().map(|entry| entry.id)
}

/// The remedy with this id.
pub fn remedy(id: &str) -> Option<&'static RemedyEntry> {
    remedies().find(|entry| entry.id == id)
}

impl Trial {
    /// All changes, in the order in which `--list` prints them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let own = remedies().filter_map(|entry| entry.trial.filter(|trial| trial.id == entry.id));
        own.chain(OTHERS.iter().flat_map(|(_, trials)| *trials).copied())
    }

    /// The change that makes the remedy with this name.
    pub fn named(id: &str) -> Option<&'static Self> {
        remedy(id).and_then(|entry| entry.trial).or_else(|| Self::all().find(|trial| trial.id == id))
    }

    /// Effect on the results.
    pub fn results(&self) -> Results {
        let is_own = |trial: &&Self| trial.id == self.id;
        let other = || OTHERS.iter().find(|(_, trials)| trials.iter().any(is_own)).map(|(results, _)| *results);
        remedy(self.id).map(|entry| entry.results).or_else(other).unwrap_or(Results::Behavior)
    }
}
