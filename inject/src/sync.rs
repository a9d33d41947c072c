//! The atomics and sizes of the parts that a model checker tries (`testing/model`), which puts its own in their place.

use std::thread;
use std::time::{Duration, Instant};

pub use std::sync::OnceLock;
pub use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Words of a segment of an NVTX ring: 64 KiB.
pub const RING_SEGMENT: u64 = 8192;
pub const RING_SEGMENTS: usize = 32;

/// How long a callback waits at most for a lock that another thread holds. What it gives up then is counted.
pub const CALLBACK_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a thread of the program waits at most for another one that is switching, in the call that begins a capture.
/// Switching takes 0.1 ms on an H200, so this is only reached when CUPTI hangs.
const LIMIT: Duration = Duration::from_millis(100);
/// Between two attempts: a small part of what switching takes.
const PAUSE: Duration = Duration::from_micros(20);

/// A wait with an end.
#[derive(Debug)]
pub struct BoundedWait(Option<Instant>);

impl BoundedWait {
    /// It begins with the first wait.
    pub fn new() -> Self {
        Self(None)
    }

    /// Waits a moment. `false` when it has been long enough.
    pub fn wait(&mut self) -> bool {
        thread::sleep(PAUSE);
        self.0.get_or_insert_with(Instant::now).elapsed() < LIMIT
    }
}
