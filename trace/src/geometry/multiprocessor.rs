//! What a multiprocessor has room for, by compute capability.
//!
//! The device's own record goes first: it knows the limits of devices that are newer than this table. How registers
//! and shared memory are rounded up when they are handed out is in no record, so that comes from the table, and a
//! device older than it is unknown rather than guessed.
//!
//! Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the allocation units are
//! those of `cuda_occupancy.h` in the CUDA toolkit.

use crate::record::Device;

/// Threads of a warp on every device so far.
pub const WARP_THREADS: u32 = 32;
/// Registers are handed out to a warp in units of this many.
pub const REGISTER_UNIT: u32 = 256;
/// A multiprocessor has this many partitions, each with an equal part of the registers.
pub const PARTITIONS: u32 = 4;

const KIB: u32 = 1024;

/// Resident limits of a compute capability.
struct Row {
    capability: [u32; 2],
    warps: u32,
    blocks: u32,
    shared_kib: u32,
}

const fn row(major: u32, minor: u32, warps: u32, blocks: u32, shared_kib: u32) -> Row {
    Row { capability: [major, minor], warps, blocks, shared_kib }
}

/// All of them have 65,536 registers.
const TABLE: [Row; 12] = [
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

/// The room on a multiprocessor, and how many of them the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Multiprocessors of the device.
    pub count: u32,
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory with the largest carve-out, bytes.
    pub shared_bytes: u32,
    /// A block's shared memory is rounded up to a multiple of this, bytes.
    pub shared_unit: u32,
    /// Shared memory that the system takes for itself with every block, bytes.
    pub shared_reserved: u32,
}

impl Multiprocessors {
    /// Those of `device`; `None` when neither its record nor the table says enough: no count of multiprocessors, a
    /// capability before 7.0, or one that the table lacks together with a record that lacks a limit.
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
