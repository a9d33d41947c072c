//! Lines of the launching threads, judged by constructed programs whose times are known.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{HostReport, LineRow};
use gpuwhy_trace::record::{HostSample, ThreadState};
use profiler_core::attribution::host_cause::HostCause;

/// The thread that steps, and the one that runs the backward pass.
const MAIN: u32 = 4;
const BACKWARD: u32 = 5;
/// Microseconds of a step: both threads launch every 50 us in between.
const SLEEP: u64 = 3_000;
const FORWARD: u64 = 1_000;
const BACKWARD_WORK: u64 = 300;
const BACKWARD_PASS: u64 = 2_000;
const OPTIMIZER_WORK: u64 = 200;
const OPTIMIZER: u64 = 300;

/// Parts of a step: the thread that works, what it does at which line, and for how long; kernels that it
/// launches meanwhile.
const PARTS: [(u32, ThreadState, u32, u64, &str); 6] = [
    (MAIN, ThreadState::Sleep, 79, SLEEP, ""),
    (MAIN, ThreadState::Running, 50, FORWARD, "forward"),
    (BACKWARD, ThreadState::Running, 0, BACKWARD_WORK, ""),
    (BACKWARD, ThreadState::Running, 0, BACKWARD_PASS, "backward"),
    (MAIN, ThreadState::Running, 61, OPTIMIZER_WORK, ""),
    (MAIN, ThreadState::Running, 62, OPTIMIZER, "optimizer"),
];
const STEP: u64 = SLEEP + FORWARD + BACKWARD_WORK + BACKWARD_PASS + OPTIMIZER_WORK + OPTIMIZER;
const STEPS: u64 = 3_000;

/// Time that a thread ran or slept up to `at`, in microseconds: a thread that does neither waits for the other.
fn passed(thread: u32, state: ThreadState, at: u64) -> u64 {
    let (steps, mut rest) = (at / STEP, at % STEP);
    let mut passed = 0;
    for (of, does, _, lasts, _) in PARTS {
        if (of, does) == (thread, state) {
            passed += steps * lasts + rest.min(lasts);
        }
        rest = rest.saturating_sub(lasts);
    }
    passed
}

/// State and line of a thread.
fn activity(thread: u32, at: u64) -> (ThreadState, u32) {
    let mut rest = at % STEP;
    for (of, state, line, lasts, _) in PARTS {
        if rest < lasts {
            return if of == thread { (state, line) } else { (ThreadState::Futex, 60) };
        }
        rest -= lasts;
    }
    unreachable!("a step has no more parts")
}

/// The program with a sample of each thread every `spacing` microseconds, as random as a scheduler.
fn report(spacing: u64) -> HostReport {
    let mut scenario = Scenario::new();
    let mut begin = 0;
    for _ in 0..STEPS {
        for (thread, _, _, lasts, kernel) in PARTS {
            for at in (begin..begin + lasts).step_by(50).filter(|_| !kernel.is_empty()) {
                gpu(0).kernel(kernel).at(at + 10).lasting(2).launched(&mut scenario, thread, at, 5);
            }
            begin += lasts;
        }
    }
    let mut state = spacing;
    for thread in [MAIN, BACKWARD] {
        let mut since = 0;
        while since < begin {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = since + spacing / 2 + (state >> 33) % spacing;
            let (does, line) = activity(thread, at);
            let ran = passed(thread, ThreadState::Running, at) - passed(thread, ThreadState::Running, since);
            let sample = HostSample { state: does, on_cpu: ran * 1_000, ..HostSample::default() };
            let stack = [("/home/u/train.py", "train", line)];
            // The backward thread runs no Python.
            let stack: &[_] = if thread == MAIN { &stack } else { &[] };
            scenario.sample(thread, since, at, sample, stack);
            since = at;
        }
    }
    scenario.report().host.unwrap()
}

fn share(host: &HostReport, of: impl Fn(&LineRow) -> bool) -> f64 {
    host.lines.iter().filter(|row| of(row)).map(|row| row.share).sum()
}

#[test]
fn a_line_has_its_share_for_every_spacing_of_the_samples() {
    let step = STEP as f64;
    for spacing in [5_000, 9_000, 17_000, 30_000] {
        let host = report(spacing);
        // The first launch after the sleep ends it, so the time up to it is part of it.
        let sleep = share(&host, |row| row.cause == HostCause::Sleep);
        assert!((sleep - SLEEP as f64 / step).abs() < 0.03, "{spacing}: {sleep} {:#?}", host.lines);
        let backward = share(&host, |row| row.file.is_empty() && row.cause == HostCause::Code);
        assert!((backward - BACKWARD_WORK as f64 / step).abs() < 0.03, "{spacing}: {backward}");
        let optimizer = share(&host, |row| row.line == 61);
        assert!((optimizer - OPTIMIZER_WORK as f64 / step).abs() < 0.03, "{spacing}: {optimizer}");
        // Each thread waits for the other half of the time, and no idle time is due to that.
        let waits = share(&host, |row| row.cause == HostCause::Lock);
        assert!(waits < 0.01, "{spacing}: {waits}");
        let inside = host.lines.iter().filter(|row| (row.share_low..=row.share_high).contains(&row.share));
        assert_eq!(inside.count(), host.lines.len());
    }
}
