//! What was delivered: counts of records, the flush marks between them, and which times can be.

use crate::completeness::Completeness;
use crate::record::Timestamp;
use crate::thresholds::FUTURE_NANOS;

/// Operations that may wait for the watermark (some 112 bytes each). When there are more, the flush mark alone decides:
/// bounded memory goes before exact order, and what then comes late is counted. Only programs that launch large graphs
/// far ahead get here: a graph does not say how many records it will leave, so all that ran since the launch of the
/// oldest unfinished one would wait, a million operations a second.
pub(super) const PENDING_LIMIT: usize = 1 << 17;

/// Records that may wait: operations for the watermark, and as many records of each of two flushes.
pub(super) const WAITING_LIMIT: usize = 3 * PENDING_LIMIT;

/// Longest window, nanoseconds (208 days): a time farther off is damage, and sums over all devices stay within 64 bits.
pub(super) const LONGEST_WINDOW: u64 = 1 << 54;

/// Whether this stands where no time is known: the end of the range of values is as impossible as its begin.
pub(super) fn is_no_time(nanos: u64) -> bool {
    matches!(nanos, 0 | u64::MAX)
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Delivery {
    pub(super) completeness: Completeness,
    /// First begin and last end of what has times.
    observed: Option<(u64, u64)>,
    /// Number of the flush that comes next.
    pub(super) flush: u64,
    /// The time that records are known to have come up to.
    pub(super) newest_flush: u64,
    /// The newest flush mark, and the nanoseconds from the one before it.
    pub(super) last_flush: Option<(Timestamp, u64)>,
}

impl Delivery {
    /// Takes a flush mark, and gives its time: never less than that of the one before.
    pub(super) fn mark(&mut self, at: Timestamp) -> u64 {
        let at = at.nanos().max(self.newest_flush);
        // A mark that comes again says that nothing more is vouched for, not that flushes are closer.
        if self.last_flush.is_none_or(|(before, _)| before.nanos() < at) {
            let interval = self.last_flush.map_or(0, |(before, _)| at - before.nanos());
            self.last_flush = Some((Timestamp::from_nanos(at), interval));
        }
        self.newest_flush = at;
        at
    }

    /// Whether a record cannot have been delivered by now, or only by a process that ran for the longest window.
    /// Without any flush there is nothing to compare with.
    #[inline]
    pub(super) fn is_damaged(&self, start: u64, end: u64) -> bool {
        let newest = self.newest_flush;
        newest != 0 && (end > newest.saturating_add(FUTURE_NANOS) || start < newest.saturating_sub(LONGEST_WINDOW))
    }

    /// Something ran from `start` to `end`.
    pub(super) fn observe(&mut self, start: u64, end: u64) {
        let (first, last) = self.observed.get_or_insert((start, end));
        *first = (*first).min(start);
        *last = (*last).max(end);
    }

    /// From the first begin to the last end of what has times, nanoseconds.
    pub(super) fn observed_ns(&self) -> u64 {
        self.observed.map_or(0, |(first, last)| last - first)
    }
}
