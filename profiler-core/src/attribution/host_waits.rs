//! When host threads waited for a device, for the steps: a program that synchronizes once a step says so where one
//! begins.
//!
//! Only calls that do nothing else count. A copy that waits is a launch itself.

use std::collections::VecDeque;

use crate::record::ApiFunctionId;

/// Waits that are remembered: launches that a program can be ahead of its device by, and more.
const LIMIT: usize = 65_536;
/// Waits that are looked at for one launch.
const NEAR: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Wait {
    end: u64,
    thread: u32,
    function: ApiFunctionId,
}

/// The newest waits, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct HostWaits(VecDeque<Wait>);

impl HostWaits {
    /// The thread of this index waited in `function` up to `end`.
    pub(super) fn push(&mut self, thread: u32, function: ApiFunctionId, end: u64) {
        let index = match self.0.back() {
            Some(newest) if newest.end > end => self.0.partition_point(|wait| wait.end <= end),
            _ => self.0.len(),
        };
        self.0.insert(index, Wait { end, thread, function });
        if self.0.len() > LIMIT {
            self.0.pop_front();
        }
    }

    /// The end of the first wait after `at`; the end of time when none is known.
    pub(super) fn next_after(&self, at: u64) -> u64 {
        let newest = self.0.back().map_or(0, |wait| wait.end);
        if newest <= at {
            return u64::MAX;
        }
        self.0.get(self.0.partition_point(|wait| wait.end <= at)).map_or(u64::MAX, |wait| wait.end)
    }

    /// In which function `thread` waited last after `from` and up to `to`.
    pub(super) fn newest(&self, thread: u32, from: u64, to: u64) -> Option<ApiFunctionId> {
        let until = self.0.partition_point(|wait| wait.end <= to);
        let near = self.0.range(until.saturating_sub(NEAR)..until).rev().take_while(|wait| wait.end > from);
        near.filter(|wait| wait.thread == thread).map(|wait| wait.function).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wait_of_the_thread_counts() {
        let mut waits = HostWaits::default();
        for (thread, function, end) in [(1, 7, 300), (1, 8, 100), (2, 9, 200)] {
            waits.push(thread, ApiFunctionId(function), end);
        }
        assert_eq!([0, 100, 250, 300].map(|at| waits.next_after(at)), [100, 200, 300, u64::MAX]);
        assert_eq!(waits.newest(1, 0, 250), Some(ApiFunctionId(8)));
        assert_eq!(waits.newest(1, 100, 250), None, "another thread's");
        assert_eq!(waits.newest(1, 0, 900), Some(ApiFunctionId(7)));
    }

    #[test]
    fn waits_are_bounded() {
        let mut waits = HostWaits::default();
        (0..LIMIT as u64 + 9).for_each(|end| waits.push(1, ApiFunctionId(1), end));
        assert_eq!((waits.0.len(), waits.next_after(0)), (LIMIT, 9));
    }
}
