//! The timeline of a device segment by segment, for whoever draws it.
//!
//! The accounts keep sums; here is what they were given, in order, if somebody asked for it. Segments of a device
//! touch, so they sum to its window by construction. A gap is followed by what ended it. Time that a late operation
//! takes back is told as a correction: it concerns one of the newest 4,096 idle segments, as no older one can change.

use super::join::Launch;
use super::leaf::Leaf;
use super::subject::Subject;
use crate::record::{CorrelationId, StackId, StreamId, ThreadId, Timestamp};

/// What a device did, or why it did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The device spent this time with one cause. It begins where the segment before it ended.
    Time(TimeSegment),
    /// The idle time that was told last is a gap, and it is over.
    Gap(GapEnd),
    /// An operation that came late takes this time, which was told as `was`.
    Moved {
        /// The cause so far.
        was: Leaf,
        /// The cause from now on.
        leaf: Leaf,
        /// Begin of the time.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
}

/// Time of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSegment {
    /// The cause.
    pub leaf: Leaf,
    /// Begin, on the clock of the trace.
    pub from: Timestamp,
    /// End, behind the begin.
    pub to: Timestamp,
    /// What idle time is blamed on.
    pub subject: Subject,
    /// The stack of the host sample that told the cause; [`StackId::NONE`] when none did.
    pub stack: StackId,
}

/// The end of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapEnd {
    /// Begin of the gap.
    pub from: Timestamp,
    /// End of the gap: begin of the operation.
    pub to: Timestamp,
    /// The stream of the operation that ended it.
    pub stream: StreamId,
    /// The correlation id of that operation.
    pub correlation: CorrelationId,
    /// What the operation is.
    pub subject: Subject,
    /// The call that launched it, where that is known.
    pub launch: Option<GapLaunch>,
}

/// The call that launched the operation behind a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapLaunch {
    /// The calling thread.
    pub thread: ThreadId,
    /// When the call was entered.
    pub start: Timestamp,
    /// When it returned.
    pub end: Timestamp,
}

impl GapLaunch {
    pub(super) fn of(launch: &Launch, thread: ThreadId) -> Self {
        let (start, end) = (Timestamp::from_nanos(launch.start), Timestamp::from_nanos(launch.end));
        Self { thread, start, end }
    }
}

/// Segments since they were last taken. Whoever asks for them takes them after each flush.
#[derive(Debug, Default)]
pub(super) struct SegmentLog {
    segments: Vec<Segment>,
    /// Of the host sample that speaks for the idle time that is entered now.
    pub(super) stack: StackId,
}

impl SegmentLog {
    /// Takes busy time, or idle time that is blamed on `subject`.
    pub(super) fn time(&mut self, leaf: Leaf, (from, to): (u64, u64), subject: Subject) {
        let (from, to) = (Timestamp::from_nanos(from), Timestamp::from_nanos(to));
        let stack = if matches!(subject, Subject::Host(..)) { self.stack } else { StackId::NONE };
        if from < to {
            self.segments.push(Segment::Time(TimeSegment { leaf, from, to, subject, stack }));
        }
    }

    pub(super) fn push(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    pub(super) fn take(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.segments)
    }
}
