//! Timeline of one rank by cause, in a fixed number of columns, in one pass over its trace.

use std::collections::BTreeMap;

use gpuwhy_import::Observer;
use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::Attributor;
use profiler_core::attribution::segments::Segment;
use profiler_core::leaf::{Cause, Leaf};

/// Maximum number of columns of a rank. At least half of them are used: pairs are merged when the time
/// exceeds the last.
const COLUMNS: usize = 240;

/// Time of one column, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapColumn {
    /// Start on the common clock, nanoseconds since the Unix epoch.
    pub(crate) from: i64,
    pub(crate) nanos: u64,
    /// In the order of `Cause::ALL`.
    pub(crate) causes: [u64; Cause::ALL.len()],
}

#[derive(Debug, Default)]
pub(crate) struct RankTime {
    devices: BTreeMap<u32, Time>,
    shift: i64,
}

#[derive(Debug)]
struct Time {
    origin: u64,
    end: u64,
    /// Length of a column, nanoseconds.
    span: u64,
    columns: Vec<[u64; Cause::ALL.len()]>,
    communication: u64,
}

impl Time {
    fn add(&mut self, leaf: Leaf, from: u64, to: u64) {
        let Some(cause) = Cause::ALL.iter().position(|&cause| cause == leaf.cause()) else { return };
        self.end = self.end.max(to);
        while (to.saturating_sub(self.origin)) / self.span >= COLUMNS as u64 {
            self.join();
        }
        let (mut at, to) = (from.saturating_sub(self.origin), to.saturating_sub(self.origin));
        while at < to {
            let column = (at / self.span) as usize;
            let edge = ((column as u64 + 1) * self.span).min(to);
            self.columns[column][cause] += edge - at;
            at = edge;
        }
    }

    fn take(&mut self, leaf: Leaf, from: u64, to: u64) {
        let Some(cause) = Cause::ALL.iter().position(|&cause| cause == leaf.cause()) else { return };
        let (mut at, to) = (from.saturating_sub(self.origin), to.saturating_sub(self.origin));
        while at < to && ((at / self.span) as usize) < COLUMNS {
            let column = (at / self.span) as usize;
            let edge = ((column as u64 + 1) * self.span).min(to);
            let sum = &mut self.columns[column][cause];
            *sum = sum.saturating_sub(edge - at);
            at = edge;
        }
    }

    /// Merges pairs of columns, which frees the second half.
    fn join(&mut self) {
        for column in 0..COLUMNS / 2 {
            let (a, b) = (self.columns[2 * column], self.columns[2 * column + 1]);
            self.columns[column] = std::array::from_fn(|cause| a[cause] + b[cause]);
        }
        self.columns[COLUMNS / 2..].fill([0; Cause::ALL.len()]);
        self.span *= 2;
    }
}

impl RankTime {
    /// Shifts its times by this many nanoseconds.
    pub(crate) fn shifted(mut self, by: i64) -> Self {
        self.shift = by;
        self
    }

    /// The device that communicates most.
    fn shown(&self) -> Option<&Time> {
        self.devices.values().rev().max_by_key(|time| time.communication)
    }

    /// Start and end on the common clock.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        self.shown().map(|time| (time.origin as i64 + self.shift, time.end as i64 + self.shift))
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = MapColumn> {
        let time = self.shown();
        time.into_iter().flat_map(|time| {
            let with = time.columns.iter().enumerate().filter(|(_, causes)| causes.iter().any(|&nanos| nanos > 0));
            with.map(|(index, &causes)| MapColumn {
                from: (time.origin + index as u64 * time.span) as i64 + self.shift,
                nanos: time.span,
                causes,
            })
        })
    }
}

impl Observer for RankTime {
    fn begin(&mut self, captures: &mut Captures) {
        captures.options.segments = true;
    }

    fn taken(&mut self, captures: &mut Captures, _: &Dictionary, _: bool) {
        for (_, device, segments) in captures.take(Attributor::take_segments) {
            for segment in segments {
                let (leaf, from, to, was) = match segment {
                    Segment::Time(time) => (time.leaf, time.from.nanos(), time.to.nanos(), None),
                    Segment::Moved { was, leaf, from, to } => (leaf, from.nanos(), to.nanos(), Some(was)),
                    Segment::Gap(_) => continue,
                };
                let columns = || vec![[0; Cause::ALL.len()]; COLUMNS];
                let new = || Time { origin: from, end: to, span: 1_000, columns: columns(), communication: 0 };
                let time = self.devices.entry(device.0).or_insert_with(new);
                if let Some(was) = was {
                    time.take(was, from, to);
                }
                time.add(leaf, from, to);
                time.communication += if leaf == Leaf::Communication { to - from } else { 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_columns_keep_every_nanosecond() {
        let causes = [0; Cause::ALL.len()];
        let mut time = Time { origin: 100, end: 100, span: 10, columns: vec![causes; COLUMNS], communication: 0 };
        let (mut at, mut wanted) = (100, causes);
        for step in 0..5_000_u64 {
            let to = at + 1 + step * step % 97;
            let leaf = Leaf::ALL[step as usize % Leaf::ALL.len()];
            time.add(leaf, at, to);
            wanted[Cause::ALL.iter().position(|&cause| cause == leaf.cause()).unwrap()] += to - at;
            at = to;
        }
        let sums = |time: &Time| time.columns.iter().fold(causes, |a, b| std::array::from_fn(|i| a[i] + b[i]));
        assert_eq!(sums(&time), wanted);
        assert!(time.span > 10 && time.end == at);
        time.take(Leaf::Compute, 100, 100);
        let before = sums(&time);
        time.add(Leaf::Compute, at, at + 5_000);
        time.take(Leaf::Compute, at, at + 5_000);
        assert_eq!(sums(&time), before);
    }
}
