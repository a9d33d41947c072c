//! Simulations of programs whose changed version can be run: prediction and truth must agree.

use crate::whatif_program::{Act, DEVICE, MACHINE, Machine, Recording};
use profiler_core::leaf::{LEAF_COUNT, Leaf};
use profiler_core::whatif::{BestCase, OperationClass, ScenarioKind, SimulationProblem, WhatIf};

const STEPS: usize = 120;
const MS: u64 = 1_000_000;

fn kernel(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

fn answer(recording: &Recording) -> WhatIf {
    recording.simulate().what_if(DEVICE, crate::whatif_program::STEPS, 0).expect("operations ran")
}

/// The simulated best case of `before` must equal the real time of `after`, within `tolerance`.
fn assert_predicts(before: &Recording, kind: ScenarioKind, after: &Recording, tolerance: f64) {
    let answer = answer(before);
    assert_eq!(answer.refused, None);
    assert!(answer.base_error.expect("steps") < 1e-3, "{answer:?}");
    let predicted = answer.best_case(kind).expect("judged").step_ns as f64;
    let real = after.steady_step();
    assert!((predicted / real - 1.0).abs() < tolerance, "{}: predicted {predicted}, really {real}", kind.name());
}

#[test]
fn a_launch_bound_loop_becomes_device_bound_when_launches_are_free() {
    let step: Vec<Act> = (0..100).flat_map(|_| [Act::Work(20_000), kernel(10_000)]).collect();
    let before = MACHINE.run(&step, STEPS);
    let kernels: Vec<Act> = (0..100).map(|_| kernel(10_000)).collect();
    // Launched like the nodes of a graph.
    let free = Machine { launch: 0, latency: 0, between: 96, ..MACHINE };
    assert_predicts(&before, ScenarioKind::LaunchesFree, &free.run(&kernels, STEPS), 0.001);
    let gain = answer(&before).best_case(ScenarioKind::LaunchesFree).expect("judged").speedup;
    assert!((2.4..2.5).contains(&gain), "25 us a launch against 10.1 us of work: {gain}");
}

#[test]
fn free_launches_leave_the_device_what_its_queued_kernels_wait_for_besides() {
    // Like a matrix product and the copy of its bias: the second kernel is launched during the first.
    let step: Vec<Act> = (0..50).flat_map(|_| [Act::Work(20_000), kernel(9_000), kernel(1_000)]).collect();
    let kernels: Vec<Act> = (0..50).flat_map(|_| [kernel(9_000), kernel(1_000)]).collect();
    // Nodes of a graph are 0.8 us closer to each other than queued kernels without other dependencies.
    for (between, nodes) in [(640, 96), (3_200, 3_200 - 804)] {
        let machine = Machine { between, ..MACHINE };
        let free = Machine { launch: 0, latency: 0, between: nodes, ..machine };
        let before = machine.run(&step, STEPS);
        assert_predicts(&before, ScenarioKind::LaunchesFree, &free.run(&kernels, STEPS), 0.005);
    }
}

#[test]
fn memory_that_is_kept_costs_no_call_and_no_wait() {
    // Lesson 7: tensors are allocated one by one, and all are freed at the end of the program's step, which
    // contributes to each of the detected steps.
    let tensor = [Act::Work(3_000), Act::Allocate(33_000), Act::Work(2_000), kernel(17_000)];
    let mut step: Vec<Act> = (0..16).flat_map(|_| tensor).collect();
    step.extend((0..16).map(|_| Act::Free(34_000)));
    let kept: Vec<Act> = step.iter().copied().filter(|act| !matches!(act, Act::Allocate(_) | Act::Free(_))).collect();
    let mut before = MACHINE.run(&step, STEPS);
    let after = MACHINE.run(&kept, STEPS);
    assert_predicts(&before, ScenarioKind::NoAllocations, &after, 0.01);
    let gain = answer(&before).best_case(ScenarioKind::NoAllocations).expect("judged").speedup;
    assert!((4.0..5.5).contains(&gain), "{gain}");
    // The result is the same if each kernel is taken for a step.
    before.boundaries = before.operations.iter().map(|operation| operation.start).collect();
    let each = answer(&before).best_case(ScenarioKind::NoAllocations).expect("judged").speedup;
    assert!((each / gain - 1.0).abs() < 0.01, "{each}, {gain}");
}

#[test]
fn waiting_for_each_kernel_costs_the_launch_behind_the_wait_too() {
    // Lesson 3: launch, wait, launch, wait.
    let step = [kernel(20_000), Act::Synchronize];
    let before = MACHINE.run(&step, STEPS);
    let after = MACHINE.run(&[kernel(20_000)], STEPS);
    assert_predicts(&before, ScenarioKind::NoSyncs, &after, 0.005);
    let gain = |kind| answer(&before).best_case(kind).expect("judged").speedup;
    // 20 us of work, 3 us of latency, 10 us to wake up, 5 us to launch: all of it is hidden without the
    // waits.
    assert!((1.80..1.82).contains(&gain(ScenarioKind::NoSyncs)), "38 us become 21 us");
    assert!(gain(ScenarioKind::NoSyncs) > gain(ScenarioKind::LaunchesFree));
}

#[test]
fn a_few_slow_steps_at_the_end_do_not_speak_for_the_run() {
    let step = [Act::Work(20_000), kernel(10_000)];
    let slow = [Act::Work(60_000), kernel(10_000)];
    let run: Vec<Act> = (0..1_940).flat_map(|_| step).chain((0..60).flat_map(|_| slow)).collect();
    let mut before = MACHINE.run(&run, 1);
    before.boundaries = before.operations.iter().map(|operation| operation.start).collect();
    let gain = answer(&before).best_case(ScenarioKind::LaunchesFree).expect("judged").speedup;
    // 25 us per launch, and 65 us for three in a hundred, against 10.1 us of work.
    assert!((2.57..2.62).contains(&gain), "{gain}");
}

#[test]
fn without_the_wait_host_work_hides_behind_the_device() {
    let step = [kernel(5 * MS), Act::Synchronize, Act::Work(3 * MS)];
    let without = [kernel(5 * MS), Act::Work(3 * MS)];
    assert_predicts(&MACHINE.run(&step, STEPS), ScenarioKind::NoSyncs, &MACHINE.run(&without, STEPS), 0.005);
}

#[test]
fn exposed_input_waits_go_away() {
    let step = [Act::Input(5 * MS), kernel(2 * MS), Act::Work(MS / 2)];
    let without = [kernel(2 * MS), Act::Work(MS / 2)];
    assert_predicts(&MACHINE.run(&step, STEPS), ScenarioKind::DataReady, &MACHINE.run(&without, STEPS), 0.005);
}

#[test]
fn input_waits_that_run_ahead_hides_cost_nothing() {
    let recording = MACHINE.run(&[Act::Input(2 * MS), kernel(10 * MS)], STEPS);
    let best_case = *answer(&recording).best_case(ScenarioKind::DataReady).expect("judged");
    assert!(best_case.speedup < 1.001, "{best_case:?}");
    assert!(!best_case.is_worth_showing());
}

#[test]
fn input_waits_of_a_thread_that_hands_over_still_count() {
    // The first thread waits for data and runs forward, the second runs backward; the first waits for it
    // without a record.
    let mut step = vec![Act::Thread(1), Act::Input(4 * MS)];
    step.extend((0..10).flat_map(|_| [Act::Work(50_000), kernel(60_000)]));
    step.push(Act::Thread(2));
    step.extend((0..10).flat_map(|_| [Act::Work(50_000), kernel(60_000)]));
    let without: Vec<Act> = step.iter().copied().filter(|act| !matches!(act, Act::Input(_))).collect();
    assert_predicts(&MACHINE.run(&step, STEPS), ScenarioKind::DataReady, &MACHINE.run(&without, STEPS), 0.02);
}

#[test]
fn copies_beside_compute_leave_the_longer_of_the_two() {
    let copy = |stream| Act::Launch(stream, 2 * MS, OperationClass::CopyFromHost);
    let before = MACHINE.run(&[copy(7), kernel(3 * MS)], STEPS);
    let after = MACHINE.run(&[copy(9), kernel(3 * MS)], STEPS);
    assert_predicts(&before, ScenarioKind::CopiesOverlapped, &after, 0.005);
    // A copy that takes longer than compute stays the bottleneck: hidden does not mean removed.
    let slow = Act::Launch(7, 8 * MS, OperationClass::CopyFromHost);
    let gain =
        answer(&MACHINE.run(&[slow, kernel(4 * MS)], STEPS)).best_case(ScenarioKind::CopiesOverlapped).unwrap().speedup;
    assert!((1.49..1.51).contains(&gain), "12 ms become 8 ms: {gain}");
}

#[test]
fn communication_on_its_own_stream_is_hidden_through_its_events() {
    let communicate = Act::Launch(20, 4 * MS, OperationClass::Communication);
    let step = [kernel(6 * MS), Act::StreamWait(20, 7), communicate, Act::StreamWait(7, 20)];
    let after = [kernel(6 * MS), communicate];
    assert_predicts(&MACHINE.run(&step, STEPS), ScenarioKind::CommunicationHidden, &MACHINE.run(&after, STEPS), 0.005);
}

#[test]
fn the_device_alone_needs_what_its_streams_need() {
    let step = [Act::Input(3 * MS), kernel(2 * MS), Act::Synchronize, Act::Work(MS), kernel(MS), Act::Synchronize];
    let alone = Machine { launch: 0, latency: 0, ..MACHINE }.run(&[kernel(2 * MS), kernel(MS)], STEPS);
    assert_predicts(&MACHINE.run(&step, STEPS), ScenarioKind::DeviceOnly, &alone, 0.005);
}

#[test]
fn a_copy_that_outlasts_its_blocking_call_releases_the_host_by_beginning() {
    // Like pageable copies: the call returns while the last piece is in flight.
    let mut recording =
        MACHINE.run(&[Act::Work(MS), kernel(4 * MS), Act::Launch(7, MS, OperationClass::CopyFromHost)], STEPS);
    let mut shift = 0;
    for step in 0..STEPS {
        let (launch, copy) = (recording.operations[2 * step], recording.operations[2 * step + 1]);
        let issue = launch.launch.unwrap().start + shift;
        let begin = issue + 8_000;
        recording.calls[2 * step].start = issue;
        recording.calls[2 * step].end = issue + 5_000;
        recording.operations[2 * step].launch.as_mut().unwrap().start = issue;
        (recording.operations[2 * step].start, recording.operations[2 * step].end) = (begin, begin + 4 * MS);
        let copy_begin = begin + 4 * MS + 1_000;
        recording.operations[2 * step + 1].launch.as_mut().unwrap().start = issue + 5_000;
        (recording.operations[2 * step + 1].start, recording.operations[2 * step + 1].end) =
            (copy_begin, copy_begin + MS);
        recording.calls[2 * step + 1].start = issue + 5_000;
        recording.calls[2 * step + 1].end = copy_begin + MS - 50_000;
        recording.boundaries[step] = begin;
        let planned = recording.operations.get(2 * step + 2).map(|next| next.launch.unwrap().start);
        shift = planned.map_or(0, |planned| recording.calls[2 * step + 1].end + MS - planned);
        assert!(copy.end > copy.start);
    }
    let answer = answer(&recording);
    assert!(answer.base_error.expect("steps") < 1e-3, "{answer:?}");
    // 4 ms of kernel, 1 ms of copy less the part in flight, 1 ms of work; without the wait, the device is
    // never idle.
    let gain = answer.best_case(ScenarioKind::NoSyncs).expect("judged").speedup;
    assert!((1.18..1.20).contains(&gain), "5.96 ms become 5 ms: {gain}");
}

#[test]
fn what_nothing_explains_is_refused_and_the_books_answer() {
    let step = [Act::Unexplained(3 * MS), kernel(5 * MS), Act::Synchronize];
    let answer = answer(&MACHINE.run(&step, STEPS));
    assert!(
        matches!(answer.refused, Some(SimulationProblem::BaseError(_) | SimulationProblem::Unexplained(_))),
        "{answer:?}"
    );
    assert!(answer.best_cases.is_empty());
    let mut leaves = [0; LEAF_COUNT];
    leaves[Leaf::Compute as usize] = 5 * MS;
    leaves[Leaf::DependencyWait as usize] = 2 * MS;
    leaves[Leaf::SyncDrain as usize] = MS;
    let bounds = answer.or_additive(&leaves, 0);
    assert!(bounds.refused.is_some());
    let bound = bounds.best_case(ScenarioKind::NoSyncs).expect("on the accounts");
    assert_eq!((bound.step_ns, bound.interval), (7 * MS, None), "of 8 ms");
}

#[test]
fn few_steps_are_refused() {
    let answer = answer(&MACHINE.run(&[kernel(MS)], 4));
    // Four boundaries delimit three steps, the first of which has no predecessor.
    assert_eq!(answer.refused, Some(SimulationProblem::FewSteps(2)));
}

#[test]
fn additive_bounds_take_a_cause_off_the_books() {
    let mut leaves = [0; LEAF_COUNT];
    leaves[Leaf::Compute as usize] = 40;
    leaves[Leaf::CopyH2dPinned as usize] = 60;
    leaves[Leaf::DataLoading as usize] = 100;
    leaves[Leaf::NoWork as usize] = 1_000;
    let best_cases = BestCase::additive(&leaves, 0);
    let step =
        |kind| best_cases.iter().find(|best_case| best_case.kind == kind).expect("every cause has a bound").step_ns;
    assert_eq!(step(ScenarioKind::DataReady), 100);
    // At most as much copying can be hidden as there is compute.
    assert_eq!(step(ScenarioKind::CopiesOverlapped), 160);
    assert_eq!(step(ScenarioKind::LaunchesFree), 200);
    assert_eq!(step(ScenarioKind::DeviceOnly), 100);
    assert!(BestCase::additive(&[0; LEAF_COUNT], 0).iter().all(|best_case| best_case.speedup == 1.0));
}

#[test]
fn copies_that_are_hidden_still_cross_the_link() {
    let mut leaves = [0; LEAF_COUNT];
    leaves[Leaf::Compute as usize] = 10;
    leaves[Leaf::CopyH2dPageable as usize] = 90;
    let bounds = |link_ns| {
        let best_cases = BestCase::additive(&leaves, link_ns);
        let step =
            |kind| best_cases.iter().find(|best_case| best_case.kind == kind).expect("every cause has a bound").step_ns;
        (step(ScenarioKind::CopiesOverlapped), step(ScenarioKind::DeviceOnly))
    };
    assert_eq!(bounds(0), (10, 100), "nothing is known of the link");
    assert_eq!(bounds(8), (10, 100), "hidden beneath compute");
    assert_eq!(bounds(14), (14, 100), "all at the rate of the link");
    assert_eq!(bounds(300), (100, 100), "never longer than it was");
}

#[test]
fn a_best_case_has_an_interval_and_the_replay_an_error() {
    let step = [Act::Input(6 * MS), kernel(6 * MS), Act::Synchronize];
    let answer = answer(&MACHINE.run(&step, STEPS));
    let best_case = answer.best_case(ScenarioKind::DataReady).expect("judged");
    let (low, high) = best_case.interval.expect("simulated");
    let tenths = [low, best_case.speedup, high].map(|factor| (factor * 10.0).round());
    assert_eq!(tenths, [18.0, 20.0, 22.0]);
    assert!(answer.base_error.expect("steps") < 5e-4, "{answer:?}");
}
