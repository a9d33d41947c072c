//! When API calls were recorded: all the time, or in stretches with device work alone between them.
//!
//! Outside of a stretch nothing says which call launched an operation, nor what its thread did before. What that means
//! for a gap is in [`gap_estimate`](super::gap_estimate).

use std::collections::VecDeque;

use super::threads::HostThread;
use crate::record::CallRecording;

/// Times without calls that are remembered. What is still asked of lies a few seconds back, and stretches last longer
/// than a millisecond each.
const LIMIT: usize = 4_096;

/// When calls were recorded. By default they always were.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    /// Times without calls: begin, and end, which for the newest may be to come.
    without: VecDeque<(u64, u64)>,
    /// The begin of the first of them.
    first: Option<u64>,
    /// How many there were.
    count: u64,
    /// A mark came: stretches are expected, though calls may never have been left out yet.
    expected: bool,
}

impl Stretches {
    /// Takes a mark; one that changes nothing, or goes back in time, is passed over. Answers whether calls are left out
    /// for the first time.
    pub(super) fn mark(&mut self, mark: CallRecording) -> bool {
        let at = mark.at.nanos();
        self.expected = true;
        match self.without.back_mut() {
            Some((from, to)) if *to == u64::MAX => {
                if mark.on && at > *from {
                    *to = at;
                }
                false
            }
            Some((_, to)) if mark.on || at < *to => false,
            None if mark.on => false,
            _ => {
                self.without.push_back((at, u64::MAX));
                self.count += 1;
                if self.without.len() > LIMIT {
                    self.without.pop_front();
                }
                self.first.replace(self.first.unwrap_or(at)).is_none()
            }
        }
    }

    /// The first moment at which calls were left out.
    pub(super) fn first_without(&self) -> Option<u64> {
        self.first
    }

    /// Whether stretches are expected: gaps of the first one are learned from, too.
    #[inline]
    pub(super) fn are_expected(&self) -> bool {
        self.expected
    }

    /// Whether calls were ever left out.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.first.is_some()
    }

    /// When the stretch began that `at` lies in; 0 for the first one; `None` when calls were not recorded.
    pub(super) fn begin_of(&self, at: u64) -> Option<u64> {
        let behind = self.without.partition_point(|&(from, _)| from <= at);
        match behind.checked_sub(1).and_then(|index| self.without.get(index)) {
            Some(&(_, to)) => (at >= to).then_some(to),
            // Before all that is remembered.
            None => (self.without.len() as u64 == self.count).then_some(0),
        }
    }

    /// Whether the records say what ended a gap that opened at `from`: its launch, entered at `launch`, and the call of
    /// the thread before it lie in one stretch. A launch from before the gap needs no other call.
    pub(super) fn tell(&self, from: u64, launch: u64, thread: &HostThread) -> bool {
        let Some(begin) = self.begin_of(launch) else { return false };
        if begin == 0 || launch <= from {
            return true;
        }
        let (before, after) = thread.calls_after(from);
        let spanning = after.first().filter(|call| call.start < from);
        before.into_iter().chain(spanning).any(|call| call.start >= begin)
    }

    /// Stretches so far, and how long calls were recorded up to `until` since `since`, nanoseconds. Of more than
    /// [`LIMIT`] stretches the oldest do not count as left out.
    pub(super) fn recorded(&self, since: u64, until: u64) -> (u64, u64) {
        let lies = |&(from, to): &(u64, u64)| to.min(until).saturating_sub(from.max(since));
        let without: u64 = self.without.iter().map(lies).sum();
        let open = self.without.back().is_some_and(|&(_, to)| to == u64::MAX);
        (self.count + u64::from(!open), until.saturating_sub(since).saturating_sub(without))
    }
}

#[cfg(test)]
mod tests {
    use super::super::api::ApiClass;
    use super::*;
    use crate::record::{ApiFunctionId, Timestamp};

    fn marked(marks: &[(u64, bool)]) -> Stretches {
        let mut stretches = Stretches::default();
        for &(at, on) in marks {
            stretches.mark(CallRecording { at: Timestamp::from_nanos(at), on });
        }
        stretches
    }

    #[test]
    fn a_moment_lies_in_a_stretch_or_between_two() {
        let stretches = marked(&[(5, true), (100, false), (150, false), (200, true), (250, true), (300, false)]);
        let begins = [0, 99, 100, 199, 200, 299, 300, 999].map(|at| stretches.begin_of(at));
        assert_eq!(begins, [Some(0), Some(0), None, None, Some(200), Some(200), None, None]);
        assert_eq!(stretches.recorded(50, 400), (2, 150));
        assert_eq!(marked(&[(1, true)]).begin_of(7), Some(0));
        assert!(!marked(&[(1, true)]).any());
    }

    #[test]
    fn marks_that_go_back_in_time_change_nothing() {
        let stretches = marked(&[(100, false), (50, true), (200, true), (150, false)]);
        assert_eq!([120, 160, 210].map(|at| stretches.begin_of(at)), [None, None, Some(200)]);
    }

    #[test]
    fn what_lies_before_all_that_is_remembered_is_not_known() {
        let marks: Vec<_> = (1..=2 * LIMIT as u64 + 2).map(|at| (at * 10, at % 2 == 0)).collect();
        let stretches = marked(&marks);
        assert_eq!(stretches.without.len(), LIMIT);
        assert_eq!(stretches.begin_of(5), None);
    }

    #[test]
    fn a_gap_is_told_by_its_launch_and_the_call_before_it() {
        let stretches = marked(&[(100, false), (200, true), (300, false)]);
        let mut thread = HostThread::default();
        for (start, end) in [(80, 90), (210, 220), (230, 240)] {
            thread.place(start, end, ApiFunctionId(1), ApiClass::KernelLaunch);
        }
        assert!(stretches.tell(95, 99, &thread), "the first stretch");
        assert!(!stretches.tell(205, 210, &thread), "the call before it lies in the stretch before");
        assert!(stretches.tell(225, 230, &thread));
        assert!(stretches.tell(215, 230, &thread), "a call spans the begin of the gap");
        assert!(stretches.tell(290, 210, &thread), "it was queued");
        assert!(!stretches.tell(310, 305, &thread), "its call was left out");
    }
}
