//! Assembles ranges of the program from their start and end events.
//!
//! Memory is bounded by the number of ranges that are open at once. A range without an end event ends at the
//! end of the trace.

use gpuwhy_trace::record::{NameId, RangeEvent, RangeEventKind, ThreadId, Timestamp};
use rustc_hash::FxHashMap;

/// Maximum number of open ranges; NVTX programs nest a few dozen deep.
const OPEN_LIMIT: usize = 1 << 16;

/// A range with its start and end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedRange {
    /// Event that started it.
    pub begin: RangeEvent,
    pub end: Timestamp,
    pub end_thread: ThreadId,
}

#[derive(Debug, Default)]
pub struct OpenRanges {
    stacks: FxHashMap<(ThreadId, NameId), Vec<RangeEvent>>,
    started: FxHashMap<u64, RangeEvent>,
    open: usize,
    unmatched: u64,
    beyond_limit: u64,
}

impl OpenRanges {
    /// Processes an event. Returns the range that it completes, if it does.
    pub fn take(&mut self, event: &RangeEvent) -> Option<ClosedRange> {
        let begin = match event.kind {
            RangeEventKind::Push | RangeEventKind::Start if self.open >= OPEN_LIMIT => {
                self.beyond_limit += 1;
                return None;
            }
            RangeEventKind::Push => {
                self.open += 1;
                self.stacks.entry((event.thread, event.domain)).or_default().push(*event);
                return None;
            }
            RangeEventKind::Start => {
                self.open += usize::from(self.started.insert(event.range_id, *event).is_none());
                return None;
            }
            RangeEventKind::Pop => self.stacks.get_mut(&(event.thread, event.domain)).and_then(Vec::pop),
            RangeEventKind::End => self.started.remove(&event.range_id),
            RangeEventKind::Mark | RangeEventKind::Unknown => return None,
        };
        let Some(begin) = begin else {
            self.unmatched += 1;
            return None;
        };
        self.open -= 1;
        Some(ClosedRange { begin, end: event.at, end_thread: event.thread })
    }

    /// Returns the open ranges, outermost first, as if they ended at `at`.
    pub fn finish(&mut self, at: Timestamp) -> Vec<ClosedRange> {
        let stacked = self.stacks.drain().flat_map(|(_, stack)| stack);
        let mut left: Vec<RangeEvent> = stacked.chain(self.started.drain().map(|(_, begin)| begin)).collect();
        left.sort_by_key(|begin| begin.at);
        self.open = 0;
        left.into_iter().map(|begin| ClosedRange { begin, end: at.max(begin.at), end_thread: begin.thread }).collect()
    }

    /// Describes range events that could not be matched, for the user.
    pub fn notes(&self) -> Vec<String> {
        let counts = [
            (self.unmatched, "range ends had no begin in the trace"),
            (self.beyond_limit, "ranges were left out: too many were open at once"),
        ];
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: RangeEventKind, at: u64, thread: u32, message: u32, range_id: u64) -> RangeEvent {
        let at = Timestamp::from_nanos(at);
        RangeEvent { kind, at, thread: ThreadId(thread), message: NameId(message), range_id, ..RangeEvent::default() }
    }

    #[test]
    fn pushes_end_innermost_first_on_their_own_thread() {
        let mut open = OpenRanges::default();
        for begin in [(10, 1, 7), (20, 1, 8), (30, 2, 9)] {
            assert_eq!(open.take(&event(RangeEventKind::Push, begin.0, begin.1, begin.2, 0)), None);
        }
        let inner = open.take(&event(RangeEventKind::Pop, 40, 1, 0, 0)).unwrap();
        assert_eq!((inner.begin.message, inner.end.nanos()), (NameId(8), 40));
        let outer = open.take(&event(RangeEventKind::Pop, 50, 1, 0, 0)).unwrap();
        assert_eq!(outer.begin.message, NameId(7));
        assert_eq!(open.take(&event(RangeEventKind::Pop, 60, 1, 0, 0)), None);
        assert_eq!(open.notes(), ["1 range ends had no begin in the trace"]);
        let left = open.finish(Timestamp::from_nanos(70));
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].begin.message, left[0].end.nanos()), (NameId(9), 70));
    }

    #[test]
    fn started_ranges_end_by_id_on_any_thread() {
        let mut open = OpenRanges::default();
        open.take(&event(RangeEventKind::Start, 10, 1, 7, 100));
        open.take(&event(RangeEventKind::Start, 20, 1, 8, 101));
        let first = open.take(&event(RangeEventKind::End, 30, 2, 0, 100)).unwrap();
        assert_eq!((first.begin.message, first.end_thread), (NameId(7), ThreadId(2)));
    }

    #[test]
    fn more_open_ranges_than_there_is_room_for_are_counted() {
        let mut open = OpenRanges::default();
        for number in 0..=OPEN_LIMIT as u64 {
            open.take(&event(RangeEventKind::Push, number, 1, 7, 0));
        }
        assert_eq!(open.notes(), ["1 ranges were left out: too many were open at once"]);
    }
}
