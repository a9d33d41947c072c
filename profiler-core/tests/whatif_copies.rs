//! Readbacks and consecutive small copies: prediction against the program without them.

use crate::whatif_program::{Act, DEVICE, MACHINE, Machine, Recording, STEPS};
use profiler_core::whatif::{OperationClass, READBACK_BYTES, ScenarioKind, WhatIf};

const TIMES: usize = 120;
const MS: u64 = 1_000_000;

fn kernel(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

/// A value of 4 bytes is read as a framework does it: a copy, followed by a wait.
fn item() -> [Act; 4] {
    [Act::Work(8_000), Act::Copy(7, 1_500, 4, true), Act::Work(1_000), Act::Synchronize]
}

fn answer(recording: &Recording) -> WhatIf {
    let answer = recording.simulate().what_if(DEVICE, STEPS, 0).expect("operations ran");
    assert_eq!(answer.refused, None);
    assert!(answer.base_error.expect("steps") < 1e-3, "{answer:?}");
    answer
}

fn gain(step: &[Act], kind: ScenarioKind) -> f64 {
    answer(&MACHINE.run(step, TIMES)).best_case(kind).expect("judged").speedup
}

/// The prediction for `before` must equal the real time of `after`.
fn assert_predicts(before: &[Act], kind: ScenarioKind, after: &[Act], tolerance: f64) {
    let before = answer(&MACHINE.run(before, TIMES));
    let predicted = before.best_case(kind).expect("judged").step_ns as f64;
    let real = MACHINE.run(after, TIMES).steady_step();
    assert!((predicted / real - 1.0).abs() < tolerance, "{}: predicted {predicted}, really {real}", kind.name());
}

#[test]
fn reading_no_values_back_takes_the_copy_its_call_its_wait_and_the_way_there() {
    // 24 layers of three kernels, and a value is read after each: the host is never ahead.
    let layer = || (0..3).flat_map(|_| [Act::Work(6_000), kernel(12_000)]);
    let before: Vec<Act> = (0..24).flat_map(|_| layer().chain(item())).collect();
    let after: Vec<Act> = (0..24).flat_map(|_| layer()).collect();
    assert_predicts(&before, ScenarioKind::NoReadbacks, &after, 0.005);
    // Removing only the wait leaves the calls and the copies.
    let of = |kind| gain(&before, kind);
    assert!(of(ScenarioKind::NoReadbacks) > of(ScenarioKind::NoSyncs) + 0.2, "{}", of(ScenarioKind::NoSyncs));
}

#[test]
fn what_is_no_readback_stays() {
    let with = |copy: Act| {
        let step = [kernel(20_000), copy, Act::Synchronize, Act::Work(5_000), kernel(10_000)];
        gain(&step, ScenarioKind::NoReadbacks)
    };
    assert!(with(Act::Copy(7, 1_500, READBACK_BYTES, true)) > 1.2);
    assert_eq!(with(Act::Copy(7, 1_500, READBACK_BYTES + 1, true)), 1.0, "too large");
    assert_eq!(with(Act::Copy(7, 1_500, 4, false)), 1.0, "to the device");
    // The wait is not for the copy if another operation was launched in between.
    let step = [Act::Copy(7, 1_500, 4, true), kernel(2 * MS), Act::Synchronize, Act::Work(MS)];
    assert!(gain(&step, ScenarioKind::NoReadbacks) < 1.01);
}

#[test]
fn a_selection_goes_with_the_read_of_its_size() {
    let selection = |nanos| Act::Launch(7, nanos, OperationClass::Selection);
    let work = || (0..4).flat_map(|_| [Act::Work(6_000), kernel(12_000)]);
    let find = [Act::Work(6_000), selection(3_000), Act::Work(6_000), selection(2_000)].into_iter().chain(item());
    let before: Vec<Act> = (0..10).flat_map(|_| work().chain(find.clone()).chain([selection(5_000)])).collect();
    let after: Vec<Act> = (0..10).flat_map(|_| work()).collect();
    assert_predicts(&before, ScenarioKind::NoReadbacks, &after, 0.005);
}

#[test]
fn a_reduced_read_takes_the_work_on_what_was_read_behind_it() {
    let read = [Act::Work(5_000), kernel(60_000), Act::BlockingCopy(7, 500_000, 60_000, true), Act::Work(MS)];
    // The buffer of the driver is emptied after the copy.
    let slow = Machine { wake_up: 110_000, ..MACHINE };
    let before = answer(&slow.run(&read, TIMES));
    let of = |kind| before.best_case(kind).expect("judged").speedup;
    assert!(of(ScenarioKind::ReadsReduced) > 15.0, "{}", of(ScenarioKind::ReadsReduced));
    assert!(of(ScenarioKind::LaunchesFree) < 1.02, "the call waits: {}", of(ScenarioKind::LaunchesFree));
    // The framework's own work for the next launch stays.
    let short = [Act::Work(5_000), kernel(60_000), Act::BlockingCopy(7, 500_000, 60_000, true), Act::Work(90_000)];
    let rest = [Act::Work(5_000), kernel(60_000), Act::BlockingCopy(7, 2_000, 60_000, true), Act::Work(90_000)];
    assert_predicts(&short, ScenarioKind::ReadsReduced, &rest, 0.05);
}

#[test]
fn copies_in_a_row_are_one_that_moves_all_their_bytes() {
    let copies = |count: usize| (0..count).flat_map(|_| [Act::Work(4_000), Act::Copy(7, 2_000, 4_000, false)]);
    let before: Vec<Act> = copies(400).chain([Act::Work(4_000), kernel(20_000)]).collect();
    // The first takes 2 us; each of the others adds 0.4 us for its bytes.
    let one = [Act::Work(4_000), Act::Copy(7, 2_000 + 399 * 400, 4_000, false), Act::Work(4_000), kernel(20_000)];
    assert_predicts(&before, ScenarioKind::CopiesJoined, &one, 0.005);
    assert!(gain(&before, ScenarioKind::CopiesJoined) > 15.0);
}

#[test]
fn the_waits_behind_joined_copies_go_with_them() {
    let copies =
        |count: usize| (0..count).flat_map(|_| [Act::Work(4_000), Act::Copy(7, 2_000, 4_000, false), Act::Synchronize]);
    let before: Vec<Act> = copies(50).chain([kernel(30_000)]).collect();
    let one = [Act::Work(4_000), Act::Copy(7, 2_000 + 49 * 400, 4_000, false), Act::Synchronize, kernel(30_000)];
    assert_predicts(&before, ScenarioKind::CopiesJoined, &one, 0.02);
}

#[test]
fn no_copies_are_joined_across_launches_pauses_directions_streams_and_sizes() {
    let first = Act::Copy(7, 5_000, 4_000, false);
    let between = [
        (kernel(1_000), first),
        (Act::Work(101_000), first),
        (Act::Work(1), Act::Copy(7, 5_000, 4_000, true)),
        (Act::Work(1), Act::Copy(8, 5_000, 4_000, false)),
        (Act::Work(1), Act::Copy(7, 5_000, u16::MAX, false)),
    ];
    for (between, second) in between {
        let step = [first, between, second, kernel(20_000), Act::Synchronize, Act::Work(5_000)];
        let gain = gain(&step, ScenarioKind::CopiesJoined);
        assert!((1.0..1.001).contains(&gain), "{between:?} {second:?}: {gain}");
    }
    assert!(gain(&[first, first, kernel(1_000)], ScenarioKind::CopiesJoined) > 1.2);
}

#[test]
fn results_that_were_reduced_are_short_copies() {
    // A step of 2 ms whose output takes 3 ms to the host, into pageable memory: the call returns when it has
    // arrived.
    let step = |copy: Act| [Act::Work(50_000), kernel(2 * MS), copy, Act::Work(40_000)];
    let large = step(Act::BlockingCopy(7, 3 * MS, u16::MAX, true));
    let small = step(Act::BlockingCopy(7, 2_000, 8, true));
    assert_predicts(&large, ScenarioKind::ReadsReduced, &small, 0.005);
    assert_eq!(gain(&large, ScenarioKind::NoReadbacks), 1.0);
    assert_eq!(gain(&small, ScenarioKind::ReadsReduced), 1.0);
}

#[test]
fn other_work_of_the_host_goes_but_launching_stays() {
    let before = [Act::Work(3 * MS), kernel(MS), Act::Work(30_000), kernel(MS), Act::Synchronize];
    let after = [kernel(MS), Act::Work(30_000), kernel(MS), Act::Synchronize];
    assert_predicts(&before, ScenarioKind::NoHostWork, &after, 0.005);
    let data = [Act::Input(3 * MS), kernel(MS), Act::Synchronize];
    assert_eq!(gain(&data, ScenarioKind::NoHostWork), 1.0, "waiting for data is no work");
}
