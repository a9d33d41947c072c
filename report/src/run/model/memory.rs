//! Memory that the program held.

use gpuwhy_trace::record::{DeviceId, MemoryKind, ThreadId};
use profiler_core::allocations::Holding;

/// Memory that was allocated while measuring.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryReport {
    /// By device and kind; the largest peak first.
    #[cfg_attr(feature = "serde", serde(rename = "places"))]
    pub rows: Vec<MemoryRow>,
    /// Releases of memory whose allocation is not known: it was held before.
    pub unknown_releases: u64,
    /// Allocations whose release cannot be recognized because too many were held at once.
    pub table_overflow: u64,
}

/// Memory of one kind on one device.
#[derive(Clone, Debug)]
pub struct MemoryRow {
    /// Device; of host memory that of the allocating context.
    pub device: DeviceId,
    /// Kind.
    pub kind: MemoryKind,
    /// The numbers.
    pub holding: Holding,
    /// Who took it to its peak, if the call is in the trace.
    pub peak_by: Option<PeakBy>,
}

/// The call that took memory to its peak.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PeakBy {
    /// The thread.
    pub thread: ThreadId,
    /// The function, without version suffix.
    pub function: String,
    /// The innermost range of the program around the call.
    pub range: Option<String>,
}
