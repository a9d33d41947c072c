//! Counts of the operations of a phase, and the time that they need the host link.

use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use crate::leaf::{BUSY_COUNT, Leaf};

/// Kernels of a phase with separate rows (24 bytes each); further ones are in none.
const KERNEL_LIMIT: usize = 4_096;

/// Operations that started in a phase, or in several. Those that arrived late are not counted.
#[derive(Clone, Debug)]
pub struct Work {
    kernels: FxHashMap<NameId, (u64, u64)>,
    operations: [u64; BUSY_COUNT],
}

impl Default for Work {
    fn default() -> Self {
        Self { kernels: FxHashMap::default(), operations: [0; BUSY_COUNT] }
    }
}

impl Work {
    /// Adds an operation of this leaf; `kernel` is the name of one.
    pub(super) fn add(&mut self, leaf: Leaf, kernel: Option<NameId>, nanos: u64) {
        if let Some(count) = self.operations.get_mut(leaf as usize) {
            *count += 1;
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
