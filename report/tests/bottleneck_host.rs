//! Sentences and advice of the conclusion with samples of the launching thread.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{BetweenIterations, Bottleneck, CauseRow, HostReport, LineRow, bottleneck_of};
use gpuwhy_trace::completeness::Completeness;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::{KernelBuilds, SampleTotals};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::{BestCase, Busy, ScenarioKind, WhatIf};

const MS: u64 = 1_000_000;

/// The conclusion for a device that computes for 400 of 1,000 ms and is idle for 600 ms with `leaf` as cause,
/// with these sampled causes, milliseconds.
pub(crate) fn judge(leaf: Leaf, seen: &[(HostCause, u64)], lines: &[LineRow]) -> Bottleneck {
    judge_simulated(leaf, seen, lines, SampleTotals::default(), None)
}

/// Like [`judge`], with samples of these totals, and steps of 100 ms that take this many ms without one kind
/// of cost.
pub(crate) fn judge_simulated(
    leaf: Leaf,
    seen: &[(HostCause, u64)],
    lines: &[LineRow],
    totals: SampleTotals,
    without: Option<(ScenarioKind, u64)>,
) -> Bottleneck {
    let mut scenario = Scenario::new();
    for index in 0..20 {
        let name = format!("kernel_{index}");
        gpu(0).kernel(&name).at(1_000 * index + 10).lasting(500).launched(&mut scenario, 1, 1_000 * index, 5);
    }
    let attributor = scenario.run();
    let mut device = scenario.report_of(&attributor).devices.remove(0);
    device.steady_leaves.fill(0);
    device.steady_leaves[Leaf::Compute as usize] = 400 * MS;
    device.steady_leaves[leaf as usize] = 600 * MS;
    (device.steps, device.what_if) = (None, None);
    if leaf == Leaf::KernelBuild {
        device.builds = KernelBuilds {
            count: 10,
            total_ns: 600 * MS,
            later_count: 5,
            later_ns: 300 * MS,
            beyond_ns: 450 * MS,
            until: (100, 95),
        };
    }
    device.what_if = without.map(|(kind, millis)| WhatIf {
        steps: 10,
        represented_steps: 10,
        covers_ns: 1_000 * MS,
        base_error: Some(0.0),
        refused: None,
        untraced: None,
        priced: 1.0,
        best_cases: vec![BestCase {
            kind,
            step_ns: millis * MS,
            speedup: 100.0 / millis as f64,
            interval: Some((1.0, 100.0)),
        }],
        combined: Vec::new(),
        busy: Busy::default(),
    });
    let mut causes: Vec<_> = seen.iter().map(|&(cause, millis)| CauseRow { cause, total_ns: millis * MS }).collect();
    causes.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    let host = HostReport {
        totals: SampleTotals { samples: 100, ..totals },
        failed: 0,
        outside_cuda_ns: 600 * MS,
        sampled_ns: causes.iter().map(|row| row.total_ns).sum(),
        causes,
        lines: lines.to_vec(),
        between: BetweenIterations::default(),
        calls: Vec::new(),
        lock_waits: 0,
        lock_handovers: 0,
        lock_holders: Vec::new(),
    };
    let completeness = Completeness { kernels: 20, api_calls: 20, ..Completeness::default() };
    bottleneck_of(&attributor, &[device], Some(&host), &completeness)
}

pub(crate) fn line(cause: HostCause, line: u32, share: f64, step_ns: Option<u64>) -> LineRow {
    LineRow {
        cause,
        file: "/home/u/train.py".to_owned(),
        line,
        function: "main".to_owned(),
        within: None,
        samples: 40,
        sampled_ns: (share * 1e9) as u64,
        total_ns: (share * 1e9) as u64,
        within_ns: (share * 1e9) as u64,
        share,
        share_low: share,
        share_high: share,
        step_ns,
    }
}

fn says(bottleneck: &Bottleneck, words: &str) -> bool {
    bottleneck.evidence.iter().any(|sentence| sentence.contains(words))
}

#[test]
fn looks_speak_from_half_of_the_time_on() {
    let seen = |millis| says(&judge(Leaf::HostCpu, &[(HostCause::Code, millis)], &[]), "the launching threads were");
    assert!(seen(300) && !seen(299));
    // Samples of another cause do not count for this one.
    let other = judge(Leaf::HostCpu, &[(HostCause::LoaderWait, 600)], &[]);
    assert!(!says(&other, "the launching threads were"), "{:?}", other.evidence);
    let inferred = judge(Leaf::DataLoading, &[(HostCause::LoaderWait, 299)], &[]);
    assert!(says(&inferred, "Inferred from a pattern"), "{:?}", inferred.evidence);
    assert!(!says(&judge(Leaf::DataLoading, &[(HostCause::LoaderWait, 300)], &[]), "Inferred from a pattern"));
}

#[test]
fn three_lines_of_the_group_and_its_four_largest_causes_are_named() {
    let lines = [
        line(HostCause::Code, 42, 0.3, Some(3_000_000)),
        line(HostCause::LoaderWait, 1, 0.2, None),
        line(HostCause::Disk, 43, 0.1, None),
        line(HostCause::Code, 44, 0.05, None),
    ];
    let seen = [
        (HostCause::Disk, 90),
        (HostCause::Code, 300),
        (HostCause::Io, 20),
        (HostCause::LoaderWait, 85),
        (HostCause::Lock, 80),
        (HostCause::Sleep, 10),
    ];
    let bottleneck = judge(Leaf::HostCpu, &seen, &lines);
    let about_host: Vec<_> = bottleneck
        .evidence
        .iter()
        .filter(|sentence| sentence.contains("train.py") || sentence.contains("the launching threads were"))
        .collect();
    assert_eq!(
        about_host,
        [
            "Running code at train.py:42 (main) takes 3.0 ms a step (30 %).",
            "Waiting for storage at train.py:43 (main) takes 10 % of the time.",
            "Running code at train.py:44 (main) takes 5 % of the time.",
            "The GPU was idle while the launching threads were running code 30 %, waiting for storage 9 %, waiting for a lock or \
             queue 8 %, waiting for input or output 2 % of the time."
        ]
    );
}

#[test]
fn a_line_that_stands_for_gaps_without_a_sample_has_an_interval() {
    let mut mostly_unseen = line(HostCause::Code, 42, 0.3, Some(3_000_000));
    (mostly_unseen.share_low, mostly_unseen.share_high) = (0.25, 0.35);
    let bottleneck =
        judge(Leaf::HostCpu, &[(HostCause::Code, 300)], &[mostly_unseen, line(HostCause::Code, 43, 0.1, None)]);
    for sentence in
        ["at train.py:42 (main) takes 3.0 ms a step (30 %, 25 to 35 %)", "at train.py:43 (main) takes 10 % of the time"]
    {
        assert!(says(&bottleneck, sentence), "{:?}", bottleneck.evidence);
    }
}

#[test]
fn what_the_workers_did_is_reported_where_it_is_known() {
    let workers = [
        (HostCause::LoaderWait, 100),
        (HostCause::LoaderWaitBusy, 200),
        (HostCause::LoaderWaitIo, 150),
        (HostCause::LoaderWaitIdle, 50),
    ];
    let bottleneck = judge(Leaf::DataLoading, &workers, &[line(HostCause::LoaderWait, 42, 0.5, None)]);
    let place = |words: &str| bottleneck.evidence.iter().position(|sentence| sentence.contains(words));
    let known = "worker processes were computing 50 %, only reading or writing 38 %, and all idle 12 % of the time";
    assert_eq!(place(known), place("train.py:42").map(|place| place + 1), "{:?}", bottleneck.evidence);
    assert!(!says(&judge(Leaf::DataLoading, &workers[..1], &[]), "worker processes"), "of none of them it is known");
    // Preparing the batch in the thread itself is not a wait for workers.
    assert!(!says(&judge(Leaf::DataLoading, &[(HostCause::LoaderInline, 500)], &[]), "worker processes"));
}

#[test]
fn without_a_stack_the_ranges_of_the_program_say_it() {
    let seen = [(HostCause::LoaderWait, 400), (HostCause::LoaderInline, 150), (HostCause::LoaderCollate, 20)];
    let bottleneck = judge(Leaf::DataLoading, &seen, &[]);
    let named = "By the program's own ranges around its data loader: waiting for the data loader 400.0 ms, preparing the \
                 batch on the launching thread 150.0 ms.";
    assert!(says(&bottleneck, named), "{:?}", bottleneck.evidence);
    let with_line = judge(Leaf::DataLoading, &seen, &[line(HostCause::LoaderWait, 42, 0.5, None)]);
    assert!(!says(&with_line, "By the program's own ranges"));
    let busy = judge(Leaf::DataLoading, &[(HostCause::LoaderWaitBusy, 400)], &[]);
    let place = |words: &str| busy.evidence.iter().position(|sentence| sentence.contains(words)).unwrap();
    assert!(place("By the program's own ranges") < place("computing 100 %"), "{:?}", busy.evidence);
}

/// The advice for the cause of `leaf`, with only these sampled causes.
fn advice(leaf: Leaf, seen: &[(HostCause, u64)]) -> String {
    judge(leaf, seen, &[]).recommendation
}

#[test]
fn each_cause_has_its_advice() {
    for (cause, words) in [
        (HostCause::GarbageCollection, "gc.freeze()"),
        (HostCause::InterpreterLock, "interpreter's lock"),
        (HostCause::Io, "input or output there to another thread"),
        (HostCause::Disk, "input or output there to another thread"),
        (HostCause::Preempted, "a free core"),
        (HostCause::Lock, "waits for another thread or process"),
        (HostCause::Poll, "waits for another thread or process"),
        (HostCause::Child, "waits for another thread or process"),
        (HostCause::Sleep, "Remove the sleep"),
        (HostCause::Memory, "page faults"),
        // Of work at no known line nobody knows what to move.
        (HostCause::Code, "Find what the launching thread does"),
        // No specific remedy is known for these alone.
        (HostCause::Driver, "Find what the launching thread does"),
        (HostCause::OtherWait, "Find what the launching thread does"),
    ] {
        assert_eq!(cause.leaf().cause(), Cause::HostCpu);
        let advice = advice(cause.leaf(), &[(cause, 500), (HostCause::LoaderInline, 550)]);
        assert!(advice.contains(words), "{cause:?}: {advice}");
    }
    for (cause, words) in [
        (HostCause::LoaderInline, "Prepare batches in worker processes"),
        (HostCause::LoaderCollate, "Join and pin batches outside of the launching thread"),
        (HostCause::LoaderReceive, "taking it over costs"),
        (HostCause::LoaderWait, "do not keep up"),
        (HostCause::LoaderWaitBusy, "do not keep up"),
        (HostCause::LoaderWaitIo, "wait for storage or the network"),
        (HostCause::LoaderWaitIdle, "were idle while the step waited"),
    ] {
        let advice = advice(Leaf::DataLoading, &[(cause, 500)]);
        assert!(advice.contains(words), "{cause:?}: {advice}");
    }
}

#[test]
fn all_waits_for_a_loader_together_stand_against_each_kind_of_work() {
    let waits = [(HostCause::LoaderWaitBusy, 150), (HostCause::LoaderWaitIo, 160)];
    let with_work = |millis| advice(Leaf::DataLoading, &[&waits[..], &[(HostCause::LoaderInline, millis)]].concat());
    assert!(with_work(309).contains("wait for storage"), "310 ms of waiting, most of it for workers that read");
    assert!(with_work(310).starts_with("Prepare batches"));
    // Known states speak for those that are not known.
    let idle = advice(Leaf::DataLoading, &[(HostCause::LoaderWait, 350), (HostCause::LoaderWaitIdle, 250)]);
    assert!(idle.starts_with("The workers were idle while the step waited: raise prefetch_factor"), "{idle}");
    // Two kinds of work are not added up.
    let two = [&waits[..], &[(HostCause::LoaderInline, 200), (HostCause::LoaderCollate, 200)]].concat();
    assert!(advice(Leaf::DataLoading, &two).contains("wait for storage"));
}

/// A line that calls a function of this file.
fn calling(cause: HostCause, share: f64, function: &str, file: &str) -> LineRow {
    LineRow { within: Some((function.to_owned(), file.to_owned())), ..line(cause, 42, share, Some(MS)) }
}

#[test]
fn what_python_does_at_a_line_has_its_advice() {
    let python = |file: &str| format!("/usr/lib/python3.12/{file}");
    let popen = |share| {
        let lines = [
            calling(HostCause::LoaderWait, 0.4, "select", &python("selectors.py")),
            calling(HostCause::LoaderStart, share, "Popen._launch", &python("multiprocessing/popen_fork.py")),
        ];
        judge(Leaf::DataLoading, &[(HostCause::LoaderWait, 500)], &lines).recommendation
    };
    let starts = "Worker processes are started again for each epoch at train.py:42 (main): DataLoader(..., \
                  persistent_workers=True).";
    assert_eq!(popen(0.1), starts);
    assert!(popen(0.09).starts_with("The workers do not keep up"));
    let commands = [
        calling(HostCause::Poll, 0.3, "select", &python("selectors.py")),
        calling(HostCause::Disk, 0.1, "Popen._execute_child", &python("subprocess.py")),
    ];
    let seen = [(HostCause::Poll, 400), (HostCause::Disk, 100)];
    let command = "A command is started at train.py:42 (main): read what it reads instead, or start it less often.";
    assert_eq!(judge(Leaf::HostCpu, &seen, &commands).recommendation, command);
    let other = judge(Leaf::HostCpu, &seen, &commands[..1]).recommendation;
    assert!(other.contains("(a deeper queue, more workers)"), "{other}");
    let condition = [calling(HostCause::Lock, 0.5, "Condition.wait", &python("threading.py"))];
    let condition = judge(Leaf::HostCpu, &[(HostCause::Lock, 500)], &condition).recommendation;
    assert!(condition.contains("(a deeper queue),"), "{condition}");
}

#[test]
fn kernels_are_not_built_in_each_step() {
    let mut row = calling(HostCause::KernelBuild, 0.5, "Popen._try_wait", "/usr/lib/python3.12/subprocess.py");
    (row.share_low, row.share_high) = (0.4, 0.6);
    let seen = [(HostCause::KernelBuild, 500)];
    let bottleneck = judge(Leaf::KernelBuild, &seen, &[row]);
    assert!(says(&bottleneck, "takes 50 % of the time (40 to 60 %)."), "{:?}", bottleneck.evidence);
    let advice = bottleneck.recommendation;
    assert!(advice.starts_with("Keep the shapes at train.py:42 (main) the same"), "{advice}");
    let package = "/lib/python3.12/site-packages/torch/nn/modules/conv.py";
    let advice = judge(Leaf::KernelBuild, &seen, &[calling(HostCause::KernelBuild, 0.5, "forward", package)]);
    assert!(advice.recommendation.contains("in torch/nn/modules/conv.py (forward)"), "{}", advice.recommendation);
}

#[test]
fn the_compiler_with_most_of_the_time_decides_about_the_advice() {
    let advice = |cupy: f64, inductor: f64| {
        let package = |file: &str| format!("/lib/python3.12/site-packages/{file}");
        let mut lines = [
            calling(HostCause::KernelBuild, cupy, "compile", &package("cupy/cuda/compiler.py")),
            calling(HostCause::KernelBuild, inductor, "codegen", &package("torch/_inductor/graph.py")),
        ];
        lines.sort_by(|a, b| b.share.total_cmp(&a.share));
        judge(Leaf::KernelBuild, &[(HostCause::KernelBuild, 500)], &lines).recommendation
    };
    let starts = |cupy, inductor, words: &str| {
        let advice = advice(cupy, inductor);
        assert!(advice.starts_with(words), "{advice}");
    };
    starts(0.5, 0.1, "Build the kernels at train.py:42 (main)");
    starts(0.1, 0.5, "Keep the shapes at train.py:42 (main)");
}

#[test]
fn a_checkpoint_is_one_change() {
    let file = "/lib/python3.12/site-packages/torch/serialization.py";
    let lines = [calling(HostCause::Code, 0.55, "_save", file)];
    let seen = [(HostCause::Code, 550)];
    let without = Some((ScenarioKind::NoHostWork, 40));
    let bottleneck = judge_simulated(Leaf::HostCpu, &seen, &lines, SampleTotals::default(), without);
    let actions: Vec<_> = bottleneck.plan.iter().map(|step| step.action.as_str()).collect();
    assert_eq!(actions, ["write checkpoints less often, or in another thread (async_save)"]);
}

#[test]
fn waits_with_the_same_name_are_one() {
    let lines = [line(HostCause::LoaderWait, 42, 0.25, Some(MS)), line(HostCause::LoaderWaitIdle, 42, 0.2, Some(MS))];
    let bottleneck =
        judge(Leaf::DataLoading, &[(HostCause::LoaderWait, 300), (HostCause::LoaderWaitIdle, 250)], &lines);
    let sentence = "Waiting for the data loader at train.py:42 (main) takes 2.0 ms a step (45 %).";
    assert!(says(&bottleneck, sentence), "{:?}", bottleneck.evidence);
}

#[test]
fn workers_that_keep_up_are_counted() {
    let judged = |waits: u64, workers: u64, seen: &[(HostCause, u64)], millis: u64| {
        let totals = SampleTotals { waits_for_workers: waits, workers, ..SampleTotals::default() };
        judge_simulated(Leaf::DataLoading, seen, &[], totals, Some((ScenarioKind::DataReady, millis)))
    };
    let waiting = [(HostCause::LoaderWaitBusy, 600)];
    // Two workers prepare a batch in 100 ms, so nine prepare one in 22.
    let bottleneck = judged(40, 80, &waiting, 23);
    let sentence = "2 workers prepare the data of a step in 100.0 ms, and the step takes 23.0 ms without waiting: about 9 \
                    workers keep up.";
    assert!(says(&bottleneck, sentence), "{:?}", bottleneck.evidence);
    assert!(says(&judged(40, 40, &waiting, 23), "1 worker prepares the data"));
    assert!(!says(&judged(9, 18, &waiting, 23), "keep up"), "too few samples");
    assert!(!says(&judged(40, 80, &waiting, 100), "keep up"), "they do");
    let idle = [(HostCause::LoaderWait, 350), (HostCause::LoaderWaitIdle, 250)];
    assert!(!says(&judged(40, 80, &idle, 23), "keep up"), "more workers would be idle, too");
    let inline = [(HostCause::LoaderInline, 400), (HostCause::LoaderWaitIdle, 200)];
    assert!(!says(&judged(40, 80, &inline, 23), "keep up"), "the thread loads itself");
}

#[test]
fn a_line_says_what_the_program_gains_without_it() {
    let judged = |share: f64, without: u64| {
        let lines = [line(HostCause::Code, 42, share, Some(MS))];
        let without = Some((ScenarioKind::NoHostWork, without));
        judge_simulated(Leaf::HostCpu, &[(HostCause::Code, 600)], &lines, SampleTotals::default(), without)
    };
    // Half of the time is 2x.
    let more = "(50 %); without it about 2.4x faster, because a CPU that is further ahead also hides other delays.";
    assert!(says(&judged(0.5, 20), more), "{:?}", judged(0.5, 20).evidence);
    // The rest of the host's work is not more.
    assert!(says(&judged(0.5, 80), "; without it about 1.25x faster."), "{:?}", judged(0.5, 80).evidence);
    assert!(!says(&judged(0.04, 20), "without it"));
}
