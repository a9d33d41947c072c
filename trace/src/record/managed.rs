//! What the driver did with managed (unified) memory: pages that moved, and the faults that moved them.
//!
//! Nothing in these records names a stream or a call, so they are kept beside device work and take no part in the
//! accounting of a device's time: a kernel that waits for its pages is running all the while.

use super::{DeviceId, Timestamp};
use crate::named;

named! {
    /// What happened to pages of managed memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ManagedKind: name {
        /// Not reported, or a value this version does not know.
        #[default]
        Unknown "unknown",
        /// Pages moved from the host to a device.
        HostToDevice "host_to_device",
        /// Pages moved from a device to the host.
        DeviceToHost "device_to_host",
        /// Pages moved between two devices.
        DeviceToDevice "device_to_device",
        /// The host touched pages that were elsewhere.
        HostFault "host_fault",
        /// A device touched pages that were elsewhere.
        DeviceFault "device_fault",
    }
}

impl ManagedKind {
    /// Whether pages moved.
    pub const fn is_migration(self) -> bool {
        matches!(self, Self::HostToDevice | Self::DeviceToHost | Self::DeviceToDevice)
    }
}

/// Pages of managed memory moved or were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedEvent {
    /// Begin of a migration, or when a fault was seen.
    pub start: Timestamp,
    /// End of a migration, or when a device's fault was answered; for a host's fault its start.
    pub end: Timestamp,
    /// What happened.
    pub kind: ManagedKind,
    /// Where pages came from, or the device that missed them; [`HOST`](Self::HOST) for the host.
    pub source: DeviceId,
    /// Where pages went; [`HOST`](Self::HOST) for the host, and for faults.
    pub destination: DeviceId,
    /// Where the pages begin.
    pub address: u64,
    /// Bytes that moved; groups of faults for the same page, of a device's fault; the program counter, of a host's.
    pub value: u64,
    /// Why, as CUPTI numbers it: the cause of a migration (1 asked for, 2 coherence, 3 prefetch, 4 eviction, 5 access
    /// counters), or what a device's fault was (1 read, 2 write, 3 atomic, 4 prefetch); 0 unknown.
    pub cause: u32,
}

impl ManagedEvent {
    /// Stands for the host where a device could stand.
    pub const HOST: DeviceId = DeviceId(u32::MAX);

    /// The device that it is about: where pages went, unless to the host. `None` for a fault of the host.
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
