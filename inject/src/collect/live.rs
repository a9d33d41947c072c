//! When the live line is due.

use std::time::Duration;

use gpuwhy_trace::record::Timestamp;

use crate::sys::clock::after;

/// When the next live line is due, on the clock of the records, so that a replay prints the same lines.
#[derive(Debug)]
pub struct Live {
    pub interval: Duration,
    pub next: Timestamp,
}

impl Live {
    /// A line every `interval` after `start`.
    pub fn new(interval: Duration, start: Timestamp) -> Self {
        Self { interval, next: after(start, interval) }
    }
}
