//! Totals by name: bounded tables that do not depend on order, and devices in any order.

use crate::support::{Scenario, gpu};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;

const NOW: u64 = 1_790_000_000_000_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(NOW + nanos)
}

/// A kernel of an interned configuration.
fn kernel(config: LaunchConfigId, start: u64, nanos: u64) -> Record {
    Record::Kernel(Kernel { start: at(start), end: at(start + nanos), config, ..Kernel::default() })
}

fn config(dictionary: &mut Dictionary, name: &str, blocks: u32) -> LaunchConfigId {
    let name = dictionary.intern_name(name);
    dictionary.intern_launch_config(LaunchConfig { name, grid: [blocks, 1, 1], ..LaunchConfig::default() })
}

#[test]
fn kernels_are_counted_by_name_and_by_configuration() {
    let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
    let [small, large, other] =
        [("gemm", 1), ("gemm", 9), ("relu", 1)].map(|(name, n)| config(&mut dictionary, name, n));
    // Kernels below 10 us are tiny.
    for (config, nanos) in [(small, 9_999), (large, 10_000), (other, 70), (small, 10_000), (other, 30), (small, 1)] {
        attributor.push(&kernel(config, 0, nanos), &dictionary);
    }
    let account = attributor.devices().next().unwrap();
    let name = |id: Option<NameId>| id.map(|id| dictionary.name(id).to_owned());
    let rows = account.statistics().kernels();
    let kernels: Vec<_> =
        rows.map(|(id, row)| (name(id).unwrap(), row.durations.count(), row.durations.total())).collect();
    assert_eq!(kernels, [("gemm".to_owned(), 4, 30_000), ("relu".to_owned(), 2, 100)]);
    let configs: Vec<_> =
        account.statistics().configs().map(|(id, row)| (id, row.count, row.total_ns, row.tiny_ns)).collect();
    assert_eq!(configs, [(small, 3, 20_000, 10_000), (large, 1, 10_000, 0), (other, 2, 100, 100)]);
    assert_eq!(attributor.completeness().kernel_table_overflow, 0);
}

#[test]
fn kernels_beyond_the_table_share_a_row_and_are_counted() {
    let (mut attributor, mut dictionary) = (Attributor::new(), Dictionary::new());
    let configs: Vec<_> = (0..16_386).map(|index| config(&mut dictionary, &format!("k{index}"), 1)).collect();
    for &config in configs.iter().chain([&configs[16_385], &configs[0]]) {
        attributor.push(&kernel(config, 0, 100), &dictionary);
    }
    let statistics = attributor.devices().next().unwrap().statistics();
    let shared: Vec<_> = statistics.kernels().filter(|(name, _)| name.is_none()).collect();
    assert_eq!((shared.len(), shared[0].1.durations.count()), (1, 3), "two names, one of them twice");
    assert_eq!(statistics.kernels().count(), 16_385);
    assert_eq!(statistics.kernel_table_overflow(), 3);
    assert_eq!(attributor.completeness().kernel_table_overflow, 3);
    let first = statistics.kernels().find(|(name, _)| name.is_some()).unwrap();
    assert_eq!(first.1.durations.count(), 2, "a name that has a row keeps it");
}

#[test]
fn calls_are_counted_by_function() {
    let mut scenario = Scenario::new();
    scenario.call_as(1, 1, "cudaMalloc_v3020", 100, 30, 0);
    scenario.call_as(2, 1, "cudaFree_v3020", 200, 5, 0);
    scenario.call_as(3, 2, "cudaMalloc_v3020", 100, 50, 2);
    scenario.call_as(4, 1, "cudaMalloc_v3020", 300, 20, 0);
    let attributor = scenario.run();
    let rows: Vec<_> = attributor
        .api_statistics()
        .map(|(id, row)| {
            let function = scenario.dictionary.api_function(id).unwrap();
            let name = scenario.dictionary.name(function.name).to_owned();
            (name, row.calls, row.failed, row.total_ns, row.max_ns)
        })
        .collect();
    assert_eq!(
        rows,
        [("cudaMalloc_v3020".to_owned(), 3, 1, 100_000, 50_000), ("cudaFree_v3020".to_owned(), 1, 0, 5_000, 5_000)]
    );
}

#[test]
fn functions_with_damaged_ids_have_rows_too() {
    let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
    for (function, nanos) in [(u32::MAX, 7), (4_096, 5), (4_095, 3), (u32::MAX, 2)] {
        let (start, end) = (at(u64::from(nanos as u32) * 100), at(u64::from(nanos as u32) * 100 + nanos));
        let call = ApiCall { start, end, function: ApiFunctionId(function), ..ApiCall::default() };
        attributor.push(&Record::Api(call), &dictionary);
    }
    attributor.finish(at(10_000), &dictionary);
    let mut rows: Vec<_> = attributor.api_statistics().map(|(id, row)| (id.0, row.calls, row.total_ns)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(4_095, 1, 3), (4_096, 1, 5), (u32::MAX, 2, 9)]);
}

#[test]
fn copies_are_counted_by_path_and_by_power_of_two() {
    let mut scenario = Scenario::new();
    for (index, bytes) in (0..).zip([1_024, 2_047, 2_048, 0]) {
        let at = 100 * index;
        gpu(0).h2d(MemoryKind::Pinned, bytes).at(at + 10).lasting(20).launched(&mut scenario, 1, at, 5);
    }
    gpu(0).d2h(MemoryKind::Pageable, 8).at(1_000).lasting(1).launched(&mut scenario, 1, 990, 5);
    let attributor = scenario.run();
    let statistics = attributor.devices().next().unwrap().statistics();
    assert_eq!(statistics.copies().count(), 2);
    let (_, up) = statistics.copies().find(|(path, _)| path.kind == CopyKind::HostToDevice).unwrap();
    assert_eq!((up.bytes, up.durations.count(), up.durations.total()), (5_119, 4, 80_000));
    let octaves: Vec<_> =
        up.octaves.iter().map(|row| (row.count, row.bytes, row.total_ns)).skip_while(|row| row.0 == 0).collect();
    assert_eq!(octaves, [(2, 3_071, 40_000), (1, 2_048, 20_000)]);
    assert_eq!(up.octaves.len(), 12, "2,048 is two to the power of eleven");
}

#[test]
fn devices_are_distinguished_in_whatever_order_they_come() {
    let mut scenario = Scenario::new();
    for (index, device) in (0..).zip([3, 0, 7, 1, 3, 0, 0]) {
        let at = 100 * index;
        gpu(device).kernel("k").at(at + 10).lasting(50).launched(&mut scenario, 1, at, 5);
    }
    let attributor = scenario.run();
    let devices: Vec<_> = attributor.devices().map(|account| (account.id().0, account.operations())).collect();
    assert_eq!(devices, [(0, 3), (1, 1), (3, 2), (7, 1)]);
    let windows: Vec<_> = attributor.devices().map(|account| account.window_ns() / 1_000).collect();
    assert_eq!(windows, [550, 50, 450, 50]);
}

#[test]
fn devices_beyond_256_are_damage() {
    let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
    for device in (0..258).rev() {
        let kernel = Kernel { start: at(0), end: at(10), device: DeviceId(device), ..Kernel::default() };
        attributor.push(&Record::Kernel(kernel), &dictionary);
    }
    attributor.finish(at(100), &dictionary);
    assert_eq!(attributor.devices().count(), 256);
    assert_eq!(attributor.completeness().bad_timestamps, 2);
    assert_eq!(attributor.completeness().kernels, 258);
}

#[test]
fn an_operation_that_no_window_can_hold_is_refused() {
    let refused = |nanos: u64| {
        let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
        let times = |start: u64, end: u64, graph_id| {
            let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
            Record::Kernel(Kernel { start, end, graph_id, ..Kernel::default() })
        };
        attributor.push(&times(1_000, 2_000, 0), &dictionary);
        attributor.push(&times(3_000, 1_000 + nanos, 5), &dictionary);
        // The flush is late enough for the end, and early enough for the start.
        attributor.finish(Timestamp::from_nanos(1 << 54), &dictionary);
        let account = attributor.devices().next().unwrap();
        let kept = (account.operations(), account.graph_operations(), account.graph_ns() > 0);
        (attributor.completeness().bad_timestamps, kept)
    };
    assert_eq!(refused(1 << 54), (0, (2, 1, true)));
    assert_eq!(refused((1 << 54) + 1), (1, (1, 0, false)));
}
