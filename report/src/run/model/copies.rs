//! Copies of a device by direction and memory, and what limits them.

use gpuwhy_trace::named;
use profiler_core::attribution::statistics::{CopyPath, Durations};

/// Copies of one kind on one device.
#[derive(Clone, Debug)]
pub struct CopyRow {
    /// Direction and memory.
    pub path: CopyPath,
    /// Bytes moved.
    pub bytes: u64,
    /// Their durations.
    pub durations: Durations,
    /// What limits them.
    pub class: CopyClass,
    /// Duration over size; `None` when their sizes do not tell.
    pub fit: Option<CopyFit>,
    /// What the link can do, 10^9 bytes per second: the best mean rate of large copies in this direction on this
    /// device, with any memory, or what its PCI Express link reaches
    /// ([`LINK_REACH`](crate::run::copies::LINK_REACH)) where that is more.
    pub link_gigabytes_per_second: Option<f64>,
}

impl CopyRow {
    /// Bytes by summed duration, in 10^9 bytes per second; 0 without duration. Bytes per nanosecond are the same.
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.durations.total() == 0 { 0.0 } else { self.bytes as f64 / self.durations.total() as f64 }
    }
}

named! {
    /// What limits the copies of one path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CopyClass: name {
        /// They run at [`BANDWIDTH_SHARE`](crate::run::copies::BANDWIDTH_SHARE) or more of what the link reaches in
        /// this direction.
        Bandwidth "bandwidth",
        /// Most of their time is a cost that each copy has whatever its size.
        Latency "latency",
        /// One end is ordinary memory, which the driver copies through a buffer of its own; page-locked copies in this
        /// direction are faster, or nothing shows how fast they would be.
        Staging "staging",
        /// None of these dominates.
        Mixed "mixed",
        /// No large copy in this direction shows what the link can do.
        Unknown "unknown",
    }
}

/// Duration of a copy as a straight line over its size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CopyFit {
    /// What a copy of no bytes would take, nanoseconds.
    pub latency_ns: f64,
    /// The rate of what lies beyond that, 10^9 bytes per second.
    pub gigabytes_per_second: f64,
}

/// How much of the time of copies ran beneath computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CopyOverlap {
    /// Time in which only copies ran, nanoseconds.
    pub exposed_ns: u64,
    /// Time of copies beneath computing kernels, nanoseconds.
    pub hidden_ns: u64,
    /// Copies and computation take turns: both matter, and less than
    /// [`SERIAL_OVERLAP`](crate::run::copies::SERIAL_OVERLAP) of copy time is hidden.
    pub serial: bool,
}
