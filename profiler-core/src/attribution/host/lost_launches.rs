//! Launches whose work is nowhere on the timeline: no record came, or one without usable times.

use std::collections::VecDeque;

use crate::attribution::operation::LaunchCall;

/// Lost launches that gaps are checked against.
const LOST_LIMIT: usize = 1_024;

/// A launch without work on the timeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostLaunch {
    pub(super) thread: u32,
    pub(super) start: u64,
    end: u64,
    pub(super) correlation: u32,
    /// True if counted as a launch without activity.
    counted: bool,
}

/// The newest ones.
#[derive(Debug, Default)]
pub(super) struct LostLaunches(VecDeque<LostLaunch>);

impl LostLaunches {
    /// Adds a launch; `counted` as one without activity.
    pub(super) fn push(&mut self, launch: &LaunchCall, correlation: u32, counted: bool) {
        let &LaunchCall { start, end, thread, .. } = launch;
        self.0.push_back(LostLaunch { thread, start, end, correlation, counted });
        if self.0.len() > LOST_LIMIT {
            self.0.pop_front();
        }
    }

    /// The work of this launch came after all.
    pub(super) fn remove(&mut self, launch: &LaunchCall) {
        self.0.retain(|lost| (lost.thread, lost.end) != (launch.thread, launch.end));
    }

    /// Takes the counted launch by `thread` that was going on at `at`.
    pub(super) fn take_at(&mut self, thread: u32, at: u64) -> Option<LostLaunch> {
        let contains =
            |lost: &LostLaunch| lost.counted && lost.thread == thread && (lost.start..=lost.end).contains(&at);
        self.0.iter().position(contains).and_then(|index| self.0.remove(index))
    }

    /// End of the first one by `thread` that returned within `from..to`.
    pub(super) fn within(&self, thread: u32, from: u64, to: u64) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        let inside = |lost: &&LostLaunch| lost.thread == thread && from < lost.end && lost.end < to;
        self.0.iter().filter(inside).map(|lost| lost.end).min()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
