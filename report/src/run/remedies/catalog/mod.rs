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
mod precision;
mod waits;

use super::entry::RemedyEntry;
use super::trial::{How, Trial};
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

/// No report advises it: whether it gains depends on the sizes.
const CUDNN_SEARCH: Trial = Trial {
    id: "cudnn_search",
    change: "cuDNN measures which algorithm is fastest",
    keep: "torch.backends.cudnn.benchmark = True",
    how: How::PyTorch,
    needs: "it does so already",
};

impl Trial {
    /// All changes, in the order in which `--list` prints them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let own = remedies().filter_map(|entry| entry.trial.filter(|trial| trial.id == entry.id));
        own.chain([&CUDNN_SEARCH])
    }

    /// The change that makes the remedy with this name.
    pub fn named(id: &str) -> Option<&'static Self> {
        remedy(id).and_then(|entry| entry.trial).or_else(|| Self::all().find(|trial| trial.id == id))
    }

    /// Effect on the results, as the catalogue has it; what is not in it could change anything.
    pub fn results(&self) -> Results {
        remedy(self.id).map_or(Results::Behavior, |entry| entry.results)
    }
}
