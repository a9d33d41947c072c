//! Counts of the operations of a phase, and the time that they need the host link.

use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use super::operation::DeviceOperation;
use super::statistics::{OctaveTotals, add_to_octaves};
use crate::leaf::{BUSY_COUNT, Leaf, WorkKind};

/// Kernels of a phase with separate rows (24 bytes each); further ones are in none.
const KERNEL_LIMIT: usize = 4_096;

/// Operations that started in a phase, or in several. Those that arrived late are not counted.
#[derive(Clone, Debug)]
pub struct Work {
    kernels: FxHashMap<NameId, (u64, u64)>,
    operations: [u64; BUSY_COUNT],
    /// Copies by leaf and size, as in [`CopyStatistics`](super::statistics::CopyStatistics).
    copies: [Vec<OctaveTotals>; BUSY_COUNT],
    /// Time of kernels, nanoseconds: of those that compute, and of these that only find selections.
    computing_ns: u64,
    selecting_ns: u64,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            kernels: FxHashMap::default(),
            operations: [0; BUSY_COUNT],
            copies: Default::default(),
            computing_ns: 0,
            selecting_ns: 0,
        }
    }
}

impl Work {
    /// Adds an operation; `kernel` is the name of one.
    pub(super) fn add(&mut self, operation: &DeviceOperation, kernel: Option<NameId>) {
        let (leaf, nanos) = (operation.leaf, operation.end.saturating_sub(operation.start));
        if let Some(count) = self.operations.get_mut(leaf as usize) {
            *count += 1;
        }
        if leaf == Leaf::Compute {
            self.computing_ns = self.computing_ns.saturating_add(nanos);
            self.selecting_ns = self.selecting_ns.saturating_add(if operation.selection { nanos } else { 0 });
        } else if leaf.work() == Some(WorkKind::Copy)
            && let Some(octaves) = self.copies.get_mut(leaf as usize)
        {
            add_to_octaves(octaves, operation.bytes, nanos);
        }
        let Some(name) = kernel else { return };
        if self.kernels.len() < KERNEL_LIMIT || self.kernels.contains_key(&name) {
            let (count, total) = self.kernels.entry(name).or_default();
            (*count, *total) = (*count + 1, total.saturating_add(nanos));
        }
    }

    /// Adds the operations of another phase.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&name, &(count, nanos)) in &other.kernels {
            let sum = self.kernels.entry(name).or_default();
            *sum = (sum.0 + count, sum.1.saturating_add(nanos));
        }
        self.operations.iter_mut().zip(other.operations).for_each(|(sum, count)| *sum += count);
        for (sum, of) in self.copies.iter_mut().zip(&other.copies) {
            merge_octaves(sum, of);
        }
        self.computing_ns = self.computing_ns.saturating_add(other.computing_ns);
        self.selecting_ns = self.selecting_ns.saturating_add(other.selecting_ns);
    }

    /// Copies by size of the leaves that are `wanted`: row `i` has those of at least `2^i` bytes and less than twice
    /// that.
    pub fn copies(&self, wanted: impl Fn(Leaf) -> bool) -> Vec<OctaveTotals> {
        let mut sum = Vec::new();
        let of = Leaf::ALL.into_iter().zip(&self.copies).filter(|&(leaf, _)| wanted(leaf));
        of.for_each(|(_, octaves)| merge_octaves(&mut sum, octaves));
        sum
    }

    /// Part of the time of computing kernels in those that only find selections, 0 to 1.
    pub fn selections(&self) -> f64 {
        self.selecting_ns as f64 / self.computing_ns.max(1) as f64
    }

    /// Number and time of the kernels of a name, nanoseconds.
    pub fn kernel(&self, name: NameId) -> (u64, u64) {
        self.kernels.get(&name).copied().unwrap_or_default()
    }

    /// Number of operations of a leaf.
    pub fn operations(&self, leaf: Leaf) -> u64 {
        self.operations.get(leaf as usize).copied().unwrap_or(0)
    }
}

fn merge_octaves(sum: &mut Vec<OctaveTotals>, of: &[OctaveTotals]) {
    if sum.len() < of.len() {
        sum.resize(of.len(), OctaveTotals::default());
    }
    sum.iter_mut().zip(of).for_each(|(sum, more)| sum.add(more));
}

/// Minimum time that the host link needs for the copies over it, nanoseconds by direction.
///
/// However well copies are hidden, their bytes must still cross the link, and the program takes at least that
/// long. Directions are separate because the link carries both at once. Unknown traffic (no description of
/// the link, operations that arrived after their start was accounted for) is left out, so the time is a lower
/// bound. Traffic other than copies (kernels that read pinned memory, pages of managed memory) is not visible
/// here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkTime {
    to_device: u64,
    to_host: u64,
}

impl LinkTime {
    /// A copy of this leaf needs the link for `nanos`.
    pub(super) fn add(&mut self, leaf: Leaf, nanos: u64) {
        match leaf {
            Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther => self.to_device += nanos,
            Leaf::CopyD2hPageable | Leaf::CopyD2hPinned | Leaf::CopyD2hOther => self.to_host += nanos,
            // No other leaf has an end on the host.
            _ => {}
        }
    }

    /// Adds the link time of another phase.
    pub(super) fn merge(&mut self, other: &Self) {
        self.to_device += other.to_device;
        self.to_host += other.to_host;
    }

    /// Shortest time in which everything can cross.
    pub(super) fn nanos(&self) -> u64 {
        self.to_device.max(self.to_host)
    }
}
