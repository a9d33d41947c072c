//! Timeline of a device segment by segment: all of it for a client that draws it, the newest idle time for
//! the engine.
//!
//! The accounts keep sums; this log keeps the individual segments in order, on request. Segments of a device
//! are contiguous, so they sum to its window by construction. A gap is followed by the operation that ended
//! it. Time that a late operation claims is reported as a correction: it affects one of the newest 4,096 idle
//! segments, as older ones cannot change.

use gpuwhy_trace::record::{CorrelationId, StackId, StreamId, ThreadId, Timestamp};

use super::host_cause::Subject;
use super::operation::LaunchCall;
use crate::leaf::Leaf;

/// Activity of a device, or the reason that it was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Time with one cause. It starts where the previous segment ended.
    Time(TimeSegment),
    /// The idle time reported last is a gap that is now over.
    Gap(GapEnd),
    /// A late operation claims this time, which was reported as `was`.
    Moved {
        /// Previous cause.
        was: Leaf,
        /// New cause.
        leaf: Leaf,
        /// Start of the time.
        from: Timestamp,
        /// End of the time.
        to: Timestamp,
    },
}

/// Time with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSegment {
    /// The cause.
    pub leaf: Leaf,
    /// Start, on the clock of the trace.
    pub from: Timestamp,
    /// End, after the start.
    pub to: Timestamp,
    /// Subject of idle time.
    pub subject: Subject,
    /// Stack of the host sample that showed the cause; [`StackId::NONE`] without one.
    pub stack: StackId,
}

/// The end of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapEnd {
    /// Start of the gap.
    pub from: Timestamp,
    /// End of the gap: start of the operation.
    pub to: Timestamp,
    /// Stream of the operation that ended it.
    pub stream: StreamId,
    /// Correlation id of that operation.
    pub correlation: CorrelationId,
    /// Subject of the operation.
    pub subject: Subject,
    /// The call that launched it, if known.
    pub launch: Option<GapLaunch>,
}

/// The call that launched the operation after a gap.
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
    pub(super) fn of(launch: &LaunchCall, thread: ThreadId) -> Self {
        let (start, end) = (Timestamp::from_nanos(launch.start), Timestamp::from_nanos(launch.end));
        Self { thread, start, end }
    }
}

/// Segments since they were last taken. The client that requested them takes them after each flush.
#[derive(Debug, Default)]
pub(super) struct SegmentLog {
    segments: Vec<Segment>,
    /// Stack of the host sample that explains the idle time being recorded.
    pub(super) stack: StackId,
}

impl SegmentLog {
    /// Adds busy time, or idle time with `subject`.
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

/// Number of pieces kept (24 bytes each). At 10,000 gaps per second this reaches back 0.4 s, and far further
/// where long kernels leave few gaps.
const IDLE_LIMIT: usize = 4_096;

/// Idle time with one cause, nanoseconds on the clock of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) leaf: Leaf,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Newest idle time of a device, piece by piece. It has two uses: an operation that arrives too late claims
/// the idle time that it fills, and ranges receive the idle time while they were open. Bounded: idle time
/// older than the log can no longer be reassigned. Pieces are disjoint and in order.
#[derive(Debug, Default)]
pub(super) struct IdleLog {
    /// Piece `number` is at `number % IDLE_LIMIT`.
    ring: Vec<Idle>,
    /// Number of the oldest piece, and of the next one.
    oldest: usize,
    next: usize,
}

impl IdleLog {
    /// Appends idle time, extending the newest piece if it continues that one. Returns false if there is no
    /// room: [`push_first`](Self::push_first) then grows the ring.
    #[inline]
    #[must_use]
    pub(super) fn push(&mut self, piece: Idle) -> bool {
        if self.oldest != self.next
            && let Some(newest) = self.ring.get_mut((self.next - 1) % IDLE_LIMIT)
            && (newest.leaf, newest.to) == (piece.leaf, piece.from)
        {
            newest.to = piece.to;
            return true;
        }
        let Some(slot) = self.ring.get_mut(self.next % IDLE_LIMIT) else { return false };
        *slot = piece;
        self.next += 1;
        self.oldest = self.oldest.max(self.next.saturating_sub(IDLE_LIMIT));
        true
    }

    /// Like [`push`](Self::push), when there was no room.
    #[cold]
    pub(super) fn push_first(&mut self, piece: Idle) {
        self.ring.push(piece);
        self.next += 1;
    }

    /// Idle time from `from` on, newest first.
    pub(super) fn since(&self, from: u64) -> impl Iterator<Item = Idle> {
        let newest = (self.oldest..self.next).rev().map(|number| self.ring[number % IDLE_LIMIT]);
        newest.take_while(move |piece| piece.to > from).map(move |piece| Idle { from: piece.from.max(from), ..piece })
    }

    /// Removes the idle time within `from..to`, oldest first.
    pub(super) fn take_within(&mut self, from: u64, to: u64) -> Vec<Idle> {
        let mut newer = Vec::new();
        while self.oldest != self.next
            && let Some(&piece) = self.ring.get((self.next - 1) % IDLE_LIMIT)
            && piece.to > from
        {
            newer.push(piece);
            self.next -= 1;
        }
        let mut taken = Vec::new();
        for piece in newer.into_iter().rev() {
            let within = Idle { from: piece.from.max(from), to: piece.to.min(to), ..piece };
            if piece.from >= to {
                self.put_back(piece);
                continue;
            }
            // The parts outside stay.
            taken.push(within);
            self.put_back(Idle { to: within.from, ..piece });
            self.put_back(Idle { from: within.to, ..piece });
        }
        taken
    }

    fn put_back(&mut self, piece: Idle) {
        if piece.from < piece.to && !self.push(piece) {
            self.push_first(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(leaf: Leaf, from: u64, to: u64) -> Idle {
        Idle { leaf, from, to }
    }

    #[test]
    fn what_is_taken_is_gone_and_the_rest_stays() {
        let mut log = IdleLog::default();
        let pieces =
            [(Leaf::HostCpu, 0, 50), (Leaf::HostCpu, 50, 100), (Leaf::Dispatch, 100, 200), (Leaf::HostCpu, 300, 400)];
        pieces.into_iter().for_each(|(leaf, from, to)| log.put_back(idle(leaf, from, to)));
        assert_eq!(log.ring[0], idle(Leaf::HostCpu, 0, 100), "one piece");
        assert_eq!(log.take_within(200, 300), []);
        assert_eq!(
            log.take_within(90, 350),
            [idle(Leaf::HostCpu, 90, 100), idle(Leaf::Dispatch, 100, 200), idle(Leaf::HostCpu, 300, 350),]
        );
        assert_eq!(log.take_within(20, 30), [idle(Leaf::HostCpu, 20, 30)], "from the middle of a piece");
        let left = [idle(Leaf::HostCpu, 350, 400), idle(Leaf::HostCpu, 30, 90), idle(Leaf::HostCpu, 0, 20)];
        assert_eq!(log.since(0).collect::<Vec<_>>(), left);
        assert_eq!(log.since(80).collect::<Vec<_>>(), [left[0], idle(Leaf::HostCpu, 80, 90)]);
    }

    #[test]
    fn what_goes_on_is_one_piece() {
        let mut log = IdleLog::default();
        for (leaf, from, to) in [(Leaf::Dispatch, 0, 10), (Leaf::HostCpu, 20, 30), (Leaf::HostCpu, 30, 40)] {
            log.put_back(idle(leaf, from, to));
        }
        assert_eq!(log.since(0).collect::<Vec<_>>(), [idle(Leaf::HostCpu, 20, 40), idle(Leaf::Dispatch, 0, 10)]);
        log.put_back(idle(Leaf::Dispatch, 40, 50));
        log.put_back(idle(Leaf::Dispatch, 60, 70));
        assert_eq!(log.since(0).count(), 4, "another cause, or a pause between them");
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut log = IdleLog::default();
        for at in 0..3 * IDLE_LIMIT as u64 {
            log.put_back(idle(Leaf::HostCpu, 2 * at, 2 * at + 1));
        }
        assert_eq!(log.since(0).count(), IDLE_LIMIT);
        assert_eq!(log.since(0).last(), Some(idle(Leaf::HostCpu, 4 * IDLE_LIMIT as u64, 4 * IDLE_LIMIT as u64 + 1)));
        let newest = 2 * (3 * IDLE_LIMIT as u64 - 1);
        log.put_back(idle(Leaf::Dispatch, newest + 10, newest + 20));
        assert_eq!(log.take_within(newest + 12, newest + 13).len(), 1);
        assert_eq!(log.since(0).count(), IDLE_LIMIT);
    }
}
