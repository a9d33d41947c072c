//! What a program said about itself: ranges and marks of NVTX, as they begin and as they end.
//!
//! Begin and end are records of their own, because a range may last as long as the program: the engine must know that
//! it is open while it is, and a killed program leaves ranges that only began.

use super::{NameId, ThreadId, Timestamp};

/// What happened to a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeEventKind {
    /// A value this version does not know.
    #[default]
    Unknown,
    /// A range was pushed on the stack of its thread and domain.
    Push,
    /// The top range of the stack of this thread and domain ended.
    Pop,
    /// A range began that may end on another thread, and overlap others.
    Start,
    /// The range with the same [`range_id`](RangeEvent::range_id) ended.
    End,
    /// A point in time was marked.
    Mark,
}

/// The number that a program attached to a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Payload {
    /// None was given, or one of a type that this version does not know.
    #[default]
    None,
    /// Unsigned, 32 or 64 bits.
    Unsigned(u64),
    /// Signed, 32 or 64 bits.
    Signed(i64),
    /// Floating point, 32 or 64 bits.
    Float(f64),
}

/// A range began or ended, or a point in time was marked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangeEvent {
    /// When, on the host.
    pub at: Timestamp,
    /// The calling thread.
    pub thread: ThreadId,
    /// What happened.
    pub kind: RangeEventKind,
    /// Name of the domain; the empty name is the default domain.
    pub domain: NameId,
    /// The text of the range or mark; the empty name for [`Pop`](RangeEventKind::Pop) and
    /// [`End`](RangeEventKind::End).
    pub message: NameId,
    /// Name of the category, or its number where it has no name; the empty name when there is none.
    pub category: NameId,
    /// Color, `0xAARRGGBB`; 0 when none was given.
    pub color: u32,
    /// Pairs a start with its end, unique in the process; 0 for the others.
    pub range_id: u64,
    /// The number that came with it.
    pub payload: Payload,
}
