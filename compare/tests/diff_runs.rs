//! Comparison of several runs of two programs: the runs are the sample, and what they cannot show is inconclusive.

use crate::diff::{training, with_steps};
use crate::support::{Scenario, gpu};
use gpuwhy_compare::diff::{Diff, NotAlike, NotComparable, Side, StepChange, alike, compare, compare_runs};
use gpuwhy_report::run::unit::Basis;
use gpuwhy_report::run::{BetweenIterations, HostReport, Report};
use gpuwhy_trace::record::{MemoryKind, Timestamp};
use profiler_core::attribution::SampleTotals;
use profiler_core::leaf::Leaf;

/// Runs of one program whose steps compute and wait for data for these times, microseconds.
fn runs(steps: &[(u64, u64)]) -> Vec<Report> {
    let report = training(60, 500, 1_000).report();
    let run = |(at, step): (usize, &(u64, u64))| {
        let mut run = with_steps(report.clone(), 3, &[*step; 40]);
        (run.process.process_id, run.process.start) = (100 + at as u32, Timestamp::from_nanos(at as u64 + 1));
        run
    };
    steps.iter().enumerate().map(run).collect()
}

fn compared(a: &[Report], b: &[Report]) -> Result<Diff, NotComparable> {
    compare_runs(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>())
}

#[test]
fn runs_are_the_sample_and_the_median_ones_are_compared_in_detail() {
    let a = runs(&[(1_000, 90), (1_000, 110), (1_000, 100), (1_000, 95), (1_000, 105)]);
    let b = runs(&[(1_000, 200), (1_000, 190), (1_000, 210), (1_000, 195), (1_000, 205)]);
    let diff = compared(&a, &b).unwrap();
    assert_eq!((diff.runs, diff.medians), ((5, 5), (2, 0)));
    let device = &diff.devices[0];
    assert_eq!((device.outcome(), device.change_ns()), (StepChange::Slower, 100_000));
    let test = device.runs.as_ref().unwrap().test;
    assert!((test.p - 2.0 / 252.0).abs() < 1e-9, "{test:?}");
    let text = diff.text(10);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "B's step is 9.1 % slower (1.1 ms -> 1.2 ms). With 96 % confidence it takes",
        "Largest changes: waiting for data +100.0 us A:",
        "1.077 to 1.105 times as long (5 and 5 runs, p = 0.008)",
        "A: 5 runs of 1.1 ms to 1.1 ms; the median run: mean 1.1 ms",
    ] {
        assert!(words.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('~') && !text.contains("single runs"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(compared(&b, &a).unwrap().devices[0].outcome(), StepChange::Faster);
}

#[test]
fn what_overlaps_is_marked_and_inconclusive() {
    let a = runs(&[(1_000, 90), (1_040, 100), (1_080, 110), (1_120, 120)]);
    let b = runs(&[(1_010, 200), (1_050, 210), (1_090, 220), (1_130, 230)]);
    let diff = compared(&a, &b).unwrap();
    assert_eq!(diff.devices[0].outcome(), StepChange::Inconclusive);
    let text = diff.text(10);
    assert!(text.contains("~ computing (compute)") && !text.contains("~ waiting for data"), "{text}");
    let headline = &diff.headlines()[0];
    assert!(headline.starts_with("Inconclusive: B's step") && headline.contains("With 97 % confidence"), "{text}");
    assert!(diff.headlines()[0].contains("waiting for data +"), "{text}");
}

#[test]
fn three_runs_say_how_many_are_needed() {
    let a = runs(&[(1_000, 100), (1_010, 100), (1_020, 100)]);
    let b = runs(&[(1_100, 100), (1_110, 100), (1_120, 100)]);
    let headline = compared(&a, &b).unwrap().headlines().concat();
    assert!(
        headline.starts_with("Inconclusive: B's step is ")
            && headline.ends_with(
                "3 and 3 runs are too few: even without any overlap p is 0.1, and 0.05 is needed. Record 4 or more of each"
            ),
        "{headline}"
    );
    let b = runs(&[(1_800, 100), (1_810, 100), (1_820, 100)]);
    let diff = compared(&a, &b).unwrap();
    assert_eq!(diff.devices[0].outcome(), StepChange::Slower);
    assert!(diff.headlines()[0].contains("differs from every run of A by more than 30 %"), "{:?}", diff.headlines());
}

#[test]
fn traces_that_are_no_runs_of_one_program_are_refused() {
    let (a, b) = (runs(&[(1_000, 0), (1_001, 0)]), runs(&[(1_000, 0), (1_002, 0)]));
    assert_eq!(compared(&[], &b), Err(NotComparable::NotAlike(Side::A, NotAlike::Number(0))));
    let twice = [b[0].clone(), b[0].clone()];
    assert_eq!(compared(&a, &twice), Err(NotComparable::NotAlike(Side::B, NotAlike::SameRun(0, 1))));
    assert!(compared(&a, &a).is_ok(), "the same runs on both sides are no difference");
    let mut ranks = b.clone();
    for (rank, run) in ranks.iter_mut().enumerate() {
        let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())];
        run.process.rank_variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    }
    let refused = compared(&ranks, &b).unwrap_err();
    assert_eq!(refused, NotComparable::NotAlike(Side::A, NotAlike::Ranks));
    assert!(refused.to_string().contains("`gpuwhy merge`"), "{refused}");
    let mut other = Scenario::new();
    for index in 0..200 {
        gpu(0).kernel("softmax").at(1_010 + index * 300).lasting(200).launched(&mut other, 1, 1_000 + index * 300, 5);
    }
    let mixed = [a[0].clone(), other.report()];
    assert_eq!(compared(&mixed, &b), Err(NotComparable::NotAlike(Side::A, NotAlike::OtherProgram(1, 0.0))));
    assert_eq!(alike(&[&Scenario::new().report()]), Err(NotAlike::NoKernels(0)));
}

#[test]
fn runs_without_steps_are_compared_by_operations() {
    let mut a = runs(&[(1_000, 100), (1_010, 100)]);
    a[1].devices[0].steps = None;
    let diff = compared(&a, &runs(&[(1_000, 100), (1_010, 100)])).unwrap();
    assert_eq!((diff.devices[0].basis, diff.devices[0].counts.len()), (Basis::Operations, 0));
    assert!(diff.warnings[0].contains("a run of A has fewer than 5 comparable steps"), "{:?}", diff.warnings);
}

/// A step of a copy, `kernels` kernels and `waits` waits for them.
fn counted(kernels: u64, waits: u64) -> Report {
    let mut scenario = Scenario::new();
    for iteration in 0..300 {
        let at = 1_000 + iteration * 2_000;
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at + 10).lasting(100).launched(&mut scenario, 1, at, 5);
        for kernel in 0..kernels {
            let start = at + 120 + kernel * 50;
            gpu(0).kernel("gemm").at(start).lasting(40).launched(&mut scenario, 1, at + 6 + kernel * 6, 5);
        }
        for wait in 0..waits {
            scenario.call(1, "cudaStreamSynchronize_v3020", at + 1_000 + wait * 100, 50);
        }
    }
    scenario.report()
}

#[test]
fn counts_of_a_step_are_exact() {
    let diff = compare(&counted(4, 1), &counted(6, 3)).unwrap();
    let device = &diff.devices[0];
    let rows: Vec<_> = device.counts.iter().map(|row| (row.name, row.a.0, row.b.0, row.is_changed())).collect();
    assert_eq!(
        rows,
        [
            ("calls that launch kernels or graphs", 4.0, 6.0, true),
            ("kernels", 4.0, 6.0, true),
            ("synchronizing calls", 1.0, 3.0, true),
            ("copies", 1.0, 1.0, false),
            ("memsets", 0.0, 0.0, false),
            ("copied bytes", 1_048_576.0, 1_048_576.0, false),
        ],
        "{}",
        diff.text(10)
    );
    let text = diff.text(10);
    assert!(text.contains("           4           6           +2  kernels"), "{text}");
    assert!(text.contains("The same in each step: copies 1, memsets 0, copied bytes 1.0 MB"), "{text}");
    let markdown = diff.markdown(10, ("a|b", "c"));
    assert!(
        markdown.contains("| kernels | 4 | 6 | **+2** |") && markdown.contains("| A: a\\|b | B: c |"),
        "{markdown}"
    );
}

/// Steps of a copy and a kernel that take so long, nanoseconds.
fn lasting(copy: u64, kernel: u64) -> Report {
    let mut scenario = Scenario::new();
    for iteration in 0..300 {
        let at = 1_000 + iteration * 2_000;
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at + 10).lasting(copy).launched(&mut scenario, 1, at, 5);
        gpu(0).kernel("gemm").at(at + 1_020).lasting(kernel).launched(&mut scenario, 1, at + 6, 5);
    }
    scenario.report()
}

#[test]
fn the_largest_changes_are_shown_whether_of_kernels_or_of_copies() {
    let diff = compare(&lasting(100, 400), &lasting(600, 500)).unwrap();
    let [one, two] = [1, 2].map(|limit| diff.markdown(limit, ("a", "b")));
    assert!(one.contains("| copy host\\_to\\_device (") && !one.contains("| gemm |"), "{one}");
    assert!(two.find("| copy host\\_to\\_device (").unwrap() < two.find("| gemm |").unwrap(), "{two}");
}

#[test]
fn host_samples_in_one_run_only_do_not_make_a_difference() {
    let report = training(60, 500, 1_000).report();
    let a = with_steps(report.clone(), 3, &[(1_000, 500); 40]);
    let mut b = with_steps(report, 3, &[(1_000, 500); 40]);
    for step in &mut b.devices[0].steps.as_mut().unwrap().rows {
        step.leaves.swap(Leaf::DataLoading as usize, Leaf::HostCpu as usize);
    }
    let mut sampled = a.clone();
    sampled.host = Some(HostReport {
        totals: SampleTotals::default(),
        failed: 0,
        outside_cuda_ns: 0,
        sampled_ns: 0,
        causes: Vec::new(),
        lines: Vec::new(),
        between: BetweenIterations::default(),
        calls: Vec::new(),
        lock_waits: 0,
        lock_handovers: 0,
        lock_holders: Vec::new(),
    });
    let text = compare(&sampled, &b).unwrap().text(10);
    assert!(text.contains("B has no host samples and A has"), "{text}");
    assert!(!text.contains("waiting for data") && !text.contains("CPU running"), "{text}");
    assert!(compare(&a, &b).unwrap().text(10).contains("waiting for data (data_loading)"));
}
