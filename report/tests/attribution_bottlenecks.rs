//! One synthetic program for each bottleneck.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{RecoverableBy, Report};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Device, Loss, MemoryKind};
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

#[track_caller]
fn assert_bottleneck(scenario: &Scenario, cause: Cause) -> Report {
    let report = scenario.report();
    assert_eq!(report.bottleneck.cause, cause, "\n{}", report.summary());
    for line in report.summary().lines().chain([report.live_line().as_str()]) {
        let most = if line.starts_with("gpuwhy [") { 120 } else { 100 };
        assert!(line.chars().count() <= most, "{line}");
    }
    assert!(report.summary().lines().count() <= 20, "{}", report.summary());
    let ranking = &report.bottleneck.ranking;
    assert!(ranking.is_sorted_by(|a, b| a.recoverable >= b.recoverable));
    assert!(ranking.iter().all(|row| row.recoverable <= row.share), "{ranking:?}");
    report
}

/// `steps` times `step(scenario, start in microseconds)`, `period` microseconds apart.
fn steps(count: u64, period: u64, mut step: impl FnMut(&mut Scenario, u64)) -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..count {
        step(&mut scenario, 1_000 + index * period);
    }
    scenario
}

#[test]
fn eager_mlp_is_launch_bound() {
    let scenario = steps(5_000, 20, |scenario, at| {
        gpu(0).kernel("elementwise").at(at + 7).lasting(3).launched(scenario, 1, at, 5);
    });
    let report = assert_bottleneck(&scenario, Cause::Launch);
    assert!(report.bottleneck.share > 0.8);
}

#[test]
fn gpt_is_compute_bound() {
    let scenario = steps(400, 1_000, |scenario, at| {
        gpu(0).kernel("flash_fwd_kernel").at(at + 500).lasting(998).launched(scenario, 1, at, 5);
    });
    let report = assert_bottleneck(&scenario, Cause::GpuCompute);
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains("flash_fwd_kernel")));
}

/// Steps of 64 rows, each a kernel of `blocks` blocks that takes 100 us, and one kernel for all rows, which
/// the host waits for.
pub(crate) fn rows(blocks: u32) -> Scenario {
    let mut scenario = steps(100, 6_600, |scenario, at| {
        for row in 0..64 {
            let softmax = gpu(0).kernel("softmax").blocks(blocks).at(at + 10 + row * 101).lasting(100);
            softmax.launched(scenario, 1, at + row * 10, 5);
        }
        gpu(0).kernel("negate").blocks(4_096).at(at + 10 + 64 * 101).lasting(100).launched(scenario, 1, at + 640, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 650, 5_934);
    });
    scenario.dictionary.add_device(Device { multiprocessors: 132, ..Device::default() });
    scenario
}

#[test]
fn small_grids_in_a_row_are_to_be_batched() {
    let report = assert_bottleneck(&rows(1), Cause::GpuCompute);
    let what_if = report.devices[0].what_if.as_ref().expect("steps");
    let gain = what_if.best_case(ScenarioKind::GridsFilled).expect("replayed").speedup;
    // 6.6 ms become two kernels of 100 us, their launches, and a host that wakes up and starts again.
    assert!((26.0..30.0).contains(&gain), "{gain}");
    let text = report.summary();
    assert!(
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("to fill the GPU: more than 10x faster if equal small kernels in a row were one"),
        "{text}"
    );
    assert!(report.bottleneck.recommendation.starts_with("Join equal small kernels"), "{text}");
    // Grids too large for two to run concurrently have no gain.
    let report = assert_bottleneck(&rows(67), Cause::GpuCompute);
    let best_case = report.devices[0].what_if.as_ref().and_then(|what_if| what_if.best_case(ScenarioKind::GridsFilled));
    assert_eq!(best_case.map(|best_case| best_case.speedup), Some(1.0));
    assert!(report.bottleneck.recommendation.starts_with("The GPU is busy"), "{}", report.summary());
}

#[test]
fn resnet_with_a_slow_loader_waits_for_data_even_when_it_reads_its_loss() {
    let scenario = steps(20, 100_000, |scenario, at| {
        gpu(0).h2d(MemoryKind::Pageable, 19_267_584).at(at + 200).lasting(4_000).launched(scenario, 1, at, 4_250);
        gpu(0).kernel("conv").at(at + 4_300).lasting(50_000).launched(scenario, 1, at + 4_260, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 4_300, 50_010);
    });
    let report = assert_bottleneck(&scenario, Cause::DataLoading);
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains("Inferred")));
}

#[test]
fn pageable_copies_in_a_loop_are_copy_bound() {
    let scenario = steps(40, 30_000, |scenario, at| {
        let correlation = scenario.call(1, "cudaMemcpy_v3020", at, 25_000);
        scenario.add(gpu(0).h2d(MemoryKind::Pageable, 268_435_456).at(at + 100).lasting(24_890).by(correlation));
        gpu(0).kernel("sum").at(at + 25_020).lasting(4_970).launched(scenario, 1, at + 25_010, 5);
        scenario.call(1, "cudaDeviceSynchronize_v3020", at + 25_020, 4_975);
    });
    let report = assert_bottleneck(&scenario, Cause::Copy);
    assert!(report.bottleneck.recommendation.contains("pinned memory"));
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains("GB/s")));
}

#[test]
fn item_in_every_iteration_is_sync_bound() {
    let scenario = steps(200, 2_000, |scenario, at| {
        // The host takes 900 us to launch ten kernels of 100 us, then waits for the last: it has no run-ahead
        // left.
        for kernel in 0..10 {
            let call = at + kernel * 90;
            gpu(0).kernel("layer").at(at + 10 + kernel * 101).lasting(100).launched(scenario, 1, call, 5);
        }
        let correlation = scenario.call(1, "cudaMemcpyAsync_v3020", at + 900, 140);
        scenario.add(gpu(0).d2h(MemoryKind::Pageable, 4).at(at + 1_022).lasting(2).by(correlation));
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 1_041, 3);
    });
    // The pause after each wait is far longer than the wait was: plain host time...
    assert_bottleneck(&scenario, Cause::HostCpu);
    // ...and when the wait is as long as the pause, the wait is the cause.
    let scenario = steps(200, 2_000, |scenario, at| {
        gpu(0).kernel("layer").at(at + 10).lasting(1_000).launched(scenario, 1, at, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 10, 1_005);
    });
    let report = assert_bottleneck(&scenario, Cause::Sync);
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains("cudaStreamSynchronize")));
}

#[test]
fn waiting_for_each_kernel_is_sync_bound_though_the_device_waits_for_launches() {
    // Lesson 3: the device is idle for 10 us until the host wakes up, 5 us of launching and 3 us of latency.
    // Without the wait the host would have launched while the kernel ran.
    let scenario = steps(1_800, 76, |scenario, at| {
        for (at, name) in [(at, "spin"), (at + 38, "turn")] {
            gpu(0).kernel(name).at(at + 8).lasting(20).launched(scenario, 1, at, 5);
            scenario.call(1, "cudaStreamSynchronize_v3020", at + 5, 33);
        }
    });
    let report = assert_bottleneck(&scenario, Cause::Sync);
    assert!((0.46..0.48).contains(&report.bottleneck.share), "18 of 38 us: {}", report.bottleneck.share);
    let [first, ..] = &report.bottleneck.ranking[..] else { panic!("{}", report.summary()) };
    assert_eq!((first.cause, first.by), (Cause::Sync, RecoverableBy::Simulation), "{}", report.summary());
    assert!(first.recoverable > 0.43, "38 us become 20.9 us: {first:?}");
}

#[test]
fn a_collective_that_nothing_covers_is_communication() {
    let scenario = steps(100, 1_000, |scenario, at| {
        gpu(0).kernel("gemm").at(at + 500).lasting(498).launched(scenario, 1, at, 5);
        gpu(0).stream(9).kernel("ncclDevKernel_AllReduce_Sum").at(at + 1_000).lasting(498).launched(
            scenario,
            1,
            at + 10,
            5,
        );
    });
    assert_bottleneck(&scenario, Cause::Communication);
}

/// The host needs a millisecond per step regardless of the device, so a collective that ends sooner has no
/// effect.
fn late_host(compute: u64, communication: u64) -> Scenario {
    steps(1_500, 1_000, |scenario, at| {
        gpu(0).kernel("gemm").at(at + 10).lasting(compute).launched(scenario, 1, at, 5);
        gpu(0).kernel("ncclDevKernel_AllReduce_Sum").at(at + 12 + compute).lasting(communication).launched(
            scenario,
            1,
            at + 10,
            5,
        );
    })
}

#[test]
fn groups_are_ranked_by_what_could_be_had_back() {
    let report = assert_bottleneck(&late_host(250, 450), Cause::HostCpu);
    let row = |cause| report.bottleneck.ranking.iter().find(|row| row.cause == cause).unwrap();
    let (host, communication) = (row(Cause::HostCpu), row(Cause::Communication));
    assert!(communication.share > 0.44 && communication.share > host.share + 0.1);
    assert!(communication.recoverable < 0.01 && host.recoverable > 0.25, "{:?}", report.bottleneck.ranking);
    assert_eq!((communication.by, host.by), (RecoverableBy::Simulation, RecoverableBy::Simulation));

    // Without steps there is no simulation, and the accounting decides.
    let mut irregular = late_host(250, 450);
    irregular.records.truncate(4 * 100);
    let report = assert_bottleneck(&irregular, Cause::Communication);
    assert!(
        report.bottleneck.ranking.iter().all(|row| row.by == RecoverableBy::Additive && row.recoverable == row.share)
    );
}

#[test]
fn a_large_share_that_cannot_be_had_back_leaves_computation_first() {
    let report = assert_bottleneck(&late_host(600, 290), Cause::GpuCompute);
    let sentence =
        "Communication between GPUs takes 29 % of the time, but without it only 0 % would be saved (simulated)";
    assert!(
        report.bottleneck.evidence.iter().any(|line| line.starts_with(sentence)),
        "{:?}",
        report.bottleneck.evidence
    );
}

#[test]
fn allocating_in_the_loop_is_the_allocator() {
    let scenario = steps(200, 1_000, |scenario, at| {
        scenario.call(1, "cudaMalloc_v3020", at, 600);
        gpu(0).kernel("k").at(at + 610).lasting(300).launched(scenario, 1, at + 602, 5);
    });
    let report = assert_bottleneck(&scenario, Cause::Allocator);
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains("cudaMalloc")));
}

#[test]
fn python_between_launches_is_host_time() {
    let scenario = steps(200, 1_000, |scenario, at| {
        gpu(0).kernel("k").at(at + 10).lasting(300).launched(scenario, 1, at, 5);
    });
    assert_bottleneck(&scenario, Cause::HostCpu);
}

#[test]
fn a_server_between_requests_has_no_work() {
    let scenario = steps(30, 15_000_000, |scenario, at| {
        gpu(0).kernel("request").at(at + 10).lasting(20_000).launched(scenario, 1, at, 5);
    });
    assert_bottleneck(&scenario, Cause::NoWork);
}

#[test]
fn nothing_recorded_is_no_work() {
    let mut scenario = Scenario::new();
    scenario.call(1, "cuInit", 10, 100);
    assert_bottleneck(&scenario, Cause::NoWork);
}

#[test]
fn little_data_unknown_waits_and_losses_are_no_ground_for_a_bottleneck() {
    let few = steps(3, 1_000, |scenario, at| {
        gpu(0).kernel("k").at(at + 10).lasting(300).launched(scenario, 1, at, 5);
    });
    assert_bottleneck(&few, Cause::CannotTell);

    let unlaunched = steps(200, 1_000, |scenario, at| scenario.add(gpu(0).kernel("k").at(at).lasting(300)));
    let report = assert_bottleneck(&unlaunched, Cause::CannotTell);
    assert!(report.bottleneck.evidence[0].contains("not recorded"));

    let busy = steps(200, 1_000, |scenario, at| {
        gpu(0).kernel("k").at(at + 500).lasting(999).launched(scenario, 1, at, 5);
    });
    let loss = Loss { dropped_by_cupti: 1_000, ..Loss::default() };
    let lossy = Report::new(
        &ProcessInfo::default(),
        &busy.run(),
        &busy.dictionary,
        &loss,
        End::Abrupt,
        vec!["a gap".to_owned()],
    );
    assert_eq!(lossy.bottleneck.cause, Cause::CannotTell);
    assert!(lossy.summary().contains("CUPTI dropped 1000 records."));
    assert!(lossy.summary().contains("The trace has no end"));
    assert!(lossy.summary().contains("Damaged: a gap"));
}
