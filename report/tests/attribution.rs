//! One synthetic program for each cause of device time, with the expected result computed by hand.

use crate::support::{Scenario, assert_leaves, gpu};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{MemoryKind, Timestamp};
use profiler_core::attribution::{Attributor, Producer};
use profiler_core::leaf::{Leaf, WorkKind};

/// A kernel of 100 us at 0 launched just before; the test adds the rest.
fn after_a_kernel() -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    scenario
}

#[test]
fn computation_covers_communication_and_copies() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("gemm").at(100).lasting(50).launched(&mut scenario, 1, 90, 5);
    gpu(0).stream(8).kernel("ncclDevKernel_AllReduce").at(120).lasting(60).launched(&mut scenario, 1, 95, 5);
    gpu(0).stream(9).h2d(MemoryKind::Pinned, 1 << 20).at(140).lasting(60).launched(&mut scenario, 1, 100, 5);
    gpu(0).stream(9).memset(64).at(200).lasting(5).launched(&mut scenario, 1, 105, 5);
    let attributor = scenario.run();
    assert_leaves(
        &crate::support::only_leaves(&attributor),
        &[(Leaf::Compute, 50), (Leaf::Communication, 30), (Leaf::CopyH2dPinned, 20), (Leaf::Memset, 5)],
    );
    let overlap = *attributor.devices().next().unwrap().overlap();
    assert_eq!(overlap[WorkKind::Compute as usize][WorkKind::Communication as usize], 30_000);
    assert_eq!(overlap[WorkKind::Compute as usize][WorkKind::Copy as usize], 10_000);
    assert_eq!(overlap[WorkKind::Communication as usize][WorkKind::Copy as usize], 30_000);
    assert_eq!(overlap[WorkKind::Compute as usize][WorkKind::Compute as usize], 0);
    assert_eq!(
        overlap[WorkKind::Communication as usize][WorkKind::Compute as usize],
        0,
        "of two, computation comes first"
    );
}

#[test]
fn a_queued_kernel_leaves_an_inter_kernel_gap_or_waits_for_something() {
    let mut scenario = after_a_kernel();
    gpu(0).kernel("second").at(202).lasting(10).launched(&mut scenario, 1, 95, 5);
    gpu(0).kernel("third").at(300).lasting(10).launched(&mut scenario, 1, 100, 5);
    assert_leaves(&scenario.leaves(), &[(Leaf::Compute, 120), (Leaf::InterKernel, 2), (Leaf::DependencyWait, 88)]);
}

#[test]
fn nodes_of_a_graph_wait_as_such() {
    let mut scenario = after_a_kernel();
    let graph = scenario.call(1, "cudaGraphLaunch_v10000", 100, 20);
    scenario.add(gpu(0).kernel("node_a").at(203).lasting(10).of_graph(5).by(graph));
    scenario.add(gpu(0).kernel("node_b").at(313).lasting(10).of_graph(5).by(graph));
    let attributor = scenario.run();
    assert_leaves(
        &crate::support::only_leaves(&attributor),
        &[(Leaf::Compute, 120), (Leaf::InterKernel, 3), (Leaf::GraphWait, 100)],
    );
    let completeness = attributor.completeness();
    assert_eq!((completeness.activities_without_launch, completeness.launches_without_activity), (0, 0));
}

#[test]
fn a_late_launch_is_dispatch_call_and_latency() {
    let mut scenario = after_a_kernel();
    // No CUDA call between 95 and 230: longer than dispatch. The next gap is short.
    gpu(0).kernel("second").at(240).lasting(10).launched(&mut scenario, 1, 230, 6);
    gpu(0).kernel("third").at(300).lasting(10).launched(&mut scenario, 1, 290, 6);
    assert_leaves(
        &scenario.leaves(),
        &[
            (Leaf::Compute, 120),
            (Leaf::HostCpu, 30),
            (Leaf::Dispatch, 40),
            (Leaf::LaunchApi, 12),
            (Leaf::LaunchLatency, 8),
        ],
    );
}

#[test]
fn a_wait_costs_the_run_ahead_it_took_and_no_more() {
    let mut scenario = after_a_kernel();
    // Blocked from 150 to 205; the device ran out of work at 200. Of the 60 us until the next launch, 50
    // would have been hidden, and 5 passed inside the call.
    scenario.call(1, "cudaDeviceSynchronize_v3020", 150, 55);
    gpu(0).kernel("second").at(275).lasting(10).launched(&mut scenario, 1, 265, 5);
    assert_leaves(
        &scenario.leaves(),
        &[
            (Leaf::Compute, 110),
            (Leaf::SyncDrain, 55),
            (Leaf::Dispatch, 10),
            (Leaf::LaunchApi, 5),
            (Leaf::LaunchLatency, 5),
        ],
    );
}

#[test]
fn a_wait_while_work_is_queued_costs_nothing() {
    let mut scenario = after_a_kernel();
    gpu(0).kernel("second").at(201).lasting(100).launched(&mut scenario, 1, 96, 4);
    scenario.call(1, "cudaStreamSynchronize_v3020", 110, 95);
    gpu(0).kernel("third").at(302).lasting(10).launched(&mut scenario, 1, 210, 5);
    assert_eq!(scenario.leaves()[Leaf::SyncDrain as usize], 0);
}

#[test]
fn allocation_and_loading_are_distinguished() {
    let mut scenario = after_a_kernel();
    scenario.call(1, "cudaMalloc_v3020", 195, 105);
    scenario.call(1, "cuModuleLoadData", 300, 400);
    gpu(0).kernel("second").at(706).lasting(10).launched(&mut scenario, 1, 700, 6);
    assert_leaves(
        &scenario.leaves(),
        &[(Leaf::Compute, 110), (Leaf::Allocator, 100), (Leaf::KernelBuild, 400), (Leaf::LaunchApi, 6)],
    );
}

#[test]
fn time_that_tracing_takes_from_the_thread_is_its_own() {
    let mut scenario = after_a_kernel();
    scenario.overhead(1, 210, 15);
    scenario.overhead(2, 200, 50);
    gpu(0).kernel("second").at(260).lasting(10).launched(&mut scenario, 1, 250, 6);
    let leaves = scenario.leaves();
    assert_eq!(leaves[Leaf::Profiler as usize], 15_000);
    assert_eq!(leaves[Leaf::HostCpu as usize], 35_000);
}

#[test]
fn work_without_a_call_is_unobserved() {
    let mut scenario = after_a_kernel();
    scenario.add(gpu(0).kernel("second").at(260).lasting(10));
    let attributor = scenario.run();
    assert_leaves(&crate::support::only_leaves(&attributor), &[(Leaf::Compute, 110), (Leaf::Unobserved, 60)]);
    assert_eq!(attributor.completeness().activities_without_launch, 1);
}

#[test]
fn a_lost_kernel_makes_the_time_after_its_launch_unobserved() {
    let mut scenario = after_a_kernel();
    scenario.call(1, "cudaLaunchKernel_v7000", 220, 5);
    gpu(0).kernel("later").at(5_000_010).lasting(10).launched(&mut scenario, 1, 5_000_000, 5);
    scenario.call(1, "cudaStreamSynchronize_v3020", 5_000_006, 5_000_000);
    let attributor = scenario.run();
    let leaves = crate::support::only_leaves(&attributor);
    assert_eq!(attributor.completeness().launches_without_activity, 1);
    assert_eq!(leaves[Leaf::Unobserved as usize], (5_000_000 - 225) * 1_000);
}

#[test]
fn a_process_that_asks_for_nothing_is_parked() {
    let mut scenario = after_a_kernel();
    gpu(0).kernel("request").at(20_000_010).lasting(10).launched(&mut scenario, 1, 20_000_000, 5);
    assert_eq!(scenario.leaves()[Leaf::NoWork as usize], (20_000_000 - 200) * 1_000);
}

#[test]
fn recurring_gaps_that_end_in_an_input_copy_are_data_loading_from_the_third_on() {
    let mut scenario = after_a_kernel();
    for step in 1..=6 {
        let at = step * 10_000;
        let batch = gpu(0).h2d(MemoryKind::Pageable, 1 << 20).at(at).lasting(100);
        batch.launched(&mut scenario, 1, at - 10, 100);
        gpu(0).kernel("forward").at(at + 110).lasting(1_000).launched(&mut scenario, 1, at + 95, 5);
    }
    let leaves = scenario.leaves();
    // Gaps from the end of the previous kernel to the copy. The first follows `first`, the others `forward`.
    assert_eq!(leaves[Leaf::HostCpu as usize], (9_990 - 200 + 8_880) * 1_000);
    assert_eq!(leaves[Leaf::DataLoading as usize], 4 * 8_880 * 1_000);
}

#[test]
fn long_gaps_before_kernels_are_host_time_however_often_they_recur() {
    let mut scenario = after_a_kernel();
    for step in 1..=6 {
        let at = step * 10_000;
        gpu(0).kernel("forward").at(at).lasting(1_000).launched(&mut scenario, 1, at - 10, 5);
    }
    let leaves = scenario.leaves();
    assert_eq!(leaves[Leaf::DataLoading as usize], 0);
    assert!(leaves[Leaf::HostCpu as usize] > 40_000_000);
}

#[test]
fn nested_calls_join_once_and_count_once() {
    for same_id in [true, false] {
        let mut scenario = after_a_kernel();
        for (index, by_inner) in [(0, false), (1, true)] {
            let at = 300 + index * 100;
            let outer = 100 + index as u32 * 2;
            let inner = if same_id { outer } else { outer + 1 };
            scenario.call_as(outer, 1, "cudaLaunchKernel_v7000", at, 10, 0);
            scenario.call_as(inner, 1, "cuLaunchKernel", at + 2, 6, 0);
            let correlation = if by_inner { inner } else { outer };
            scenario.add(gpu(0).kernel("k").at(at + 20).lasting(10).by(correlation));
        }
        let attributor = scenario.run();
        let completeness = attributor.completeness();
        assert_eq!(completeness.nested_api_calls, 2);
        assert_eq!((completeness.launches_without_activity, completeness.activities_without_launch), (0, 0));
        assert_eq!(attributor.api_statistics().map(|(_, row)| row.calls).sum::<u64>(), 3);
    }
}

#[test]
fn failed_captured_and_empty_launches_owe_nothing() {
    let mut scenario = after_a_kernel();
    scenario.call_as(900, 1, "cudaLaunchKernel_v7000", 300, 5, 700);
    scenario.call(1, "cudaStreamBeginCapture_v10000", 310, 5);
    scenario.call(1, "cudaLaunchKernel_v7000", 320, 5);
    scenario.call(1, "cudaStreamEndCapture_v10000", 330, 5);
    scenario.call(1, "cudaMemcpyAsync_v3020", 340, 5);
    scenario.call(1, "cudaMemsetAsync_v3020", 350, 5);
    scenario.call(1, "cudaLaunchKernel_v7000", 360, 5);
    assert_eq!(scenario.run().completeness().launches_without_activity, 1, "the last launch alone");
}

#[test]
fn a_correlation_id_that_comes_again_is_a_new_launch() {
    let mut scenario = Scenario::new();
    for step in 0..3 {
        let at = 100 + step * 100;
        scenario.call_as(7, 1, "cudaLaunchKernel_v7000", at, 5, 0);
        scenario.add(gpu(0).kernel("k").at(at + 10).lasting(10).by(7));
    }
    let attributor = scenario.run_with(50, 0);
    let completeness = attributor.completeness();
    assert_eq!((completeness.launches_without_activity, completeness.activities_without_launch), (0, 0));
}

#[test]
fn records_without_times_are_counted_and_kept_off_the_timeline() {
    use gpuwhy_trace::record::{Kernel, Record};
    let mut scenario = after_a_kernel();
    let correlation = scenario.call(1, "cudaLaunchKernel_v7000", 150, 5);
    let correlation = gpuwhy_trace::record::CorrelationId(correlation);
    scenario
        .records
        .push((crate::support::ZERO + 200_000, Record::Kernel(Kernel { correlation, ..Kernel::default() })));
    let attributor = scenario.run();
    let completeness = attributor.completeness();
    assert_eq!((completeness.kernels, completeness.bad_timestamps), (2, 1));
    assert_eq!(completeness.launches_without_activity, 0);
    assert_leaves(&crate::support::only_leaves(&attributor), &[(Leaf::Compute, 100)]);
}

#[test]
fn times_from_the_far_future_do_not_interval_the_window() {
    use gpuwhy_trace::record::{CorrelationId, Kernel, Record, Timestamp};
    let mut scenario = after_a_kernel();
    let broken = Kernel {
        start: Timestamp::from_nanos(u64::MAX - 10),
        end: Timestamp::from_nanos(u64::MAX),
        correlation: CorrelationId(u32::MAX),
        ..Kernel::default()
    };
    scenario.records.push((crate::support::ZERO + 150_000, Record::Kernel(broken)));
    let attributor = scenario.run();
    assert_eq!(attributor.completeness().bad_timestamps, 1);
    assert_leaves(&crate::support::only_leaves(&attributor), &[(Leaf::Compute, 100)]);
}

#[test]
fn a_kernel_that_begins_before_its_call_is_counted() {
    let mut scenario = after_a_kernel();
    gpu(0).kernel("early").at(300).lasting(10).launched(&mut scenario, 1, 310, 5);
    let attributor = scenario.run();
    assert_eq!(attributor.completeness().clamped_clocks, 1);
    crate::support::only_leaves(&attributor);
}

#[test]
fn a_kernel_of_many_seconds_takes_back_what_was_given_away() {
    let mut scenario = after_a_kernel();
    gpu(0).stream(9).kernel("long").at(400).lasting(9_000_000).launched(&mut scenario, 1, 300, 5);
    // Another stream continues: without it, the device's gap would stay open.
    for step in 1..=60 {
        let at = step * 100_000;
        gpu(0).kernel("tick").at(at).lasting(10).launched(&mut scenario, 2, at - 10, 5);
    }
    let attributor = scenario.run();
    let leaves = crate::support::only_leaves(&attributor);
    let completeness = attributor.completeness();
    assert!(completeness.late_ns > 5_000_000_000);
    assert_eq!(completeness.launches_without_activity, 0, "it came after all");
    // From 200 us (end of `first`) to 400 us the device was idle; everything else is computation.
    assert_eq!(leaves[Leaf::Compute as usize], 9_000_000_000 + 100_000);
}

#[test]
fn a_program_is_judged_once_it_has_left_its_start_up() {
    let mut scenario = Scenario::new();
    // 300 ms of module loading between new kernels, then steady computation.
    for step in 0..3 {
        let at = step * 100_000;
        let name = format!("new_{step}");
        gpu(0).kernel(&name).at(at + 20).lasting(10).launched(&mut scenario, 1, at, 5);
        scenario.call(1, "cuModuleLoadData", at + 100, 99_800);
    }
    for step in 0..700 {
        let at = 300_000 + step * 1_000;
        gpu(0).kernel("new_2").at(at).lasting(999).launched(&mut scenario, 1, at - 90, 5);
    }
    let report = scenario.report();
    assert_eq!(report.bottleneck.cause.name(), "gpu_compute");
    assert!(report.bottleneck.share > 0.8, "{:?}", report.bottleneck);
    assert!(report.devices[0].leaves[Leaf::KernelBuild as usize] > 200_000_000);
}

#[test]
fn the_host_lead_tells_a_full_queue_from_a_late_host() {
    // Kernels of 100 us, launched every 10 us until the queue is full; from then on each launch waits for
    // space in the queue.
    let mut busy = Scenario::new();
    for index in 0..200 {
        let (at, lasting) = if index < 20 { (10 * index, 5) } else { (210 + 100 * (index - 20), 90) };
        gpu(0).kernel("k").at(20 + 100 * index).lasting(100).launched(&mut busy, 1, at, lasting);
    }
    let attributor = busy.run_with(1_000, 7);
    let lead = attributor.devices().next().unwrap().host_lead();
    assert_eq!((lead.launches(), lead.late(), lead.held_back()), (200, 1, 180));
    assert_eq!(lead.held_back_ns(), 180 * 90_000);
    assert!(lead.median_ns().abs_diff(1_720_000) < 1_720_000 / 25, "{}", lead.median_ns());

    // A launch that takes the same time and finds the device idle is a cost.
    let mut late = Scenario::new();
    for index in 0..200 {
        gpu(0).kernel("k").at(95 + 200 * index).lasting(100).launched(&mut late, 1, 200 * index, 90);
    }
    let lead = late.run().devices().next().unwrap().host_lead();
    assert_eq!((lead.launches(), lead.late(), lead.held_back(), lead.median_ns()), (200, 200, 0, 0));
}

#[test]
fn an_event_names_what_a_queued_operation_waited_for() {
    // Device 1 reduces for 500 us; the next kernel of device 0 is queued after that.
    let program = |events: bool| {
        let mut scenario = Scenario::new();
        for step in 0..40 {
            let at = 1_000 + 1_000 * step;
            let (reduce, next) = (gpu(1).stream(20).kernel("ncclDevKernel_AllReduce"), gpu(0).kernel("gemm"));
            gpu(0).kernel("gemm").at(at + 10).lasting(100).launched(&mut scenario, 1, at, 5);
            reduce.at(at + 20).lasting(500).launched(&mut scenario, 1, at + 6, 5);
            if events {
                scenario.record_event(1, at + 12, 20, 1 + step);
                scenario.wait_event(1, at + 15, 7, 1 + step);
            }
            next.at(at + 523).lasting(470).launched(&mut scenario, 1, at + 18, 5);
        }
        scenario
    };
    let report = program(true).report();
    let rows = &report.devices[0].awaited;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].producer, Producer { work: WorkKind::Communication, other_device: true });
    assert_eq!((rows[0].totals.count, rows[0].totals.total_ns), (40, 40 * 413_000));
    assert!(
        report.full().contains("Queued work waited for events of: communication on another GPU 16.5 ms (40 times).")
    );
    let reason = &report.bottleneck.evidence[0];
    assert!(reason.contains("Waits for events: communication on another GPU"), "{reason}");
    for (period, seed) in [(3_000, 5), (700, 0)] {
        let shuffled = program(true);
        assert_eq!(&shuffled.report_of(&shuffled.run_with(period, seed)).devices[0].awaited, rows);
    }

    let silent = program(false).report();
    assert_eq!(silent.devices[0].leaves, report.devices[0].leaves, "events change what is said, not the account");
    assert!(silent.devices[0].awaited.is_empty());
}

#[test]
fn a_mark_that_comes_again_does_not_shorten_the_time_between_marks() {
    let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
    for at in [1_000, 3_000, 3_000, 2_000] {
        attributor.flushed(Timestamp::from_nanos(at), &dictionary);
    }
    assert_eq!(attributor.last_flush(), Some((Timestamp::from_nanos(3_000), 2_000)));
}
