//! Counts of the operations of a phase.

use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use super::leaf::{BUSY_COUNT, Leaf};

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
