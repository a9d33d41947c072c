//! Compares the best case of A, for the cause that shrank most, with the steps of B. There is no prediction if
//! it would mislead.

use crate::support::{Scenario, gpu};
use gpuwhy_compare::diff::{Diff, Prediction, compare};
use gpuwhy_report::run::Report;
use gpuwhy_trace::record::Timestamp;
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf};
use profiler_core::steps::{Step, StepSource, Steps};
use profiler_core::whatif::{BestCase, Busy, ScenarioKind, SimulationProblem, WhatIf};

/// A run of forty equal steps of 90 operations. `leaves` are those of one step, in microseconds.
fn run(leaves: &[(Leaf, u64)]) -> Report {
    let mut scenario = Scenario::new();
    for index in 0..200 {
        gpu(0).kernel("gemm").at(1_010 + index * 300).lasting(200).launched(&mut scenario, 1, 1_000 + index * 300, 5);
    }
    let mut report = scenario.report();
    let mut step = [0; LEAF_COUNT];
    for &(leaf, micros) in leaves {
        step[leaf as usize] = micros * 1_000;
    }
    let duration: u64 = step.iter().sum();
    let rows = (0..40).map(|index| {
        let start = crate::support::ZERO + index * duration;
        let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(start + duration));
        Step { start, end, operations: 90, leaves: step, iteration: None }
    });
    let steps = Steps { source: StepSource::Period, period: Some(90), seen: 40, rows: rows.collect() };
    report.devices[0].steps = Some(steps);
    report.devices[0].what_if = None;
    report
}

/// `report` with a simulation of one best case.
fn simulated(mut report: Report, kind: ScenarioKind, real_micros: u64, possible_micros: u64) -> Report {
    let speedup = real_micros as f64 / possible_micros as f64;
    let best_cases = vec![BestCase { kind, step_ns: possible_micros * 1_000, speedup, interval: None }];
    report.devices[0].what_if = Some(WhatIf {
        steps: 40,
        represented_steps: 40,
        covers_ns: 400_000_000,
        base_error: Some(0.004),
        refused: None,
        untraced: None,
        priced: 1.0,
        best_cases,
        combined: Vec::new(),
        busy: Busy::default(),
    });
    report
}

fn prediction(diff: &Diff) -> Option<&Prediction> {
    diff.devices[0].prediction.as_ref()
}

/// The text with its lines joined, checked to fit the width.
fn text(diff: &Diff) -> String {
    let text = diff.text(10);
    assert!(text.lines().all(|line| line.chars().count() <= 100 && line.is_ascii()), "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const SLOW: [(Leaf, u64); 3] = [(Leaf::Compute, 1_000), (Leaf::CopyH2dPageable, 300), (Leaf::DataLoading, 1_700)];

#[test]
fn a_gain_within_the_best_case_is_reported_in_one_line() {
    let a = simulated(run(&SLOW), ScenarioKind::DataReady, 3_000, 1_200);
    let b = run(&[(Leaf::Compute, 1_000), (Leaf::CopyH2dPageable, 300), (Leaf::DataLoading, 200)]);
    let diff = compare(&a, &b).unwrap();
    let got = prediction(&diff).unwrap();
    assert_eq!((got.kind, got.cause), (ScenarioKind::DataReady, Cause::DataLoading));
    assert_eq!((got.step_ns, got.predicted_step_ns, got.actual_step_ns), (3_000_000, 1_200_000, 1_500_000));
    assert_eq!((got.predicted_speedup, got.actual_speedup, got.over_best_case_ns()), (2.5, 2.0, 0));
    assert!(got.others.is_empty(), "{:?}", got.others);
    let line = "Predicted from A: about 2.5x faster without data loading (a typical step: 3.0 ms -> 1.2 ms). Measured: 2.00x (1.5 ms). ";
    assert!(text(&diff).contains(line), "{}", diff.text(10));
}

#[test]
fn a_gain_beyond_the_best_case_names_what_else_shrank() {
    let a = simulated(run(&SLOW), ScenarioKind::DataReady, 3_000, 1_300);
    let b = run(&[(Leaf::Compute, 1_000), (Leaf::CopyH2dPinned, 100)]);
    let diff = compare(&a, &b).unwrap();
    let got = prediction(&diff).unwrap();
    assert_eq!(got.over_best_case_ns(), 200_000);
    assert_eq!(got.others, [(Leaf::CopyH2dPageable, -300_000), (Leaf::CopyH2dPinned, 100_000)]);
    assert!(
        text(&diff)
            .contains("(1.1 ms). That is more than predicted: other causes became shorter too (copying host to device, pageable memory -300.0 us). ")
    );
}

#[test]
fn a_gain_beyond_the_best_case_may_be_unexplained() {
    let a =
        simulated(run(&[(Leaf::Compute, 1_000), (Leaf::DataLoading, 1_000)]), ScenarioKind::DataReady, 2_000, 1_100);
    let diff = compare(&a, &run(&[(Leaf::Compute, 1_000)])).unwrap();
    assert_eq!(prediction(&diff).unwrap().over_best_case_ns(), 100_000);
    assert!(
        text(&diff).contains("no other cause became shorter, and the simulation of A is 0.4 % off."),
        "{}",
        diff.text(10)
    );
}

#[test]
fn a_scenario_without_host_work_covers_the_leaves_of_that_cause() {
    let a = run(&[(Leaf::Compute, 1_000), (Leaf::Memset, 50), (Leaf::HostCpu, 900), (Leaf::HostBlocked, 50)]);
    let a = simulated(a, ScenarioKind::NoHostWork, 2_000, 1_050);
    let diff = compare(&a, &run(&[(Leaf::Compute, 1_000), (Leaf::Memset, 10), (Leaf::HostCpu, 100)])).unwrap();
    let got = prediction(&diff).unwrap();
    assert_eq!((got.kind, got.cause), (ScenarioKind::NoHostWork, Cause::HostCpu));
    assert_eq!(got.others, [(Leaf::Memset, -40_000)]);
}

#[test]
fn there_is_no_prediction_without_a_matching_simulation() {
    let fast = run(&[(Leaf::Compute, 1_000), (Leaf::CopyH2dPageable, 300)]);
    let a = simulated(run(&SLOW), ScenarioKind::DataReady, 3_000, 1_300);
    assert!(prediction(&compare(&a, &fast).unwrap()).is_some());

    let mut cases = Vec::new();
    // Additive bounds are not a simulation.
    let mut refused = a.clone();
    refused.devices[0].what_if.as_mut().unwrap().refused = Some(SimulationProblem::BaseError(0.2));
    cases.push(("refused", refused, fast.clone()));
    cases.push(("no simulation", run(&SLOW), fast.clone()));
    cases.push(("no best case of the cause", simulated(run(&SLOW), ScenarioKind::NoSyncs, 3_000, 2_900), fast.clone()));
    cases.push(("computation", a.clone(), run(&[(Leaf::Compute, 100), (Leaf::DataLoading, 1_700)])));
    cases.push(("nothing shrank", a.clone(), run(&SLOW)));
    // The simulated steps differ from the detected ones.
    cases.push(("other steps", simulated(run(&SLOW), ScenarioKind::DataReady, 6_000, 2_600), fast.clone()));
    let mut windows = fast.clone();
    windows.devices[0].steps.as_mut().unwrap().source = StepSource::Window;
    cases.push(("windows", a.clone(), windows));
    let mut halves = fast.clone();
    halves.devices[0].steps.as_mut().unwrap().rows.iter_mut().for_each(|row| row.operations = 45);
    cases.push(("half a step", a.clone(), halves));
    let mut few = fast;
    few.devices[0].steps.as_mut().unwrap().rows.truncate(2);
    cases.push(("two steps", a, few));
    for (why, a, b) in cases {
        let diff = compare(&a, &b).unwrap();
        assert_eq!(prediction(&diff), None, "{why}");
        assert!(!diff.text(10).contains("Predicted from A"), "{why}");
    }
}
