//! When the process built kernels: from samples of a thread in a compiler, and from the ranges that XLA puts around its
//! own (`XlaCompile`).
//!
//! A compiler hands work to threads of its own: XLA compiles and times candidates on a pool, whose threads have no
//! Python stack and wait for each other. The thread that called the compiler shows what they all do.

use std::collections::VecDeque;

use crate::attribution::stacks::LineId;

/// Times kept of each kind (24 bytes each): those of some minutes at 300 samples per second.
const LIMIT: usize = 32_768;
/// Longest build of a module that an open range shows, nanoseconds: the end of an older one is lost.
const LONGEST: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Built {
    since: u64,
    at: u64,
    line: LineId,
}

/// Times in which the process built kernels, each kind in order of the ends.
#[derive(Debug, Default)]
pub(crate) struct Building {
    samples: VecDeque<Built>,
    ranges: VecDeque<(u64, u64)>,
    /// Begins of the open ranges.
    open: Vec<u64>,
}

impl Building {
    /// A thread that was sampled at `since` was in a compiler at `at`, called from `line`. It was there in between if
    /// it was there at both.
    pub(crate) fn sampled(&mut self, (since, at): (u64, u64), line: LineId) {
        let index = self.samples.partition_point(|known| known.at <= at);
        let before = self.samples.range(..index).rev().take_while(|known| known.at >= since);
        let since = if before.last().is_some_and(|known| known.at == since) { since } else { at };
        self.samples.insert(index, Built { since, at, line });
        if self.samples.len() > LIMIT {
            self.samples.pop_front();
        }
    }

    /// A compiler begins, according to its range.
    pub(crate) fn begin(&mut self, at: u64) {
        self.open.push(at);
    }

    /// The compiler that began last ends.
    pub(crate) fn end(&mut self, at: u64) {
        let Some(since) = self.open.pop() else { return };
        // The outermost range holds the others.
        if self.open.is_empty() {
            self.ranges.push_back((since, at));
            if self.ranges.len() > LIMIT {
                self.ranges.pop_front();
            }
        }
    }

    /// The line that called the compiler, if one worked at `time`; [`LineId::NONE`] if no sample shows it.
    pub(crate) fn line_at(&self, time: u64) -> Option<LineId> {
        let index = self.samples.partition_point(|known| known.at < time);
        if let Some(next) = self.samples.get(index).filter(|next| next.since <= time) {
            return Some(next.line);
        }
        let range = self.ranges.get(self.ranges.partition_point(|&(_, at)| at < time)).map(|&(since, _)| since);
        let since = range
            .or(self.open.first().copied())
            .filter(|&since| (since..=since.saturating_add(LONGEST)).contains(&time))?;
        let before = index.checked_sub(1).map(|before| self.samples[before]).filter(|sample| sample.at >= since);
        Some(before.map_or(LineId::NONE, |sample| sample.line))
    }

    /// Drops what ended before `keep_from`, except the newest sample.
    pub(crate) fn forget_before(&mut self, keep_from: u64) {
        let gone = self.samples.partition_point(|known| known.at < keep_from);
        self.samples.drain(..gone.saturating_sub(1));
        let gone = self.ranges.partition_point(|&(_, at)| at < keep_from);
        self.ranges.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(building: &Building, times: &[u64]) -> Vec<u64> {
        times.iter().copied().filter(|&time| building.line_at(time).is_some()).collect()
    }

    #[test]
    fn two_samples_in_a_compiler_cover_the_time_between() {
        let mut building = Building::default();
        [(0, 10), (10, 20), (20, 30), (50, 60), (60, 70)]
            .into_iter()
            .for_each(|span| building.sampled(span, LineId::NONE));
        assert_eq!(built(&building, &[9, 10, 15, 25, 30, 31, 55, 60, 65, 71]), [10, 15, 25, 30, 60, 65]);
        building.forget_before(65);
        assert_eq!(built(&building, &[15, 55, 66]), [66]);
    }

    #[test]
    fn a_range_covers_its_time_while_it_is_open_and_after() {
        let mut building = Building::default();
        [100, 120].into_iter().for_each(|at| building.begin(at));
        assert_eq!(built(&building, &[99, 100, 1_000, 101 + LONGEST]), [100, 1_000], "open");
        building.end(130);
        building.end(200);
        building.end(210);
        assert_eq!(built(&building, &[99, 100, 200, 201]), [100, 200]);
        building.forget_before(300);
        assert!(built(&building, &[150]).is_empty());
    }
}
