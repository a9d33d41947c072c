//! Resident limits of an SM, by compute capability.
//!
//! The device record takes precedence, because it contains the limits of devices newer than this table.
//! Allocation granularities of registers and shared memory are not part of the record, so they come from the
//! table. Devices older than the table are unknown rather than guessed.
//!
//! Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the allocation
//! units are those of `cuda_occupancy.h` in the CUDA toolkit.

use crate::record::Device;

/// Threads per warp, equal on all existing devices.
pub const WARP_THREADS: u32 = 32;
/// Allocation unit of registers for a warp.
pub const REGISTER_UNIT: u32 = 256;
/// Number of partitions of an SM, each with an equal part of the registers.
pub const PARTITIONS: u32 = 4;

const KIB: u32 = 1024;

/// Resident limits of a compute capability.
struct ResidentLimits {
    capability: [u32; 2],
    warps: u32,
    blocks: u32,
    shared_kib: u32,
}

const fn row(major: u32, minor: u32, warps: u32, blocks: u32, shared_kib: u32) -> ResidentLimits {
    ResidentLimits { capability: [major, minor], warps, blocks, shared_kib }
}

/// All have 65,536 registers.
const TABLE: [ResidentLimits; 12] = [
    row(7, 0, 64, 32, 96),
    row(7, 2, 64, 32, 96),
    row(7, 5, 32, 16, 64),
    row(8, 0, 64, 32, 164),
    row(8, 6, 48, 16, 100),
    row(8, 7, 48, 16, 164),
    row(8, 9, 48, 24, 100),
    row(9, 0, 64, 32, 228),
    row(10, 0, 64, 32, 228),
    row(10, 3, 64, 32, 228),
    row(12, 0, 48, 24, 100),
    row(12, 1, 48, 24, 100),
];
const REGISTERS: u32 = 65_536;
const OLDEST_MAJOR: u32 = 7;

/// Resident limits of an SM, and the number of SMs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Number of SMs of the device.
    pub count: u32,
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Number of 32-bit registers.
    pub registers: u32,
    /// Shared memory with the largest carve-out, bytes.
    pub shared_bytes: u32,
    /// Allocation unit of a block's shared memory, bytes.
    pub shared_unit: u32,
    /// Shared memory reserved by the system for every block, bytes.
    pub shared_reserved: u32,
}

impl Multiprocessors {
    /// Limits of `device`. Returns `None` if neither its record nor the table suffices: no number of SMs, a
    /// compute capability before 7.0, or one missing in the table together with a record that lacks a limit.
    pub fn of(device: &Device) -> Option<Self> {
        let major = device.compute_capability[0];
        if device.multiprocessors == 0 || major < OLDEST_MAJOR {
            return None;
        }
        let known = TABLE.iter().find(|row| row.capability == device.compute_capability);
        let limit = |recorded: u32, tabled: Option<u32>| if recorded > 0 { Some(recorded) } else { tabled };
        Some(Self {
            count: device.multiprocessors,
            warps: limit(device.threads_per_multiprocessor / WARP_THREADS, known.map(|row| row.warps))?,
            blocks: limit(device.blocks_per_multiprocessor, known.map(|row| row.blocks))?,
            registers: limit(device.registers_per_multiprocessor, known.map(|_| REGISTERS))?,
            shared_bytes: limit(device.shared_bytes_per_multiprocessor, known.map(|row| row.shared_kib * KIB))?,
            shared_unit: if major == 7 { 256 } else { 128 },
            shared_reserved: if major == 7 { 0 } else { KIB },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> Device {
        Device { compute_capability: [9, 0], multiprocessors: 132, ..Device::default() }
    }

    #[test]
    fn the_record_goes_before_the_table() {
        let tabled = Multiprocessors::of(&h200()).unwrap();
        assert_eq!((tabled.warps, tabled.blocks, tabled.registers), (64, 32, 65_536));
        assert_eq!((tabled.shared_bytes, tabled.shared_reserved), (233_472, 1_024));
        let recorded = Device { threads_per_multiprocessor: 1_536, blocks_per_multiprocessor: 24, ..h200() };
        let recorded = Multiprocessors::of(&recorded).unwrap();
        assert_eq!((recorded.warps, recorded.blocks, recorded.registers), (48, 24, 65_536));
    }

    #[test]
    fn a_device_that_nobody_describes_is_unknown() {
        assert_eq!(Multiprocessors::of(&Device::default()), None);
        assert_eq!(Multiprocessors::of(&Device { multiprocessors: 0, ..h200() }), None);
        assert_eq!(Multiprocessors::of(&Device { compute_capability: [6, 1], ..h200() }), None);
        let newer = Device { compute_capability: [13, 0], ..h200() };
        assert_eq!(Multiprocessors::of(&newer), None);
        let described = Device {
            threads_per_multiprocessor: 2_048,
            blocks_per_multiprocessor: 32,
            registers_per_multiprocessor: 65_536,
            shared_bytes_per_multiprocessor: 262_144,
            ..newer
        };
        assert_eq!(Multiprocessors::of(&described).map(|room| room.shared_bytes), Some(262_144));
    }
}
