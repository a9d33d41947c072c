//! Kernels that are built while the program runs: which time counts, and when it is the bottleneck.

use crate::support::{Scenario, assert_leaves, gpu};
use gpuwhy_report::run::{Bottleneck, Report};
use gpuwhy_trace::record::{HostSample, ThreadState};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::{KernelBuilds, Subject};
use profiler_core::leaf::{Cause, Leaf};
use proptest::prelude::*;

const LOAD: &str = "cuLibraryLoadData";
const GENERATE: (&str, &str, u32) = ("/home/u/generate.py", "main", 6);
const SDPA: (&str, &str, u32) =
    ("/lib/python3.12/site-packages/transformers/integrations/sdpa_attention.py", "sdpa_attention_forward", 96);
const LOADER: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 54);

/// A kernel until 200 us, a host gap, `function` from `at` for `lasting` us, and a kernel 10 us later.
fn after_call(function: &str, at: u64, lasting: u64) -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 190, 10);
    scenario.call(1, function, at, lasting);
    let launch = at + lasting + 10;
    gpu(0).kernel("first").at(launch + 5).lasting(50).launched(&mut scenario, 1, launch, 5);
    scenario
}

fn sample(state: ThreadState, on_cpu_us: u64) -> HostSample {
    HostSample { state, on_cpu: on_cpu_us * 1_000, ..HostSample::default() }
}

#[test]
fn work_that_ends_in_a_load_builds_kernels() {
    let rest = [(Leaf::Compute, 150), (Leaf::Dispatch, 10), (Leaf::LaunchApi, 5)];
    let built = after_call(LOAD, 5_200, 60);
    assert_leaves(&built.leaves(), &[&rest[..], &[(Leaf::KernelBuild, 5_060)]].concat());
    let builds = built.run().devices().next().unwrap().kernel_builds();
    assert_eq!((builds.count, builds.total_ns), (1, 5_060_000));
    // A kernel that is loaded when it is first launched: only the call.
    let loaded = after_call(LOAD, 290, 4_000);
    let leaves = [(Leaf::Compute, 150), (Leaf::Dispatch, 100), (Leaf::LaunchApi, 5), (Leaf::KernelBuild, 4_000)];
    assert_leaves(&loaded.leaves(), &leaves);
    assert_eq!(loaded.run().devices().next().unwrap().kernel_builds().count, 0);
    // A call that loads nothing.
    let other = after_call("cuLibraryGetKernel", 5_200, 60);
    assert_leaves(&other.leaves(), &[&rest[..], &[(Leaf::HostCpu, 5_000), (Leaf::RuntimeApi, 60)]].concat());
}

#[test]
fn samples_tell_building_from_sleeping_and_loading_data() {
    let of = |state, on_cpu, stack: &[(&str, &str, u32)]| {
        let mut scenario = after_call(LOAD, 5_200, 60);
        scenario.sample(1, 200, 5_190, sample(state, on_cpu), stack);
        let leaves = scenario.leaves();
        [Leaf::KernelBuild, Leaf::HostBlocked, Leaf::DataLoading].map(|leaf| leaves[leaf as usize] / 1_000)
    };
    assert_eq!(of(ThreadState::Running, 4_990, &[SDPA, GENERATE]), [5_060, 0, 0]);
    assert_eq!(of(ThreadState::Child, 0, &[GENERATE]), [5_060, 0, 0], "a compiler of its own");
    assert_eq!(of(ThreadState::Sleep, 0, &[GENERATE]), [60, 5_000, 0]);
    assert_eq!(of(ThreadState::Io, 0, &[GENERATE]), [60, 5_000, 0]);
    assert_eq!(of(ThreadState::Running, 4_990, &[LOADER, GENERATE]), [60, 0, 5_000]);
    // A compiler builds, whatever call comes next, and waits for its processes.
    const DYNAMO: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/_dynamo/convert_frame.py", "_compile", 700);
    for (state, on_cpu, kernels) in [(ThreadState::Running, 4_990, 5_000), (ThreadState::Futex, 0, 5_000)] {
        let mut scenario = after_call("cuLibraryGetKernel", 5_200, 60);
        scenario.sample(1, 200, 5_190, sample(state, on_cpu), &[DYNAMO, GENERATE]);
        let attributor = scenario.run();
        let account = attributor.devices().next().unwrap();
        assert_eq!(account.leaves()[Leaf::KernelBuild as usize] / 1_000, kernels);
        assert_eq!(account.kernel_builds().count, 1);
    }
    let mut scenario = after_call(LOAD, 5_200, 60);
    scenario.sample(1, 200, 5_190, sample(ThreadState::Running, 4_990), &[SDPA, GENERATE]);
    let attributor = scenario.run();
    let causes = attributor.devices().next().unwrap().causes(Leaf::KernelBuild);
    assert!(
        causes.iter().any(|(subject, _)| matches!(subject, Subject::Host(HostCause::KernelBuild, _))),
        "{causes:?}"
    );
}

/// The thread that launches after a gap of 5 ms waits without a Python stack, while thread 2 is in a compiler: as its
/// samples show every `samples` ms, or its ranges.
fn built_by_another_thread(samples: u64, range: Option<&str>) -> Scenario {
    const JAX: (&str, &str, u32) =
        ("/lib/python3.12/site-packages/jax/_src/compiler.py", "backend_compile_and_load", 395);
    let mut scenario = after_call("cuLibraryGetKernel", 5_200, 60);
    scenario.sample(1, 200, 5_190, sample(ThreadState::Futex, 0), &[]);
    for at in (200..6_000).step_by(1_000 * samples as usize) {
        scenario.sample(2, at, at + 1_000 * samples, sample(ThreadState::Futex, 0), &[JAX, GENERATE]);
    }
    if let Some(text) = range {
        scenario.pushed(2, 50, 6_000, text);
    }
    scenario
}

#[test]
fn threads_of_a_compiler_build_what_its_caller_waits_for() {
    let leaves = |scenario: &Scenario| {
        let leaves = scenario.leaves();
        [Leaf::KernelBuild, Leaf::HostBlocked].map(|leaf| leaves[leaf as usize] / 1_000)
    };
    assert_eq!(leaves(&built_by_another_thread(1, None)), [5_000, 0]);
    // One sample says nothing of the time before it, and none of another range.
    assert_eq!(leaves(&built_by_another_thread(10, None)), [0, 5_000]);
    assert_eq!(leaves(&built_by_another_thread(10, Some("XlaModule:#prefix=a#"))), [0, 5_000]);
    assert_eq!(leaves(&built_by_another_thread(10, Some("XlaCompile:#module=jit_score#"))), [5_000, 0]);
    // A thread with a line of its own is not the compiler's.
    let mut own = after_call("cuLibraryGetKernel", 5_200, 60);
    own.sample(1, 200, 5_190, sample(ThreadState::Futex, 0), &[GENERATE]);
    own.pushed(2, 50, 6_000, "XlaCompile:#module=jit_score#");
    assert_eq!(leaves(&own), [0, 5_000]);
}

/// `steps` steps of 10 ms: 100 kernels named `kernel`, and in each step for which `builds` is true 6 ms of work
/// that ends in a load.
fn program(steps: u64, kernel: &str, builds: impl Fn(u64) -> bool) -> Scenario {
    let mut scenario = Scenario::new();
    let mut at = 1_000;
    for step in 0..steps {
        if builds(step) {
            let since = at - 5;
            scenario.sample(1, since, at + 5_900, sample(ThreadState::Running, 5_905), &[SDPA, GENERATE]);
            scenario.call(1, LOAD, at + 6_000, 60);
            at += 6_070;
        }
        for _ in 0..100 {
            gpu(0).kernel(kernel).at(at + 10).lasting(30).launched(&mut scenario, 1, at, 5);
            at += 40;
        }
    }
    scenario
}

fn says(bottleneck: &Bottleneck, words: &str) -> bool {
    bottleneck.evidence.iter().any(|sentence| sentence.contains(words))
}

fn judged(scenario: &Scenario) -> (Report, KernelBuilds) {
    let report = scenario.report();
    let builds = report.devices[0].builds;
    (report, builds)
}

#[test]
fn building_in_each_step_is_the_bottleneck() {
    let (report, builds) = judged(&program(200, "cudnn_generated_sdpa_sm90_flash_fprop", |_| true));
    let bottleneck = &report.bottleneck;
    assert_eq!(bottleneck.cause, Cause::KernelBuild, "{}", report.summary());
    assert!((0.55..0.65).contains(&bottleneck.share), "{}", bottleneck.share);
    assert!(builds.last() && builds.later_count >= 90, "{builds:?}");
    assert!(says(bottleneck, &format!("Kernels were built {} times", builds.count)), "{:?}", bottleneck.evidence);
    assert!(says(bottleneck, "in a compiler or before cuLibraryLoadData"), "{:?}", bottleneck.evidence);
    assert!(says(
        bottleneck,
        "Building kernels at generate.py:6 (main), in transformers/integrations/sdpa_attention.py"
    ));
    assert!(bottleneck.recommendation.contains("enable_cudnn_sdp(False)"), "{}", bottleneck.recommendation);
    assert!(bottleneck.recommendation.contains("generate.py:6"), "{}", bottleneck.recommendation);
    // The library is named by kernels, not by the function alone.
    let (report, _) = judged(&program(200, "flash_fwd_kernel", |_| true));
    assert_eq!(report.bottleneck.cause, Cause::KernelBuild);
    assert!(!report.bottleneck.recommendation.contains("cudnn"), "{}", report.bottleneck.recommendation);
}

#[test]
fn builds_at_the_beginning_are_not_the_bottleneck() {
    // Where they take most of the time they are start-up.
    let (report, builds) = judged(&program(400, "kernel", |step| step < 150));
    assert_eq!(builds, KernelBuilds::default());
    assert_ne!(report.bottleneck.cause, Cause::KernelBuild, "{}", report.summary());
    let (report, builds) = judged(&program(400, "kernel", |step| step < 190 && step % 2 == 0));
    assert!(builds.count > 80 && !builds.last(), "{builds:?}");
    assert_ne!(report.bottleneck.cause, Cause::KernelBuild, "{}", report.summary());
    assert!(says(&report.bottleneck, "Building kernels took"), "{:?}", report.bottleneck.evidence);
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    work: u64,
    call: Option<u64>,
    loads: bool,
    state: Option<ThreadState>,
    kernel: u64,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let states = [ThreadState::Running, ThreadState::Sleep, ThreadState::Child, ThreadState::Futex];
    let piece = (1..8_000u64, prop::option::of(1..500u64), any::<bool>(), prop::option::of(0..4usize), 1..300u64);
    let piece = piece.prop_map(move |(work, call, loads, state, kernel)| Piece {
        work,
        call,
        loads,
        state: state.map(|state| states[state]),
        kernel,
    });
    prop::collection::vec(piece, 2..40)
}

/// Plays the pieces; `load` is the function that they call where they load kernels.
fn play(pieces: &[Piece], load: &str) -> Scenario {
    let mut scenario = Scenario::new();
    let mut at = 100;
    for piece in pieces {
        if let Some(state) = piece.state {
            let on_cpu = if state == ThreadState::Running { piece.work } else { 0 };
            scenario.sample(1, at, at + piece.work, sample(state, on_cpu), &[GENERATE]);
        }
        at += piece.work;
        if let Some(lasting) = piece.call {
            scenario.call(1, if piece.loads { load } else { "cuLibraryGetKernel" }, at, lasting);
            at += lasting + 1;
        }
        gpu(0).kernel("kernel").at(at + 8).lasting(piece.kernel).launched(&mut scenario, 1, at, 5);
        at += 6;
    }
    scenario
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Loads only rename time in which the host was late or in a call; each nanosecond keeps one cause.
    #[test]
    fn builds_take_time_of_the_host_only(pieces in pieces()) {
        let with = play(&pieces, LOAD).run();
        let account = with.devices().next().unwrap();
        prop_assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns());
        let mut leaves = [play(&pieces, LOAD).leaves(), play(&pieces, "cuLibraryGetKernel").leaves()];
        let host = [Leaf::HostCpu, Leaf::HostBlocked, Leaf::RuntimeApi, Leaf::KernelBuild];
        let sums = leaves.each_mut().map(|leaves| host.map(|leaf| std::mem::take(&mut leaves[leaf as usize])).iter().sum::<u64>());
        prop_assert_eq!(leaves[0], leaves[1]);
        prop_assert_eq!(sums[0], sums[1]);
        let builds = account.kernel_builds();
        prop_assert!(builds.total_ns <= account.leaves()[Leaf::KernelBuild as usize]);
        prop_assert!(builds.later_ns <= builds.total_ns && builds.later_count <= builds.count);
    }

    #[test]
    fn delivery_does_not_matter(pieces in pieces(), seed in 1..u64::MAX, period in 50..20_000u64) {
        let scenario = play(&pieces, LOAD);
        let of = |attributor: profiler_core::attribution::Attributor| {
            let account = attributor.devices().next().unwrap();
            (*account.leaves(), account.kernel_builds())
        };
        prop_assert_eq!(of(scenario.run_with(period, seed)), of(scenario.run_with(1_000_000, 0)));
    }
}
