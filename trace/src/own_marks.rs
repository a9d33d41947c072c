//! Marks that gpuwhy makes itself: they carry data, and are not shown as the program's.

use crate::dictionary::Dictionary;
use crate::record::{RangeEvent, RangeEventKind};
use crate::submission::SubmissionMark;

/// Domain of the marks with PyTorch's blocks of memory. `cli/run/memory.py` writes them, the engine reads them.
pub const MEMORY_DOMAIN: &str = "gpuwhy memory";

/// Text of a mark about PyTorch's blocks of memory.
#[must_use]
pub fn memory_text<'a>(event: &RangeEvent, dictionary: &'a Dictionary) -> Option<&'a str> {
    let is_one = event.kind == RangeEventKind::Mark && dictionary.name(event.domain) == MEMORY_DOMAIN;
    is_one.then(|| dictionary.name(event.message))
}

/// True if the event is a mark of gpuwhy's own.
#[must_use]
pub fn is_own(event: &RangeEvent, dictionary: &Dictionary) -> bool {
    SubmissionMark::of(event, dictionary).is_some() || memory_text(event, dictionary).is_some()
}
