//! How long the host link needs at least for what was copied over it.
//!
//! However well copies are hidden, their bytes must still cross the link, and so long the program takes. Directions are
//! kept apart because the link carries both at once. What is unknown (no description of the link, operations that came
//! when their begin was entered already) is left out, so the time is a lower bound. Traffic that is no copy (kernels
//! that read page-locked memory, pages of managed memory) is not seen here.

use super::leaf::Leaf;

/// Nanoseconds of the link by direction.
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
            // Nothing else has an end on the host.
            _ => {}
        }
    }

    /// Takes in what another phase of the run needed.
    pub(super) fn merge(&mut self, other: &Self) {
        self.to_device += other.to_device;
        self.to_host += other.to_host;
    }

    /// The shortest time in which all of it can cross.
    pub(super) fn nanos(&self) -> u64 {
        self.to_device.max(self.to_host)
    }
}
