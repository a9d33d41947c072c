//! What servers do between two iterations: waits for requests are no work, and the rest has a meaning.

use crate::support::{Scenario, gpu};
use gpuwhy_trace::record::{HostSample, MemoryKind, ThreadState};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::servers::Meaning;
use profiler_core::leaf::Leaf;

type Frames = [(&'static str, &'static str, u32)];

const WAIT: (&str, &str, u32) = ("/lib/python3.12/threading.py", "Condition.wait", 355);
const QUEUE: (&str, &str, u32) = ("/lib/python3.12/queue.py", "Queue.get", 180);
const EVENT: (&str, &str, u32) = ("/lib/python3.12/threading.py", "Event.wait", 655);
const ZMQ: (&str, &str, u32) = ("/v/site-packages/zmq/sugar/poll.py", "Poller.poll", 106);
const VLLM: (&str, &str, u32) =
    ("/v/site-packages/vllm/v1/engine/core.py", "EngineCoreProc._process_input_queue", 1280);
const SCHEDULE: (&str, &str, u32) = ("/v/site-packages/vllm/v1/core/sched/scheduler.py", "Scheduler.schedule", 400);
const SHARED: &str = "/v/site-packages/vllm/distributed/device_communicators/shm_broadcast.py";
const SGLANG: &str = "/v/site-packages/sglang/srt/managers/scheduler.py";
const CONTINUOUS: &str = "/v/site-packages/transformers/generation/continuous_batching/continuous_api.py";
const LOOP: (&str, &str, u32) = (CONTINUOUS, "ContinuousBatchingManager._generation_loop_body", 970);
const TENSORRT: &str = "/v/site-packages/tensorrt_llm/_torch/pyexecutor/executor_request_queue.py";
const TGI: (&str, &str, u32) = ("/usr/src/server/text_generation_server/server.py", "serve", 250);

/// A kernel of 100 us at each multiple of `period` us, launched by thread 1; `gaps` such periods.
fn iterations(gaps: u64, period: u64) -> Scenario {
    let mut scenario = Scenario::new();
    for at in 0..=gaps {
        let at = 1_000 + at * period;
        gpu(0).kernel("first").at(at).lasting(100).launched(&mut scenario, 1, at - 10, 5);
    }
    scenario
}

/// Samples of thread 1, each of the 2 ms before it, in one gap of 9.885 ms; by leaf, in microseconds.
fn gap(samples: &[(ThreadState, &Frames)]) -> Vec<(Leaf, u64)> {
    let mut scenario = iterations(1, 10_000);
    for (index, &(state, stack)) in samples.iter().enumerate() {
        let at = 1_100 + 2_000 * (index as u64 + 1);
        scenario.sample(1, at - 2_000, at, HostSample { state, ..HostSample::default() }, stack);
    }
    let leaves = scenario.leaves();
    let of = [Leaf::HostCpu, Leaf::HostBlocked, Leaf::DataLoading, Leaf::NoWork];
    of.into_iter().map(|leaf| (leaf, leaves[leaf as usize] / 1_000)).filter(|&(_, micros)| micros > 0).collect()
}

/// The same of one sample: the leaf of its 4 ms, before it and after it.
fn leaf(state: ThreadState, stack: &Frames) -> Leaf {
    let seen = gap(&[(state, stack)]);
    // The rest was not sampled.
    assert_eq!(seen.iter().map(|row| row.1).sum::<u64>(), 9_885 + 5, "{seen:?}");
    seen.into_iter().find(|row| (4_000..4_010).contains(&row.1)).map_or(Leaf::HostCpu, |row| row.0)
}

#[test]
fn a_server_asleep_until_a_request_comes_has_no_work() {
    use ThreadState::{Futex, Poll, Running};
    let event_loop = [
        ("/lib/python3.11/selectors.py", "EpollSelector.select", 468),
        ("/lib/python3.11/asyncio/base_events.py", "BaseEventLoop._run_once", 1898),
        ("/lib/python3.11/asyncio/runners.py", "run", 190),
        TGI,
    ];
    for (state, stack) in [
        (Futex, &[WAIT, QUEUE, VLLM][..]),
        (Futex, &[WAIT, EVENT, LOOP]),
        (Futex, &[WAIT, QUEUE, (TENSORRT, "ExecutorRequestQueue.get_from_request_queue", 180)]),
        (Poll, &[ZMQ, (SHARED, "SpinCondition.wait", 199), (SHARED, "MessageQueue.acquire_read", 700)]),
        (Poll, &event_loop),
        // Without the class in the name, as before Python 3.11.
        (Futex, &[WAIT, QUEUE, (VLLM.0, "_process_input_queue", 1280)]),
    ] {
        assert_eq!(leaf(state, stack), Leaf::NoWork, "{stack:?}");
        assert_eq!(leaf(Running, stack), Leaf::HostCpu, "awake: {stack:?}");
    }
}

#[test]
fn waits_of_others_stay_what_they_are() {
    use ThreadState::{Disk, Futex};
    let loader = ("/v/site-packages/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 9);
    let train = ("/home/u/train.py", "main", 42);
    assert_eq!(leaf(Futex, &[WAIT, QUEUE, loader, train]), Leaf::DataLoading);
    assert_eq!(leaf(Futex, &[WAIT, QUEUE, loader, LOOP]), Leaf::DataLoading);
    assert_eq!(leaf(Futex, &[WAIT, QUEUE, train]), Leaf::HostBlocked);
    // Below the loop, and not in a wait.
    assert_eq!(leaf(Futex, &[WAIT, ("/v/site-packages/tokenizers/a.py", "encode", 3), LOOP]), Leaf::HostBlocked);
    assert_eq!(leaf(Futex, &[VLLM]), Leaf::HostBlocked);
    assert_eq!(leaf(Disk, &[WAIT, QUEUE, VLLM]), Leaf::HostBlocked);
}

#[test]
fn a_scheduler_that_spins_has_no_work_until_a_request_comes() {
    use ThreadState::{Futex, Running};
    let idle = [("/v/sglang/srt/x.py", "check", 3), (SGLANG, "Scheduler.on_idle", 5241)];
    let receive = [(SGLANG, "Scheduler.ingest_requests", 2200)];
    let outputs = [(SGLANG, "Scheduler.process_batch_result", 5074)];
    let spin = [(SHARED, "SpinCondition.wait", 195), (SHARED, "MessageQueue.acquire_read", 700)];
    assert_eq!(leaf(Running, &idle), Leaf::NoWork);
    // The newest samples saw it receive a request; the first ones saw results of the iteration before.
    let rounds = [(Running, &outputs[..]), (Running, &receive), (Running, &idle), (Running, &receive)];
    assert_eq!(gap(&rounds), [(Leaf::HostCpu, 9_890 - 4_000), (Leaf::NoWork, 4_000)]);
    assert_eq!(gap(&rounds[..2]), [(Leaf::HostCpu, 9_890)], "nothing shows that it was idle");
    // A worker that still spins may wait for a slow scheduler; one that then sleeps did not.
    assert_eq!(leaf(Running, &spin), Leaf::HostCpu);
    let asleep = [&[ZMQ][..], &spin].concat();
    let seen = gap(&[(Running, &spin), (Running, &spin[1..]), (ThreadState::Poll, &asleep)]);
    assert_eq!(seen, [(Leaf::HostCpu, 9_890 - 8_000), (Leaf::NoWork, 8_000)]);
    // The scheduler's work after the wait is for the request that came.
    let seen = gap(&[(Futex, &[WAIT, QUEUE, VLLM]), (Running, &[SCHEDULE])]);
    assert_eq!(seen, [(Leaf::HostCpu, 9_890 - 2_000), (Leaf::NoWork, 2_000)]);
}

#[test]
fn the_report_divides_the_time_between_iterations_by_meaning() {
    let inputs = [("/v/site-packages/vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner._prepare_inputs", 1900)];
    let mut scenario = iterations(1_000, 10_000);
    // Half of the gaps have samples; what these saw stands for the others.
    for at in (0..1_000).step_by(2) {
        let at = 1_105 + at * 10_000;
        let mut look = |from: u64, to: u64, state, stack: &Frames| {
            scenario.sample(1, at + from, at + to, HostSample { state, ..HostSample::default() }, stack);
        };
        look(0, 3_000, ThreadState::Futex, &[WAIT, QUEUE, VLLM]);
        look(3_000, 8_000, ThreadState::Running, &[SCHEDULE]);
        look(8_000, 9_880, ThreadState::Running, &inputs);
    }
    let report = scenario.report();
    let (device, host) = (&report.devices[0], report.host.as_ref().unwrap());
    assert_eq!(host.between.server, Some("vLLM"));
    let share = |nanos: u64| nanos as f64 / 1e9 / 10.0;
    let rows: Vec<_> = host.between.rows.iter().map(|row| (row.meaning, share(row.total_ns))).collect();
    let expected = [(Meaning::Scheduler, 0.5), (Meaning::NoRequests, 0.3), (Meaning::Inputs, 0.188)];
    for (row, expected) in rows.iter().zip(expected) {
        assert!(row.0 == expected.0 && (row.1 - expected.1).abs() < 0.01, "{rows:?}");
    }
    for leaves in [&device.leaves, &device.steady_leaves] {
        let no_work = share(leaves[Leaf::NoWork as usize]);
        assert!((no_work - 0.3).abs() < 0.01, "{no_work}");
    }
    assert_eq!(device.leaves.iter().sum::<u64>(), device.window_ns);
    assert_eq!(report.bottleneck.cause, profiler_core::leaf::Cause::HostCpu);
    assert!(host.sampled_ns < host.outside_cuda_ns, "{host:?}");
}

/// A server of unknown code: before each of 100 iterations of 9 ms its thread waits for 6 ms in `stack`.
fn own_server(stack: &Frames, last: &str) -> Scenario {
    let mut scenario = Scenario::new();
    for iteration in 0..100 {
        let at = 1_000 + iteration * 15_000;
        let sequences = 8 + iteration % 3;
        let tokens = if iteration % 10 == 0 { 512 } else { sequences };
        for index in 0..2 {
            let at = at + index * 10;
            gpu(0).h2d(MemoryKind::Pinned, tokens * 4).at(at + 4).lasting(2).launched(&mut scenario, 1, at, 2);
        }
        for kernel in 0..60 {
            let at = at + 20 + kernel * 10;
            let name = if kernel == 59 { last } else { "gemm" };
            gpu(0).kernel(name).at(at + 140 * kernel).lasting(140).launched(&mut scenario, 1, at, 3);
        }
        gpu(0).d2h(MemoryKind::Pinned, sequences * 4).at(at + 8_990).lasting(2).launched(&mut scenario, 1, at + 700, 3);
        scenario.call(1, "cudaEventSynchronize_v3020", at + 710, 8_285);
        scenario.sample(
            1,
            at + 8_996,
            at + 14_996,
            HostSample { state: ThreadState::Futex, ..HostSample::default() },
            stack,
        );
    }
    scenario
}

#[test]
fn a_server_of_unknown_code_waits_for_requests_in_a_queue_from_its_first_iteration_on() {
    let queue = [WAIT, QUEUE, ("/home/u/server.py", "Engine.wait_for_requests", 120)];
    let event = [WAIT, EVENT, ("/home/u/server.py", "Engine.wait_for_requests", 120)];
    let threading = "/lib/python3.12/threading.py";
    let [inner, barrier] = ["Barrier._wait", "Barrier.wait"].map(|name| (threading, name, 740));
    let meet = [WAIT, (threading, "Condition.wait_for", 390), inner, barrier, queue[2]];
    let put = [WAIT, ("/lib/python3.12/queue.py", "Queue.put", 140), ("/home/u/server.py", "Engine.answer", 130)];
    let result = [WAIT, ("/lib/python3.12/concurrent/futures/_base.py", "Future.result", 451), put[2]];
    let adam = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<AdamFunctor>";
    for (stack, last, is_idle) in [
        (&queue[..], "gemm", true),
        (&event, "gemm", true),
        (&put, "gemm", false),
        (&result, "gemm", false),
        (&meet, "gemm", false),
        (&queue, adam, false),
    ] {
        let attributor = own_server(stack, last).run();
        let account = attributor.devices().next().unwrap();
        let leaves = account.leaves();
        assert_eq!(leaves.iter().sum::<u64>(), account.window_ns());
        // Without requests nothing would have hidden the wait for the iteration before, otherwise work would.
        let [drained, blocked, no_work] =
            [Leaf::SyncDrain, Leaf::HostBlocked, Leaf::NoWork].map(|leaf| leaves[leaf as usize] / 1_000_000);
        // What was waited for before the device served is moved; after the last iteration nothing comes.
        let (waited, other) = if is_idle { (no_work, drained + blocked) } else { (drained + blocked, no_work) };
        assert!((592..=594).contains(&waited) && other == 0, "{stack:?} {last}: {waited} {other}");
        for step in &account.steps().rows {
            assert_eq!(step.leaves.iter().sum::<u64>(), step.end.since(step.start));
        }
    }
    let report = own_server(&queue, "gemm").report();
    let host = report.host.unwrap();
    assert_eq!((host.between.server, host.between.rows[0].meaning), (None, Meaning::NoRequests));
    assert!(host.lines.iter().all(|row| row.cause == HostCause::NoRequests), "{:?}", host.lines);
}
