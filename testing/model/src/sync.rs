//! What `inject/src/sync.rs` is in libprof.so.

pub use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
/// Not modeled: a reader only looks behind it at words that the writer has counted.
pub use std::sync::OnceLock;

/// Words of a segment, few, so that every boundary is met.
pub const RING_SEGMENT: u64 = 2;
/// Segments of a ring.
pub const RING_SEGMENTS: usize = 2;

/// A wait that lets the other thread go on, for as long as it takes.
#[derive(Debug)]
pub struct BoundedWait;

impl BoundedWait {
    /// It begins with the first wait.
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
