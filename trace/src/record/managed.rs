//! Driver activity for managed (unified) memory: page migrations, and the faults that caused them.
//!
//! These records contain no stream and no call. They are therefore kept separate from device work and
//! excluded from the accounting of a device's time: a kernel that waits for pages counts as running.

use super::{DeviceId, Timestamp};
use crate::named;

named! {
    /// Kind of event on pages of managed memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ManagedKind: name {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "unknown",
        /// Pages moved from the host to a device.
        HostToDevice "host_to_device",
        /// Pages moved from a device to the host.
        DeviceToHost "device_to_host",
        /// Pages moved between two devices.
        DeviceToDevice "device_to_device",
        /// The host accessed pages that were elsewhere.
        HostFault "host_fault",
        /// A device accessed pages that were elsewhere.
        DeviceFault "device_fault",
    }
}

impl ManagedKind {
    /// True if pages moved.
    pub const fn is_migration(self) -> bool {
        matches!(self, Self::HostToDevice | Self::DeviceToHost | Self::DeviceToDevice)
    }
}

/// A migration or page fault of managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedEvent {
    /// Start of a migration, or the time of a fault.
    pub start: Timestamp,
    /// End of a migration, or the time at which a device fault was resolved; for a host fault its start.
    pub end: Timestamp,
    /// Kind of event.
    pub kind: ManagedKind,
    /// Source of the pages, or the device that faulted; [`HOST`](Self::HOST) for the host.
    pub source: DeviceId,
    /// Destination of the pages; [`HOST`](Self::HOST) for the host, and for faults.
    pub destination: DeviceId,
    /// Start address of the pages.
    pub address: u64,
    /// For a migration, bytes moved; for a device fault, the number of fault groups for the same page; for a
    /// host fault, the program counter.
    pub value: u64,
    /// Cause in CUPTI's numbering. Migrations: 1 user request, 2 coherence, 3 prefetch, 4 eviction, 5 access
    /// counters. Device faults: 1 read, 2 write, 3 atomic, 4 prefetch. 0 is unknown.
    pub cause: u32,
}

impl ManagedEvent {
    /// Represents the host in place of a device.
    pub const HOST: DeviceId = DeviceId(u32::MAX);

    /// Device of the event: the destination of pages, or their source if they moved to the host. `None` for a
    /// host fault.
    pub fn device(&self) -> Option<DeviceId> {
        [self.destination, self.source].into_iter().find(|&device| device != Self::HOST)
    }
}

impl Default for ManagedEvent {
    fn default() -> Self {
        Self {
            start: Timestamp::ZERO,
            end: Timestamp::ZERO,
            kind: ManagedKind::Unknown,
            source: Self::HOST,
            destination: Self::HOST,
            address: 0,
            value: 0,
            cause: 0,
        }
    }
}
