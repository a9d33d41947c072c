//! Counterpart of `inject/src/sync.rs` in libprof.so.

pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
/// Not modeled: through it a reader only reads words that the writer has counted.
pub use std::sync::OnceLock;

/// Number of words in a segment; small, so that every boundary is reached.
pub const RING_SEGMENT: u64 = 2;
/// Number of segments in a ring.
pub const RING_SEGMENTS: usize = 2;

/// A wait that lets the other thread continue, for as long as necessary.
#[derive(Debug)]
pub struct BoundedWait;

impl BoundedWait {
    /// Starts with the first wait.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Waits; it is never too long.
    pub fn wait(&mut self) -> bool {
        loom::thread::yield_now();
        true
    }
}
