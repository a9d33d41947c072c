//! The timeline of a device segment by segment: all of it for whoever draws it, the newest idle time for the engine.
//!
//! The accounts keep sums; here is what they were given, in order, if somebody asked for it. Segments of a device
//! touch, so they sum to its window by construction. A gap is followed by what ended it. Time that a late operation
//! takes back is told as a correction: it concerns one of the newest 4,096 idle segments, as no older one can change.

use gpuwhy_trace::record::{CorrelationId, StackId, StreamId, ThreadId, Timestamp};

use super::host::launches::Launch;
use super::host_cause::Subject;
use super::leaf::Leaf;

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

/// Pieces that are kept (24 bytes each). At 10,000 gaps a second this reaches back 0.4 s, and far further where a long
/// kernel leaves few gaps beside it.
const IDLE_LIMIT: usize = 4_096;

/// Idle time of one cause, nanoseconds on the clock of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) leaf: Leaf,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The newest idle time of a device, piece by piece. Two ask for it: an operation that arrives too late takes the idle
/// time that it fills, and ranges get what came to pass while they were open. Bounded: what is older than the log can
/// be given to nobody any more. Pieces are disjoint and in order.
#[derive(Debug, Default)]
pub(super) struct IdleLog {
    /// Piece `number` lies at `number % IDLE_LIMIT`.
    ring: Vec<Idle>,
    /// Number of the oldest piece, and of the next one.
    oldest: usize,
    next: usize,
}

impl IdleLog {
    /// Adds idle time behind all that is known; it goes on the newest piece where it continues that. Without room for
    /// it answers false: then [`push_first`](Self::push_first) makes some.
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

    /// As [`push`](Self::push), where there was no room.
    #[cold]
    pub(super) fn push_first(&mut self, piece: Idle) {
        self.ring.push(piece);
        self.next += 1;
    }

    /// What is known from `from` on, the newest first.
    pub(super) fn since(&self, from: u64) -> impl Iterator<Item = Idle> {
        let newest = (self.oldest..self.next).rev().map(|number| self.ring[number % IDLE_LIMIT]);
        newest.take_while(move |piece| piece.to > from).map(move |piece| Idle { from: piece.from.max(from), ..piece })
    }

    /// Takes out what is known within `from..to`, the oldest first.
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
            // What of it lies outside stays.
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
