//! Smallest reduction of a resource that fits one more block onto a multiprocessor.
//!
//! Blocks fit in whole numbers, so one register less usually has no effect, and the right number of registers
//! has a large one. The useful sizes are found with the arithmetic of [`gpuwhy_trace::geometry`].

use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::named;
use gpuwhy_trace::record::LaunchConfig;

/// Minimum number of registers that is proposed: a compiler limited to fewer would spill.
const FEWEST_REGISTERS: u16 = 24;
/// Step size for shared memory, bytes.
const SHARED_STEP: u32 = 1_024;

named! {
    /// The reduced resource.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Resource: name {
        /// Registers per thread.
        Registers "registers",
        /// Shared memory per block, bytes.
        SharedBytes "shared_bytes",
    }
}

/// The smallest reduction of one resource that lets more blocks be resident.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Reduction {
    /// The resource.
    #[cfg_attr(feature = "serde", serde(rename = "resource"))]
    pub of: Resource,
    /// Current use per launch.
    pub from: u32,
    /// Maximum use after the reduction.
    pub to: u32,
    /// Theoretical occupancy after the reduction, 0 to 1.
    pub occupancy: f64,
}

/// Returns the useful reductions, each applied alone; empty if the limit of warps or blocks is reached.
pub fn reductions(config: &LaunchConfig, room: &Multiprocessors) -> Vec<Reduction> {
    let Some(now) = Geometry::of(config, room) else { return Vec::new() };
    let better =
        |config: &LaunchConfig| Geometry::of(config, room).filter(|then| then.resident_blocks > now.resident_blocks);
    let fewer_registers = (FEWEST_REGISTERS..config.registers_per_thread).rev().find_map(|registers| {
        let then = better(&LaunchConfig { registers_per_thread: registers, ..*config })?;
        let from = config.registers_per_thread.into();
        Some(Reduction { of: Resource::Registers, from, to: registers.into(), occupancy: then.theoretical_occupancy })
    });
    let shared = config.static_shared_bytes.saturating_add(config.dynamic_shared_bytes);
    let steps = (0..shared.div_ceil(SHARED_STEP)).rev().map(|step| step * SHARED_STEP);
    let less_shared = steps.into_iter().find_map(|bytes| {
        let less = LaunchConfig { static_shared_bytes: bytes, dynamic_shared_bytes: 0, ..*config };
        let then = better(&less)?;
        Some(Reduction { of: Resource::SharedBytes, from: shared, to: bytes, occupancy: then.theoretical_occupancy })
    });
    fewer_registers.into_iter().chain(less_shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Device;

    fn h200() -> Multiprocessors {
        let device = Device { compute_capability: [9, 0], multiprocessors: 132, ..Device::default() };
        Multiprocessors::of(&device).unwrap()
    }

    fn launch(threads: u32, registers: u16, shared: u32) -> LaunchConfig {
        LaunchConfig {
            grid: [1_000, 1, 1],
            block: [threads, 1, 1],
            registers_per_thread: registers,
            dynamic_shared_bytes: shared,
            ..LaunchConfig::default()
        }
    }

    #[test]
    fn the_first_register_that_pays_is_found() {
        // 256 threads with 65 registers: allocation units of 256 registers round up to 72, so 3 blocks fit;
        // with 64 registers, 4.
        let found = reductions(&launch(256, 65, 0), &h200());
        assert_eq!(found, [Reduction { of: Resource::Registers, from: 65, to: 64, occupancy: 0.5 }]);
        // One register more or less within a unit of 8 has no effect: 3 blocks fit at 72 and at 66.
        assert_eq!(reductions(&launch(256, 72, 0), &h200())[0].to, 64);
    }

    #[test]
    fn the_first_kilobyte_that_pays_is_found() {
        // 228 KiB, with 1 KiB reserved per block: 3 blocks of 75 KiB fit, and 2 of 76 KiB.
        let found = reductions(&launch(128, 32, 76 << 10), &h200());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].of, found[0].from, found[0].to), (Resource::SharedBytes, 76 << 10, 75 << 10));
    }

    #[test]
    fn nothing_pays_where_warps_are_the_limit() {
        assert_eq!(reductions(&launch(1_024, 32, 0), &h200()), []);
        assert_eq!(reductions(&launch(0, 32, 0), &h200()), []);
    }
}
