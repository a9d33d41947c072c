//! Gain of a second and a third fix after a first one: prediction against the program with all of them.

use crate::whatif_program::{Act, DEVICE, MACHINE, Machine, Recording, STEPS};
use profiler_core::whatif::{OperationClass, ScenarioKind, WhatIf};

const MS: u64 = 1_000_000;

fn kernel(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

fn answer(recording: &Recording) -> WhatIf {
    recording.simulate().what_if(DEVICE, STEPS, 0).expect("operations ran")
}

/// Simulated nanoseconds of a step without the costs of `kinds`.
fn step_without(answer: &WhatIf, kinds: &[ScenarioKind]) -> Option<f64> {
    let alike = |set: &&profiler_core::whatif::Combined| {
        set.removed.count() as usize == kinds.len() && kinds.iter().all(|&kind| set.removed.has(kind))
    };
    let set = answer.combined.iter().find(alike)?;
    let first = answer.best_case(kinds[0]).expect("judged");
    Some(first.step_ns as f64 / set.gain_after(kinds[0]))
}

/// A loader that hides a launch-bound model, from which a value is read after every fifth kernel.
fn program(data: bool, launches: bool, readbacks: bool) -> Vec<Act> {
    let mut step = Vec::new();
    if data {
        step.push(Act::Input(3 * MS));
    }
    for kernel_of_step in 0..60 {
        // The host gap before the first launch of a step is too long to be part of that launch.
        if launches || kernel_of_step == 0 {
            step.push(Act::Work(20_000));
        }
        step.push(kernel(10_000));
        if readbacks && kernel_of_step % 5 == 4 {
            step.extend([Act::Work(8_000), Act::Copy(7, 1_500, 4, true), Act::Synchronize]);
        }
    }
    step
}

#[test]
fn pairs_and_triples_are_what_the_program_without_them_takes() {
    use ScenarioKind::{DataReady, LaunchesFree, NoReadbacks};
    let free = Machine { launch: 0, latency: 0, between: 96, ..MACHINE };
    let [with_reads, without] = [true, false].map(|reads| answer(&MACHINE.run(&program(true, true, reads), 400)));
    for (answer, kinds, machine, after) in [
        (&without, &[DataReady, LaunchesFree][..], &free, program(false, false, false)),
        (&with_reads, &[DataReady, NoReadbacks], &MACHINE, program(false, true, false)),
        (&with_reads, &[DataReady, LaunchesFree, NoReadbacks], &free, program(false, false, false)),
    ] {
        let predicted = step_without(answer, kinds);
        let predicted = predicted.unwrap_or_else(|| panic!("{kinds:?} not simulated: {:?}", answer.combined));
        let real = machine.run(&after, 100).steady_step();
        assert!((predicted / real - 1.0).abs() < 0.03, "{kinds:?}: predicted {predicted}, really {real}");
    }
}

#[test]
fn a_short_recording_tells_of_the_largest_pairs() {
    use ScenarioKind::{DataReady, LaunchesFree};
    let answer = answer(&MACHINE.run(&program(true, true, false), 16));
    assert!(step_without(&answer, &[DataReady, LaunchesFree]).is_some(), "{:?}", answer.combined);
    let answer = self::answer(&MACHINE.run(&program(true, true, false), 6));
    assert_eq!(answer.combined, []);
}

#[test]
fn what_costs_little_is_in_no_set() {
    let answer = answer(&MACHINE.run(&[kernel(MS), Act::Work(10_000), kernel(MS)], 100));
    assert_eq!(answer.combined, []);
}

#[test]
fn sets_do_not_depend_on_when_things_are_reported() {
    let recording = MACHINE.run(&program(true, true, true), 700);
    let answers = [recording.simulate(), recording.simulate_by(30_000_000)];
    let [whole, parts] = answers.map(|simulation| simulation.what_if(DEVICE, STEPS, 0).expect("operations ran"));
    assert!(!whole.combined.is_empty() && whole.combined.len() <= 20);
    assert_eq!(whole.combined, parts.combined);
}
