//! Managed memory of a device.

use profiler_core::managed::ManagedTotals;

/// Pages of managed memory that moved, and faults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ManagedPages {
    /// Counts.
    pub totals: ManagedTotals,
    /// Share of the time in which kernels ran, 0 to 1, in which pages moved too.
    pub share: f64,
}
