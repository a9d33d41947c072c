//! Sums by time: of the complete run in a fixed number of growing blocks, and of its newest part.

use std::collections::VecDeque;

use super::sums::Sums;

/// Maximum number of blocks for the complete run; beyond that, each two become one (1.2 kB each).
const BLOCKS: usize = 64;
/// Length of the first blocks, nanoseconds.
const FIRST_LENGTH: u64 = 100_000_000;
/// Length of the blocks of the newest part, nanoseconds, and their number: the last 20 s.
const RECENT_LENGTH: u64 = 1_000_000_000;
const RECENT: usize = 20;

/// Sums of a run by time.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Start of the first block; `None` before any data.
    begin: Option<u64>,
    length: u64,
    blocks: Vec<Sums>,
    /// Blocks of the newest part by number.
    recent: VecDeque<(u64, Sums)>,
}

impl History {
    /// Adds to the blocks of `at`. Data from before the first block is added to it.
    pub(super) fn add(&mut self, at: u64, mut add: impl FnMut(&mut Sums)) {
        if self.blocks.is_empty() {
            self.length = FIRST_LENGTH;
        }
        let since = at.saturating_sub(*self.begin.get_or_insert(at));
        while since / self.length >= BLOCKS as u64 {
            self.merge();
        }
        let index = (since / self.length) as usize;
        if index >= self.blocks.len() {
            self.blocks.resize_with(index + 1, Sums::default);
        }
        add(&mut self.blocks[index]);
        let number = since / RECENT_LENGTH;
        if self.recent.back().is_none_or(|(newest, _)| *newest < number) {
            self.recent.push_back((number, Sums::default()));
        }
        while self.recent.front().is_some_and(|(oldest, _)| oldest + (RECENT as u64) <= number) {
            self.recent.pop_front();
        }
        // Host samples arrive a little after the device samples of the same time.
        if let Some((_, sums)) = self.recent.iter_mut().rev().find(|(known, _)| *known == number) {
            add(sums);
        }
    }

    /// Joins each two blocks to one.
    fn merge(&mut self) {
        let pairs = self.blocks.chunks(2).map(|pair| {
            let mut sums = Sums::default();
            pair.iter().for_each(|block| sums.add(block));
            sums
        });
        self.blocks = pairs.collect();
        self.length = self.length.saturating_mul(2);
    }

    /// Blocks of the complete run, in order.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Sums> {
        self.blocks.iter()
    }

    /// Recent one-second blocks that get no more device samples, in order, with their starts.
    pub(super) fn complete(&self) -> impl Iterator<Item = (u64, &Sums)> {
        let begin = self.begin.unwrap_or(0);
        let known = self.recent.len().saturating_sub(1);
        self.recent.iter().take(known).map(move |(number, sums)| (begin.saturating_add(number * RECENT_LENGTH), sums))
    }

    /// Blocks of the newest part, in order.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Sums> {
        self.recent.iter().map(|(_, sums)| sums)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sums::{Between, DeviceSpan};
    use super::*;

    #[test]
    fn blocks_are_bounded_and_nothing_is_lost_by_merging() {
        let mut history = History::default();
        let mut at = 1_000;
        for index in 0..50_000_u64 {
            let span = DeviceSpan {
                begin: at,
                end: at + 5_000_000,
                busy: Between::new(0.5, 0.5),
                copying: Between::default(),
                staged: 0.0,
                traffic: None,
                has_engine: true,
            };
            history.add(at, |sums| sums.device(&span));
            at += 5_000_000;
            assert!(history.blocks.len() <= BLOCKS && history.recent.len() <= RECENT, "{index}");
        }
        let whole: u64 = history.whole().map(|sums| sums.device_samples).sum();
        let recent: f64 = history.recent().map(Sums::nanos).sum();
        assert_eq!(whole, 50_000);
        assert!((19e9..=20e9).contains(&recent), "{recent}");
    }
}
