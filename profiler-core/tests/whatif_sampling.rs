//! A long run is simulated in bursts of its steps: their result against that of all steps.

use crate::whatif_program::{Act, DEVICE, MACHINE, Recording, STEPS};
use gpuwhy_trace::record::CorrelationId;
use profiler_core::whatif::{Call, LaunchedBy, Operation, OperationClass, WhatIf};

const MS: u64 = 1_000_000;

fn kernel(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

fn answer(recording: &Recording) -> WhatIf {
    recording.simulate().what_if(DEVICE, STEPS, 0).expect("operations ran")
}

/// splitmix64 (Steele, Lea and Flood, 2014).
fn noise(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The best cases by bursts must equal those by all steps, within `tolerance`. Returns the number of
/// simulated steps.
fn assert_bursts_suffice(what: &str, recording: &Recording, tolerance: f64) -> u64 {
    let sampled = answer(recording);
    let whole = recording.simulate_whole().what_if(DEVICE, STEPS, 0).expect("operations ran");
    println!("{what}: {} steps for {} of {}", sampled.steps, sampled.represented_steps, whole.steps);
    assert!(sampled.represented_steps > sampled.steps, "{what}: it never pauses");
    assert_eq!((sampled.refused, whole.refused, whole.steps), (None, None, whole.represented_steps), "{what}");
    for (best_case, whole) in sampled.best_cases.iter().zip(&whole.best_cases) {
        let (kind, by_bursts, by_all) = (best_case.kind.name(), best_case.speedup, whole.speedup);
        println!("  {kind:20} {by_bursts:.4} by bursts, {by_all:.4} by all");
        let off = by_bursts / by_all - 1.0;
        assert!(off.abs() < tolerance, "{what}: {kind} is off by {:.2} %", off * 1e2);
    }
    sampled.steps
}

#[test]
fn a_step_that_is_a_sixteenth_of_the_programs_own() {
    // The host waits for the device in every step, and in every sixteenth for something else as well.
    let step: Vec<Act> = [Act::Work(5_000), kernel(220_000), kernel(130_000), Act::Synchronize].to_vec();
    let mut longer = step.clone();
    longer.push(Act::Free(360_000));
    let program: Vec<Act> =
        (0..16).flat_map(|number| if number == 7 { longer.clone() } else { step.clone() }).collect();
    let mut recording = MACHINE.run(&program, 600);
    // Each of the sixteen is detected as a step.
    recording.boundaries = recording.operations.iter().step_by(2).map(|operation| operation.start).collect();
    assert_eq!(recording.boundaries.len(), 9_600);
    let steps = assert_bursts_suffice("one in sixteen", &recording, 0.01);
    assert!((1_500..2_100).contains(&steps), "{steps} steps");
}

#[test]
fn a_run_that_becomes_slower_and_one_of_phases() {
    let step = |wait: u64| [Act::Input(wait), kernel(400_000), Act::Synchronize, Act::Work(30_000)];
    let slower: Vec<Act> = (0..6_000).flat_map(|number| step(number * 50)).collect();
    let phases: Vec<Act> =
        (0..6_000).flat_map(|number| step(if number / 700 % 2 == 0 { 0 } else { 300_000 })).collect();
    // In a scenario in which the host never waits, a lead gained in one phase hides waits of the next. A
    // burst does not include it.
    for (what, program, tolerance) in [("slower", slower, 0.01), ("phases", phases, 0.05)] {
        let mut recording = MACHINE.run(&program, 1);
        recording.boundaries = recording.operations.iter().map(|operation| operation.start).collect();
        assert_bursts_suffice(what, &recording, tolerance);
    }
}

#[test]
fn steps_that_scatter_and_a_few_that_are_long() {
    // Kernels and waits of a third to five thirds of their mean, and one step in forty waits for ten times as
    // long.
    let program: Vec<Act> = (0..8_000)
        .flat_map(|number| {
            let scatter = |mean: u64, salt: u64| mean / 3 + noise(number * 3 + salt) % (mean * 4 / 3);
            let wait = scatter(100_000, 0) * if noise(number + 77).is_multiple_of(40) { 10 } else { 1 };
            [Act::Input(wait), kernel(scatter(300_000, 1)), Act::Synchronize, Act::Work(scatter(40_000, 2))]
        })
        .collect();
    let mut recording = MACHINE.run(&program, 1);
    recording.boundaries = recording.operations.iter().map(|operation| operation.start).collect();
    assert_bursts_suffice("scatter", &recording, 0.02);
}

#[test]
fn short_steps_are_replayed_for_as_long_as_long_ones() {
    // A graph of a thousand nodes, twenty of which are detected as a step: its launch costs one step in
    // fifty.
    let nodes: Vec<Act> = [Act::Synchronize].into_iter().chain((0..50).map(|_| kernel(6_000))).collect();
    let mut recording = MACHINE.run(&nodes, 200);
    recording.boundaries = recording.operations.iter().map(|operation| operation.start).collect();
    let sampled = answer(&recording);
    assert_eq!((sampled.steps, sampled.represented_steps), (9_998, 9_998), "66 ms are no long run");
}

/// Takes `operations` consecutive operations of the trace for a step, and repeats the trace, each time at a
/// different rate.
fn repeated(trace: &crate::reference_trace::Trace, operations: usize, times: u64) -> Option<Recording> {
    let (first, last) = (*trace.steps.first()?, *trace.steps.last()?);
    let calls: Vec<&Call> = trace.calls.iter().filter(|call| (first..last).contains(&call.start)).collect();
    let launched = |operation: &&Operation| operation.launch.is_some_and(|by| (first..last).contains(&by.start));
    let mut work: Vec<&Operation> = trace.operations.iter().filter(launched).collect();
    work.sort_by_key(|operation| operation.start);
    let ids = 1 + trace.calls.iter().map(|call| call.correlation.0).max()?;
    let mut recording = Recording::default();
    let mut begin = 1_000_000_000;
    for time in 0..times {
        // From four fifths of the real rate to six fifths.
        let pace = 80 + noise(time) % 41;
        let at = |nanos: u64| begin + nanos.saturating_sub(first) * pace / 100;
        let id = |correlation: CorrelationId| CorrelationId(correlation.0.wrapping_add(time as u32 * ids));
        recording.calls.extend(calls.iter().map(|&&call| Call {
            start: at(call.start),
            end: at(call.end),
            correlation: id(call.correlation),
            ..call
        }));
        let inputs = trace.inputs.iter().filter(|(_, start, _)| (first..last).contains(start));
        recording.inputs.extend(inputs.map(|&(thread, start, end)| (thread, at(start), at(end))));
        recording.operations.extend(work.iter().map(|&&operation| Operation {
            start: at(operation.start),
            end: at(operation.end),
            device: DEVICE,
            launch: operation.launch.map(|by| LaunchedBy { correlation: id(by.correlation), start: at(by.start) }),
            ..operation
        }));
        recording.boundaries.extend(work.iter().step_by(operations).map(|operation| at(operation.start)));
        begin = at(last);
    }
    Some(recording)
}

#[test]
fn parts_of_recorded_steps() {
    for (name, operations, times) in
        [("resnet50_workers0", 100, 60), ("resnet50_workers4", 100, 60), ("hta_nccl", 50, 150)]
    {
        let Some(trace) = crate::reference_trace::load(name) else { continue };
        let recording = repeated(&trace, operations, times).expect("steps");
        assert_bursts_suffice(name, &recording, 0.03);
    }
}

#[test]
fn pauses_do_not_depend_on_when_things_are_reported() {
    let step = [Act::Work(5_000), kernel(200_000), Act::Work(20_000), kernel(300_000)];
    let recording = MACHINE.run(&step, 6_000);
    let whole = recording.simulate();
    assert!(whole.what_if(DEVICE, STEPS, 0).expect("steps").steps < 1_600, "it pauses");
    for flush in [700_000, 30_000_000, 400_000_000] {
        let parts = recording.simulate_by(flush);
        assert_eq!(whole.steps(DEVICE, STEPS), parts.steps(DEVICE, STEPS), "{flush}");
    }
}

#[test]
fn a_device_that_had_nothing_to_do_does_not_make_a_pause_long() {
    // Detected steps break off where the device is idle for an hour, shortly before the first pause.
    let step = [Act::Work(500_000), kernel(3_000)];
    let hour = [Act::Work(3_600_000 * MS), kernel(3_000)];
    let run: Vec<Act> = (0..500).flat_map(|_| step).chain(hour).chain((0..3_000).flat_map(|_| step)).collect();
    let mut recording = MACHINE.run(&run, 1);
    recording.boundaries = recording.operations.iter().map(|operation| operation.start).collect();
    let answer =
        recording.simulate_with_break(recording.operations[500].start - 1).what_if(DEVICE, STEPS, 0).expect("steps");
    assert!((800..1_200).contains(&answer.steps) && answer.represented_steps > 2_400, "{answer:?}");
}
