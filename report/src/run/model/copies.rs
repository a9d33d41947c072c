//! Copies of a device by direction and memory, and their limits.

use gpuwhy_trace::named;
use profiler_core::attribution::statistics::{CopyPath, Durations, OctaveTotals};

/// Copies of one kind on one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyRow {
    /// Direction and memory.
    pub path: CopyPath,
    /// Bytes moved.
    pub bytes: u64,
    /// Their durations.
    pub durations: Durations,
    /// The same by size: row `i` has copies of at least `2^i` bytes and less than twice that.
    pub octaves: Vec<OctaveTotals>,
    /// Limit of these copies.
    pub class: CopyClass,
    /// Fit of duration over size; `None` when the sizes do not allow one.
    pub fit: Option<CopyFit>,
    /// Attainable rate of the link, 10^9 bytes per second: the best mean rate of large copies in this
    /// direction on this device, with any memory, or the practical rate of its PCI Express link
    /// ([`LINK_REACH`](crate::run::copies::LINK_REACH)) if that is higher.
    pub link_gigabytes_per_second: Option<f64>,
}

impl CopyRow {
    /// Bytes divided by total duration, in 10^9 bytes per second (equal to bytes per nanosecond); 0 without
    /// duration.
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.durations.total() == 0 { 0.0 } else { self.bytes as f64 / self.durations.total() as f64 }
    }
}

named! {
    /// Limit of the copies of one path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CopyClass: name {
        /// They reach at least [`BANDWIDTH_SHARE`](crate::run::copies::BANDWIDTH_SHARE) of the link's rate in
        /// this direction.
        Bandwidth "bandwidth",
        /// Most of their time is the fixed cost per copy, independent of size.
        Latency "latency",
        /// One end is pageable memory, which the driver copies through its own buffer; pinned copies in this
        /// direction are faster, or their rate is unknown.
        Staging "staging",
        /// None of these dominates.
        Mixed "mixed",
        /// No large copy in this direction shows the rate of the link.
        Unknown "unknown",
    }
}

/// Linear fit of a copy's duration over its size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CopyFit {
    /// Duration of a copy of zero bytes, nanoseconds.
    pub latency_ns: f64,
    /// Rate beyond the latency, 10^9 bytes per second.
    pub gigabytes_per_second: f64,
}

/// Overlap of copies with computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CopyOverlap {
    /// Time in which only copies ran, nanoseconds.
    pub exposed_ns: u64,
    /// Time of copies that overlap computing kernels, nanoseconds.
    pub hidden_ns: u64,
    /// True if copies and computation are serialized: both matter, and less than
    /// [`SERIAL_OVERLAP`](crate::run::copies::SERIAL_OVERLAP) of copy time is hidden.
    pub serial: bool,
}
