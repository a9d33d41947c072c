//! Steps of synthetic programs: their boundaries, their contents, and the bottleneck derived from them.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::run::StepMeaning;
use gpuwhy_trace::record::{MemoryKind, ThreadId, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::{KindsDifference, RecognizedBy, StepSource, Steps};

/// Kernels of one step of [`train`].
const KERNELS: u64 = 20;

/// `steps` steps of 2 ms: twenty kernels of 30 us each 40 us, then `pause(step)` microseconds more than 1 ms.
fn train(steps: u64, pause: impl Fn(u64) -> u64) -> Scenario {
    let mut scenario = Scenario::new();
    let mut at = 1_000;
    for step in 0..steps {
        for kernel in 0..KERNELS {
            let call = at + kernel * 40;
            let name =
                ["embed", "gemm", "relu", "norm", "loss", "adam"][(kernel as usize).min(1 + kernel as usize % 5)];
            let name = if kernel == KERNELS - 1 { "adam" } else { name };
            gpu(0).kernel(name).at(call + 8).lasting(30).launched(&mut scenario, 1, call, 5);
        }
        at += 2_000 + pause(step);
    }
    scenario
}

/// A text before line breaking.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn steps(attributor: &Attributor) -> Steps {
    attributor.devices().next().expect("a device").steps()
}

#[test]
fn a_training_loop_is_cut_where_its_pause_ends() {
    let steps = steps(&train(200, |_| 0).run());
    assert_eq!((steps.source, steps.period), (StepSource::Period, Some(KERNELS)));
    assert!(steps.seen > 130, "{} steps", steps.seen);
    for row in &steps.rows {
        assert_eq!(row.duration(), 2_000_000);
        assert_eq!((row.start.nanos() - ZERO) % 2_000_000, 1_008_000, "the first kernel after the pause");
        assert_eq!(row.operations, KERNELS);
        assert_eq!(row.leaves[Leaf::Compute as usize], KERNELS * 30_000);
        assert_eq!(row.leaves.iter().sum::<u64>(), row.duration());
    }
}

#[test]
fn slow_steps_are_listed_with_the_causes_of_their_excess() {
    let report = train(400, |step| if step == 300 || step == 350 { 3_000 + step * 10 } else { 0 }).report();
    let device = &report.devices[0];
    let slow: Vec<_> =
        device.slow_steps().iter().map(|slow| (slow.step.duration() / 1_000, slow.excess.clone())).collect();
    assert_eq!(slow.iter().map(|(micros, _)| *micros).collect::<Vec<_>>(), [8_500, 8_000], "the longest first");
    for (micros, excess) in &slow {
        let (cause, nanos) = excess[0];
        assert_eq!((cause, nanos / 1_000), (Cause::HostCpu, micros - 2_000));
    }
    let typical = device.typical_causes();
    assert_eq!(typical.iter().map(|(_, nanos)| nanos).sum::<u64>(), 2_000_000);
    assert!(typical.contains(&(Cause::GpuCompute, KERNELS * 30_000)), "{typical:?}");
    assert_eq!(train(400, |_| 0).report().devices[0].slow_steps(), []);
}

#[test]
fn without_repetition_windows_remain() {
    let mut scenario = Scenario::new();
    let mut state = 7u64;
    for index in 0..3_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = 1_000 + index * 2_000;
        gpu(0).kernel(&format!("k{}", state >> 40)).at(at + 8).lasting(900).launched(&mut scenario, 1, at, 5);
    }
    let report = scenario.report();
    let steps = report.devices[0].steps.as_ref().expect("windows");
    assert_eq!((steps.source, steps.seen, steps.period), (StepSource::Window, 5, None));
    assert!(steps.rows.iter().all(|row| row.duration() == 1_000_000_000));
    assert!(report.summary().contains("Steps: none detected"));
    assert_eq!(report.bottleneck.basis, None, "windows are no steps");
}

#[test]
fn a_short_run_has_no_steps() {
    let report = train(20, |_| 0).report();
    assert_eq!(report.devices[0].steps, None);
    assert!(!report.summary().contains("Steps:"));
}

#[test]
fn start_up_ends_where_the_steady_time_begins() {
    let attributor = train(200, |_| 0).run();
    let device = attributor.devices().next().expect("a device");
    // The window starts with the first kernel, 1,008 us after the start of the scenario.
    assert_eq!(device.steady_start().nanos(), ZERO + 1_008_000 + device.start_up_ns());
    assert_ne!(device.start_up_ns(), 0, "kernels that were not seen before");
}

#[test]
fn a_phase_in_between_is_part_of_no_step() {
    // Training, then an evaluation by 12 other kernels, and training again, each for 200 steps of 2 ms.
    let (mut scenario, mut at) = (Scenario::new(), 1_000);
    for phase in ["train", "evaluate", "train"] {
        let kernels = if phase == "train" { KERNELS } else { 12 };
        for _ in 0..200 {
            for kernel in 0..kernels {
                let call = at + kernel * 40;
                let name = format!("{phase}{kernel}");
                gpu(0).kernel(&name).at(call + 8).lasting(30).launched(&mut scenario, 1, call, 5);
            }
            at += 2_000;
        }
    }
    let steps = steps(&scenario.run());
    assert_eq!((steps.source, steps.period), (StepSource::Period, Some(KERNELS)));
    assert!(steps.seen > 250, "{} steps", steps.seen);
    assert!(steps.rows.iter().all(|row| row.duration() == 2_000_000 && row.operations == KERNELS));
}

#[test]
fn kernels_do_not_shorten_the_wait_for_a_period_as_copies_do() {
    // Nine steps of 50 launches, less than an epoch, that start with a copy or with a kernel.
    let found = |copies: bool| {
        let mut scenario = Scenario::new();
        for launch in 0..450 {
            let (call, kernel) = (1_000 + launch * 40, launch % 50);
            let work = match kernel {
                0 if copies => gpu(0).h2d(MemoryKind::Pinned, 4_096),
                _ => gpu(0).kernel(&format!("kernel{kernel}")),
            };
            work.at(call + 8).lasting(20).launched(&mut scenario, 1, call, 5);
        }
        steps(&scenario.run()).source
    };
    assert_eq!(found(true), StepSource::Period);
    assert_eq!(found(false), StepSource::Window);
}

/// Feeds a scenario with marks at the given host times (microseconds), all at once or flush by flush.
fn with_marks(scenario: &Scenario, marks: &[(u32, u64)], flush: Option<u64>) -> Attributor {
    let mut attributor = Attributor::new();
    for &(thread, at) in marks {
        attributor.step_mark(ThreadId(thread), Timestamp::from_nanos(ZERO + at * 1_000));
    }
    let mut records = scenario.records.clone();
    records.sort_by_key(|&(complete, _)| complete);
    let mut at = ZERO;
    for (complete, record) in records {
        while let Some(period) = flush.filter(|period| at + period * 1_000 <= complete) {
            at += period * 1_000;
            attributor.flushed(Timestamp::from_nanos(at), &scenario.dictionary);
        }
        attributor.push(&record, &scenario.dictionary);
    }
    attributor.finish(Timestamp::from_nanos(at), &scenario.dictionary);
    attributor
}

#[test]
fn marked_steps_begin_with_the_first_operation_launched_in_them() {
    // The device lags far: the kernel launched at the mark runs 5 ms later, in parallel with previously
    // queued work.
    let mut scenario = Scenario::new();
    for step in 0..6u64 {
        for kernel in 0..4 {
            let (call, run) = (1_000 + step * 1_000 + kernel * 100, 6_000 + step * 2_000 + kernel * 500);
            gpu(0).kernel("layer").at(run).lasting(500).launched(&mut scenario, 1 + kernel as u32 % 2, call, 5);
        }
    }
    let marks: Vec<_> = (0..=5).map(|step| (1, 990 + step * 1_000)).chain([(9, 1_150), (9, 2_150)]).collect();
    for flush in [None, Some(300), Some(4_000)] {
        let attributor = with_marks(&scenario, &marks, flush);
        let steps = steps(&attributor);
        assert_eq!((steps.source, steps.seen, steps.period), (StepSource::Annotated, 5, None));
        for (index, row) in steps.rows.iter().enumerate() {
            assert_eq!(row.start.nanos(), ZERO + (6_000 + index as u64 * 2_000) * 1_000);
            assert_eq!((row.duration(), row.operations), (2_000_000, 4));
            assert_eq!(row.leaves[Leaf::Compute as usize], 2_000_000);
        }
    }
}

#[test]
fn named_steps_go_before_found_ones() {
    let scenario = train(200, |_| 0);
    let marks: Vec<_> = (0..40).map(|step| (1, 990 + step * 10_000)).collect();
    let steps = steps(&with_marks(&scenario, &marks, None));
    assert_eq!((steps.source, steps.seen), (StepSource::Annotated, 39));
    assert!(steps.rows.iter().all(|row| row.operations == 5 * KERNELS && row.duration() == 10_000_000));
}

#[test]
fn the_nodes_of_a_graph_are_one_launch() {
    let mut scenario = Scenario::new();
    for step in 0..2_000u64 {
        let at = 1_000 + step * 200;
        gpu(0).h2d(MemoryKind::Pinned, 64).at(at + 8).lasting(2).launched(&mut scenario, 1, at, 5);
        let launch = scenario.call(1, "cudaGraphLaunch_v10000", at + 10, 8);
        for node in 0..6 {
            let on = gpu(0).stream(7 + node % 2);
            scenario.add(on.kernel("node").at(at + 20 + u64::from(node) * 20).lasting(18).of_graph(3).by(launch));
        }
    }
    let attributor = scenario.run();
    let steps = steps(&attributor);
    assert_eq!((steps.source, steps.period), (StepSource::Period, Some(7)), "operations, of two launches");
    assert_eq!(attributor.devices().next().and_then(|account| account.match_rate()), Some(1.0));
    assert!(steps.rows.iter().all(|row| row.duration() == 200_000 && row.operations == 7));
}

#[test]
fn the_bottleneck_rests_on_the_typical_step_and_lists_the_others() {
    let scenario = train(300, |step| if step == 200 { 40_000 } else { 0 });
    let report = scenario.report();
    let bottleneck = &report.bottleneck;
    let basis = bottleneck.basis.expect("steady steps");
    assert_eq!((bottleneck.cause, basis.set_aside), (Cause::HostCpu, 1), "{}", report.summary());
    // The pause between two calls is 1.2 ms; the device is idle for 1,202 us because of it.
    assert!((bottleneck.share - 0.6).abs() < 0.02, "{}", bottleneck.share);
    assert!(basis.share.low <= bottleneck.share && bottleneck.share <= basis.share.high);
    assert!(bottleneck.details.iter().any(|line| line.contains("Not counted: 1 step of over 1.5 times")));
    let text = in_one_line(&report.summary());
    assert!(text.contains("median 2.0 ms, detected: each runs the same 20 GPU operations"), "{text}");
    assert!(text.contains("Each contains an optimizer kernel, so it is a complete step."), "{text}");
}

#[test]
fn steps_that_differ_too_much_are_judged_as_a_whole() {
    // Each thirteenth step waits 40 ms: too few to be a kind of steps, but most of the time.
    let report = train(300, |step| if step % 13 == 0 { 40_000 } else { 0 }).report();
    assert_eq!(report.bottleneck.basis, None);
    assert!(report.bottleneck.share > 0.8, "{}", report.summary());
    // Each fifth step is enough for a kind.
    let report = train(300, |step| if step % 5 == 0 { 20_000 } else { 0 }).report();
    assert_eq!(report.bottleneck.basis.map(|basis| basis.set_aside), Some(0));
    assert!(report.bottleneck.share > 0.8, "{}", report.summary());
}

/// Launch-bound: kernels of 3 us each 20 us, in steps of ten; the one at `odd(step)` has another name.
fn decode(odd: impl Fn(u64) -> Option<u64>) -> Scenario {
    let mut scenario = Scenario::new();
    for step in 0..600 {
        for kernel in 0..10 {
            let at = 1_000 + step * 200 + kernel * 20;
            let name = if odd(step) == Some(kernel) { format!("odd{step}") } else { format!("k{kernel}") };
            gpu(0).kernel(&name).at(at + 8).lasting(3).launched(&mut scenario, 1, at, 5);
        }
    }
    scenario
}

#[test]
fn graphs_are_recommended_only_when_the_sequence_repeats() {
    let bottleneck = decode(|_| None).report().bottleneck;
    assert_eq!(bottleneck.cause, Cause::Launch);
    assert!(bottleneck.recommendation.contains("Capture the step in a CUDA graph"), "{}", bottleneck.recommendation);
    assert!(
        bottleneck.evidence.iter().any(|line| line.starts_with("100 % of the launches are the same in every step"))
    );

    // The same kernels as nodes of a graph, with the same gaps.
    let mut scenario = Scenario::new();
    for step in 0..600 {
        let launch = scenario.call(1, "cudaGraphLaunch_v10000", 1_000 + step * 200, 5);
        for node in 0..10 {
            let at = 1_008 + step * 200 + node * 20;
            scenario.add(gpu(0).kernel("k").at(at).lasting(11).of_graph(1).by(launch));
        }
    }
    let bottleneck = scenario.report().bottleneck;
    assert_eq!(bottleneck.cause, Cause::Launch, "{bottleneck:?}");
    assert!(bottleneck.recommendation.contains("within the graphs"), "{}", bottleneck.recommendation);

    // One kernel of each third step is different: 1 in 30 differs from the previous step, and 1 in 30 from
    // the next one.
    let report = decode(|step| (step % 3 == 0).then_some(step % 10)).report();
    let bottleneck = report.bottleneck;
    assert_eq!(bottleneck.cause, Cause::Launch);
    assert!(bottleneck.recommendation.contains("fused"), "{}", bottleneck.recommendation);
    assert!(
        bottleneck.evidence.iter().any(|line| line.starts_with("Only 93 % of the launches are the same")),
        "{:?}",
        bottleneck.evidence
    );
}

/// `steps` times sixteen layers of ten kernels, 12 us each; the host waits after each step when `waits`.
fn layers(steps: u64, waits: bool) -> Scenario {
    let (mut scenario, mut at) = (Scenario::new(), 1_000);
    for _ in 0..steps {
        for launch in 0..160 {
            gpu(0).kernel(&format!("k{}", launch % 10)).at(at + 8).lasting(8).launched(&mut scenario, 1, at, 5);
            at += 12;
        }
        if waits {
            scenario.call(1, "cudaStreamSynchronize_v3020", at, 60);
            at += 80;
        }
    }
    scenario
}

#[test]
fn a_wait_of_the_host_tells_a_step_from_its_layers() {
    let report = layers(100, true).report();
    let device = &report.devices[0];
    let steps = device.steps.as_ref().expect("steps");
    assert_eq!((steps.source, steps.period), (StepSource::Period, Some(160)), "{}", report.summary());
    assert!(steps.seen >= 85, "{} steps", steps.seen);
    assert!(steps.rows.iter().all(|row| row.duration() == 2_000_000 && row.operations == 160));
    assert_eq!(device.step_meaning.recognized_by, Some(RecognizedBy::Wait));
    assert_eq!(device.step_meaning.inside.map(|inside| (inside.times, inside.launches)), Some((16, 10)));
    let text = in_one_line(&report.summary());
    assert!(
        text.contains("each runs the same 160 GPU operations, including a group of 10 that runs 16 times"),
        "{text}"
    );
    assert!(text.contains("in a row. The CPU waits for the GPU once in each, so it is a complete step."), "{text}");
    assert!(!text.contains("repeating unit"), "{text}");
}

#[test]
fn a_unit_that_nothing_tells_from_a_layer_is_no_step() {
    let report = layers(100, false).report();
    let steps = report.devices[0].steps.as_ref().expect("units");
    assert_eq!((steps.period, report.devices[0].step_meaning), (Some(10), StepMeaning::default()));
    let text = in_one_line(&report.summary());
    assert!(text.contains("Repeating units: ") && text.contains("of every repeating unit ("), "{text}");
    assert!(!text.contains("of every step") && text.contains("each repeating unit:"), "{text}");
}

#[test]
fn what_a_layer_hardly_has_tells_a_step() {
    let reported = |special: &str| {
        let (mut scenario, mut at) = (Scenario::new(), 1_000);
        for launch in 0..6_000 {
            let work = match special {
                "input" if launch % 30 == 0 => gpu(0).h2d(MemoryKind::Pinned, 4_096),
                "copies" => gpu(0).h2d(MemoryKind::Pinned, 4_096),
                "multi_tensor_apply_kernel" if launch % 30 == 29 => gpu(0).kernel(special),
                _ => gpu(0).kernel(&format!("k{}", launch % 30)),
            };
            work.at(at + 8).lasting(8).launched(&mut scenario, 1, at, 5);
            at += 12;
        }
        scenario.report().devices[0].step_meaning.recognized_by
    };
    assert_eq!(reported("input"), Some(RecognizedBy::Input));
    assert_eq!(reported("multi_tensor_apply_kernel"), Some(RecognizedBy::Optimizer));
    assert_eq!(reported(""), None);
    assert_eq!(reported("copies"), None, "a copy that repeats is not the begin of a step");
}

#[test]
fn a_step_that_repeats_within_a_unit_is_one() {
    // An optimizer ends each of four steps, and each fourth saves the weights; or it comes once in four micro-batches.
    let program = |each: bool| {
        let (mut scenario, mut at) = (Scenario::new(), 1_000);
        for step in 0..120 {
            for launch in 0..31 {
                let name = match launch {
                    30 if each || step % 4 == 3 => "multi_tensor_apply_kernel".to_owned(),
                    30 => continue,
                    launch => format!("k{launch}"),
                };
                gpu(0).kernel(&name).at(at + 8).lasting(8).launched(&mut scenario, 1, at, 5);
                at += 12;
            }
            for copy in 0..if step % 4 == 3 { 6 } else { 0 } {
                let bytes = 100_000 * (copy + 1);
                gpu(0).d2h(MemoryKind::Pinned, bytes).at(at + 8).lasting(8).launched(&mut scenario, 1, at, 5);
                at += 12;
            }
        }
        scenario.report()
    };
    let report = program(true);
    let device = &report.devices[0];
    assert_eq!(device.steps.as_ref().and_then(|steps| steps.period), Some(4 * 31 + 6), "{}", report.summary());
    let meaning = device.step_meaning;
    assert_eq!((meaning.recognized_by, meaning.contains), (Some(RecognizedBy::Optimizer), Some(4)));
    let text = in_one_line(&report.summary());
    assert!(
        text.contains("us on average, detected: the same 130 GPU operations repeat, including a group of 31"),
        "{text}"
    );
    assert!(text.contains("Each of these contains an optimizer kernel, so it is a complete step."), "{text}");
    let meaning = program(false).devices[0].step_meaning;
    assert_eq!((meaning.recognized_by, meaning.contains), (Some(RecognizedBy::Optimizer), None));
}

#[test]
fn a_wait_in_each_of_few_launches_makes_no_step() {
    let reported = |launches: u64| {
        let (mut scenario, mut at) = (Scenario::new(), 1_000);
        for launch in 0..launches * 400 {
            let work = match launch % launches {
                0 => gpu(0).d2h(MemoryKind::Pinned, 100_000),
                place => gpu(0).kernel(&format!("k{place}")),
            };
            work.at(at + 8).lasting(8).launched(&mut scenario, 1, at, 5);
            at += 12;
        }
        scenario.report().devices[0].step_meaning.recognized_by
    };
    assert_eq!((reported(6), reported(24)), (None, Some(RecognizedBy::Readback)));
}

#[test]
fn every_third_step_without_a_wait_makes_two_kinds() {
    // 2 ms a step, and two of three wait another 6 ms.
    let report = train(300, |step| if step % 3 == 0 { 0 } else { 6_000 }).report();
    let bottleneck = &report.bottleneck;
    let kinds = &report.devices[0].step_kinds;
    let medians: Vec<_> = kinds.iter().map(|kind| (kind.name, kind.median_ns)).collect();
    assert_eq!(medians, [("long", 8_000_000), ("short", 2_000_000)]);
    assert_eq!(KindsDifference::of(kinds).map(|apart| apart.cause), Some(Cause::HostCpu));
    let basis = bottleneck.basis.expect("steps");
    assert_eq!(basis.set_aside, 0, "the longer kind is not unusual");
    // Of three steps, 18 ms long, the host leaves the device without work for 15.6 ms.
    assert!((bottleneck.share - 15.6 / 18.0).abs() < 0.01, "{}", bottleneck.share);
    assert!(basis.share.high - basis.share.low < 0.05, "{basis:?}");
    let (more, all) = (kinds[0].count, kinds[0].count + kinds[1].count);
    assert!((all / 3 * 2).abs_diff(more) <= 2, "{kinds:?}");
    let sentence = format!("{more} of {all} steps wait 7.2 ms for CPU work; the others only 1.2 ms");
    assert!(bottleneck.evidence.iter().any(|said| said.starts_with(&sentence)), "{:?}", bottleneck.evidence);
}

#[test]
fn the_share_is_of_time_where_waits_come_in_runs() {
    // Ten steps of 2 ms, ten of 2.6 ms, and so on: a median would be one of the two.
    let report = train(300, |step| step / 10 % 2 * 600).report();
    let bottleneck = &report.bottleneck;
    let basis = bottleneck.basis.expect("steps");
    assert!((bottleneck.share - (1.2 + 1.8) / 4.6).abs() < 0.01, "{}", bottleneck.share);
    let width = basis.share.high - basis.share.low;
    assert!((0.01..0.09).contains(&width), "{basis:?}");
}
