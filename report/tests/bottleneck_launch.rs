//! Advice about CUDA graphs for a launch-bound program, depending on how well its launches repeat.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use profiler_core::leaf::Cause;

/// Steps of 20 kernels of 2 us that are launched every 8 us; `other` selects those with a different name than
/// usual. The first `graph_nodes` kernels of a step are one graph, and the first one takes `longer`
/// microseconds more.
pub(crate) fn program(graph_nodes: u64, longer: u64, other: impl Fn(u64, u64) -> bool) -> Report {
    let mut scenario = Scenario::new();
    let mut at = 1_000;
    for step in 0..200 {
        let mut graph = 0;
        for kernel in 0..20 {
            let name = if other(step, kernel) {
                format!("other_{}", (step + kernel).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60)
            } else {
                format!("k{kernel}")
            };
            let lasting = if kernel == 0 { 2 + longer } else { 2 };
            let work = gpu(0).kernel(&name).at(at + 5).lasting(lasting);
            if kernel < graph_nodes {
                if kernel == 0 {
                    graph = scenario.call(1, "cudaGraphLaunch_v10000", at, 3);
                }
                scenario.add(work.of_graph(9).by(graph));
            } else {
                work.launched(&mut scenario, 1, at, 3);
            }
            at += 8 + lasting - 2;
        }
        scenario.pushed(1, at - 8, at - 7, "not a step");
    }
    scenario.report()
}

#[track_caller]
fn assert_reported(report: &Report, sentence: &str, advice: &str) {
    assert_eq!(report.bottleneck.cause, Cause::Launch, "{}", report.summary());
    assert!(report.bottleneck.evidence.iter().any(|line| line.contains(sentence)), "{:?}", report.bottleneck.evidence);
    assert!(report.bottleneck.recommendation.contains(advice), "{}", report.bottleneck.recommendation);
}

#[test]
fn launches_that_repeat_are_to_be_captured() {
    let report = program(0, 0, |_, _| false);
    assert_reported(&report, "100 % of the launches are the same in every step", "Capture the step");
}

#[test]
fn launches_of_which_some_differ_each_step_are_not() {
    // One of twenty differs, in otherwise equal steps.
    let report = program(0, 0, |_, kernel| kernel == 7);
    assert_reported(
        &report,
        "of the launches are the same in every step; a CUDA graph needs 98 %.",
        "CUDA graphs need kernels and shapes that stay the same",
    );
}

#[test]
fn a_program_without_a_period_is_reported_so() {
    let report = program(0, 0, |step, kernel| (step * 31 + kernel * kernel * 17 + step * step) % 3 != 0);
    let sentence =
        &report.bottleneck.evidence.iter().find(|line| line.contains("launches")).expect("one of two sentences");
    let words = "here they do not, or it is unknown";
    assert_reported(&report, sentence, words);
}

#[test]
fn from_half_of_the_operations_on_graphs_are_in_use_already() {
    let most = program(11, 0, |_, _| false);
    assert_reported(
        &most,
        "CUDA graphs already launch 55 % of the GPU operations.",
        "operations within the graphs fewer",
    );
    let half = program(10, 0, |_, _| false);
    assert_reported(
        &half,
        "of the launches are the same in every step, so a CUDA graph fits (it needs 98 %).",
        "Capture the step",
    );
}

#[test]
fn graphs_that_take_most_of_the_time_are_in_use_whatever_their_number() {
    // 52 of 90 us, as one operation of twenty; then 32 of 70.
    let most = program(1, 50, |_, _| false);
    let sentence = "CUDA graphs already take 58 % of the time in which the GPU works.";
    assert_reported(&most, sentence, "operations within the graphs fewer");
    assert_reported(
        &program(1, 30, |_, _| false),
        "of the launches are the same in every step, so a CUDA graph fits (it needs 98 %).",
        "Capture the step",
    );
}
