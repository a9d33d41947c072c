//! Durations of the steps that a program names, without a record of device work: from the start of one to the
//! next.

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{NameId, RangeEvent, RangeEventKind, ThreadId};

use crate::attribution::is_step;

/// Number of steps that are remembered (the newest).
const KEPT: usize = 64;
/// Maximum number of names remembered as not being steps; after that, names are examined again.
const NAMES: usize = 4_096;
/// Interval over which steps are combined, nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Maximum number of steps in the median of one second.
const OF_A_SECOND: usize = 1_024;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedStep {
    /// Start, nanoseconds.
    pub(super) begin: u64,
    /// Time until the next one, nanoseconds.
    pub(super) nanos: u64,
}

/// Steps of one thread: the first one that named some.
#[derive(Debug, Default)]
pub(super) struct NamedSteps {
    thread: Option<ThreadId>,
    last: Option<u64>,
    newest: VecDeque<NamedStep>,
    others: rustc_hash::FxHashSet<NameId>,
    second: u64,
    of_second: Vec<u64>,
    medians: VecDeque<NamedStep>,
}

impl NamedSteps {
    /// Processes a range event.
    pub(super) fn push(&mut self, event: &RangeEvent, dictionary: &Dictionary) {
        if !matches!(event.kind, RangeEventKind::Push | RangeEventKind::Start)
            || self.thread.is_some_and(|thread| thread != event.thread)
            || self.others.contains(&event.message)
        {
            return;
        }
        if !is_step(dictionary.name(event.message)) {
            if self.others.len() >= NAMES {
                self.others.clear();
            }
            self.others.insert(event.message);
            return;
        }
        self.thread = Some(event.thread);
        let at = event.at.nanos();
        let Some(begin) = self.last.replace(at).filter(|&begin| begin < at) else { return };
        self.add(NamedStep { begin, nanos: at - begin });
    }

    fn add(&mut self, step: NamedStep) {
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(step);
        let second = step.begin / SECOND;
        if second != self.second && !self.of_second.is_empty() {
            self.of_second.sort_unstable();
            let median = self.of_second[self.of_second.len() / 2];
            self.of_second.clear();
            if self.medians.len() >= KEPT {
                self.medians.pop_front();
            }
            self.medians.push_back(NamedStep { begin: self.second * SECOND, nanos: median });
        }
        self.second = second;
        if self.of_second.len() < OF_A_SECOND {
            self.of_second.push(step.nanos);
        }
    }

    /// True if the program names steps.
    pub(super) fn any(&self) -> bool {
        !self.newest.is_empty()
    }

    /// Newest steps, in order.
    pub(super) fn newest(&self) -> impl DoubleEndedIterator<Item = &NamedStep> {
        self.newest.iter()
    }

    /// Median step of the next completed second that had steps.
    pub(super) fn next_second(&mut self) -> Option<NamedStep> {
        self.medians.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;

    #[test]
    fn steps_are_from_one_begin_to_the_next_on_one_thread() {
        let mut dictionary = Dictionary::new();
        let names = ["step 1", "step 2", "forward"].map(|name| dictionary.intern_name(name));
        let mut steps = NamedSteps::default();
        let mut push = |at: u64, thread: u32, message: NameId, kind| {
            let event = RangeEvent {
                at: Timestamp::from_nanos(at),
                thread: ThreadId(thread),
                kind,
                message,
                ..RangeEvent::default()
            };
            steps.push(&event, &dictionary);
        };
        for number in 0..40 {
            let at = 1 + number * SECOND / 4;
            push(at, 7, names[usize::from(number % 2 == 1)], RangeEventKind::Push);
            push(at + 5, 7, names[2], RangeEventKind::Push);
            push(at + 6, 7, NameId::default(), RangeEventKind::Pop);
            push(at + 7, 8, names[0], RangeEventKind::Start);
        }
        assert!(steps.any() && steps.newest().count() == 39);
        assert!(steps.newest().all(|step| step.nanos == SECOND / 4), "{steps:?}");
        let seconds: Vec<_> = std::iter::from_fn(|| steps.next_second()).collect();
        assert_eq!(seconds.len(), 9);
        assert_eq!(seconds[3], NamedStep { begin: 3 * SECOND, nanos: SECOND / 4 });
    }
}
