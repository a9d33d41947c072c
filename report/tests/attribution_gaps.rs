//! Limits of the rules that explain a gap: each limit from both sides, to the microsecond.
//!
//! Every program is a kernel that runs from 100 to 200 us, a gap, and an operation that ends it.

use crate::support::{Scenario, gpu};
use gpuwhy_trace::record::{HostSample, MemoryKind, RangeEventKind, ThreadState};
use profiler_core::attribution::Subject;
use profiler_core::leaf::Leaf;

const LAUNCH: &str = "cudaLaunchKernel_v7000";
const COPY: &str = "cudaMemcpyAsync_v3020";
const WAIT: &str = "cudaDeviceSynchronize_v3020";
/// A call without a separate class.
const SHORT: &str = "cudaEventRecord_v3020";
const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);
/// A frame of PyTorch's loader without workers.
const LOADER: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 54);

/// The kernel before the gap, which ends at 200 us; its launch returned at 95 us.
fn busy_until_200() -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    scenario
}

/// The idle time of a program by cause, microseconds.
fn idle(scenario: &Scenario) -> Vec<(Leaf, u64)> {
    let leaves = scenario.leaves();
    let idle = Leaf::ALL.into_iter().filter(|leaf| !leaf.is_busy());
    idle.map(|leaf| (leaf, leaves[leaf as usize] / 1_000)).filter(|&(_, micros)| micros != 0).collect()
}

/// The idle time before an operation that starts at `begin`, after `calls` (function, entry, duration). The
/// last of the calls launched it: a copy, if the function copies, else a kernel.
fn idle_after(calls: &[(&str, u64, u64)], begin: u64) -> Vec<(Leaf, u64)> {
    let mut scenario = busy_until_200();
    let mut launch = 0;
    for &(function, at, lasting) in calls {
        launch = scenario.call(1, function, at, lasting);
    }
    let copies = calls.last().is_some_and(|call| call.0 == COPY);
    let work = if copies { gpu(0).h2d(MemoryKind::Pageable, 8) } else { gpu(0).kernel("next") };
    scenario.add(work.at(begin).lasting(10).by(launch));
    idle(&scenario)
}

/// Asserts idle time regardless of the order of its causes.
#[track_caller]
fn assert_idle(mut seen: Vec<(Leaf, u64)>, expected: &[(Leaf, u64)]) {
    let mut expected = expected.to_vec();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

fn waiting_in(state: ThreadState) -> HostSample {
    HostSample { state, ..HostSample::default() }
}

#[test]
fn a_queued_operation_follows_within_10_us_or_waits_for_something() {
    assert_idle(idle_after(&[(LAUNCH, 150, 5)], 210), &[(Leaf::InterKernel, 10)]);
    assert_idle(idle_after(&[(LAUNCH, 150, 5)], 211), &[(Leaf::DependencyWait, 11)]);
    // Its call was entered before the gap opened, so the host was not late.
    assert_idle(idle_after(&[(LAUNCH, 195, 5)], 210), &[(Leaf::InterKernel, 10)]);
}

#[test]
fn a_call_that_was_entered_before_the_gap_is_the_call_and_then_20_us_of_latency() {
    assert_idle(idle_after(&[(LAUNCH, 190, 30)], 240), &[(Leaf::LaunchApi, 20), (Leaf::LaunchLatency, 20)]);
    assert_idle(idle_after(&[(LAUNCH, 190, 30)], 241), &[(Leaf::DependencyWait, 21), (Leaf::LaunchApi, 20)]);
    // The kernel starts inside its call, which was still submitting it.
    assert_idle(idle_after(&[(LAUNCH, 190, 200)], 300), &[(Leaf::LaunchApi, 100)]);
}

#[test]
fn a_copy_that_begins_inside_its_own_call_was_submitted_early_in_it() {
    // It is submitted 20 us into the call, regardless of the call's length.
    assert_idle(idle_after(&[(COPY, 190, 200)], 230), &[(Leaf::LaunchApi, 10), (Leaf::LaunchLatency, 20)]);
    assert_idle(idle_after(&[(COPY, 190, 200)], 231), &[(Leaf::DependencyWait, 21), (Leaf::LaunchApi, 10)]);
    // Submitted before the gap opened.
    assert_idle(idle_after(&[(COPY, 170, 200)], 210), &[(Leaf::InterKernel, 10)]);
    assert_idle(idle_after(&[(COPY, 170, 200)], 211), &[(Leaf::DependencyWait, 11)]);
    // A call that returns sooner has submitted it by its return.
    assert_idle(idle_after(&[(COPY, 190, 15)], 204), &[(Leaf::LaunchApi, 4)]);
    // For an operation that starts when its call returns, or later, the return counts.
    assert_idle(idle_after(&[(COPY, 190, 110)], 300), &[(Leaf::LaunchApi, 100)]);
    assert_idle(idle_after(&[(COPY, 190, 30)], 240), &[(Leaf::LaunchApi, 20), (Leaf::LaunchLatency, 20)]);
}

#[test]
fn behind_a_late_launch_20_us_are_latency_and_the_rest_is_a_wait() {
    let late = |begin| idle_after(&[(SHORT, 195, 5), (LAUNCH, 220, 10)], begin);
    assert_eq!(late(250), [(Leaf::Dispatch, 20), (Leaf::LaunchApi, 10), (Leaf::LaunchLatency, 20)]);
    let waited = [(Leaf::Dispatch, 20), (Leaf::LaunchApi, 10), (Leaf::LaunchLatency, 20), (Leaf::DependencyWait, 1)];
    assert_idle(late(251), &waited);
}

#[test]
fn a_wait_that_returned_at_most_20_us_before_the_gap_let_the_device_run_dry() {
    // The next launch comes 30 us into the gap and the kernel 10 us after its start: the gap would have been
    // completely hidden.
    let next = |lasting| idle_after(&[(WAIT, 100, lasting), (LAUNCH, 230, 5)], 240);
    assert_idle(next(80), &[(Leaf::SyncDrain, 40)]);
    assert_idle(next(79), &[(Leaf::Dispatch, 30), (Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5)]);
    // Another call, entered as the gap opens, does not hide the wait either.
    assert_idle(
        idle_after(&[(WAIT, 150, 50), (SHORT, 200, 2), (LAUNCH, 210, 5)], 220),
        &[(Leaf::SyncDrain, 18), (Leaf::Dispatch, 2)],
    );
}

#[test]
fn run_ahead_that_a_wait_cost_is_charged_up_to_the_kernel_and_not_to_what_that_waits_for() {
    // 50 us lost: 10 until the launch, 5 in it, 20 of latency; the rest of the kernel's wait has another
    // cause.
    let seen = idle_after(&[(WAIT, 150, 50), (LAUNCH, 210, 5)], 260);
    assert_idle(seen, &[(Leaf::DependencyWait, 25), (Leaf::SyncDrain, 35)]);
    // 30 us lost end within the latency.
    let seen = idle_after(&[(WAIT, 170, 30), (LAUNCH, 210, 5)], 235);
    assert_idle(seen, &[(Leaf::SyncDrain, 30), (Leaf::LaunchLatency, 5)]);
}

#[test]
fn work_on_what_a_copy_brought_is_work_and_not_run_ahead_that_its_wait_cost() {
    let after_read = |bytes| {
        let mut scenario = busy_until_200();
        let copy = gpu(0).stream(7).d2h(MemoryKind::Pageable, bytes).at(210).lasting(90);
        copy.launched(&mut scenario, 1, 190, 115);
        gpu(0).kernel("next").at(610).lasting(10).launched(&mut scenario, 1, 600, 5);
        let leaves = scenario.leaves();
        (leaves[Leaf::SyncDrain as usize] / 1_000, leaves[Leaf::HostCpu as usize] / 1_000)
    };
    // Without the read of one value, the CPU would have been further by the 110 us up to the end of the copy.
    assert_eq!(after_read(4), (115, 185));
    assert_eq!(after_read(8_000_000), (5, 295));
}

#[test]
fn an_asynchronous_copy_call_of_more_than_50_us_was_a_wait() {
    let after_copy = |at, lasting| {
        let mut scenario = busy_until_200();
        let copy = gpu(0).stream(8).h2d(MemoryKind::Pageable, 64).at(160).lasting(10);
        copy.launched(&mut scenario, 1, at, lasting);
        gpu(0).kernel("next").at(240).lasting(10).launched(&mut scenario, 1, 230, 5);
        idle(&scenario)
    };
    // Still in it when the gap opens: its earlier cost counts as well.
    assert_eq!(after_copy(150, 51), [(Leaf::SyncDrain, 40)]);
    assert_eq!(after_copy(151, 50), [(Leaf::Dispatch, 29), (Leaf::LaunchApi, 6), (Leaf::LaunchLatency, 5)]);
    // Returned just before.
    assert_eq!(after_copy(140, 51), [(Leaf::SyncDrain, 40)]);
    assert_eq!(after_copy(140, 50), [(Leaf::Dispatch, 30), (Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5)]);
}

#[test]
fn short_calls_of_no_class_are_dispatch_and_long_ones_are_calls() {
    let launch = (LAUNCH, 320, 5);
    for function in [SHORT, "cudaStreamEndCapture_v10000"] {
        let call = |lasting| idle_after(&[(function, 200, lasting), launch], 330);
        let (dispatch, rest) = (Leaf::Dispatch, [(Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5)]);
        assert_idle(call(100), &[&[(dispatch, 120)][..], &rest].concat());
        assert_idle(call(101), &[&[(dispatch, 19), (Leaf::RuntimeApi, 101)][..], &rest].concat());
    }
    // Functions that load code, build a graph or allocate are named regardless of their length.
    for (function, leaf) in [
        ("cuModuleLoadData", Leaf::KernelBuild),
        ("cuModuleGetFunction", Leaf::RuntimeApi),
        ("cudaGraphInstantiate_v12000", Leaf::RuntimeApi),
        ("cudaMalloc_v3020", Leaf::Allocator),
    ] {
        let mut scenario = busy_until_200();
        scenario.call(1, SHORT, 180, 5);
        scenario.call(1, function, 210, 10);
        gpu(0).kernel("first").at(240).lasting(10).launched(&mut scenario, 1, 230, 5);
        let leaves = scenario.leaves();
        assert_eq!(leaves[leaf as usize], 10_000, "{function}");
        assert_eq!(leaves[Leaf::Dispatch as usize], 20_000, "{function}");
        let account = scenario.run();
        let causes = account.devices().next().unwrap().causes(leaf);
        assert!(matches!(causes[..], [(Subject::Call(_), totals)] if totals.total_ns == 10_000), "{causes:?}");
    }
}

#[test]
fn a_capture_begin_is_dispatch_while_short() {
    for (lasting, dispatch, call) in [(100, 116, 0), (101, 16, 101)] {
        let mut scenario = busy_until_200();
        scenario.call(1, "cudaStreamBeginCapture_v10000", 200, lasting);
        scenario.call(1, "cudaStreamEndCapture_v10000", 303, 2);
        gpu(0).kernel("next").at(325).lasting(10).launched(&mut scenario, 1, 316 + (lasting - 100), 5);
        let leaves = scenario.leaves();
        let micros = |leaf: Leaf| leaves[leaf as usize] / 1_000;
        assert_eq!((micros(Leaf::Dispatch), micros(Leaf::RuntimeApi)), (dispatch, call));
    }
}

#[test]
fn tracing_is_distinguished_in_short_gaps_too_but_not_within_waits() {
    let mut scenario = busy_until_200();
    scenario.call(1, SHORT, 190, 5);
    scenario.overhead(1, 205, 10);
    gpu(0).kernel("next").at(240).lasting(10).launched(&mut scenario, 1, 230, 5);
    let expected = [(Leaf::Dispatch, 20), (Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5), (Leaf::Profiler, 10)];
    assert_eq!(idle(&scenario), expected);

    let mut scenario = busy_until_200();
    scenario.overhead(1, 205, 10);
    scenario.call(1, WAIT, 199, 31);
    gpu(0).kernel("next").at(250).lasting(10).launched(&mut scenario, 1, 240, 5);
    assert_eq!(
        idle(&scenario),
        [(Leaf::SyncDrain, 31), (Leaf::Dispatch, 9), (Leaf::LaunchApi, 5), (Leaf::LaunchLatency, 5)]
    );
}

#[test]
fn ten_seconds_without_a_call_are_host_time_and_more_is_a_parked_process() {
    let away = |micros: u64, samples: &[(u64, ThreadState)]| {
        let mut scenario = busy_until_200();
        scenario.call(1, SHORT, 195, 5);
        for &(length, state) in samples {
            let end = 200 + micros;
            scenario.sample(1, end - length, end, waiting_in(state), &[TRAIN]);
        }
        gpu(0).kernel("next").at(210 + micros).lasting(10).launched(&mut scenario, 1, 200 + micros, 10);
        let seen = idle(&scenario);
        seen.into_iter().filter(|&(leaf, _)| leaf != Leaf::LaunchApi).collect::<Vec<_>>()
    };
    const TEN: u64 = 10_000_000;
    assert_idle(away(TEN, &[]), &[(Leaf::HostCpu, TEN)]);
    assert_idle(away(TEN + 1, &[]), &[(Leaf::NoWork, TEN + 1)]);
    // A thread that was away this long counts as waiting for requests if sampled off the cores; sampled at
    // work, it works.
    let (waits, works) = ([(1_000_000, ThreadState::Poll)], [(1_000_000, ThreadState::Running)]);
    assert_idle(away(TEN, &waits), &[(Leaf::HostCpu, TEN - 1_000_000), (Leaf::HostBlocked, 1_000_000)]);
    assert_idle(away(TEN + 1, &waits), &[(Leaf::NoWork, TEN + 1)]);
    assert_idle(away(TEN + 1, &works), &[(Leaf::HostCpu, 1_000_000), (Leaf::NoWork, TEN + 1 - 1_000_000)]);
}

/// A program of rounds: a kernel of 1 ms, then the host is away until 5 ms after its start, then the rest of
/// the round.
struct Rounds {
    scenario: Scenario,
    at: u64,
}

impl Rounds {
    fn new() -> Self {
        Self { scenario: busy_until_200(), at: 10_000 }
    }

    /// The device works for 1 ms at the start of the round; the call that launched it returned at once.
    fn work(&mut self) {
        let at = self.at;
        gpu(0).kernel("forward").at(at).lasting(1_000).launched(&mut self.scenario, 1, at - 10, 5);
    }

    /// A round that ends with a batch from the host 5 ms after its start: 4 ms of gap less the launch.
    fn batch(&mut self) {
        self.work();
        let at = self.at + 5_000;
        gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(at).lasting(100).launched(&mut self.scenario, 1, at - 5, 5);
        self.at += 5_200;
    }

    /// A round that ends with a kernel 5 ms after its start.
    fn kernel(&mut self) {
        self.work();
        self.at += 5_000;
    }

    /// Time of a round that is attributed to loading, microseconds.
    fn loading(&mut self, round: impl FnOnce(&mut Self)) -> u64 {
        let before = self.scenario.leaves()[Leaf::DataLoading as usize];
        round(self);
        // The gap before the round's own kernel does not count.
        (self.scenario.leaves()[Leaf::DataLoading as usize] - before) / 1_000
    }
}

#[test]
fn a_pattern_of_input_needs_three_batches_and_half_of_the_newest_eight_absences() {
    // Absences before kernels (k) and batches (b). Every round ends with an absence that the next operation ends; each
    // round's own kernel follows within 200 us.
    let last_is_loading = |pattern: &str| {
        let mut scenario = busy_until_200();
        let mut at = 1_000;
        let mut before = 0;
        for kind in pattern.chars() {
            // The gap: 5 ms from the end of the previous operation.
            before = scenario.leaves()[Leaf::DataLoading as usize];
            at += 5_000;
            let work = if kind == 'b' { gpu(0).h2d(MemoryKind::Pinned, 4_096) } else { gpu(0).kernel("k") };
            work.at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
            at += 100;
        }
        scenario.leaves()[Leaf::DataLoading as usize] > before
    };
    for (pattern, expected) in [
        ("b", false),
        ("bb", false),
        ("bbb", true),
        ("bbk", false),
        ("kkkbb", false),
        ("kkkbbb", true),
        ("kkkkbbb", false),
        ("bbkkkb", true),
        ("bbkkkkb", false),
        // Rounds before the newest eight are forgotten.
        ("kkkkkkkkkbbb", false),
        ("kkkkkkkkkbbbb", true),
        ("bbbbbkkkkkkbb", false),
        ("bbbbbkkkkkkkkb", false),
    ] {
        assert_eq!(last_is_loading(pattern), expected, "{pattern}");
    }
}

#[test]
fn a_copy_of_less_than_4_kib_is_no_batch() {
    for (bytes, loads) in [(4_095, false), (4_096, true)] {
        let mut scenario = busy_until_200();
        for round in 1..=6 {
            let at = round * 5_000;
            gpu(0).h2d(MemoryKind::Pinned, bytes).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
        }
        assert_eq!(scenario.leaves()[Leaf::DataLoading as usize] > 0, loads, "{bytes}");
    }
}

#[test]
fn absences_of_more_than_ten_seconds_are_no_part_of_a_pattern() {
    let mut scenario = busy_until_200();
    let mut at = 1_000;
    for away in [11_000_000, 11_000_000, 5_000, 5_000] {
        at += away;
        gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
        at += 100;
    }
    assert_eq!(scenario.leaves()[Leaf::DataLoading as usize], 0, "two absences prove nothing");
}

#[test]
fn absences_that_the_device_hid_are_no_part_of_a_pattern() {
    // The host is away for 5 ms while a kernel of 10 ms runs, then waits for it; the batch follows at once.
    for wait_begins_with_the_gap in [false, true] {
        let mut scenario = busy_until_200();
        let mut at = 1_000;
        for _ in 0..3 {
            gpu(0).kernel("forward").at(at).lasting(10_000).launched(&mut scenario, 1, at - 10, 5);
            let entered = if wait_begins_with_the_gap { at + 10_000 } else { at + 5_000 };
            scenario.call(1, WAIT, entered, at + 10_002 - entered);
            let batch = gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at + 10_010).lasting(100);
            batch.launched(&mut scenario, 1, at + 10_004, 5);
            at += 10_120;
        }
        // An absence that the device did not hide.
        at += 5_000;
        gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
        assert_eq!(scenario.leaves()[Leaf::DataLoading as usize], 0, "{wait_begins_with_the_gap}");
    }
}

#[test]
fn only_gaps_of_more_than_1_ms_are_loading_by_the_pattern() {
    let program = |first_gap: u64| {
        let mut scenario = busy_until_200();
        for round in 1..=3 {
            let at = round * 10_000;
            // Two intervals in one gap: `first_gap` and 2 ms.
            let opened = at - 2_010 - first_gap;
            gpu(0).kernel("forward").at(opened - 500).lasting(500).launched(&mut scenario, 1, opened - 510, 5);
            scenario.call(1, SHORT, opened - 5, 5);
            scenario.call(1, SHORT, opened + first_gap, 5);
            gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
        }
        scenario.leaves()[Leaf::DataLoading as usize] / 1_000
    };
    assert_eq!(program(1_000), 2_000);
    assert_eq!(program(1_001), 3_001);
    // An absence of 1 ms starts no pattern.
    let mut scenario = busy_until_200();
    for round in 1..=6 {
        let at = round * 1_105;
        gpu(0).h2d(MemoryKind::Pinned, 4_096).at(at).lasting(100).launched(&mut scenario, 1, at - 5, 5);
        scenario.call(1, SHORT, at + 95, 5);
    }
    assert_eq!(scenario.leaves()[Leaf::DataLoading as usize], 0);
}

#[test]
fn what_looks_saw_before_batches_says_nothing_of_gaps_before_kernels() {
    let mut rounds = Rounds::new();
    for _ in 0..3 {
        let at = rounds.at;
        rounds.batch();
        rounds.scenario.sample(1, at + 1_500, at + 4_500, waiting_in(ThreadState::Running), &[LOADER]);
    }
    assert!(rounds.loading(Rounds::batch) > 3_000, "no sample fell into it, but into all of its like");
    rounds.kernel();
    assert_eq!(rounds.loading(Rounds::kernel), 0);
}

#[test]
fn a_program_that_names_its_loader_loads_nowhere_else() {
    let program = |named: bool| {
        let mut rounds = Rounds::new();
        if named {
            let loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            rounds.scenario.range(1, 150, RangeEventKind::Push, loader, 0);
            rounds.scenario.range(1, 160, RangeEventKind::Pop, "", 0);
        }
        for _ in 0..6 {
            rounds.batch();
        }
        rounds.scenario.leaves()[Leaf::DataLoading as usize]
    };
    assert!(program(false) > 0);
    assert_eq!(program(true), 0);
}

#[test]
fn time_before_the_first_look_of_a_gap_is_charged_in_its_place() {
    // The thread waited 95 us for the first kernel. In the following gap of 5 ms, a sample covers the last 4
    // ms with the loader: the first millisecond is not loading, and includes the run-ahead that the wait
    // cost.
    let mut scenario = busy_until_200();
    scenario.call(1, WAIT, 105, 97);
    scenario.sample(1, 1_202, 5_202, waiting_in(ThreadState::Running), &[LOADER]);
    gpu(0).kernel("next").at(5_212).lasting(10).launched(&mut scenario, 1, 5_202, 10);
    let seen = idle(&scenario);
    let expected = [(Leaf::SyncDrain, 97), (Leaf::DataLoading, 4_000), (Leaf::HostCpu, 905), (Leaf::LaunchApi, 10)];
    for row in expected {
        assert!(seen.contains(&row), "{row:?}: {seen:?}");
    }
    assert_eq!(seen.len(), expected.len(), "{seen:?}");
}
