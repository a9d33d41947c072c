//! When any kernel computed on a device, for as long as somebody may still ask.

use gpuwhy_trace::record::Timestamp;

/// Intervals that are kept; the oldest go first. A device runs some hundred thousand kernels a second at most.
const LIMIT: usize = 1 << 18;

/// Time in which kernels computed on one device: intervals that do not touch, in order, and those that came since.
#[derive(Clone, Debug, Default)]
pub struct Overlap {
    merged: Vec<(u64, u64)>,
    new: Vec<(u64, u64)>,
    /// Intervals that were thrown away to bound memory.
    lost: u64,
}

impl Overlap {
    /// Adds the time of a kernel.
    pub fn push(&mut self, start: Timestamp, end: Timestamp) {
        if end > start {
            self.new.push((start.nanos(), end.nanos()));
            if self.new.len() >= LIMIT {
                self.merge();
            }
        }
    }

    /// Brings what came into order. To be called before [`covered`](Self::covered).
    pub fn merge(&mut self) {
        let Some(first) = self.new.iter().map(|interval| interval.0).min() else { return };
        // What ended before stays as it is.
        let untouched = self.merged.partition_point(|interval| interval.1 < first);
        self.new.extend(self.merged.drain(untouched..));
        self.new.sort_unstable();
        for (start, end) in self.new.drain(..) {
            match self.merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => self.merged.push((start, end)),
            }
        }
        let over = self.merged.len().saturating_sub(LIMIT);
        self.merged.drain(..over);
        self.lost += over as u64;
    }

    /// Nanoseconds between `start` and `end` in which a kernel computed.
    pub fn covered(&self, start: Timestamp, end: Timestamp) -> u64 {
        let (start, end) = (start.nanos(), end.nanos());
        let first = self.merged.partition_point(|interval| interval.1 <= start);
        let inside = self.merged.get(first..).unwrap_or_default().iter().take_while(|interval| interval.0 < end);
        inside.map(|interval| interval.1.min(end).saturating_sub(interval.0.max(start))).sum()
    }

    /// Nobody will ask for times before `until` any more.
    pub fn forget(&mut self, until: Timestamp) {
        let gone = self.merged.partition_point(|interval| interval.1 <= until.nanos());
        self.merged.drain(..gone);
    }

    /// Intervals that were thrown away to bound memory.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}
