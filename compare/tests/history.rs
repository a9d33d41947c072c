//! History of synthetic runs: contents of a line, choice of the compared runs, and detection of regressions.

use crate::diff::{uneven, with_steps};
use crate::support::{Scenario, gpu};
use gpuwhy_compare::diff::{StepChange, compare};
use gpuwhy_compare::history::{EARLIER_RUNS, Judged, Like, Unlike, judged, text};
use gpuwhy_report::history::{MOST_DURATIONS, Run};
use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::Style;
use gpuwhy_trace::record::MemoryKind;
use profiler_core::leaf::Cause;

/// A training loop of two kernels whose synthetic steps wait `loading` microseconds for data.
fn training(iterations: u64, loading: u64, kernel: &str) -> Report {
    let mut scenario = Scenario::new();
    for iteration in 0..60 {
        let at = 1_000 + iteration * 2_100;
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at + 10).lasting(100).launched(&mut scenario, 1, at, 5);
        gpu(0).kernel("relu").at(at + 111).lasting(400).launched(&mut scenario, 1, at + 6, 5);
        gpu(0).kernel(kernel).at(at + 512).lasting(1_000).launched(&mut scenario, 1, at + 12, 5);
        scenario.call(1, "cudaStreamSynchronize_v3020", at + 18, 1_497);
    }
    with_steps(scenario.report(), 3, &uneven(iterations, 1_500, loading))
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A run of `report` that started at this second.
fn run(report: &Report, second: u64) -> Run {
    let run = Run::of(report, Some("/tmp/a.gpuwhy")).unwrap();
    let command = command(&["python3", "/x/train.py", "--lr", "1"]);
    Run { start_ns: second * 1_000_000_000, command, host: "node1".to_owned(), ..run }
}

fn newest(runs: &[Run]) -> Judged {
    judged(runs, Like::default()).pop().unwrap()
}

#[test]
fn a_change_is_judged_as_diff_judges_it() {
    for (loading, outcome, by_two_runs) in [
        (500, StepChange::Unchanged, StepChange::Unchanged),
        (560, StepChange::Slower, StepChange::Inconclusive),
        (440, StepChange::Faster, StepChange::Inconclusive),
        (1_500, StepChange::Slower, StepChange::Slower),
    ] {
        let (a, b) = (training(60, 500, "gemm"), training(60, loading, "gemm"));
        let diff = compare(&a, &b).unwrap();
        let judged = newest(&[run(&a, 1), run(&b, 2)]);
        let (before, change) = judged.before.unwrap();
        let device = &diff.devices[0];
        assert_eq!((before, change.outcome(), device.outcome()), (0, outcome, by_two_runs));
        assert_eq!(Some(change.test), device.test, "fewer than {MOST_DURATIONS} steps: the same test");
        assert_eq!((change.before_ns, change.after_ns), (device.a.unit_ns, device.b.unit_ns));
        assert_eq!(change.causes, device.causes);
        assert_eq!(judged.outcome, by_two_runs, "one earlier run is no more than diff has");
    }
}

#[test]
fn a_line_keeps_a_hundred_durations_of_a_long_run() {
    let long = run(&training(1_000, 500, "gemm"), 1);
    let device = &long.devices[0];
    assert_eq!((device.durations_ns.len(), device.steps > 900), (MOST_DURATIONS, true));
    assert_eq!(device.causes.iter().map(|(_, ns)| ns).sum::<u64>(), device.step_ns.unwrap());
    assert!(long.line().len() < 3_000, "{}", long.line().len());
    assert_eq!(long.line().matches('\n').count(), 1);
}

#[test]
fn runs_that_are_not_alike_are_not_compared() {
    let first = run(&training(60, 500, "gemm"), 1);
    let slow = training(60, 1_500, "gemm");
    let with = |change: &dyn Fn(&mut Run)| {
        let mut second = run(&slow, 2);
        change(&mut second);
        newest(&[first.clone(), second])
    };
    let why = |change: &dyn Fn(&mut Run)| {
        let judged = with(change);
        assert!(judged.before.is_none() && judged.outcome == StepChange::Unchanged);
        judged.unlike.unwrap()
    };
    assert_eq!(with(&|_| ()).outcome, StepChange::Slower);
    assert_eq!(why(&|run| run.host = "node2".to_owned()), Unlike::Host);
    assert_eq!(why(&|run| run.command.push("--batch=64".to_owned())), Unlike::Arguments);
    assert_eq!(why(&|run| run.devices[0].name = "another".to_owned()), Unlike::Devices);
    assert_eq!(why(&|run| run.world_size = Some(8)), Unlike::Devices);
    assert_eq!(why(&|run| run.mode = "full".to_owned()), Unlike::Mode);
    assert_eq!(why(&|run| run.devices[0].step_ns = None), Unlike::NoSteps);
    assert_eq!(why(&|run| run.devices[0].operations *= 3), Unlike::Steps);
    assert!(matches!(why(&|run| run.kernels.clear()), Unlike::Program(_)));
    // As no line of gpuwhy has it: the share of nothing is no number.
    assert!(matches!(why(&|run| run.kernels.iter_mut().for_each(|(_, count)| *count = 0)), Unlike::Program(_)));
    let other = run(&training(60, 500, "another kernel"), 2);
    assert_eq!(newest(&[first.clone(), other]).unlike, None, "half of the executions agree");
    // A command option compares them anyway.
    let mut second = run(&slow, 2);
    second.host = "node2".to_owned();
    second.command.push("--batch=64".to_owned());
    let like = Like { same_host: false, same_arguments: false };
    assert_eq!(judged(&[first, second], like)[1].outcome, StepChange::Slower);
}

#[test]
fn a_regression_is_slower_than_each_of_the_runs_before() {
    let (usual, slow) = (training(60, 500, "gemm"), training(60, 560, "gemm"));
    let mut runs: Vec<_> = (0..7).map(|second| run(&usual, second)).collect();
    runs.push(run(&slow, 8));
    let found = newest(&runs);
    assert_eq!((found.outcome, found.held_against), (StepChange::Slower, EARLIER_RUNS));
    // A machine on which one of the last runs was equally slow: runs vary this much.
    runs[5] = run(&slow, 5);
    let found = newest(&runs);
    assert_eq!((found.outcome, found.before.unwrap().1.outcome()), (StepChange::Inconclusive, StepChange::Slower));
    let shown = text(&runs, &judged(&runs, Like::default()), 1, Style::default());
    let joined = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("It is slower than some of the 5 runs before it, but not than all: runs may differ"),
        "{shown}"
    );
    // The run after a regression is not one itself.
    runs.push(run(&slow, 9));
    assert_eq!(newest(&runs).outcome, StepChange::Unchanged);
}

#[test]
fn runs_that_say_nothing_are_not_kept() {
    let report = training(60, 500, "gemm");
    assert!(Run::of(&report, None).is_some_and(|run| run.trace.is_none()));
    assert_eq!(Run::of(&Scenario::new().report(), None), None);
    let mut rank = report;
    rank.process.rank_variables = vec![("RANK".to_owned(), "3".to_owned())];
    assert_eq!(Run::of(&rank, None), None);
    rank.process.rank_variables = vec![("RANK".to_owned(), "0".to_owned()), ("WORLD_SIZE".to_owned(), "8".to_owned())];
    assert_eq!(Run::of(&rank, None).unwrap().world_size, Some(8));
}

#[test]
fn the_text_is_narrow_and_says_what_became_of_the_newest_run() {
    let (usual, slow) = (training(60, 500, "gemm"), training(60, 700, "gemm"));
    let mut runs = vec![run(&usual, 1_000), run(&usual, 2_000), run(&slow, 1_763_890_000)];
    runs[2].bottleneck = "\u{1b}[31mlaunch".to_owned();
    for width in [80, 100] {
        let style = Style { width, ..Style::default() };
        let shown = text(&runs, &judged(&runs, Like::default()), 20, style);
        assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let joined = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.starts_with("python train.py on node1, "), "{shown}");
        assert!(joined.contains("Regression: it is slower than each of the 2 runs before it."), "{shown}");
        assert!(joined.contains("2025-11-23 09:26"), "{shown}");
    }
    let shown = text(&runs[..2], &judged(&runs[..2], Like::default()), 1, Style::default());
    assert!(shown.contains("No change since the run of 1970-01-01 00:16") && shown.lines().count() == 4, "{shown}");
    let mut other = runs[1].clone();
    other.command.push("--compile".to_owned());
    let runs = [runs[0].clone(), other];
    let shown = text(&runs, &judged(&runs, Like::default()), 9, Style::default());
    assert!(shown.contains("had other arguments (--any-arguments compares them)"), "{shown}");
}

#[test]
fn a_line_comes_back_and_a_bad_one_is_refused() {
    let mut first = run(&training(60, 500, "gemm"), 7);
    // A line has three decimal places of the share.
    first.bottleneck_share = 0.25;
    first.command.push("quoted \" \\ \n é".to_owned());
    let line = first.line();
    assert_eq!(serde_json::from_str::<Run>(&line).unwrap(), first);
    let earlier = line.replace("\"bottleneck", "\"verdict");
    assert!(earlier != line && serde_json::from_str::<Run>(&earlier).unwrap() == first);
    let newer = line.replace("\"gpuwhy_history\":1", "\"gpuwhy_history\":2");
    assert!(
        serde_json::from_str::<Run>(&newer)
            .unwrap_err()
            .to_string()
            .starts_with("its format has version 2; this gpuwhy reads version 1")
    );
    let more = line.replace("{\"gpuwhy_history\"", "{\"later\":[1],\"gpuwhy_history\"").replace("gpu_compute", "later");
    let read = serde_json::from_str::<Run>(&more).unwrap();
    assert!(read.devices[0].causes.iter().all(|(cause, _)| *cause != Cause::GpuCompute));
    for end in 0..line.trim_end().len() {
        if line.is_char_boundary(end) {
            assert!(serde_json::from_str::<Run>(&line[..end]).is_err());
        }
    }
}
