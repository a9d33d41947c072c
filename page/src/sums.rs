//! Time by kind in equal intervals of the run: the exact zoomed-out form of a lane.
//!
//! Every added time is divided among the intervals that it covers to the nanosecond, so that the sums of a
//! lane are those of the report.

use crate::block::Bytes;

/// Division of the run: `count` intervals of `span` nanoseconds from the origin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub(crate) count: usize,
    pub(crate) span: u64,
}

impl Intervals {
    /// Divides a run of `window` nanoseconds into at most `most` intervals, a power of two.
    pub(crate) fn of(window: u64, most: usize) -> Self {
        let count = most.max(1).next_power_of_two();
        let count = if count > most.max(1) { count / 2 } else { count };
        Self { count, span: window.div_ceil(count as u64).max(1) }
    }
}

/// Nanoseconds by key in each interval.
#[derive(Debug)]
pub(crate) struct IntervalSums {
    intervals: Intervals,
    /// By key; empty for a key without time.
    columns: Vec<Vec<u64>>,
}

impl IntervalSums {
    pub(crate) fn new(intervals: Intervals, keys: usize) -> Self {
        Self { intervals, columns: vec![Vec::new(); keys] }
    }

    /// Adds the time from `from` to `to`, nanoseconds after the origin.
    pub(crate) fn add(&mut self, key: usize, from: u64, to: u64) {
        self.change(key, from, to, |sum, nanos| *sum += nanos);
    }

    /// Subtracts time that was added before.
    pub(crate) fn take(&mut self, key: usize, from: u64, to: u64) {
        self.change(key, from, to, |sum, nanos| *sum = sum.saturating_sub(nanos));
    }

    fn change(&mut self, key: usize, from: u64, to: u64, change: impl Fn(&mut u64, u64)) {
        let Intervals { count, span } = self.intervals;
        let column = &mut self.columns[key];
        if column.is_empty() {
            column.resize(count, 0);
        }
        // Time after the last interval, possible in a damaged trace, counts for the last one.
        let interval = |at: u64| ((at / span) as usize).min(count - 1);
        let (first, last) = (interval(from), interval(to));
        if first == last {
            change(&mut column[first], to - from);
            return;
        }
        let edge = |index: usize| index as u64 * span;
        change(&mut column[first], edge(first + 1) - from);
        for sum in &mut column[first + 1..last] {
            change(sum, span);
        }
        change(&mut column[last], to - edge(last));
    }

    /// Encodes the number of keys with time, and for each the key and its intervals.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let mut bytes = Bytes::default();
        bytes.number(self.columns.iter().filter(|column| !column.is_empty()).count() as u64);
        for (key, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.is_empty()) {
            bytes.number(key as u64);
            column.iter().for_each(|&nanos| bytes.number(nanos));
        }
        bytes.0
    }

    #[cfg(test)]
    pub(crate) fn total(&self, key: usize) -> u64 {
        self.columns[key].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_divided_to_the_nanosecond() {
        let intervals = Intervals::of(1000, 16);
        assert_eq!(intervals, Intervals { count: 16, span: 63 });
        let mut sums = IntervalSums::new(intervals, 2);
        let mut state = 1_u64;
        let mut total = 0;
        for _ in 0..200 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (a, b) = ((state >> 20) % 1001, (state >> 40) % 1001);
            sums.add(1, a.min(b), a.max(b));
            total += a.abs_diff(b);
        }
        assert_eq!((sums.total(0), sums.total(1)), (0, total));
        sums.add(0, 10, 990);
        sums.take(0, 100, 200);
        assert_eq!(sums.total(0), 880);
        assert_eq!(sums.columns[0][..4], [53, 37, 0, 52]);
    }

    #[test]
    fn there_are_never_more_intervals_than_asked_for() {
        for most in [1, 2, 3, 1000, 1024] {
            let Intervals { count, span } = Intervals::of(777, most);
            assert!(count <= most && count.is_power_of_two() && count as u64 * span >= 777, "{most}");
        }
        assert_eq!(Intervals::of(0, 8), Intervals { count: 8, span: 1 });
    }
}
