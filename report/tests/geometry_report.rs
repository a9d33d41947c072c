//! Compute split and copy classes of synthetic programs, through the attributor into the report.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::run::compute::compute_evidence;
use gpuwhy_report::run::copies::copy_evidence;
use gpuwhy_report::run::{CopyClass, DeviceReport, GridClass};
use gpuwhy_trace::record::*;

/// A device of 100 multiprocessors with space for 2,048 threads each.
fn with_device() -> Scenario {
    let mut scenario = Scenario::new();
    scenario.dictionary.add_device(Device {
        compute_capability: [9, 0],
        multiprocessors: 100,
        threads_per_multiprocessor: 2_048,
        blocks_per_multiprocessor: 32,
        registers_per_multiprocessor: 65_536,
        shared_bytes_per_multiprocessor: 233_472,
        ..Device::default()
    });
    scenario
}

/// A kernel of `blocks` blocks of 1,024 threads: two fit on a multiprocessor, 200 on the device. Microseconds.
fn kernel(scenario: &mut Scenario, name: &str, blocks: u32, registers: u16, at: u64, lasting: u64) {
    let name = scenario.dictionary.intern_name(name);
    let config = scenario.dictionary.intern_launch_config(LaunchConfig {
        name,
        grid: [blocks, 1, 1],
        block: [1_024, 1, 1],
        registers_per_thread: registers,
        ..LaunchConfig::default()
    });
    let end = Timestamp::from_nanos(ZERO + (at + lasting) * 1_000);
    let start = Timestamp::from_nanos(ZERO + at * 1_000);
    scenario.records.push((end.nanos(), Record::Kernel(Kernel { start, end, config, ..Kernel::default() })));
}

fn device(scenario: &Scenario) -> DeviceReport {
    let mut report = scenario.report();
    assert_eq!(report.devices.len(), 1);
    report.devices.remove(0)
}

#[track_caller]
fn assert_close(actual: f64, expected: f64, tolerance: f64) {
    assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected}");
}

#[test]
fn compute_time_is_split_by_the_grids_of_kernels() {
    let mut scenario = with_device();
    kernel(&mut scenario, "full", 400, 32, 0, 100);
    kernel(&mut scenario, "small_grid", 25, 32, 100, 300);
    kernel(&mut scenario, "tail", 201, 32, 400, 200);
    kernel(&mut scenario, "small_grid", 25, 32, 600, 9);
    kernel(&mut scenario, "ncclDevKernel_AllReduce", 16, 32, 700, 300);
    kernel(&mut scenario, "shapeless", 0, 32, 1_000, 8);
    kernel(&mut scenario, "shapeless", 0, 32, 1_100, 20);
    let device = device(&scenario);
    let compute = &device.compute;
    for (class, micros) in [
        (GridClass::Tiny, 9 + 8),
        (GridClass::UnderFilled, 300),
        (GridClass::Tail, 200),
        (GridClass::LowOccupancy, 0),
        (GridClass::Full, 100),
        (GridClass::Unknown, 20),
    ] {
        assert_eq!(compute.time(class), micros * 1_000, "{}", class.name());
    }
    assert_eq!(compute.total(), 637_000, "communication is left out");
    let geometry = compute.geometry.expect("4.4 % are unknown");
    assert_eq!((geometry.configurations, geometry.known_ns), (3, 609_000));
    let filled = 100.0 + 0.25 * 309.0 + 200.0;
    assert_close(geometry.sm_efficiency, filled / 609.0, 1e-9);
    assert_close(compute.window_sm_efficiency.unwrap(), filled / 1_120.0, 1e-9);
    let resident = 100.0 + 0.125 * 309.0 + 200.0;
    assert_close(geometry.achieved_occupancy, resident / 609.0, 1e-9);
    let small = device.kernels.iter().find(|row| row.name == "small_grid").unwrap().geometry.unwrap();
    assert_close(small.waves, 0.125, 1e-9);
    assert!(device.kernels.iter().find(|row| row.name == "shapeless").unwrap().geometry.is_none());
    let evidence = compute_evidence(compute, true);
    assert_eq!(evidence.len(), 2, "{evidence:?}");
    assert!(evidence[0].starts_with("47 %") && evidence[0].contains("100 multiprocessors"), "{evidence:?}");
    assert!(evidence[1].starts_with("31 %"), "{evidence:?}");
}

#[test]
fn a_kernel_of_many_shapes_is_weighted_by_time() {
    let mut scenario = with_device();
    kernel(&mut scenario, "gemm", 50, 32, 0, 300);
    kernel(&mut scenario, "gemm", 200, 64, 300, 100);
    let device = device(&scenario);
    let gemm = device.kernels[0].geometry.unwrap();
    assert_eq!(gemm.configurations, 2);
    assert_close(gemm.sm_efficiency, (0.5 * 300.0 + 100.0) / 400.0, 1e-9);
    // 64 registers allow one block of 1,024 threads.
    assert_close(gemm.theoretical_occupancy, (300.0 + 0.5 * 100.0) / 400.0, 1e-9);
    assert_eq!(gemm.limiter.name(), "threads", "of the configuration with the most time");
}

#[test]
fn without_a_device_record_nothing_is_claimed() {
    let mut scenario = Scenario::new();
    kernel(&mut scenario, "gemm", 50, 32, 0, 300);
    let device = device(&scenario);
    assert_eq!(device.compute.time(GridClass::Unknown), 300_000);
    assert_eq!((device.compute.geometry, device.compute.window_sm_efficiency), (None, None));
    assert!(compute_evidence(&device.compute, true).is_empty());
}

/// Copies to the device at 20 GB/s beyond 5 us, one after the other.
fn copies(scenario: &mut Scenario, memory: MemoryKind, sizes: &[u64], from: u64) -> u64 {
    let mut at = from;
    for &size in sizes {
        let lasting = 5 + size / 20_000;
        scenario.add(gpu(0).h2d(memory, size).at(at).lasting(lasting));
        at += lasting;
    }
    at
}

#[test]
fn the_fit_finds_the_fixed_cost_and_the_rate() {
    let mut scenario = Scenario::new();
    let sizes: Vec<u64> = (0..40).map(|index| 20_000 << (index % 10)).collect();
    copies(&mut scenario, MemoryKind::Pinned, &sizes, 0);
    let device = device(&scenario);
    let row = &device.copies[0];
    let fit = row.fit.unwrap();
    assert_close(fit.latency_ns, 5_000.0, 1.0);
    assert_close(fit.gigabytes_per_second, 20.0, 0.001);
    assert_eq!(row.class, CopyClass::Bandwidth);
    assert_close(row.link_gigabytes_per_second.unwrap(), 20.0, 0.3);
}

#[test]
fn small_copies_are_bound_by_their_fixed_cost() {
    let mut scenario = Scenario::new();
    let mut sizes = vec![20_000; 500];
    sizes.extend([2_000_000, 2_000_000]);
    copies(&mut scenario, MemoryKind::Pinned, &sizes, 0);
    let device = device(&scenario);
    assert_eq!(device.copies[0].class, CopyClass::Latency);
    assert!(copy_evidence(&device)[0].contains("take 5.0 us each whatever their size"), "{:?}", copy_evidence(&device));
    // The same without a second size to compare with.
    let mut scenario = Scenario::new();
    copies(&mut scenario, MemoryKind::Pinned, &[20_000; 500], 0);
    let device = self::device(&scenario);
    assert_eq!((device.copies[0].class, device.copies[0].fit), (CopyClass::Latency, None));
}

#[test]
fn ordinary_memory_is_measured_against_page_locked_memory() {
    let mut scenario = Scenario::new();
    for index in 0..20 {
        // 67 MB in 4 ms are 16.8 GB/s.
        scenario.add(gpu(0).h2d(MemoryKind::Pageable, 1 << 26).at(index * 10_000).lasting(4_000));
    }
    let alone = device(&scenario);
    assert_eq!(alone.copies[0].class, CopyClass::Staging);
    let mut both = Scenario::new();
    for index in 0..20 {
        both.add(gpu(0).h2d(MemoryKind::Pageable, 1 << 26).at(index * 10_000).lasting(4_000));
        both.add(gpu(0).h2d(MemoryKind::Pinned, 1 << 26).at(index * 10_000 + 4_000).lasting(3_900));
    }
    let both = device(&both);
    let classes: Vec<_> = both.copies.iter().map(|row| row.class).collect();
    assert_eq!(classes, [CopyClass::Bandwidth; 2], "no faster than page-locked memory: the link is the limit");
}

#[test]
fn a_link_that_is_known_is_the_measure() {
    let classes = |generation: u32, megatransfers: u32, lanes: u32| {
        let mut scenario = Scenario::new();
        scenario.dictionary.add_link(PcieLink { device: DeviceId(0), generation, megatransfers, lanes });
        // 67 MB in 5 ms are 13.4 GB/s, in 6 ms 11.2.
        scenario.add(gpu(0).h2d(MemoryKind::Pinned, 1 << 26).at(0).lasting(5_000));
        scenario.add(gpu(0).h2d(MemoryKind::Pageable, 1 << 26).at(10_000).lasting(6_000));
        let device = device(&scenario);
        assert_eq!(device.copies[0].path.source, MemoryKind::Pageable, "the longest first");
        ((device.copies[0].class, device.copies[1].class), copy_evidence(&device).remove(0))
    };
    let (fast, evidence) = classes(5, 32_000, 16);
    assert_eq!(fast, (CopyClass::Staging, CopyClass::Mixed));
    assert!(evidence.contains("at 11.2 GB/s (PCIe 5 x16 can do 63 GB/s)"), "{evidence}");
    let (slow, evidence) = classes(3, 8_000, 16);
    assert_eq!(slow, (CopyClass::Bandwidth, CopyClass::Bandwidth), "page-locked memory would not help");
    assert!(evidence.contains("83 % of what the link reaches (PCIe 3 x16 can do 16 GB/s)"), "{evidence}");
}

#[test]
fn copies_and_kernels_that_take_turns_are_distinguished_from_those_that_overlap() {
    let program = |kernel_at: u64| {
        let mut scenario = Scenario::new();
        for step in 0..10 {
            scenario.add(gpu(0).stream(9).h2d(MemoryKind::Pinned, 1 << 22).at(step * 1_000).lasting(200));
            scenario.add(gpu(0).kernel("gemm").at(step * 1_000 + kernel_at).lasting(500));
        }
        device(&scenario)
    };
    let serial = program(200);
    assert!(serial.copy_overlap.serial);
    assert_eq!((serial.copy_overlap.exposed_ns, serial.copy_overlap.hidden_ns), (2_000_000, 0));
    assert!(copy_evidence(&serial)[0].contains("take turns"));
    // 19 us of 200 beneath the kernel are under 10 %, 20 are not.
    assert!(program(181).copy_overlap.serial);
    assert!(!program(180).copy_overlap.serial);
    let hidden = program(0);
    assert_eq!((hidden.copy_overlap.serial, hidden.copy_overlap.exposed_ns), (false, 0));
}
