//! How a launch configuration fills a device: occupancy and its limiter, waves, tail, empty SMs.
//!
//! Everything follows from the kernel record and the device record, without counters and thus without
//! overhead. It is a calculation of capacity, not a measurement: it assumes that the kernel has the device to
//! itself, that all its blocks take equally long, and that the driver grants the largest shared-memory
//! carve-out. Clusters, which may leave part of a GPC empty, are not considered. Low occupancy is not a fault
//! in itself: matrix kernels keep tiles in registers and shared memory and are fast with one or two blocks
//! per SM.

mod multiprocessor;

pub use multiprocessor::{Multiprocessors, PARTITIONS, REGISTER_UNIT, WARP_THREADS};

use crate::named;
use crate::record::LaunchConfig;

named! {
    /// Resource that limits the number of resident blocks on an SM. If two are equally limiting, the first in
    /// this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Limiter: name {
        /// Resident threads, i.e. warps.
        Threads "threads",
        /// Resident blocks.
        Blocks "blocks",
        Registers "registers",
        SharedMemory "shared_memory",
    }
}

/// How a launch configuration fills a device. Fractions are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Geometry {
    /// Number of blocks in the grid.
    pub blocks: u64,
    /// Number of threads in a block.
    pub block_threads: u32,
    /// Number of blocks that fit on an SM at once; at least 1.
    pub resident_blocks: u32,
    /// Resource that limits `resident_blocks`.
    pub limiter: Limiter,
    /// Resident warps divided by the maximum of resident warps of an SM.
    pub theoretical_occupancy: f64,
    /// Threads of the grid per SM, at most those that fit, divided by the maximum of resident threads. This
    /// is the definition of the PyTorch profiler's "est. achieved occupancy", which counts threads where
    /// [`theoretical_occupancy`](Self::theoretical_occupancy) counts warps.
    pub achieved_occupancy: f64,
    /// Fraction of SMs that get at least one block: the PyTorch profiler's "est. SM efficiency" of a kernel.
    pub sm_efficiency: f64,
    /// Blocks of the grid divided by the blocks that fit on the device at once.
    pub waves: f64,
    /// Capacity left empty in the last wave, as a fraction of all waves; 0 for a single wave.
    pub tail_loss: f64,
}

impl Geometry {
    /// Computes how `config` fills `device`. Returns `None` if the record has no shape, or one that does not
    /// fit the device.
    pub fn of(config: &LaunchConfig, device: &Multiprocessors) -> Option<Self> {
        let product = |of: [u32; 3]| of.into_iter().try_fold(1u64, |product, n| product.checked_mul(u64::from(n)));
        let blocks = product(config.grid).filter(|&blocks| blocks > 0)?;
        let block_threads = u32::try_from(product(config.block)?).ok().filter(|&threads| threads > 0)?;
        let warps = block_threads.div_ceil(WARP_THREADS);
        let (resident_blocks, limiter) = [
            (device.warps / warps, Limiter::Threads),
            (device.blocks, Limiter::Blocks),
            (blocks_by_registers(config, warps, device), Limiter::Registers),
            (blocks_by_shared_memory(config, device), Limiter::SharedMemory),
        ]
        .into_iter()
        .min_by_key(|&(blocks, _)| blocks)
        .filter(|&(blocks, _)| blocks > 0)?;
        let by_multiprocessor = blocks as f64 / f64::from(device.count);
        let waves = by_multiprocessor / f64::from(resident_blocks);
        let room = f64::from(device.warps * WARP_THREADS);
        Some(Self {
            blocks,
            block_threads,
            resident_blocks,
            limiter,
            theoretical_occupancy: f64::from(resident_blocks * warps) / f64::from(device.warps),
            achieved_occupancy: by_multiprocessor.min(f64::from(resident_blocks)) * f64::from(block_threads) / room,
            sm_efficiency: by_multiprocessor.min(1.0),
            waves,
            tail_loss: if waves > 1.0 { 1.0 - waves / waves.ceil() } else { 0.0 },
        })
    }

    /// SMs without a block, as a fraction of all.
    pub fn empty_multiprocessors(&self) -> f64 {
        1.0 - self.sm_efficiency
    }
}

/// Registers are allocated per warp, within the partition that runs the warp; the warps of a block may use
/// any partition.
fn blocks_by_registers(config: &LaunchConfig, warps: u32, device: &Multiprocessors) -> u32 {
    let of_warp = (u32::from(config.registers_per_thread) * WARP_THREADS).next_multiple_of(REGISTER_UNIT);
    if of_warp == 0 {
        return u32::MAX;
    }
    device.registers / PARTITIONS / of_warp * PARTITIONS / warps
}

fn blocks_by_shared_memory(config: &LaunchConfig, device: &Multiprocessors) -> u32 {
    let of_block = [config.static_shared_bytes, config.dynamic_shared_bytes, device.shared_reserved]
        .into_iter()
        .fold(0, u32::saturating_add)
        .checked_next_multiple_of(device.shared_unit);
    match of_block {
        Some(0) => u32::MAX,
        Some(bytes) => device.shared_bytes / bytes,
        None => 0,
    }
}
