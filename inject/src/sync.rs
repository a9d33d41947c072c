//! Atomics and sizes of the parts that a model checker tests (`testing/model`), which substitutes its own.

use std::thread;
use std::time::{Duration, Instant};

pub use std::sync::OnceLock;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Words of a segment of an NVTX ring: 64 KiB.
pub const RING_SEGMENT: u64 = 8192;
pub const RING_SEGMENTS: usize = 32;

/// Maximum wait of a callback for a lock that another thread holds. Events dropped after that are counted.
pub const CALLBACK_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum wait of a thread of the program for another one that is switching, in the call that starts a
/// capture. Switching takes 0.1 ms on an H200, so this is only reached if CUPTI hangs.
const LIMIT: Duration = Duration::from_millis(100);
/// Interval between two attempts: a small part of the time for switching.
const PAUSE: Duration = Duration::from_micros(20);

/// A wait with a time limit.
#[derive(Debug)]
pub struct BoundedWait(Option<Instant>);

impl BoundedWait {
    /// The limit counts from the first wait.
    pub fn new() -> Self {
        Self(None)
    }

    /// Waits a moment. `false` once the limit has passed.
    pub fn wait(&mut self) -> bool {
        thread::sleep(PAUSE);
        self.0.get_or_insert_with(Instant::now).elapsed() < LIMIT
    }
}
