//! Counts and durations by kernel name, copy path and API function, in bounded memory.
//!
//! These describe what ran, whether or not anything else ran at the same time; they do not sum to the window. They
//! are updated as records arrive, so they need no order and are complete even when the timeline is not.

use rustc_hash::FxHashMap;

pub use super::quantile::Durations;
use crate::record::{ApiFunctionId, CopyKind, MemoryKind, NameId};

/// Distinct kernel names kept for one device. Large programs have hundreds, just-in-time compilers thousands;
/// beyond this, kernels share one row. At up to 1 KiB a row this bounds the table to 16 MiB.
const KERNEL_LIMIT: usize = 16_384;

/// Direction and memory of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyPath {
    /// Direction.
    pub kind: CopyKind,
    /// Memory read from.
    pub source: MemoryKind,
    /// Memory written to.
    pub destination: MemoryKind,
}

/// Kernels of one name.
#[derive(Clone, Debug, Default)]
pub struct KernelStatistics {
    /// Whether the name says that it communicates.
    pub communication: bool,
    /// Durations.
    pub durations: Durations,
}

/// Copies of one path.
#[derive(Clone, Debug, Default)]
pub struct CopyStatistics {
    /// Bytes moved.
    pub bytes: u64,
    /// Durations.
    pub durations: Durations,
}

/// Calls of one API function.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiStatistics {
    /// Calls not made by another API call.
    pub calls: u64,
    /// Calls that did not return success.
    pub failed: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

/// What ran on one device.
#[derive(Debug, Default)]
pub struct DeviceStatistics {
    kernels: FxHashMap<NameId, KernelStatistics>,
    other_kernels: KernelStatistics,
    kernels_beyond_table: u64,
    copies: FxHashMap<CopyPath, CopyStatistics>,
}

impl DeviceStatistics {
    /// Kernels by name; `None` is the row of those beyond the table.
    pub fn kernels(&self) -> impl Iterator<Item = (Option<NameId>, &KernelStatistics)> {
        let other = (self.other_kernels.durations.count() > 0).then_some((None, &self.other_kernels));
        self.kernels.iter().map(|(&name, row)| (Some(name), row)).chain(other)
    }

    /// Copies by path.
    pub fn copies(&self) -> impl Iterator<Item = (CopyPath, &CopyStatistics)> {
        self.copies.iter().map(|(&path, row)| (path, row))
    }

    /// Kernels (not names) in the shared row.
    #[must_use]
    pub fn kernels_beyond_table(&self) -> u64 {
        self.kernels_beyond_table
    }

    /// Counts a kernel; tells whether its name is new on this device.
    pub(super) fn add_kernel(&mut self, name: NameId, communication: bool, nanos: u64) -> bool {
        if let Some(row) = self.kernels.get_mut(&name) {
            row.durations.add(nanos);
            return false;
        }
        if self.kernels.len() >= KERNEL_LIMIT {
            self.kernels_beyond_table += 1;
            self.other_kernels.durations.add(nanos);
            return false;
        }
        let row = self.kernels.entry(name).or_default();
        row.communication = communication;
        row.durations.add(nanos);
        true
    }

    /// Counts a copy. Paths are pairs of small enumerations, so the table bounds itself.
    pub(super) fn add_copy(&mut self, path: CopyPath, bytes: u64, nanos: u64) {
        let row = self.copies.entry(path).or_default();
        row.bytes = row.bytes.saturating_add(bytes);
        row.durations.add(nanos);
    }
}

/// API calls by function, indexed by its id.
#[derive(Debug, Default)]
pub(super) struct ApiTable(FxHashMap<ApiFunctionId, ApiStatistics>);

impl ApiTable {
    pub(super) fn add(&mut self, function: ApiFunctionId, nanos: u64, succeeded: bool) {
        let row = self.0.entry(function).or_default();
        row.calls += 1;
        row.failed += u64::from(!succeeded);
        row.total_ns = row.total_ns.saturating_add(nanos);
        row.max_ns = row.max_ns.max(nanos);
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        self.0.iter().map(|(&function, row)| (function, row))
    }
}
