//! Comparison of two synthetic runs: the accounting is exact, causes are identified, other programs are
//! refused.

use crate::support::{Scenario, gpu};
use gpuwhy_compare::diff::{Diff, Fate, Launches, NotComparable, Side, Speed, StepChange, compare};
use gpuwhy_report::run::Report;
use gpuwhy_report::run::unit::Basis;
use gpuwhy_report::text_format::Style;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, MemoryKind, ThreadId, ThreadName, Timestamp};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf};
use profiler_core::steps::{Step, StepSource, Steps};

/// A training loop: a batch is copied after `loading` microseconds on the host, then two kernels run.
pub fn training(iterations: u64, loading: u64, gemm: u64) -> Scenario {
    let mut scenario = Scenario::new();
    let period = loading + 600 + gemm;
    for iteration in 0..iterations {
        // The host takes slightly longer each time, up to 6 us: steps are never all equal.
        let at = 1_000 + iteration * period + iteration % 7;
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at + 10).lasting(100).launched(&mut scenario, 1, at, 5);
        gpu(0).kernel("relu").at(at + 111).lasting(400).launched(&mut scenario, 1, at + 6, 5);
        gpu(0).kernel("gemm").at(at + 512).lasting(gemm).launched(&mut scenario, 1, at + 12, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 18, 494 + gemm + 3);
    }
    scenario
}

#[track_caller]
fn compared(a: &Report, b: &Report) -> Diff {
    let diff = compare(a, b).unwrap();
    for device in &diff.devices {
        assert_eq!(device.leaves.iter().map(|(_, nanos)| nanos).sum::<i64>(), device.change_ns());
        assert_eq!(device.causes.iter().map(|(_, nanos)| nanos).sum::<i64>(), device.change_ns());
        assert_eq!(device.a.leaves.iter().sum::<u64>(), device.a.unit_ns);
        assert_eq!(device.b.leaves.iter().sum::<u64>(), device.b.unit_ns);
    }
    for line in diff.text(10).lines() {
        assert!(line.chars().count() <= 100 && line.is_ascii(), "{line}");
    }
    diff
}

/// `report` with synthetic steps: `durations` in microseconds; the first part computes and the rest, if any,
/// waits for data.
pub fn with_steps(mut report: Report, operations: u64, durations: &[(u64, u64)]) -> Report {
    let mut at = crate::support::ZERO;
    let rows = durations.iter().map(|&(compute, data_loading)| {
        let start = Timestamp::from_nanos(at);
        at += (compute + data_loading) * 1_000;
        let mut leaves = [0; LEAF_COUNT];
        leaves[Leaf::Compute as usize] = compute * 1_000;
        leaves[Leaf::DataLoading as usize] = data_loading * 1_000;
        Step { start, end: Timestamp::from_nanos(at), operations, leaves, iteration: None }
    });
    let rows: Vec<_> = rows.collect();
    let seen = rows.len() as u64;
    report.devices[0].steps = Some(Steps { source: StepSource::Period, period: Some(operations), seen, rows });
    report
}

/// Steps that compute up to 4 us longer than the shortest; every eighth waits ten times as long for its data.
pub fn uneven(count: u64, compute: u64, data_loading: u64) -> Vec<(u64, u64)> {
    (0..count).map(|index| (compute + index % 5, data_loading + 9 * data_loading * u64::from(index % 8 == 6))).collect()
}

#[test]
fn steps_are_compared_by_rank_and_divided_exactly_whatever_the_outliers() {
    let report = training(60, 500, 1_000).report();
    let a = with_steps(report.clone(), 3, &uneven(43, 1_000, 500));
    let b = with_steps(report, 3, &uneven(23, 1_000, 200));
    let diff = compared(&a, &b);
    let device = &diff.devices[0];
    assert_eq!((device.basis, device.outcome()), (Basis::Step, StepChange::Inconclusive));
    assert_eq!((device.a.considered, device.a.averaged, device.b.considered, device.b.averaged), (40, 20, 20, 10));
    assert_eq!((device.a.median_ns, device.b.median_ns), (Some(1_502_000), Some(1_202_000)));
    assert_eq!(device.leaves[0], (Leaf::DataLoading, -300_000));
    let test = device.test.unwrap();
    assert!(test.p < 1e-4 && test.larger < 0.2, "{test:?}");
    let headline = &diff.headlines()[0];
    assert!(
        headline.starts_with(
            "Inconclusive: B's step is 1.25x faster (1.5 ms -> 1.2 ms), but single runs of one program differ by up to 1.43x: \
             waiting for data"
        ),
        "{headline}"
    );
    assert!(diff.warnings.is_empty(), "{:?}", diff.warnings);
}

#[test]
fn one_run_each_shows_no_difference_that_runs_of_one_program_have() {
    let report = training(60, 500, 1_000).report();
    for (b, outcome) in [
        (1_000, StepChange::Unchanged),
        (1_420, StepChange::Inconclusive),
        (1_440, StepChange::Slower),
        (690, StepChange::Faster),
    ] {
        let diff =
            compared(&with_steps(report.clone(), 3, &[(1_000, 0); 40]), &with_steps(report.clone(), 3, &[(b, 0); 40]));
        assert_eq!(diff.devices[0].outcome(), outcome, "{b}");
        let text = diff.text(10);
        assert!(!text.contains("p <") && !text.contains("p ="), "steps of one run are no sample of runs: {text}");
        assert_eq!(text.starts_with("Inconclusive: "), outcome == StepChange::Inconclusive, "{text}");
    }
}

#[test]
fn a_difference_that_chance_explains_is_no_change() {
    let report = training(60, 500, 1_000).report();
    let a: Vec<_> = (0..30).map(|index| (1_000 + index * 37 % 101, 0)).collect();
    let b: Vec<_> = (0..30).map(|index| (1_003 + index * 53 % 101, 0)).collect();
    let diff = compared(&with_steps(report.clone(), 3, &a), &with_steps(report, 3, &b));
    let device = &diff.devices[0];
    assert_ne!(device.change_ns(), 0);
    assert!(device.test.unwrap().p > 0.05, "{:?}", device.test);
    assert_eq!(device.outcome(), StepChange::Unchanged);
    assert!(diff.headlines()[0].starts_with("B's step has not changed"), "{:?}", diff.headlines());
}

#[test]
fn steps_that_hold_another_number_of_iterations_are_not_compared() {
    let report = training(500, 500, 1_000).report();
    let one = with_steps(report.clone(), 3, &uneven(400, 1_600, 0));
    let two = with_steps(report, 6, &uneven(200, 3_200, 0));
    let diff = compared(&one, &two);
    let device = &diff.devices[0];
    assert_eq!((device.basis, device.test), (Basis::Operations, None));
    assert!((device.change_ns().unsigned_abs() as f64) < 0.01 * device.a.unit_ns as f64, "{}", diff.text(10));
    assert!(diff.warnings[0].contains("3 operations in A and 6 in B"), "{:?}", diff.warnings);
}

#[test]
fn a_run_without_steps_is_compared_by_as_many_operations_as_a_step_of_the_other() {
    let (mut a, b) = (training(400, 3_000, 1_000).report(), training(400, 1_500, 1_000).report());
    a.devices[0].steps = None;
    let diff = compared(&a, &with_steps(b, 3, &uneven(390, 1_600, 1_500)));
    let device = &diff.devices[0];
    assert_eq!((device.basis, device.a.operations, device.b.operations), (Basis::Operations, 3, 3));
    assert!((4_500_000..4_700_000).contains(&device.a.unit_ns), "{}", diff.text(10));
    assert!(diff.warnings[0].contains("A has fewer than 5 comparable steps"), "{:?}", diff.warnings);
    assert!(diff.warnings[0].contains("by 3 operations, start-up included"), "{:?}", diff.warnings);
}

#[test]
fn less_loading_is_a_gain_by_data_loading() {
    let (a, b) = (training(60, 3_000, 1_000).report(), training(90, 1_000, 1_000).report());
    let diff = compared(&a, &b);
    let device = &diff.devices[0];
    assert_eq!(device.outcome(), StepChange::Faster);
    assert_eq!(device.leaves[0].0, Leaf::DataLoading, "{}", diff.text(10));
    assert_eq!(device.causes[0].0, Cause::DataLoading);
    let explained = device.leaves[0].1 as f64 / device.change_ns() as f64;
    assert!((0.9..1.1).contains(&explained), "{explained}: {}", diff.text(10));
    assert!(device.kernels.iter().chain(&device.copies).all(|row| !row.is_changed()), "{}", diff.text(10));
    assert!(diff.headlines()[0].contains("faster") && diff.headlines()[0].contains("waiting for data -"));
}

#[test]
fn a_slower_kernel_is_named_and_its_cause_is_computation() {
    let diff = compared(&training(60, 200, 1_000).report(), &training(60, 200, 1_300).report());
    let device = &diff.devices[0];
    assert_eq!((device.outcome(), device.leaves[0].0), (StepChange::Inconclusive, Leaf::Compute), "{}", diff.text(10));
    assert_eq!((device.kernels[0].name.as_str(), device.kernels[0].speed), ("gemm", Speed::Slower));
    assert_eq!(device.kernels[0].launches, Launches::Same);
    assert_eq!(device.kernels[1].speed, Speed::Same);
}

#[test]
fn a_run_is_no_different_from_itself() {
    let report = training(60, 500, 1_000).report();
    let diff = compared(&report, &report);
    let device = &diff.devices[0];
    assert_eq!((device.outcome(), device.change_ns()), (StepChange::Unchanged, 0));
    assert!(device.leaves.is_empty() && device.causes.is_empty());
    assert!(device.test.is_none_or(|test| test.p == 1.0));
    assert!(diff.headlines()[0].contains("has not changed"), "{:?}", diff.headlines());
    assert!((diff.similarity - 1.0).abs() < 1e-9);
}

#[test]
fn without_steps_operations_are_compared_and_it_is_said() {
    let (a, b) = (training(7, 500, 1_000).report(), training(7, 500, 1_000).report());
    let diff = compared(&a, &b);
    assert_eq!(diff.devices[0].basis, Basis::Operations);
    assert_eq!(diff.devices[0].test, None);
    assert!(
        diff.warnings.iter().any(|warning| warning.contains("by 1000 operations, start-up")),
        "{:?}",
        diff.warnings
    );
}

#[test]
fn other_programs_and_idle_ones_are_refused() {
    let training = training(60, 500, 1_000).report();
    let mut other = Scenario::new();
    for index in 0..200 {
        gpu(0).kernel("softmax").at(1_010 + index * 300).lasting(200).launched(&mut other, 1, 1_000 + index * 300, 5);
    }
    let refusal = compare(&training, &other.report()).unwrap_err();
    assert_eq!(refusal, NotComparable::DifferentPrograms(0.0));
    assert!(refusal.to_string().contains("different programs"));

    let mut idle = Scenario::new();
    idle.call(1, "cuInit", 10, 100);
    assert_eq!(compare(&training, &idle.report()).unwrap_err(), NotComparable::NoWork(Side::B));
    assert_eq!(compare(&idle.report(), &training).unwrap_err(), NotComparable::NoWork(Side::A));
}

#[test]
fn what_makes_a_comparison_unfair_is_said() {
    let scenario = training(60, 500, 1_000);
    let clean = scenario.report();
    let session = ProcessInfo { driver_cuda_version: 12_080, ..clean.process.clone() };
    let loss = Loss { dropped_by_cupti: 3, ..Loss::default() };
    let damage = vec!["1 block missing".to_owned()];
    let mut bad = Report::new(&session, &scenario.run(), &scenario.dictionary, &loss, End::Abrupt, damage);
    bad.devices[0].device.name = "NVIDIA H200".to_owned();
    let warnings = compared(&clean, &bad).warnings.join("\n");
    for part in ["B is damaged: 1 block missing", "B lacks 3 records", "B has no end", "H200", "12.8 in B"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    assert!(!warnings.contains("A is") && !warnings.contains("A lacks"), "{warnings}");
}

/// Four layers of two kernels and an optimizer; the third layer's `gemm` takes `third` microseconds, and `clip` adds a
/// kernel before the optimizer.
fn layers(third: u64, clip: bool) -> Scenario {
    let mut scenario = Scenario::new();
    let mut at = 1_000;
    for _ in 0..300 {
        let mut kernel = |name: &str, lasting: u64| {
            gpu(0).kernel(name).at(at + 6).lasting(lasting).launched(&mut scenario, 1, at, 5);
            at += lasting + 10;
        };
        for layer in 0..4 {
            kernel("gemm", if layer == 2 { third } else { 60 });
            kernel("relu", 10);
        }
        if clip {
            kernel("clip", 7);
        }
        kernel("adam", 20);
        at += 300;
    }
    scenario
}

#[test]
fn changes_are_reported_by_their_place_in_the_step() {
    let diff = compared(&layers(60, false).report(), &layers(90, true).report());
    let places = diff.devices[0].places.as_ref().unwrap();
    assert_eq!((places.operations, places.aligned), ((9, 10), 9));
    let rows: Vec<_> = places.changed.iter().map(|row| (row.fate, row.name.as_str(), row.change_ns())).collect();
    assert_eq!(rows, [(Fate::Slower, "gemm", 30_000.0), (Fate::Added, "clip", 7_000.0)]);
    let (slower, added) = (&places.changed[0], &places.changed[1]);
    let optimizer = (added.at_a, added.at_b + 1);
    // Two layers after the optimizer, regardless of the launch at which the detected step starts.
    assert_eq!((slower.at_a, slower.at_b), ((optimizer.0 + 5) % 9, (optimizer.1 + 5) % 10));
    assert!(diff.text(10).contains("by position in the step (9 of 9 and 10 GPU operations match)"));

    let same = compared(&layers(60, false).report(), &layers(60, false).report());
    assert!(same.devices[0].places.as_ref().unwrap().changed.is_empty());
    let short = compared(&training(60, 500, 1_000).report(), &training(60, 500, 1_000).report());
    assert_eq!(short.devices[0].places, Err("no steps that repeat were found".to_owned()));
    assert!(short.text(10).contains("compared by name only"));
}

#[test]
fn losses_beyond_every_number_are_losses() {
    let scenario = training(20, 50, 300);
    let loss = Loss { dropped_by_cupti: u64::MAX, dropped_by_gpuwhy: 1, broken_buffers: u64::MAX, ..Loss::default() };
    let loss = Loss { undelivered_buffers: 1, ..loss };
    let lossy = scenario.report_with(&scenario.run(), &loss);
    let warnings = compare(&scenario.report(), &lossy).unwrap().warnings.join("\n");
    assert!(warnings.contains(&format!("B lacks {} records", u64::MAX)), "{warnings}");
}

#[test]
fn texts_fit_the_terminal() {
    let computing = |lasting: u64| {
        let mut scenario = Scenario::new();
        for at in (0..400).map(|step| step * 1_000) {
            gpu(0).kernel("gemm").at(at + 10).lasting(lasting).launched(&mut scenario, 1, at, 5);
        }
        scenario.report()
    };
    let diff = compare(&computing(985), &computing(300)).unwrap();
    // A changed kernel takes one line, with the name on another.
    for columns in [80, 100, 140] {
        let text = diff.text_within(5, Style { width: columns, color: false });
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= columns, "{columns}: {text}");
    }
}

#[test]
fn the_work_of_graphs_is_compared_by_module() {
    const STEP: (&str, &str, u32) = ("/u/train.py", "step", 9);
    const MLP: (&str, &str, u32) = ("/u/model.py", "Mlp.forward", 5);
    const LINEAR: (&str, &str, u32) = ("/lib/site-packages/torch/nn/modules/linear.py", "Linear.forward", 125);
    let replays = || {
        let mut scenario = Scenario::new();
        scenario.node(1, 7, &[LINEAR, MLP, STEP]);
        scenario.node(2, 7, &[STEP]);
        scenario.node(3, 8, &[]);
        let name = scenario.dictionary.intern_name("pt_autograd_0");
        scenario.dictionary.add_thread_name(ThreadName { thread: ThreadId(8), name });
        for at in (1..21).map(|replay| replay * 1_000) {
            let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
            for (node, start, lasting) in [(1, 20, 100), (2, 120, 200), (3, 320, 50)] {
                scenario.add(gpu(0).kernel("gemm").at(at + start).lasting(lasting).of_node(3, node).by(call));
            }
        }
        scenario.report()
    };
    let (a, mut b) = (replays(), replays());
    let origins = b.graph_origins.as_mut().unwrap();
    let mlp = origins.modules.iter_mut().find(|row| row.parent.as_deref() == Some("Mlp")).unwrap();
    mlp.work.total_ns *= 2;
    let diff = compare(&a, &b).unwrap();
    let [first, rest @ ..] = &diff.modules[..] else { panic!("{diff:?}") };
    assert_eq!((first.name.as_str(), first.a.count, first.b.count), ("Mlp > Linear", 20, 20));
    assert!((first.change_ns() - first.a.unit_ns).abs() < 1e-6 && first.a.unit_ns > 0.0, "{first:?}");
    assert!(rest.iter().all(|row| row.change_ns() == 0.0), "{rest:?}");
    let names: Vec<_> = diff.modules.iter().map(|row| row.name.as_str()).collect();
    assert!(names.contains(&"thread pt_autograd_0 (backward pass)") && names.contains(&"outside modules"), "{names:?}");
    b.graph_origins = None;
    assert!(compare(&a, &b).unwrap().modules.is_empty());
}
