//! Occupancy and waves compared with values computed by hand or by NVIDIA's occupancy calculator.

use gpuwhy_trace::geometry::{Geometry, Limiter, Multiprocessors};
use gpuwhy_trace::record::{Device, LaunchConfig};
use proptest::prelude::*;

/// An H200 as described by its record.
fn h200() -> Multiprocessors {
    Multiprocessors::of(&Device {
        compute_capability: [9, 0],
        multiprocessors: 132,
        threads_per_multiprocessor: 2_048,
        blocks_per_multiprocessor: 32,
        registers_per_multiprocessor: 65_536,
        shared_bytes_per_multiprocessor: 233_472,
        ..Device::default()
    })
    .unwrap()
}

fn launch(blocks: u32, threads: u32, registers: u16, shared: u32) -> Geometry {
    Geometry::of(&config(blocks, threads, registers, shared), &h200()).unwrap()
}

fn config(blocks: u32, threads: u32, registers: u16, shared: u32) -> LaunchConfig {
    LaunchConfig {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        registers_per_thread: registers,
        dynamic_shared_bytes: shared,
        ..LaunchConfig::default()
    }
}

#[track_caller]
fn assert_close(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1e-9, "{actual} is not {expected}");
}

#[test]
fn each_resource_limits() {
    let cases = [
        // 2048 threads in blocks of 1024.
        ((1024, 32, 0), 2, Limiter::Threads, 1.0),
        // 32 blocks of one warp.
        ((32, 16, 0), 32, Limiter::Blocks, 0.5),
        // 168 registers take 5,376 per warp: 3 warps per partition, 12 in total, blocks of 4 (128 threads).
        ((128, 168, 0), 3, Limiter::Registers, 12.0 / 64.0),
        // The same 12 warps in blocks of 3.
        ((96, 168, 0), 4, Limiter::Registers, 12.0 / 64.0),
        // 227 KiB plus the 1 KiB reserved by the system fill the 228 KiB exactly.
        ((384, 168, 227 * 1024), 1, Limiter::Registers, 12.0 / 64.0),
        ((128, 32, 227 * 1024), 1, Limiter::SharedMemory, 4.0 / 64.0),
        // 113 KiB plus 1 KiB fit twice, 114 KiB plus 1 KiB do not.
        ((128, 32, 113 * 1024), 2, Limiter::SharedMemory, 8.0 / 64.0),
        ((128, 32, 114 * 1024), 1, Limiter::SharedMemory, 4.0 / 64.0),
    ];
    for ((threads, registers, shared), blocks, limiter, occupancy) in cases {
        let geometry = launch(1_000, threads, registers, shared);
        assert_eq!((geometry.resident_blocks, geometry.limiter), (blocks, limiter), "{threads} {registers} {shared}");
        assert_close(geometry.theoretical_occupancy, occupancy);
    }
}

#[test]
fn waves_and_tail() {
    // 1024 threads: two blocks on each of 132 SMs, 264 in a wave.
    let full = launch(528, 1024, 32, 0);
    assert_close(full.waves, 2.0);
    assert_close(full.tail_loss, 0.0);
    let tail = launch(265, 1024, 32, 0);
    assert_close(tail.tail_loss, 1.0 - 265.0 / 528.0);
    let single = launch(200, 1024, 32, 0);
    assert_close(single.tail_loss, 0.0);
    assert_close(single.sm_efficiency, 1.0);
    assert_close(single.achieved_occupancy, 200.0 / 264.0);
    let few = launch(33, 1024, 32, 0);
    assert_close(few.sm_efficiency, 0.25);
    assert_close(few.empty_multiprocessors(), 0.75);
    assert_close(few.achieved_occupancy, 0.125);
}

#[test]
fn what_does_not_fit_has_no_geometry() {
    for config in [
        LaunchConfig::default(),
        config(0, 128, 32, 0),
        config(1, 0, 32, 0),
        config(1, 2_080, 32, 0),
        config(1, 1_024, 255, 0),
        config(1, 128, 32, 228 * 1024),
        config(1, 128, 32, u32::MAX),
        config(1, 128, u16::MAX, 0),
        LaunchConfig { grid: [u32::MAX; 3], ..config(1, 128, 32, 0) },
        LaunchConfig { block: [u32::MAX; 3], ..config(1, 128, 32, 0) },
    ] {
        assert_eq!(Geometry::of(&config, &h200()), None, "{config:?}");
    }
}

proptest! {
    #[test]
    fn any_launch_on_any_device_stays_within_bounds(
        grid in proptest::array::uniform3(any::<u32>()),
        block in proptest::array::uniform3(0u32..200),
        registers in any::<u16>(),
        shared in (0u32..300_000, 0u32..300_000),
        capability in (5u32..14, 0u32..10),
        limits in proptest::array::uniform5(any::<u32>()),
    ) {
        let device = Device {
            compute_capability: [capability.0, capability.1],
            multiprocessors: limits[0],
            threads_per_multiprocessor: limits[1],
            blocks_per_multiprocessor: limits[2],
            registers_per_multiprocessor: limits[3],
            shared_bytes_per_multiprocessor: limits[4],
            ..Device::default()
        };
        let config = LaunchConfig {
            grid,
            block,
            registers_per_thread: registers,
            static_shared_bytes: shared.0,
            dynamic_shared_bytes: shared.1,
            ..LaunchConfig::default()
        };
        for room in [Multiprocessors::of(&device), Some(h200())].into_iter().flatten() {
            let Some(of) = Geometry::of(&config, &room) else { continue };
            prop_assert!(of.resident_blocks >= 1 && of.resident_blocks <= room.blocks);
            prop_assert!(of.theoretical_occupancy > 0.0 && of.theoretical_occupancy <= 1.0);
            prop_assert!(of.achieved_occupancy > 0.0 && of.achieved_occupancy <= of.theoretical_occupancy + 1e-9);
            prop_assert!(of.sm_efficiency > 0.0 && of.sm_efficiency <= 1.0);
            prop_assert!(of.waves > 0.0 && (0.0..0.5).contains(&of.tail_loss), "at most one wave of two");
        }
    }
}
