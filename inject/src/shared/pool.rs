//! Memory for CUPTI's records, and the amount that was written since the last flush.
//!
//! CUPTI requests a buffer on an application thread in the middle of a launch, so taking one is a lock-free
//! receive from a bounded queue, and an allocation only while the pool is still growing. The pool never
//! exceeds its limit: beyond it, records are dropped and counted.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use cupti_sys::Buffer;

use crate::sys::memory;

/// Size of one buffer, bytes. NVIDIA recommends 1 to 10 MB. With one buffer per launching thread and a flush
/// every 100 ms, the low end saves memory; the size made no difference on the launch path.
pub const BUFFER_BYTES: usize = 1 << 20;

/// Unused buffers, and the number of existing ones.
#[derive(Debug)]
pub struct Pool {
    give: Sender<Buffer>,
    take: Receiver<Buffer>,
    /// Number of existing buffers, up to `limit`; decreases only when buffers are forgotten. `Relaxed`: it
    /// orders no other data.
    made: AtomicUsize,
    limit: usize,
}

impl Pool {
    /// Creates a pool of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(BUFFER_BYTES).max(2);
        let (give, take) = bounded(limit);
        Self { give, take, made: AtomicUsize::new(0), limit }
    }

    /// Maximum number of buffers in use.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns a buffer to lend, or `None` if all are in use.
    #[must_use]
    pub fn take(&self) -> Option<Buffer> {
        if let Ok(buffer) = self.take.try_recv() {
            return Some(buffer);
        }
        if memory::is_short() {
            return None;
        }
        let grow = |made| (made < self.limit).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).ok()?;
        let made = Buffer::new(BUFFER_BYTES);
        if made.is_none() {
            // The system is out of memory now; it may have some later.
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    /// Returns a buffer to the pool.
    pub fn put(&self, buffer: Buffer) {
        // The queue has room for all buffers; a rejected one would only be freed.
        let _ = self.give.try_send(buffer);
    }

    /// Notes that some of the lent buffers never come back, so that others can be made in their place.
    pub fn forget(&self, buffers: usize) {
        let shrink = |made: usize| Some(made.saturating_sub(buffers));
        let _ = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrink);
    }

    /// Number of allocated buffers that are not in the pool: lent to CUPTI or waiting to be decoded.
    pub fn in_use(&self) -> usize {
        self.made.load(Ordering::Relaxed).saturating_sub(self.take.len())
    }
}

/// Bytes of records after which a flush is due early: two full chunks of the trace, or 16,000 launches with
/// their calls. Up to 160,000 kernels a second, the flush period is reached first.
const DUE_BYTES: usize = 4 << 20;

/// Bytes of records since the last flush, which may make another one due. All `Relaxed`: it only decides when
/// the next flush happens.
///
/// The engine keeps the records of two flush periods: only a flush shows that no older ones will come. So at
/// a fixed period, memory grows with the rate. In a replay at a million kernels a second, the heap of this
/// library reached 190 MiB with a flush every 100 ms, and 54 MiB with one after each [`DUE_BYTES`] bytes.
#[derive(Debug, Default)]
pub struct FlushBacklog(AtomicUsize);

impl FlushBacklog {
    /// Adds bytes of records. Returns true if they make a flush due; once until the next flush has ended.
    pub fn add(&self, bytes: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        before < DUE_BYTES && before.saturating_add(bytes) >= DUE_BYTES
    }

    /// Starts a flush. Its records do not count toward the next flush and make none due.
    pub fn begin_flush(&self) {
        self.0.store(DUE_BYTES, Ordering::Relaxed);
    }

    pub fn end_flush(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_grows_to_its_limit_and_recycles() {
        let pool = Pool::new(3 * BUFFER_BYTES as u64);
        let buffers: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((buffers.len(), pool.in_use()), (3, 3));
        buffers.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.in_use(), 0);
        assert!(pool.take().is_some());
        assert_eq!(pool.in_use(), 1);
    }

    #[test]
    fn threads_that_take_and_give_never_hold_more_than_there_are() {
        const LIMIT: usize = 4;
        let (pool, out, most) = (Pool::new((LIMIT * BUFFER_BYTES) as u64), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let Some(buffer) = pool.take() else { continue };
                        most.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        out.fetch_sub(1, Ordering::SeqCst);
                        pool.put(buffer);
                    }
                });
            }
        });
        assert!((1..=LIMIT).contains(&most.into_inner()));
        assert_eq!((pool.in_use(), std::iter::from_fn(|| pool.take()).count()), (0, LIMIT));
    }

    #[test]
    fn a_flush_is_due_once_for_each_limit() {
        let unflushed = FlushBacklog::default();
        let due = |times: usize| (0..times).filter(|_| unflushed.add(DUE_BYTES / 4)).count();
        assert_eq!([due(3), due(1), due(8)], [0, 1, 0]);
        unflushed.begin_flush();
        assert_eq!(due(9), 0, "what a flush brings makes none due");
        unflushed.end_flush();
        assert_eq!([due(3), due(1)], [0, 1]);
        unflushed.begin_flush();
        unflushed.end_flush();
        assert!(unflushed.add(9 * DUE_BYTES));
    }
}
