//! How many bytes of records have come since the last flush, and when that is reason for another.
//!
//! What the engine keeps are the records of two flush periods: only a flush says that nothing older is to come. So at a
//! fixed period memory grows with the rate. Played at a million kernels a second, the heap of this library reached 190
//! MiB with a flush every 100 ms and 54 MiB with one after each [`LIMIT`] bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of records after which a flush is due before its time: two full chunks of the trace, or 16,000 launches with
/// their calls. Up to 160,000 kernels a second the period decides.
const LIMIT: usize = 4 << 20;

/// The count. All `Relaxed`: it decides only when the next flush is.
#[derive(Debug, Default)]
pub struct FlushBacklog(AtomicUsize);

impl FlushBacklog {
    /// So many bytes of records have come. Answers whether they make a flush due; once until the next one has ended.
    pub fn add(&self, bytes: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        before < LIMIT && before.saturating_add(bytes) >= LIMIT
    }

    /// A flush begins. What it brings is none of the next one's: it makes none due.
    pub fn begin_flush(&self) {
        self.0.store(LIMIT, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn end_flush(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_due_once_for_each_limit() {
        let unflushed = FlushBacklog::default();
        let due = |times: usize| (0..times).filter(|_| unflushed.add(LIMIT / 4)).count();
        assert_eq!([due(3), due(1), due(8)], [0, 1, 0]);
        unflushed.begin_flush();
        assert_eq!(due(9), 0, "what a flush brings makes none due");
        unflushed.end_flush();
        assert_eq!([due(3), due(1)], [0, 1]);
        unflushed.begin_flush();
        unflushed.end_flush();
        assert!(unflushed.add(9 * LIMIT));
    }
}
