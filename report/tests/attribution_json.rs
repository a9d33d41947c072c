//! The JSON report is parsed with separate types that reject unknown fields: a change of the wire format also
//! has to change this file, `docs/reference/report.md` and the schema version.

use std::collections::BTreeMap;

use crate::support::{Scenario, gpu};
use gpuwhy_trace::record::{HostSample, MemoryKind};
use profiler_core::leaf::Leaf;
use serde::Deserialize;

macro_rules! wire {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "that a field is there is what is tested")]
        struct $name { $($field: $type),* }
    )*};
}

wire! {
    Report {
        schema_version: u32, process: Process, observed_ns: u64, completeness: Completeness, devices: Vec<Device>,
        api: Vec<Api>, host: Option<Host>, kernel_libraries: Vec<KernelLibrary>, kernel_lines: Option<KernelLines>, graph_origins: Option<serde_json::Value>, ranges: Option<Ranges>, memory: Option<Memory>, bottleneck: Bottleneck, phases: Vec<PhaseOfRun>, serving: Option<Serving>, capture: Option<u32>, captures: Vec<Capture>,
    }
    KernelLibrary {
        library: Option<String>, kernels: u64, count: u64, total_ns: u64, by_samples_ns: u64, share: f64, largest_kernel: String,
    }
    KernelLines {
        basis: String, samples: u64, samples_in_copies: u64, samples_elsewhere: u64, samples_without_record: u64,
        samples_without_row: u64, kernel_ns: u64, not_sampled_ns: u64, placed_ns: u64,
        left_out: Option<String>, distinct_lines: u64, distinct_kernels: u64, lines: Vec<KernelLine>, kernels: Vec<KernelAtLine>,
    }
    KernelLine {
        file: String, line: u32, function: String, within: Option<Within>, module: Option<String>, parent: Option<String>, operator: Option<String>,
        binary: Option<String>, samples: u64, total_ns: u64, low_ns: u64, high_ns: u64, share: f64, kernels: u64,
        largest_kernel: String,
    }
    KernelAtLine {
        kernel: String, graph: Option<u32>, library: Option<String>, file: String, line: u32, function: String,
        within: Option<Within>, module: Option<String>, parent: Option<String>, operator: Option<String>, binary: Option<String>, samples: u64,
        total_ns: u64, low_ns: u64, high_ns: u64, kernel_samples: u64, kernel_ns: u64,
    }
    Capture {
        number: u32, trigger: String, begin_unix_ns: u64, end_unix_ns: Option<u64>, kernels: u64, bottleneck: Option<String>,
        share: Option<f64>,
    }
    Serving {
        server: Option<String>, on_host: bool, kinds: Vec<ServingKind>, tokens_per_second: Option<f64>,
        no_requests_share: Option<f64>, between: Vec<Meaning>, tokens_per_second_bound: Option<TokenBound>,
    }
    ServingKind {
        name: String, count: u64, median_ns: u64, p99_ns: u64, sequences: Option<u32>, tokens: Option<u64>,
        tokens_per_second: Option<f64>, busy: Option<f64>, cause: Option<String>, share: Option<f64>,
        slow_by: Option<String>, slow_by_share: Option<f64>,
    }
    Meaning { meaning: String, sampled_ns: u64, total_ns: u64 }
    TokenBound { now: f64, value: f64, low: f64, high: f64 }
    CallLine { calls: String, file: String, line: u32, function: String, samples: u64, share: f64, share_low: f64, share_high: f64, inner: Vec<InnerLine> }
    InnerLine { file: String, line: u32, function: String, share: f64 }
    LockHolder { thread: String, file: String, line: u32, function: String, calls_cuda: bool, samples: u64 }
    PhaseOfRun { begin_ns: u64, end_ns: u64, cause: String, share: f64 }
    Host {
        samples: u64, failed_samples: u64, garbage_collection_samples: u64, covered_ns: u64, on_cpu_ns: u64, runnable_ns: u64, data_loading_ns: u64,
        off_cpu_ns: BTreeMap<String, u64>, outside_cuda_ns: u64, sampled_ns: u64, causes: BTreeMap<String, u64>, lines: Vec<Line>,
        calls: Vec<CallLine>, lock_waits: u64, lock_holders: Vec<LockHolder>,
    }
    Line {
        cause: String, file: String, line: u32, function: String, within: Option<Within>, samples: u64, sampled_ns: u64,
        total_ns: u64, share: f64, share_low: f64, share_high: f64, step_ns: Option<u64>,
    }
    Within { file: String, function: String }
    Memory {
        devices: Vec<DeviceMemory>, calls: Vec<MemoryCalls>, calls_ns: u64, places: Vec<MemoryPlace>,
        unknown_releases: u64, table_overflow: u64, pytorch: Option<BlockLooks>,
    }
    DeviceMemory {
        device: u32, total_bytes: Option<u64>, readings: u64, peak_used_bytes: Option<u64>, peak_unix_ns: Option<u64>,
        peak_until_end: Option<bool>, peak_step: Option<u64>, peak_in: Option<String>, last_used_bytes: Option<u64>,
        peak_own_bytes: Option<u64>, other_processes_bytes: Option<u64>, jump: Option<MemoryJump>,
        allocations: Option<u64>, releases: Option<u64>, failed: Option<u64>, retried: Option<u64>,
        held_bytes: Option<u64>, held_peak_bytes: Option<u64>, allocated_bytes: Option<u64>,
        largest_bytes: Option<u64>, pool_peak_bytes: Option<u64>, module_variables: Option<u64>,
        remainder_bytes: Option<u64>, remainder_since_unix_ns: Option<u64>, growth_per_step: Option<MemoryGrowth>,
        growth_judged: bool, owners: Vec<MemoryOwner>, blocks: Option<Blocks>,
    }
    MemoryOwner {
        owner: String, peak_bytes: i64, bytes: i64, least: Option<i64>, most: Option<i64>, near: Option<LineNear>,
    }
    Blocks { peak: Option<BlockState>, growth: Option<BlockGrowth>, out_of_memory: Vec<OutOfMemory> }
    BlockState {
        unix_ns: u64, moment: String, step: u64, allocated_bytes: u64, reserved_bytes: u64, free_bytes: u64,
        largest_gap_bytes: u64, peak_bytes: u64, expandable: bool, rows: Vec<BlockRow>,
    }
    BlockRow { class: String, site: Option<LineNear>, bytes: u64, count: u64 }
    BlockGrowth { bytes: f64, low: f64, high: f64, site: Option<LineNear>, site_bytes: Option<f64> }
    OutOfMemory {
        unix_ns: u64, step: u64, asked_bytes: u64, free_bytes: u64, site: Option<LineNear>, cache_bytes: Option<u64>,
        largest_gap_bytes: Option<u64>, expandable: bool,
    }
    BlockLooks { steps: u64, note: Option<String>, skipped: Option<u64>, total_ns: Option<u64> }
    MemoryJump {
        bytes: u64, from_unix_ns: u64, to_unix_ns: u64, calls: BTreeMap<String, u64>, longest: Option<LongestCall>,
        near: Option<LineNear>,
    }
    LongestCall { function: String, unix_ns: u64 }
    LineNear { function: String, file: String, line: u32 }
    MemoryGrowth { bytes: f64, low: f64, high: f64, steps_until_full: Option<u64> }
    MemoryCalls { function: String, calls: u64, failed: u64, total_ns: u64 }
    MemoryPlace {
        device: u32, kind: String, peak_bytes: u64, peak_unix_ns: u64, peak_by: Option<PeakBy>, current_bytes: u64,
        allocations: u64, releases: u64, allocated_bytes: u64, largest_bytes: u64, pool_peak_bytes: u64,
    }
    PeakBy { thread: u32, function: String, range: Option<String> }
    Ranges {
        open: u64, unmatched: u64, table_overflow: u64, kernel_overflow: u64, evicted: u64, rows: Vec<Range>,
    }
    Range {
        domain: String, message: String, style: String, host: Spread, projected: Spread, operations: u64,
        mean_level: f64, mean_children: f64, device_ns: u64, idle: BTreeMap<String, u64>, kernels: Vec<RangeKernel>,
    }
    Spread {
        count: u64, total_ns: u64, mean_ns: u64, median_ns: u64, min_ns: u64, max_ns: u64, deviation_ns: f64,
    }
    RangeKernel { name: String, count: u64, total_ns: u64, median_ns: u64 }
    Process {
        pid: u32, parent_pid: u32, command: Vec<String>, host: String, start_time_unix_ns: u64,
        gpuwhy_version: String, driver_version: String, driver_cuda_version: u32, cupti_version: u32,
        rank_variables: BTreeMap<String, String>, devices: Vec<String>, notes: Vec<String>,
    }
    Completeness {
        records: Records, nested_api_calls: u64, dropped_by_cupti: u64, dropped_by_gpuwhy: u64, unknown_kinds: u64,
        broken_buffers: u64, broken_bytes: u64, undelivered_buffers: u64,
        dropped_ranges: u64, failed_samples: u64, dictionary_overflow: u64, unobserved_ns: u64, own_kernels: u64, dropped_collectives: u64,
        unplaced_graph_nodes: u64, dropped_graph_nodes: u64, dropped_memory_calls: u64, bad_timestamps: u64,
        launches_without_activity: u64, activities_without_launch: u64, shared_ids: u64, ordered_launches: u64, clamped_clocks: u64, late_ns: u64, late_corrected_ns: u64,
        kernel_table_overflow: u64, complete_until_unix_ns: Option<u64>, flush_interval_ns: Option<u64>, end: String, damage: Vec<String>,
    }
    Records {
        kernels: u64, graphs: u64, copies: u64, memsets: u64, api_calls: u64, syncs: u64, events: u64, overheads: u64, ranges: u64, samples: u64,
        memory_events: u64, managed_events: u64,
    }
    Device {
        id: u32, name: String, pcie: Option<Pcie>, window_ns: u64, leaves: BTreeMap<String, u64>, steady_leaves: BTreeMap<String, u64>, busy: f64,
        steps: Option<Steps>, step_kinds: Vec<StepKind>, what_if: Option<WhatIf>, untraced: Option<Untraced>,
        host_lead: HostLead, gaps: Vec<Gap>, builds: Builds, other_processes: Vec<OtherProcess>,
        awaited: Vec<Awaited>, overlap: Vec<Overlap>, kernels: Vec<Kernel>, copies: Vec<Copy>, compute: Compute,
        managed: Option<ManagedPages>, copy_overlap: CopyOverlap,
    }
    Gap { leaf: String, kind: String, name: Option<String>, count: u64, total_ns: u64, longest_ns: u64 }
    Builds { count: u64, total_ns: u64, later_count: u64, later_ns: u64 }
    OtherProcess { pid: u32, name: String, busy: Option<f64>, memory_bytes: Option<u64>, operations: Option<u64>, work_ns: Option<u64> }
    ManagedPages {
        share_of_kernel_time: f64, to_device: u64, to_device_bytes: u64, to_host: u64, to_host_bytes: u64, page_faults: u64,
        without_time: u64,
    }
    Awaited { work: String, other_device: bool, count: u64, total_ns: u64, longest_ns: u64 }
    HostLead { launches: u64, late: u64, median_ns: u64, min_ns: u64, held_back: u64, held_back_ns: u64 }
    Pcie { generation: u32, lanes: u32, gigabytes_per_second: f64 }
    Steps {
        source: String, period: Option<u64>, recognized_by: Option<String>, inside: Option<Inside>,
        contains: Option<u32>, seen: u64, median_ns: u64, rows: Vec<Step>,
    }
    Inside { times: u32, launches: u32 }
    WhatIf {
        simulated: bool, refused: Option<String>, steps: u64, represented_steps: u64, base_error: Option<f64>,
        scenarios: Vec<World>,
    }
    World { kind: String, step_ns: u64, speedup: Option<f64>, low: Option<f64>, high: Option<f64> }
    Step { start_unix_ns: u64, duration_ns: u64, leaves: BTreeMap<String, u64>, iteration: Option<Iteration> }
    Iteration { kind: String, sequences: Option<u32>, tokens: Option<u32> }
    Basis { steps: u64, set_aside: u64, share_low: f64, share_high: f64 }
    Untraced { step_ns: u64, step_range_ns: (u64, u64), share_of_tracing: f64, source: String }
    StepKind {
        name: String, count: u64, total_ns: u64, median_ns: u64, p99_ns: u64, sequences: Option<u32>, tokens: Option<u64>, leaves: BTreeMap<String, u64>,
    }
    Overlap { top: String, beneath: String, ns: u64 }
    Kernel {
        name: String, library: Option<String>, communication: bool, count: u64, total_ns: u64, steady_count: u64, steady_ns: u64, mean_ns: u64, median_ns: u64, min_ns: u64,
        max_ns: u64, geometry: Option<Geometry>,
    }
    Geometry {
        configurations: u64, known_ns: u64, limiter: String, theoretical_occupancy: f64, achieved_occupancy: f64,
        sm_efficiency: f64, waves: f64, tail_loss: f64,
    }
    Compute {
        classes: BTreeMap<String, u64>, multiprocessors: u32, window_sm_efficiency: Option<f64>,
        geometry: Option<Geometry>,
    }
    Copy {
        direction: String, source: String, destination: String, count: u64, bytes: u64, total_ns: u64,
        median_ns: u64, gigabytes_per_second: f64, class: String, link_gigabytes_per_second: Option<f64>,
        fit: Option<Fit>,
    }
    Fit { latency_ns: f64, gigabytes_per_second: f64 }
    CopyOverlap { exposed_ns: u64, hidden_ns: u64, serial: bool }
    Api { name: String, calls: u64, failed: u64, total_ns: u64, max_ns: u64 }
    Bottleneck {
        cause: String, share: f64, ranking: Vec<Ranked>, basis: Option<Basis>, best_case: Option<World>, evidence: Vec<String>,
        recommendation: String, remedies: Vec<RemedyOf>, plan: Vec<Fix>,
    }
    RemedyOf {
        id: String, text: String, at: Option<String>, results: String, certainty: String, speedup: Option<f64>, low: Option<f64>,
        high: Option<f64>, link: Option<String>, outside: bool, measured: Option<serde_json::Value>,
    }
    Fix {
        kind: String, action: String, because: Option<String>, speedup: f64, low: f64, high: f64, then: Option<String>,
    }
    Ranked { cause: String, share: f64, recoverable: f64, by: String }
}

fn read_back(scenario: &Scenario) -> Report {
    let json = serde_json::to_string(&scenario.report()).unwrap();
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}\n{json}"))
}

#[test]
fn every_field_is_declared_and_the_leaves_sum_to_the_window() {
    let mut scenario = Scenario::new();
    for step in 0..50 {
        let at = 100 + step * 1_000;
        let copy = gpu(0).stream(9).h2d(MemoryKind::Pinned, 1 << 20).at(at + 100).lasting(100);
        copy.launched(&mut scenario, 1, at + 20, 5);
        gpu(0).kernel("_Z4gemmPfS_i").at(at + 10).lasting(200).launched(&mut scenario, 1, at, 5);
    }
    let report = read_back(&scenario);
    assert_eq!(report.schema_version, 2);
    assert_eq!((report.process.pid, report.completeness.end.as_str()), (42, "clean"));
    assert_eq!(report.completeness.records.kernels, 50);
    assert_eq!(report.bottleneck.cause, "host_cpu");
    let device = &report.devices[0];
    assert_eq!(device.leaves.len(), Leaf::ALL.len(), "leaves of zero are written too");
    assert_eq!(device.leaves.values().sum::<u64>(), device.window_ns);
    assert_eq!(device.leaves["compute"], 50 * 200_000);
    let gap = &device.gaps[0];
    assert_eq!((gap.leaf.as_str(), gap.kind.as_str(), gap.name.as_deref()), ("host_cpu", "kernel", Some("gemm")));
    assert_eq!((gap.count, gap.total_ns, gap.longest_ns), (49, 49 * 790_000, 790_000));
    assert_eq!((device.gaps.len(), gap.total_ns), (1, device.steady_leaves["host_cpu"]));
    let overlap = &device.overlap[0];
    assert_eq!((overlap.top.as_str(), overlap.beneath.as_str(), overlap.ns), ("compute", "copy", 50 * 100_000));
    let kernel = &device.kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.count), ("gemm", 50));
    assert!(kernel.median_ns.abs_diff(200_000) <= 200_000 / 32);
    let copy = &device.copies[0];
    assert_eq!((copy.direction.as_str(), copy.source.as_str()), ("host_to_device", "pinned"));
    assert!((copy.gigabytes_per_second - 1_048_576.0 / 100_000.0).abs() < 1e-9);
    assert_eq!((copy.class.as_str(), copy.fit.is_some()), ("bandwidth", false), "all of one size");
    assert!((copy.link_gigabytes_per_second.unwrap() - copy.gigabytes_per_second).abs() < 1e-9);
    assert_eq!(device.copy_overlap.hidden_ns, 50 * 100_000);
    assert!(!device.copy_overlap.serial);
    assert_eq!(device.compute.classes["unknown"], 50 * 200_000, "no device record");
    assert!(kernel.geometry.is_none() && device.compute.geometry.is_none());
    let launch = report.api.iter().find(|row| row.name == "cudaLaunchKernel").unwrap();
    assert_eq!((launch.calls, launch.failed, launch.total_ns), (50, 0, 250_000));
}

#[test]
fn lines_and_libraries_are_read_back() {
    let mut scenario = Scenario::new();
    for index in 0..4 {
        let at = 1_000 * (index + 1);
        gpu(0).kernel("volta_sgemm_64x64_nn").at(at + 20).lasting(100).launched(&mut scenario, 1, at, 150);
        let line = if index == 3 { 50 } else { 42 };
        scenario.sample(1, at, at + 4, HostSample::default(), &[("/home/u/net.py", "Net.forward", line)]);
    }
    let report = read_back(&scenario);
    assert_eq!(report.devices[0].kernels[0].library.as_deref(), Some("cuBLAS"));
    let library = &report.kernel_libraries[0];
    assert_eq!((library.library.as_deref(), library.total_ns, library.kernels), (Some("cuBLAS"), 400_000, 1));
    let lines = report.kernel_lines.unwrap();
    assert_eq!((lines.basis.as_str(), lines.samples, lines.distinct_lines), ("estimate", 4, 2));
    let (line, kernel) = (&lines.lines[0], &lines.kernels[1]);
    assert_eq!((line.line, line.samples, line.total_ns, line.module.as_deref()), (42, 3, 300_000, Some("Net")));
    assert_eq!((kernel.line, kernel.samples, kernel.kernel_samples, kernel.kernel_ns), (50, 1, 4, 400_000));
    assert!(kernel.low_ns < kernel.total_ns && kernel.total_ns < kernel.high_ns);
}

#[test]
fn steps_are_listed_with_their_leaves() {
    let mut scenario = Scenario::new();
    for step in 0..400 {
        for (index, name) in ["gemm", "relu", "adam"].into_iter().enumerate() {
            let at = 100 + step * 1_000 + index as u64 * 100;
            gpu(0).kernel(name).at(at + 10).lasting(50).launched(&mut scenario, 1, at, 5);
        }
        for index in 0..5 {
            let at = 400 + step * 1_000 + index * 50;
            gpu(0).kernel("bias").at(at + 10).lasting(20).launched(&mut scenario, 1, at, 5);
        }
    }
    let report = read_back(&scenario);
    let steps = report.devices[0].steps.as_ref().unwrap();
    assert_eq!((steps.source.as_str(), steps.period, steps.median_ns), ("period", Some(8), 1_000_000));
    assert_eq!(steps.rows.len(), 64, "the newest");
    assert!(steps.seen > 64 && steps.seen < 400);
    for (row, next) in steps.rows.iter().zip(&steps.rows[1..]) {
        assert_eq!(row.start_unix_ns + row.duration_ns, next.start_unix_ns);
        assert_eq!(row.leaves.values().sum::<u64>(), row.duration_ns);
        assert_eq!(row.leaves["compute"], 250_000);
    }
    let what_if = report.devices[0].what_if.as_ref().unwrap();
    assert!(what_if.simulated && what_if.base_error.unwrap() < 0.01, "{what_if:?}");
    let free = what_if.scenarios.iter().find(|scenario| scenario.kind == "launches_free").unwrap();
    assert!(free.speedup.unwrap() > 1.5 && free.step_ns < steps.median_ns, "{what_if:?}");
    let basis = report.bottleneck.basis.unwrap();
    assert_eq!((basis.set_aside, report.bottleneck.cause.as_str()), (0, "host_cpu"));
    assert!(basis.share_low <= report.bottleneck.share && report.bottleneck.share <= basis.share_high);
    assert!(basis.steps + 3 >= steps.seen && basis.steps <= steps.seen);
}

#[test]
fn an_empty_run_is_a_document_too() {
    let report = read_back(&Scenario::new());
    assert!(report.devices.is_empty());
    assert_eq!((report.bottleneck.cause.as_str(), report.observed_ns), ("no_work", 0));
}
