//! Memory held by the program.

use gpuwhy_trace::record::{DeviceId, MemoryKind, ThreadId};
use profiler_core::managed::ManagedTotals;
use profiler_core::memory::Holding;

/// Memory allocated during measurement.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryReport {
    /// By device and kind; the largest peak first.
    #[cfg_attr(feature = "serde", serde(rename = "places"))]
    pub rows: Vec<MemoryRow>,
    /// Releases of memory with an unknown allocation: it was held before measurement started.
    pub unknown_releases: u64,
    /// Allocations whose release cannot be recognized because the table of held allocations was full.
    pub table_overflow: u64,
}

/// Memory of one kind on one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryRow {
    /// The device; for host memory, the device of the allocating context.
    pub device: DeviceId,
    /// Kind.
    pub kind: MemoryKind,
    /// Amounts held.
    pub holding: Holding,
    /// The allocation that reached the peak, if the call is in the trace.
    pub peak_by: Option<PeakBy>,
}

/// The call that brought memory to its peak.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PeakBy {
    /// The thread.
    pub thread: ThreadId,
    /// Its name, if it has one.
    pub thread_name: Option<String>,
    /// The function, without version suffix.
    pub function: String,
    /// The innermost range of the program around the call.
    pub range: Option<String>,
}

/// Pages of managed memory that moved, and faults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ManagedPages {
    /// Counts.
    pub totals: ManagedTotals,
    /// Share of the time in which kernels ran, 0 to 1, in which pages moved too; if no migrations were recorded, in
    /// which page faults were being resolved.
    pub share: f64,
}
