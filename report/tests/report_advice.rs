//! Consistency of a report's advice and counts with its other statements.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::Style;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, MemoryKind};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::ScenarioKind;

/// `steps` times `step(scenario, start in microseconds)`, `period` microseconds apart.
fn steps(count: u64, period: u64, step: impl Fn(&mut Scenario, u64)) -> Scenario {
    let mut scenario = Scenario::new();
    (0..count).for_each(|index| step(&mut scenario, 1_000 + index * period));
    scenario
}

#[track_caller]
fn of_cause(scenario: &Scenario, cause: Cause) -> Report {
    let report = scenario.report();
    assert_eq!(report.bottleneck.cause, cause, "{}", report.summary());
    report
}

/// A kernel of `lasting` in each millisecond, launched when the device is done.
fn computing(lasting: u64) -> Scenario {
    steps(400, 1_000, |scenario, at| {
        gpu(0).kernel("gemm").at(at + 10).lasting(lasting).launched(scenario, 1, at, 5);
    })
}

#[test]
fn nothing_to_gain_is_said_only_where_no_best_case_says_otherwise() {
    let full = of_cause(&computing(985), Cause::GpuCompute);
    let says = |report: &Report, words: &str| report.bottleneck.evidence.iter().any(|line| line.starts_with(words));
    assert!(says(&full, "No change on the CPU gains 15 %."), "{}", full.full());
    let late = of_cause(&computing(860), Cause::GpuCompute);
    let other = "With the same kernels, the program would be about 1.1";
    assert!(!says(&late, "No change on the CPU") && says(&late, other), "{}", late.full());
}

#[test]
fn a_large_part_that_is_left_out_is_said() {
    let mut report = of_cause(&computing(985), Cause::GpuCompute);
    assert_eq!(report.left_out(), None);
    // As long again before the first step, waiting for the CPU.
    let device = &mut report.devices[0];
    device.leaves[Leaf::HostCpu as usize] += device.window_ns;
    device.window_ns *= 2;
    let said = report.left_out().unwrap();
    assert!(
        said.starts_with("Left out: start-up, ") && said.ends_with(", mostly CPU work between launches."),
        "{said}"
    );
    assert!(report.summary().contains(&said[..20]), "{}", report.summary());
}

#[test]
fn a_gap_counts_once_for_its_subject() {
    let scenario = steps(900, 100, |scenario, at| {
        gpu(0).kernel("spin").at(at + 8).lasting(20).launched(scenario, 1, at, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 5, 33);
        // A gap has parts before and after this call.
        scenario.call(1, "cudaEventQuery_v3020", at + 60, 2);
    });
    let report = scenario.report();
    assert!(!report.devices[0].gaps.is_empty());
    for row in &report.devices[0].gaps {
        assert!(row.totals.count < 900, "{row:?}: more gaps than between 900 operations");
        assert!(row.totals.longest_ns * row.totals.count >= row.totals.total_ns, "{row:?}");
    }
}

#[test]
fn many_small_copies_are_to_be_joined() {
    let scenario = steps(300, 400, |scenario, at| {
        for copy in 0..20 {
            let at = at + copy * 16;
            gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at + 8).lasting(2).launched(scenario, 1, at, 6);
        }
        gpu(0).kernel("gemm").at(at + 340).lasting(20).launched(scenario, 1, at + 330, 6);
    });
    let report = of_cause(&scenario, Cause::Launch);
    assert!(report.bottleneck.recommendation.starts_with("Join the small copies"), "{}", report.summary());
    // Without those before the first kernel.
    let said = "5980 of 6280 operations are small copies, 4.1 kB each";
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains(said)), "{}", report.summary());
}

#[test]
fn no_gain_leaves_less_time_than_the_work_that_it_leaves() {
    // Kernels of two streams never run at once, as the CPU is late; without its work, nothing says that they may not.
    let scenario = steps(400, 1_000, |scenario, at| {
        for ((name, stream), place) in [("gemm", 7), ("conv", 9), ("gemm", 7), ("norm", 9)].into_iter().zip(0..) {
            let at = at + 250 * place;
            gpu(0).stream(stream).kernel(name).at(at + 10).lasting(90).launched(scenario, 1, at, 5);
        }
    });
    let report = of_cause(&scenario, Cause::HostCpu);
    let device = &report.devices[0];
    let share = device.steady_leaves[Leaf::Compute as usize] as f64 / device.steady_leaves.iter().sum::<u64>() as f64;
    let what_if = device.what_if.as_ref().unwrap();
    assert_eq!(what_if.refused, None);
    for best_case in what_if.best_cases.iter().filter(|of| of.kind != ScenarioKind::GridsFilled) {
        let (_, high) = best_case.interval.unwrap();
        assert!(best_case.speedup <= 1.001 / share && high <= 1.001 / share, "{best_case:?}, computing {share}");
    }
    assert!(what_if.best_case(ScenarioKind::NoHostWork).unwrap().speedup > 2.5, "{what_if:?}");
}

#[test]
fn reads_of_sizes_and_of_values_are_counted_apart_and_without_start_up() {
    let scenario = steps(300, 200, |scenario, at| {
        let selection = ["DeviceSelectSweepKernel", "DeviceCompactInitKernel"];
        for (place, name) in [selection, selection].concat().into_iter().chain(["gemm"]).enumerate() {
            let at = at + 16 * place as u64;
            gpu(0).kernel(name).at(at + 8).lasting(3).launched(scenario, 1, at, 6);
        }
        for (place, bytes) in [8, 8, 1].into_iter().enumerate() {
            let at = at + 90 + 20 * place as u64;
            gpu(0).d2h(MemoryKind::Pinned, bytes).at(at + 8).lasting(1).launched(scenario, 1, at, 6);
        }
    });
    let report = scenario.report();
    let said = "The CPU read the size of a selection from the GPU 598 times and waited for it: boolean indexing and \
                nonzero() need it. It read another value 302 times.";
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence == said), "{}", report.full());
}

#[test]
fn values_that_the_host_reads_stand_in_the_way_of_a_graph() {
    let scenario = steps(300, 200, |scenario, at| {
        for kernel in 0..9 {
            let at = at + kernel * 16;
            gpu(0).kernel("layer").at(at + 8).lasting(3).launched(scenario, 1, at, 6);
        }
        gpu(0).d2h(MemoryKind::Pinned, 4).at(at + 158).lasting(1).launched(scenario, 1, at + 150, 6);
    });
    let report = of_cause(&scenario, Cause::Launch);
    let advice = &report.bottleneck.recommendation;
    assert!(advice.contains("emove the reads of single values"), "{}", report.summary());
    assert!(advice.contains("a CUDA graph cannot contain them."), "{}", report.summary());
    let said = "The CPU read a value from the GPU 300 times (4 B each)";
    assert!(report.bottleneck.evidence.iter().any(|sentence| sentence.contains(said)), "{}", report.summary());
}

#[test]
fn losses_beyond_every_number_are_losses() {
    let scenario = computing(900);
    let loss = Loss { dropped_by_cupti: u64::MAX, dropped_by_gpuwhy: 1, broken_buffers: u64::MAX, ..Loss::default() };
    let loss = Loss { undelivered_buffers: 1, ..loss };
    let session = ProcessInfo::default();
    let report = Report::new(&session, &scenario.run(), &scenario.dictionary, &loss, End::Clean, Vec::new());
    assert_eq!(report.bottleneck.cause, Cause::CannotTell, "{}", report.summary());
    let bottleneck = report.summary().lines().nth(1).map(str::to_owned);
    let bottleneck = bottleneck.expect("a second line");
    assert!(
        bottleneck.starts_with("No bottleneck found. 18446744073709551615 records (100.0 %) were lost"),
        "{bottleneck}"
    );
}

#[test]
fn texts_fit_the_terminal() {
    let reports = [computing(985), computing(300)].map(|scenario| scenario.report());
    for columns in [60, 80, 100, 140] {
        for text in reports.iter().map(|report| report.summary_within(Style { width: columns, color: false })) {
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns, "{columns}: {text}");
        }
    }
    let lines = |columns| reports[0].summary_within(Style { width: columns, color: false }).lines().count();
    assert!(lines(60) > lines(100), "narrow lines are more");
}
