//! Effects of samples of the launching thread: they change the cause of idle time outside CUDA, and no other
//! result.

use crate::support::{Scenario, assert_leaves, gpu};
use gpuwhy_trace::record::{HostSample, InterpreterLock, MemoryKind, Record, StackId, ThreadState};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::{Attributor, Subject};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use proptest::prelude::*;

const TORCH: &str = "/lib/python3.12/site-packages/torch/utils/data/";
const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);

/// Frames of a loader without workers, in the data set's `__getitem__`.
fn inline() -> Vec<(&'static str, &'static str, u32)> {
    vec![
        ("/home/u/data.py", "Images.__getitem__", 7),
        ("/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 54),
        (
            "/lib/python3.12/site-packages/torch/utils/data/dataloader.py",
            "_SingleProcessDataLoaderIter._next_data",
            700,
        ),
        TRAIN,
    ]
}

/// Frames of a loader that waits for its workers.
fn starved() -> Vec<(&'static str, &'static str, u32)> {
    vec![
        ("/lib/python3.12/threading.py", "Condition.wait", 327),
        ("/lib/python3.12/queue.py", "Queue.get", 180),
        ("/lib/python3.12/site-packages/torch/utils/data/dataloader.py", "_try_get_data", 1200),
        TRAIN,
    ]
}

/// Frames of a server that waits for requests, and of one that chooses a batch.
fn idle() -> Vec<(&'static str, &'static str, u32)> {
    vec![
        ("/lib/python3.12/queue.py", "Queue.get", 180),
        ("/lib/python3.12/site-packages/vllm/v1/engine/core.py", "EngineCoreProc._process_input_queue", 1280),
    ]
}

fn scheduling() -> Vec<(&'static str, &'static str, u32)> {
    vec![("/lib/python3.12/site-packages/vllm/v1/core/sched/scheduler.py", "Scheduler.schedule", 388)]
}

/// Two kernels of 100 us with 10 ms between the end of the first and the launch of the second, by thread 1.
fn one_gap() -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    gpu(0).kernel("first").at(10_210).lasting(90).launched(&mut scenario, 1, 10_200, 5);
    scenario
}

fn sample(state: ThreadState, on_cpu_us: u64, runnable_us: u64) -> HostSample {
    HostSample { state, on_cpu: on_cpu_us * 1_000, runnable: runnable_us * 1_000, ..HostSample::default() }
}

/// Leaves of the gap of [`one_gap`] after `samples`, in microseconds.
fn gap(samples: impl FnOnce(&mut Scenario)) -> Vec<(Leaf, u64)> {
    let mut scenario = one_gap();
    samples(&mut scenario);
    let leaves = scenario.leaves();
    let of = [Leaf::SyncDrain, Leaf::HostCpu, Leaf::HostBlocked, Leaf::DataLoading];
    of.into_iter().map(|leaf| (leaf, leaves[leaf as usize] / 1_000)).filter(|&(_, micros)| micros > 0).collect()
}

#[test]
fn without_looks_a_gap_is_host_time() {
    assert_eq!(gap(|_| {}), [(Leaf::HostCpu, 10_000)]);
    let scenario = one_gap();
    assert_leaves(
        &scenario.leaves(),
        &[(Leaf::Compute, 190), (Leaf::HostCpu, 10_000), (Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5)],
    );
}

#[test]
fn clocks_divide_what_a_look_speaks_for() {
    // The sample covers the 4 ms before it, no earlier time, and at most 4 ms after it.
    let seen = gap(|scenario| scenario.sample(1, 1_200, 5_200, sample(ThreadState::Io, 1_000, 500), &[TRAIN]));
    // Before it: 1 ms on a core, 0.5 ms ready, 2.5 ms in io; the same after it; the rest is not covered.
    assert_eq!(seen, [(Leaf::HostCpu, 2_000 + 2_000), (Leaf::HostBlocked, 6_000)]);
    // A sample of another thread has no effect.
    assert_eq!(
        gap(|scenario| scenario.sample(2, 1_200, 5_200, sample(ThreadState::Io, 0, 0), &[TRAIN])),
        [(Leaf::HostCpu, 10_000)]
    );
    // A sample outside the gap has none either.
    assert_eq!(
        gap(|scenario| scenario.sample(1, 1_200, 10_220, sample(ThreadState::Io, 0, 0), &[TRAIN])),
        [(Leaf::HostCpu, 10_000)]
    );
}

#[test]
fn gaps_below_the_resolution_stay_dispatch() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    gpu(0).kernel("second").at(200).lasting(1).launched(&mut scenario, 1, 105, 5);
    gpu(0).kernel("third").at(280).lasting(10).launched(&mut scenario, 1, 209, 5);
    let before = scenario.leaves();
    scenario.sample(1, 20, 205, sample(ThreadState::Sleep, 0, 0), &[TRAIN]);
    assert_eq!(scenario.leaves(), before);
    assert!(before[Leaf::Dispatch as usize] > 0);
}

#[test]
fn a_loader_is_named_at_its_first_gap() {
    for stack in [inline(), starved()] {
        let seen = gap(|scenario| scenario.sample(1, 200, 10_190, sample(ThreadState::Futex, 0, 0), &stack));
        assert_eq!(seen, [(Leaf::DataLoading, 10_000)]);
    }
}

#[test]
fn a_loader_goes_before_the_wait_that_exposed_it_and_other_work_after() {
    let drained = |stack: &[(&str, &str, u32)]| {
        gap(|scenario| {
            // The thread waited 95 us for the first kernel, so 95 us of the following time would have been
            // hidden.
            scenario.call(1, "cudaDeviceSynchronize_v3020", 105, 97);
            scenario.sample(1, 202, 10_190, sample(ThreadState::Running, 0, 0), stack);
        })
    };
    assert_eq!(drained(&inline()), [(Leaf::SyncDrain, 2), (Leaf::DataLoading, 9_998)]);
    assert_eq!(drained(&[TRAIN]), [(Leaf::SyncDrain, 2 + 95), (Leaf::HostCpu, 9_998 - 95)]);
}

#[test]
fn what_was_seen_decides_against_the_pattern() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    for step in 1..=8 {
        let at = step * 10_000;
        gpu(0).h2d(MemoryKind::Pageable, 1 << 20).at(at).lasting(100).launched(&mut scenario, 1, at - 10, 100);
        gpu(0).kernel("forward").at(at + 110).lasting(1_000).launched(&mut scenario, 1, at + 95, 5);
    }
    assert!(scenario.leaves()[Leaf::DataLoading as usize] > 0, "inferred");
    for step in 1..=8 {
        let at = step * 10_000;
        scenario.sample(1, at - 8_000, at - 2_000, sample(ThreadState::Running, 6_000, 0), &[TRAIN]);
    }
    assert_eq!(scenario.leaves()[Leaf::DataLoading as usize], 0, "seen elsewhere");
}

#[test]
fn gaps_that_no_look_fell_into_go_by_their_like() {
    // Before each batch the host is away for 500 us, too short for the pattern; samples fall into three of
    // eight such gaps.
    let program = |stack: Option<&[(&str, &str, u32)]>| {
        let mut scenario = Scenario::new();
        gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
        for step in 1..=8 {
            let at = step * 10_000;
            gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
            gpu(0).kernel("forward").at(at + 110).lasting(9_385).launched(&mut scenario, 1, at + 95, 5);
            scenario.call(1, "cudaDeviceSynchronize_v3020", at + 101, 9_394);
            if let Some(stack) = stack.filter(|_| step <= 3) {
                scenario.sample(1, at + 9_000, at + 9_700, sample(ThreadState::Running, 0, 0), stack);
            }
        }
        scenario.leaves()[Leaf::DataLoading as usize] / 1_000
    };
    assert_eq!(program(None), 0);
    assert_eq!(program(Some(&inline())), 7 * 500, "all but the first, before which there was no step");
    assert_eq!(program(Some(&[TRAIN])), 0);
}

#[test]
fn long_gaps_do_not_go_by_the_pattern_when_their_like_were_seen() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    for step in 1..=12 {
        let at = step * 10_000;
        gpu(0).h2d(MemoryKind::Pageable, 1 << 20).at(at).lasting(100).launched(&mut scenario, 1, at - 10, 100);
        gpu(0).kernel("forward").at(at + 110).lasting(1_000).launched(&mut scenario, 1, at + 95, 5);
        if step <= 3 {
            scenario.sample(1, at - 8_000, at - 2_000, sample(ThreadState::Running, 6_000, 0), &[TRAIN]);
        }
    }
    assert_eq!(scenario.leaves()[Leaf::DataLoading as usize], 0);
}

/// Causes of the gap of [`one_gap`] with one sample that covers it completely.
fn causes(sample: HostSample, stack: &[(&str, &str, u32)]) -> Vec<HostCause> {
    let mut scenario = one_gap();
    scenario.sample(1, 200, 10_200, sample, stack);
    let attributor = scenario.run();
    let account = attributor.devices().next().unwrap();
    let mut found: Vec<_> = Leaf::ALL
        .into_iter()
        .flat_map(|leaf| account.causes(leaf))
        .filter_map(|(subject, _)| if let Subject::Host(cause, _) = subject { Some(cause) } else { None })
        .collect();
    found.sort();
    found
}

#[test]
fn states_and_stacks_decide_the_cause() {
    use HostCause::*;
    use ThreadState as State;
    use gpuwhy_trace::record::InterpreterLock as Holder;
    let off = |state| sample(state, 0, 0);
    let workers = |children, children_running, children_in_io| HostSample {
        children,
        children_running,
        children_in_io,
        ..off(State::Futex)
    };
    let gil = HostSample { interpreter_lock: Holder::OtherThread, ..off(State::Futex) };
    let queue = [("/lib/python3.12/queue.py", "Queue.get", 180), TRAIN];
    let collate = format!("{TORCH}_utils/collate.py");
    let collect = HostSample { collecting_garbage: true, ..sample(State::Running, 10_000, 0) };
    let waits = starved();
    for (sample, stack, expected) in [
        (off(State::Disk), &[TRAIN][..], vec![Disk]),
        (off(State::Poll), &[TRAIN], vec![Poll]),
        (off(State::Unknown), &[TRAIN], vec![OtherWait]),
        (gil, &[TRAIN], vec![InterpreterLock]),
        (gil, &queue, vec![Lock]),
        (gil, &[], vec![InterpreterLock]),
        (sample(State::Running, 4_000, 6_000), &[TRAIN], vec![Code, Preempted]),
        (collect, &[TRAIN], vec![GarbageCollection]),
        (sample(State::Running, 4_000, 0), &inline(), vec![LoaderInline]),
        (off(State::Disk), &[(&collate, "default_collate", 3), TRAIN], vec![LoaderCollate]),
        (sample(State::Futex, 4_000, 0), &waits, vec![LoaderReceive, LoaderWait]),
        (workers(8, 1, 7), &waits, vec![LoaderWaitBusy]),
        (workers(8, 0, 1), &waits, vec![LoaderWaitIo]),
        (workers(8, 0, 0), &waits, vec![LoaderWaitIdle]),
    ] {
        assert_eq!(causes(sample, stack), expected, "{sample:?} {stack:?}");
    }
}

/// A loop whose step spends 8 ms in `stack`, with a sample in the middle and one at its end.
fn training(sample: HostSample, stack: &[(&str, &str, u32)]) -> Scenario {
    let mut scenario = Scenario::new();
    for step in 0..500 {
        let at = 1_000 + step * 10_000;
        for (index, name) in ["forward", "backward", "optimizer"].into_iter().enumerate() {
            let index = index as u64;
            gpu(0).kernel(name).at(at + 20 + index * 600).lasting(600).launched(&mut scenario, 1, at + index * 6, 5);
        }
        scenario.call(1, "cudaDeviceSynchronize_v3020", at + 18, 1_892);
        let sample = HostSample { on_cpu: sample.on_cpu / 2, ..sample };
        scenario.sample(1, at + 1_910, at + 5_911, sample, stack);
        scenario.sample(1, at + 5_911, at + 9_911, sample, stack);
    }
    scenario
}

#[test]
fn the_bottleneck_names_the_line_and_what_the_workers_did() {
    let busy = HostSample { children: 4, children_running: 4, ..sample(ThreadState::Futex, 0, 0) };
    let report = training(busy, &starved()).report();
    assert_eq!(report.bottleneck.cause, Cause::DataLoading, "{:?}", report.bottleneck);
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("train.py:42 (main), in threading.py"), "{evidence}");
    assert!(evidence.contains("worker processes were computing 100 %"), "{evidence}");
    assert!(!evidence.contains("Inferred from a pattern"), "{evidence}");
    assert!(report.bottleneck.recommendation.contains("do not keep up"), "{}", report.bottleneck.recommendation);

    let report = training(sample(ThreadState::Running, 8_000, 0), &inline()).report();
    assert_eq!(report.bottleneck.cause, Cause::DataLoading);
    assert!(report.bottleneck.evidence.join("\n").contains("data.py:7 (Images.__getitem__)"));
    assert!(report.bottleneck.recommendation.contains("num_workers=4"));

    let report = training(sample(ThreadState::Running, 8_000, 0), &[TRAIN]).report();
    assert_eq!(report.bottleneck.cause, Cause::HostCpu);
    assert!(report.bottleneck.evidence.join("\n").contains("Running code at train.py:42 (main)"));
    let host = report.host.as_ref().unwrap();
    assert_eq!((host.totals.samples, host.lines[0].line), (1_000, 42), "{:?}", host.lines);
    assert!(host.lines[1..].iter().all(|row| row.share < 0.01), "{:?}", host.lines);
    assert!(host.sampled_ns <= host.outside_cuda_ns && host.sampled_ns * 10 > host.outside_cuda_ns * 9);
    let step = host.lines[0].step_ns.unwrap();
    // 8 ms, less the 1.8 ms that would have been hidden without the wait for the previous step.
    assert!((6_100_000..6_400_000).contains(&step), "{step}");
    assert!(report.full().contains("(1000 samples)"), "{}", report.full());

    let gil = HostSample { interpreter_lock: InterpreterLock::OtherThread, ..sample(ThreadState::Futex, 0, 0) };
    let report = training(gil, &[TRAIN]).report();
    assert_eq!(report.bottleneck.cause, Cause::HostCpu);
    assert!(report.bottleneck.recommendation.contains("interpreter's lock"));
}

#[test]
fn without_looks_there_is_no_section() {
    let report = one_gap().report();
    assert!(report.host.is_none());
    assert!(!report.full().contains("samples)"));
}

/// One step of a synthetic program: how long the thread is away, whether it waits first, samples (offset back
/// from the end of the gap, length, state, time on a core), and a stack.
type Step = (u64, bool, Vec<(u64, u64, u8, u64)>, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sample = (0..20_000u64, 0..8_000u64, 0..11u8, 0..8_000u64);
    let step = (0..20_000u64, any::<bool>(), prop::collection::vec(sample, 0..4), 0..6u8);
    prop::collection::vec(step, 1..30)
}

fn state(index: u8) -> ThreadState {
    use ThreadState::*;
    [Unknown, Running, Futex, Poll, Io, Disk, Sleep, Child, Memory, Driver, Other][usize::from(index)]
}

fn play(steps: &[Step], thread: u32) -> Scenario {
    let mut scenario = Scenario::new();
    let mut now = 100_000;
    for (pause, waits, samples, stack) in steps {
        let gap_end = now + pause;
        let stack = [vec![], vec![TRAIN], inline(), starved(), idle(), scheduling()][usize::from(*stack)].clone();
        for &(back, length, index, on_cpu) in samples {
            let at = gap_end - back.min(90_000);
            scenario.sample(thread, at - length, at, sample(state(index), on_cpu, length / 3), &stack);
        }
        gpu(0).kernel("k").at(gap_end + 10).lasting(200).launched(&mut scenario, 1, gap_end, 5);
        now = gap_end + 6;
        if *waits {
            scenario.call(1, "cudaDeviceSynchronize_v3020", now, 206);
            now += 207;
        }
    }
    scenario
}

/// The same with at most one sample per gap, within the gap.
fn alone(steps: &[Step]) -> Vec<Step> {
    let within = |(pause, waits, samples, stack): &Step| {
        let sample = samples.first().map(|&(back, length, index, on_cpu)| {
            let length = length.min(*pause);
            (back.min(pause - length), length, index, on_cpu)
        });
        (*pause, *waits, sample.into_iter().collect(), *stack)
    };
    steps.iter().map(within).collect()
}

/// Flags of the lost samples: more than `steps` has.
fn lost() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(any::<bool>(), 120)
}

fn without(mut scenario: Scenario, lost: &[bool]) -> Scenario {
    let mut lost = lost.iter();
    scenario.records.retain(|(_, record)| !matches!(record, Record::Sample(_)) || lost.next() == Some(&false));
    scenario
}

fn leaves(attributor: &Attributor) -> Leaves {
    attributor.devices().next().map_or([0; LEAF_COUNT], |account| *account.leaves())
}

/// Leaves between which samples may move time.
const MOVABLE: [Leaf; 5] = [Leaf::SyncDrain, Leaf::HostCpu, Leaf::HostBlocked, Leaf::DataLoading, Leaf::NoWork];

fn fixed(leaves: &Leaves) -> (Leaves, u64) {
    let mut rest = *leaves;
    let moved = MOVABLE.into_iter().map(|leaf| std::mem::take(&mut rest[leaf as usize])).sum();
    (rest, moved)
}

fn totals(attributor: &Attributor) -> String {
    let account = attributor.devices().next().unwrap();
    // Line ids depend on the order of samples.
    let named = |subject| match subject {
        Subject::Host(cause, line) => format!("{cause:?} {:?}", attributor.host_line(line)),
        other => format!("{other:?}"),
    };
    let all = Leaf::ALL.into_iter().flat_map(|leaf| account.causes(leaf));
    let mut causes: Vec<_> = all.map(|(subject, totals)| (named(subject), format!("{totals:?}"))).collect();
    causes.sort();
    format!("{:?} {causes:?} {:?}", account.leaves(), attributor.sample_totals())
}

fn seen(attributor: &Attributor) -> Vec<(HostCause, u64)> {
    let account = attributor.devices().next().unwrap();
    let mut sums = vec![0; HostCause::ALL.len()];
    for leaf in Leaf::ALL {
        for (subject, totals) in account.causes(leaf) {
            if let Subject::Host(cause, _) = subject {
                sums[cause as usize] += totals.total_ns;
            }
        }
    }
    HostCause::ALL.into_iter().zip(sums).filter(|&(_, nanos)| nanos > 0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn looks_move_time_between_host_causes_only(steps in steps()) {
        let mut plain = play(&steps, 1);
        plain.records.retain(|(_, record)| !matches!(record, Record::Sample(_)));
        let with = play(&steps, 1).run();
        for account in with.devices() {
            prop_assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns());
        }
        prop_assert_eq!(fixed(&leaves(&with)), fixed(&leaves(&plain.run())));
    }

    #[test]
    fn looks_at_other_threads_change_nothing(steps in steps()) {
        let mut plain = play(&steps, 9);
        let with = leaves(&play(&steps, 9).run());
        plain.records.retain(|(_, record)| !matches!(record, Record::Sample(_)));
        prop_assert_eq!(with, leaves(&plain.run()));
    }

    #[test]
    fn delivery_does_not_matter(steps in steps(), seed in 1..u64::MAX, period in 50..20_000u64) {
        // Two samples at the same instant have no defined order.
        let mut scenario = play(&steps, 1);
        let mut times = std::collections::BTreeSet::new();
        scenario.records.retain(|(at, record)| !matches!(record, Record::Sample(_)) || times.insert(*at));
        let reference = totals(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&totals(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&totals(&scenario.run_with(period, seed)), &reference);
    }

    /// A lost sample removes its evidence. An adjacent sample in the same gap may cover its time instead.
    #[test]
    fn lost_looks_move_time_between_host_causes_only(steps in steps(), lost in lost()) {
        let (before, after) = (play(&steps, 1).run(), without(play(&steps, 1), &lost).run());
        prop_assert_eq!(fixed(&leaves(&before)), fixed(&leaves(&after)));
        let none = without(play(&steps, 1), &[true; 120]).run();
        prop_assert_eq!(seen(&none), vec![]);
    }

    /// Without an adjacent sample in the gap, no cause gets more time, and no unsampled cause appears.
    #[test]
    fn lost_looks_without_neighbors_leave_less_evidence(steps in steps(), lost in lost()) {
        let steps = alone(&steps);
        let before = seen(&play(&steps, 1).run());
        for (cause, nanos) in seen(&without(play(&steps, 1), &lost).run()) {
            let whole = before.iter().find(|&&(known, _)| known == cause).map(|&(_, sum)| sum);
            prop_assert!(whole.is_some_and(|whole| nanos <= whole), "{:?}: {} of {:?}", cause, nanos, whole);
        }
    }
}

#[test]
fn damaged_looks_are_counted() {
    let mut scenario = one_gap();
    for (since, at) in [(0, 0), (5, 3)] {
        let sample = HostSample { stack: StackId(77), ..sample(ThreadState::Io, u64::MAX / 1_000, 0) };
        scenario.sample(1, since, at, sample, &[]);
    }
    let last = scenario.records.len();
    if let Record::Sample(sample) = &mut scenario.records[last - 1].1 {
        sample.since = gpuwhy_trace::record::Timestamp::ZERO;
    }
    let completeness = scenario.run().completeness();
    assert_eq!((completeness.samples, completeness.bad_timestamps), (2, 1));
}
