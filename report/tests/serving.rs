//! Iterations of a server in the report.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_trace::record::{HostSample, MemoryKind, ThreadState};
use profiler_core::leaf::Cause;

/// A server whose iterations have these numbers of sequences, tokens, and microseconds between two kernels, of which it
/// computes for 10; 60 kernels each.
fn served(iterations: impl IntoIterator<Item = (u64, u64, u64)>) -> Scenario {
    let mut scenario = Scenario::new();
    let mut at = 1_000;
    for (sequences, tokens, period) in iterations {
        for bytes in [tokens * 4, tokens * 4, (sequences + 1) * 4] {
            gpu(0).h2d(MemoryKind::Pageable, bytes).at(at).lasting(1).launched(&mut scenario, 1, at - 5, 3);
            at += 10;
        }
        for _ in 0..60 {
            gpu(0).kernel("model").at(at).lasting(10).launched(&mut scenario, 1, at - 5, 3);
            at += period;
        }
        gpu(0).d2h(MemoryKind::Pageable, sequences * 4).at(at).lasting(1).launched(&mut scenario, 1, at - 5, 10);
        at += 20;
    }
    scenario
}

/// Three prompts, then 200 iterations that decode.
fn usual() -> impl Iterator<Item = (u64, u64, u64)> {
    (1..=3).map(|n| (4 * n, 500, 50)).chain((0..200).map(|_| (12, 12, 40)))
}

fn words(report: &Report) -> String {
    report.summary().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn kinds_tokens_and_bound_of_a_server() {
    let report = served(usual()).report();
    let serving = report.serving().unwrap();
    let kinds: Vec<_> = serving.kinds.iter().map(|of| (of.kind.name, of.kind.count, of.kind.tokens)).collect();
    assert_eq!(kinds, [("decode", 200, Some(2_400)), ("prefill or mixed", 3, Some(1_500))]);
    // 12 tokens in 60 * 40 + 50 us.
    let rate = serving.kinds[0].tokens_per_second.unwrap();
    assert!((rate / (12.0 / 2_450e-6) - 1.0).abs() < 0.01, "{rate}");
    let busy = serving.kinds[0].busy.unwrap();
    assert!((busy - 604.0 / 2_450.0).abs() < 0.01, "{busy}");
    // 8 tokens in a mean iteration of 3,050 us.
    let rate = serving.kinds[1].tokens_per_second.unwrap();
    assert!((rate / (8.0 / 3_050e-6) - 1.0).abs() < 0.01, "{rate}");
    let all = serving.tokens_per_second.unwrap();
    assert!((all / (2_424.0 / (200.0 * 2_450e-6 + 3.0 * 3_050e-6)) - 1.0).abs() < 0.01, "{all}");
    // 60 kernels of 10 us and four copies are left.
    let bound = serving.bound.unwrap();
    assert!(bound.low <= bound.value && bound.value <= bound.high && bound.now < bound.value, "{bound:?}");
    assert!((10_000.0..12.0 / 604e-6).contains(&bound.value), "{bound:?}");
    assert_eq!((serving.between.server, serving.no_requests_share), (None, None));
    let text = words(&report);
    assert!(text.contains("Server: 203 iterations, found by copies to the CPU. decode 200 p50 2.5 ms"), "{text}");
    assert!(text.contains("12 sequences 4898 tokens/s GPU busy 25 % prefill or mixed 3 p50 3.0 ms"), "{text}");
    assert!(text.contains("1500 tokens GPU busy 20 %"), "{text}");
    assert!(
        text.contains(
            "All iterations make 4900 tokens/s; if the GPU never waited, the same ones would make about 20000 ("
        ),
        "{text}"
    );
    assert!(text.contains("each iteration: ") && !text.contains("Steps: "), "{text}");
    assert!(!text.contains(".item()"), "its tokens must be read: {text}");
    let live = report.live_line();
    assert!(live.contains("decode 2.5 ms 4898 tokens/s | GPU busy 25 %"), "{live}");
    assert!(report.summary().lines().count() <= 24 && report.summary().lines().all(|line| line.len() <= 100));
}

#[test]
fn the_cause_of_slow_iterations_is_named() {
    // Between the kernels of every twelfth the CPU takes longer.
    let report = served((0..120).map(|n| (12, 12, if n % 12 == 5 { 400 } else { 15 })).chain([
        (12, 90, 15),
        (13, 90, 15),
        (14, 90, 15),
    ]))
    .report();
    let decode = &report.serving().unwrap().kinds[0];
    assert!(decode.slow_by.is_some_and(|(cause, share)| cause == Cause::HostCpu && share > 0.9), "{decode:?}");
    assert!(words(&report).contains("its slowest tenth is longer by "), "{report}");
    let few = served((0..40).map(|_| (8, 8, 40)).chain([(8, 90, 40), (9, 90, 40), (10, 90, 40)])).report();
    assert_eq!(few.serving().unwrap().kinds[0].slow_by, None);
}

#[test]
fn a_server_is_named_and_its_time_without_requests_counted() {
    const QUEUE: (&str, &str, u32) = ("/lib/python3.12/queue.py", "Queue.get", 180);
    const VLLM: (&str, &str, u32) =
        ("/v/site-packages/vllm/v1/engine/core.py", "EngineCoreProc._process_input_queue", 1280);
    // Each iteration is 60 ms, and the thread waits in the gaps of 1 ms.
    let mut scenario =
        served((0..40).map(|_| (8, 8, 1_000)).chain([(8, 100, 1_000), (9, 100, 1_000), (10, 100, 1_000)]));
    for at in (2_000..2_400_000).step_by(5_000) {
        let sample = HostSample { state: ThreadState::Futex, ..HostSample::default() };
        scenario.sample(1, at - 2_000, at, sample, &[QUEUE, VLLM]);
    }
    let report = scenario.report();
    let serving = report.serving().unwrap();
    assert_eq!(serving.between.server, Some("vLLM"));
    assert!(serving.no_requests_share.is_some_and(|share| share > 0.9), "{serving:?}");
    let text = words(&report);
    assert!(text.contains("Server: vLLM, 43 iterations"), "{text}");
    assert!(text.contains("No requests: 9"), "{text}");
}

#[test]
fn other_programs_do_not_serve() {
    // As many ids as results, but nothing decodes: embeddings.
    let report = served((0..40).map(|_| (8, 800, 40))).report();
    assert_eq!(report.serving(), None);
    assert!(!report.summary().contains("Server:"));
}
