//! NVTX ranges and marks of the program, recorded at their start and end.
//!
//! Start and end are separate records because a range may last as long as the program: the engine must know
//! that it is open while it is, and a killed program leaves ranges without an end.

use super::{NameId, ThreadId, Timestamp};
use crate::named;

named! {
    /// Kind of range event.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RangeEventKind: name {
        /// A value unknown to this version.
        #[default]
        Unknown "unknown",
        /// A range was pushed on the stack of its thread and domain.
        Push "push",
        /// The top range on the stack of this thread and domain ended.
        Pop "pop",
        /// A range started that may end on another thread and overlap others.
        Start "start",
        /// The range with the same [`range_id`](RangeEvent::range_id) ended.
        End "end",
        /// A point in time was marked.
        Mark "mark",
    }
}

/// Number attached to a range or mark by the program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Payload {
    /// Absent, or of a type unknown to this version.
    #[default]
    None,
    /// Unsigned, 32 or 64 bits.
    Unsigned(u64),
    /// Signed, 32 or 64 bits.
    Signed(i64),
    /// Floating point, 32 or 64 bits.
    Float(f64),
}

/// The start or end of a range, or a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangeEvent {
    /// Host time.
    pub at: Timestamp,
    /// The calling thread.
    pub thread: ThreadId,
    /// Kind of event.
    pub kind: RangeEventKind,
    /// Name of the domain; the empty name is the default domain.
    pub domain: NameId,
    /// Text of the range or mark; the empty name for [`Pop`](RangeEventKind::Pop) and
    /// [`End`](RangeEventKind::End).
    pub message: NameId,
    /// Name of the category, or its number if it has no name; the empty name if there is none.
    pub category: NameId,
    /// Color, `0xAARRGGBB`; 0 if absent.
    pub color: u32,
    /// Pairs a start with its end, unique in the process; 0 for other kinds.
    pub range_id: u64,
    /// Number attached by the program.
    pub payload: Payload,
}
