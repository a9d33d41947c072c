//! The entries, by subject.

mod arrays;
mod attention;
mod builds;
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

const ALL: [&[RemedyEntry]; 14] = [
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

/// All remedies, by subject.
pub fn remedies() -> impl Iterator<Item = &'static RemedyEntry> {
    ALL.iter().copied().flatten()
}

/// The remedy with this id.
pub fn remedy(id: &str) -> Option<&'static RemedyEntry> {
    remedies().find(|entry| entry.id == id)
}
