//! Consecutive small grids become one kernel: prediction against the program that launches the large one.

use crate::whatif_program::{Act, DEVICE, MACHINE, Machine, Recording, STEPS};
use profiler_core::whatif::{OperationClass, ScenarioKind, SmallGrid, WhatIf};

const TIMES: usize = 120;
/// Multiprocessors of an H200: number of one-block grids that run at once.
const FIT: u32 = 132;

/// A kernel that fills the device, which ends a run of small ones.
fn full(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

fn small(nanos: u64) -> Act {
    Act::Small(7, nanos, FIT)
}

fn answer(recording: &Recording) -> WhatIf {
    let answer = recording.simulate().what_if(DEVICE, STEPS, 0).expect("operations ran");
    assert_eq!(answer.refused, None);
    assert!(answer.base_error.expect("steps") < 1e-3, "{answer:?}");
    answer
}

fn gain(step: &[Act]) -> f64 {
    answer(&MACHINE.run(step, TIMES)).best_case(ScenarioKind::GridsFilled).expect("judged").speedup
}

/// The prediction for `before` must equal the real time of `after`.
fn assert_predicts(before: &[Act], after: &[Act]) {
    assert_predicts_on(&MACHINE, before, after);
}

fn assert_predicts_on(machine: &Machine, before: &[Act], after: &[Act]) {
    let before = answer(&machine.run(before, TIMES));
    let predicted = before.best_case(ScenarioKind::GridsFilled).expect("judged").step_ns as f64;
    let real = machine.run(after, TIMES).steady_step();
    assert!((predicted / real - 1.0).abs() < 0.005, "predicted {predicted}, really {real}");
}

#[test]
fn as_many_as_fit_become_one() {
    let rows = |count: usize, nanos| (0..count).flat_map(move |_| [Act::Work(4_000), small(nanos)]);
    let before: Vec<Act> = rows(64, 150_000).chain([full(60_000)]).collect();
    assert_predicts(&before, &[Act::Work(4_000), full(150_000), full(60_000)]);
    // 140 grids of one block are more than there are multiprocessors: two kernels, of 132 and of 8 blocks.
    let before: Vec<Act> = rows(140, 150_000).chain([full(60_000)]).collect();
    assert_predicts(&before, &[Act::Work(4_000), full(150_000), Act::Work(4_000), full(150_000), full(60_000)]);
}

#[test]
fn a_batch_takes_as_long_as_the_longest_of_it() {
    let before = [small(20_000), small(90_000), small(50_000), full(10_000)];
    assert_predicts(&before, &[full(90_000), full(10_000)]);
}

#[test]
fn the_host_launches_a_batch_once() {
    // The device waits for each launch: 25 us for 3 us of work.
    let before: Vec<Act> = (0..64).flat_map(|_| [Act::Work(20_000), small(3_000)]).chain([full(10_000)]).collect();
    assert_predicts(&before, &[Act::Work(20_000), full(3_000), full(10_000)]);
    // Beyond a batch of three, the host delays the rest.
    let three: Vec<Act> =
        (0..6).flat_map(|_| [Act::Work(20_000), Act::Small(7, 3_000, 3)]).chain([full(1_000)]).collect();
    let after = [Act::Work(20_000), full(3_000), Act::Work(20_000), full(3_000), full(1_000)];
    assert_predicts(&three, &after);
}

#[test]
fn a_queue_that_was_full_of_small_grids_holds_nobody_back() {
    // Calls last as long as a kernel, 20 us and 60 us, where the host is as far ahead as it gets.
    for nanos in [20_000, 60_000] {
        let machine = Machine { queue: 100, ..MACHINE };
        let before: Vec<Act> = (0..16).map(|_| small(nanos)).chain([full(5_000)]).collect();
        assert_predicts_on(&machine, &before, &[full(nanos), full(5_000)]);
    }
}

#[test]
fn what_the_host_waits_for_is_the_whole_batch() {
    let before = [small(90_000), small(20_000), Act::Synchronize, Act::Work(30_000)];
    assert_predicts(&before, &[full(90_000), Act::Synchronize, Act::Work(30_000)]);
}

#[test]
fn nothing_is_joined_across_other_launches_waits_streams_and_pauses() {
    for between in [full(1_000), Act::Synchronize, Act::Work(101_000), Act::Small(9, 5_000, FIT), Act::Thread(2)] {
        let step = [Act::Thread(1), small(50_000), between, small(50_000), full(20_000)];
        let gain = gain(&step);
        assert!((1.0..1.001).contains(&gain), "{between:?}: {gain}");
    }
    let other_kernel = [small(50_000), Act::Small(7, 50_000, FIT - 1), full(20_000)];
    assert!(gain(&other_kernel) < 1.001);
    assert!(gain(&[small(50_000), small(50_000), full(20_000)]) > 1.6, "nothing between them");
}

#[test]
fn a_grid_is_small_if_another_one_fits_beside_it() {
    assert_eq!(SmallGrid::fit(1, 132), Some(132));
    assert_eq!(SmallGrid::fit(66, 132), Some(2));
    assert_eq!(SmallGrid::fit(67, 132), None);
    assert_eq!(SmallGrid::fit(1, 0), None, "nothing is known of the device");
    assert_eq!(SmallGrid::fit(0, 132), None, "nothing is known of the grid");
}

#[test]
fn a_long_run_of_small_grids_is_replayed_in_bursts_as_in_full() {
    let step: Vec<Act> = (0..20).map(|_| small(20_000)).chain([full(30_000), Act::Synchronize]).collect();
    let recording = MACHINE.run(&step, 3_000);
    let (bursts, whole) = (answer(&recording), recording.simulate_whole().what_if(DEVICE, STEPS, 0).expect("steps"));
    assert!(bursts.represented_steps > bursts.steps, "it never pauses");
    let speedup = |answer: &WhatIf| answer.best_case(ScenarioKind::GridsFilled).expect("judged").speedup;
    assert!(speedup(&whole) > 4.0);
    assert!((speedup(&bursts) / speedup(&whole) - 1.0).abs() < 0.001, "{bursts:?} {whole:?}");
    // Regardless of how little is passed at a time.
    let parts = recording.simulate_by(30_000_000);
    assert_eq!(recording.simulate().steps(DEVICE, STEPS), parts.steps(DEVICE, STEPS));
}
