//! Times at which any kernel computed on a device, for as long as they may still be needed.

use gpuwhy_trace::record::Timestamp;

/// Maximum number of intervals; the oldest are dropped first. A device runs at most some hundred thousand
/// kernels per second.
const LIMIT: usize = 1 << 18;

/// Time in which kernels computed on one device: ordered intervals that do not touch, and those added since.
#[derive(Clone, Debug, Default)]
pub struct Overlap {
    merged: Vec<(u64, u64)>,
    new: Vec<(u64, u64)>,
    /// Intervals dropped to bound memory.
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

    /// Merges the added intervals. To be called before [`covered`](Self::covered).
    pub fn merge(&mut self) {
        let Some(first) = self.new.iter().map(|interval| interval.0).min() else { return };
        // Intervals that ended before stay unchanged.
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

    /// Drops intervals before `until`, which are no longer needed.
    pub fn forget(&mut self, until: Timestamp) {
        let gone = self.merged.partition_point(|interval| interval.1 <= until.nanos());
        self.merged.drain(..gone);
    }

    /// Intervals dropped to bound memory.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}
