//! The plan of fixes: its order, its omissions, and the consistency of advice and gains.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{PlanStep, Report};
use gpuwhy_trace::record::MemoryKind;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

/// `count` steps, one every `period` microseconds.
fn steps(count: u64, period: u64, mut step: impl FnMut(&mut Scenario, u64)) -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..count {
        let at = 1_000 + index * period;
        step(&mut scenario, at);
        scenario.pushed(1, at, at + period - 1, "step");
    }
    scenario
}

fn kinds(report: &Report) -> Vec<ScenarioKind> {
    report.bottleneck.plan.iter().map(|step| step.kind).collect()
}

/// Checks the invariants of every plan.
fn assert_sound(report: &Report) {
    let bottleneck = &report.bottleneck;
    let mut before = 1.0;
    for PlanStep { speedup, interval: (low, high), action, .. } in &bottleneck.plan {
        assert!(speedup / before >= 1.05, "{}", report.summary());
        assert!(1.0 <= *low && low <= speedup && speedup <= high && !action.is_empty(), "{:?}", bottleneck.plan);
        before = *speedup;
    }
    assert!(bottleneck.plan.len() <= 3);
    let bounds = bottleneck.plan.iter().filter(|step| step.speedup >= 10.0 && step.interval.0 >= 10.0);
    assert!(bounds.count() <= 1, "{}", report.summary());
    let graph = bottleneck.plan.iter().position(|step| step.kind == ScenarioKind::LaunchesFree);
    let reads = bottleneck.plan.iter().position(|step| step.kind == ScenarioKind::NoReadbacks);
    assert!(graph.is_none() || reads.is_none() || reads < graph, "{}", report.summary());
    assert!(bottleneck.plan.iter().skip(1).all(|step| step.because.is_none()));
    assert!(report.summary().lines().count() <= 20, "{}", report.summary());
    assert!(report.summary().lines().all(|line| line.chars().count() <= 100), "{}", report.summary());
}

/// A layer of three kernels, followed by reading a value.
fn layers(reads: bool) -> Scenario {
    layers_with_a_read(if reads { 1 } else { u64::MAX })
}

/// The same with a read after one of this many layers.
fn layers_with_a_read(of: u64) -> Scenario {
    steps(200, 24 * 75, |scenario, at| {
        for layer in 0..24 {
            let (at, reads) = (at + layer * 75, (layer + 1).is_multiple_of(of));
            for kernel in 0..3 {
                let at = at + kernel * 11;
                gpu(0).kernel("layer").at(at + 8).lasting(3).launched(scenario, 1, at, 5);
            }
            if reads {
                let correlation = scenario.call(1, "cudaMemcpyAsync_v3020", at + 38, 12);
                scenario.add(gpu(0).d2h(MemoryKind::Pageable, 4).at(at + 46).lasting(2).by(correlation));
                scenario.call(1, "cudaStreamSynchronize_v3020", at + 51, 5);
            }
        }
    })
}

#[test]
fn reads_go_before_the_graph_that_cannot_contain_them() {
    let report = layers(true).report();
    assert_sound(&report);
    assert_eq!(report.bottleneck.cause, Cause::Launch, "{}", report.summary());
    assert_eq!(kinds(&report)[..2], [ScenarioKind::NoReadbacks, ScenarioKind::LaunchesFree], "{}", report.summary());
    let first = &report.bottleneck.plan[0];
    assert_eq!(
        (first.because, first.then),
        (Some("first, because a CUDA graph cannot contain a wait"), Some(Cause::Launch))
    );
    let text = report.summary().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Next: The bottleneck is then kernel launches. "), "{text}");
    let advice = &report.bottleneck.recommendation;
    assert!(advice.starts_with("Remove the reads of single values (.item(), .cpu()) from the step"), "{advice}");
    // Also if the reads matter only once there is a graph.
    (2..12).for_each(|of| assert_sound(&layers_with_a_read(of).report()));
    // Without reads it comes first.
    assert_eq!(kinds(&layers(false).report())[..1], [ScenarioKind::LaunchesFree]);
}

#[test]
fn data_that_are_ready_uncover_the_launches() {
    let scenario = steps(100, 12_000, |scenario, at| {
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at + 8_010).lasting(30).launched(scenario, 1, at + 8_000, 5);
        for kernel in 0..130 {
            let at = at + 8_020 + kernel * 30;
            gpu(0).kernel("small").at(at + 8).lasting(5).launched(scenario, 1, at, 5);
        }
    });
    let report = scenario.report();
    assert_sound(&report);
    assert_eq!(report.bottleneck.cause, Cause::DataLoading, "{}", report.summary());
    assert_eq!(kinds(&report), [ScenarioKind::DataReady, ScenarioKind::LaunchesFree], "{}", report.summary());
    let then: Vec<_> = report.bottleneck.plan.iter().map(|step| step.then).collect();
    assert_eq!(then, [Some(Cause::Launch), Some(Cause::GpuCompute)], "{}", report.summary());
    let last = report.bottleneck.plan[1].speedup;
    assert!((10.0..20.0).contains(&last), "12 ms become 0.7 ms of kernels: {last}");
}

#[test]
fn small_copies_are_the_subject_where_they_are_most_of_the_operations() {
    let scenario = steps(300, 400, |scenario, at| {
        for copy in 0..20 {
            let at = at + copy * 16;
            gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at + 8).lasting(2).launched(scenario, 1, at, 6);
        }
        gpu(0).kernel("gemm").at(at + 340).lasting(20).launched(scenario, 1, at + 330, 6);
    });
    let report = scenario.report();
    assert_sound(&report);
    assert_eq!(kinds(&report)[0], ScenarioKind::CopiesJoined, "{}", report.summary());
    assert!(!report.summary().contains("A kernel runs for"), "{}", report.summary());
    assert!(report.best_speedup(report.bottleneck.cause).expect("simulated") > 2.0, "{}", report.summary());
}

#[test]
fn large_results_are_to_be_reduced_before_they_are_copied() {
    let scenario = steps(100, 5_000, |scenario, at| {
        gpu(0).kernel("model").at(at + 10).lasting(1_500).launched(scenario, 1, at, 5);
        let correlation = scenario.call(1, "cudaMemcpyAsync_v3020", at + 20, 4_950);
        scenario.add(gpu(0).d2h(MemoryKind::Pageable, 64 << 20).at(at + 1_512).lasting(3_450).by(correlation));
    });
    let report = scenario.report();
    assert_sound(&report);
    assert_eq!(report.bottleneck.cause, Cause::Copy, "{}", report.summary());
    assert_eq!(kinds(&report)[0], ScenarioKind::ReadsReduced, "{}", report.summary());
    assert!(report.bottleneck.recommendation.starts_with("Copy less to the CPU"), "{}", report.summary());
    let gain = report.best_speedup(Cause::Copy).expect("simulated");
    assert!((3.0..3.5).contains(&gain), "5 ms become 1.5 ms and what the host does: {gain}");
}

#[test]
fn a_program_that_only_computes_has_no_plan() {
    let scenario = steps(400, 1_000, |scenario, at| {
        gpu(0).kernel("flash_fwd_kernel").at(at + 500).lasting(998).launched(scenario, 1, at, 5);
    });
    let report = scenario.report();
    assert_eq!(report.bottleneck.plan, []);
    let evidence = report.bottleneck.evidence.join(" ");
    assert!(evidence.contains("No change on the CPU gains 15 %"), "{}", report.full());
}
