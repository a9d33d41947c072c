//! What callbacks on the program's threads leave for the collector, which takes it ten times a second.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sync::CALLBACK_LOCK_TIMEOUT;

/// Maximum number of entries that wait.
pub const MOST_WAITING: usize = 1 << 16;

/// A bounded queue.
#[derive(Debug)]
pub struct CallbackQueue<T> {
    /// A panic under the lock leaves it valid: nothing in there panics halfway.
    waiting: Mutex<Vec<T>>,
    /// Entries that found the queue full. `Relaxed`: a statistic.
    dropped: AtomicU64,
}

impl<T> Default for CallbackQueue<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), dropped: AtomicU64::new(0) }
    }
}

impl<T> CallbackQueue<T> {
    pub fn put(&self, entry: T) {
        let mut waiting = self.waiting.try_lock_for(CALLBACK_LOCK_TIMEOUT);
        let waiting = waiting.as_deref_mut().filter(|waiting| waiting.len() < MOST_WAITING);
        // A failed allocation would abort the program.
        match waiting.and_then(|waiting| waiting.try_reserve(1).ok().map(|()| waiting)) {
            Some(waiting) => waiting.push(entry),
            None => _ = self.dropped.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Takes the waiting entries, in the order in which they came.
    pub fn take(&self) -> Vec<T> {
        mem::take(&mut *self.waiting.lock())
    }

    /// Number of entries that were lost because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
