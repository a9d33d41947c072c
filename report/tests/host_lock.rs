//! The interpreter's lock: programs in which one thread holds it while others wait, as samples show them.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_trace::record::{HostSample, InterpreterLock, ThreadState};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;

const MAIN: u32 = 4;
const BACKWARD: u32 = 5;
const HOG: u32 = 9;

fn holds() -> HostSample {
    let (state, interpreter_lock) = (ThreadState::Running, InterpreterLock::ThisThread);
    HostSample { state, interpreter_lock, on_cpu: u64::MAX, ..HostSample::default() }
}

fn waits() -> HostSample {
    HostSample { state: ThreadState::Futex, interpreter_lock: InterpreterLock::OtherThread, ..HostSample::default() }
}

/// Microseconds of a step: each pass waits for the lock before it launches.
const WAIT: u64 = 8_000;
const PASS: u64 = 1_000;
const STEP: u64 = 2 * (WAIT + PASS);

/// A thread that holds the lock except while another one works, and a step whose two threads wait for it. The
/// holder is sampled if `hog`.
pub(crate) fn hogged(hog: bool) -> Report {
    let mut scenario = Scenario::new();
    let steps = 200;
    for step in 0..steps {
        for (thread, kernel, begin) in [(MAIN, "forward", WAIT), (BACKWARD, "backward", 2 * WAIT + PASS)] {
            for at in (begin..begin + PASS).step_by(50).map(|at| step * STEP + at) {
                gpu(0).kernel(kernel).at(at + 10).lasting(2).launched(&mut scenario, thread, at, 5);
            }
        }
    }
    let mut since = 0;
    for at in (1_700..steps * STEP).step_by(1_700) {
        let of_step = at % STEP;
        let (in_forward, in_backward) =
            ((WAIT..WAIT + PASS).contains(&of_step), (2 * WAIT + PASS..STEP).contains(&of_step));
        let main = [("/home/u/train.py", "train", 50)];
        let free = |of: HostSample| HostSample { interpreter_lock: InterpreterLock::Free, ..of };
        let sample = |works: bool| match (works, in_forward || in_backward) {
            (true, _) => free(holds()),
            (false, true) => free(waits()),
            (false, false) => waits(),
        };
        scenario.sample(MAIN, since, at, sample(in_forward), &main);
        // The thread of the backward pass runs no Python.
        scenario.sample(BACKWARD, since, at, sample(in_backward), &[]);
        if hog && !in_forward && !in_backward {
            scenario.sample(HOG, since, at, holds(), &[("/home/u/metrics.py", "count", 7)]);
        }
        since = at;
    }
    scenario.report()
}

#[test]
fn a_wait_for_the_lock_is_named_with_its_holder_and_its_gain() {
    let report = hogged(true);
    assert_eq!(report.bottleneck.cause, Cause::HostCpu);
    let host = report.host.as_ref().unwrap();
    let lock: f64 = host.lines.iter().filter(|row| row.cause == HostCause::InterpreterLock).map(|row| row.share).sum();
    // Both waits are for the lock, that of the thread without Python too.
    assert!((lock - 2.0 * WAIT as f64 / STEP as f64).abs() < 0.05, "{lock} {:#?}", host.lines);
    let holder = &host.lock_holders[0];
    assert_eq!((holder.file.as_str(), holder.line, holder.calls_cuda), ("/home/u/metrics.py", 7, false));
    assert!(holder.samples * 10 > host.lock_waits * 9, "{} of {}", holder.samples, host.lock_waits);
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("Waiting for the interpreter's lock (GIL)"), "{evidence}");
    assert!(evidence.contains("and 1 other place takes"), "{evidence}");
    assert!(evidence.contains("was held by thread 9 at metrics.py:7 (count) in 100 %"), "{evidence}");
    assert!(report.bottleneck.recommendation.contains("thread 9 at metrics.py:7 (count)"));
    let gain: f64 = evidence.split("without it about ").nth(1).unwrap().split('x').next().unwrap().parse().unwrap();
    assert!(gain > 6.0, "1.8x for the waits of the main thread alone: {evidence}");
}

#[test]
fn a_holder_without_samples_is_unknown() {
    let report = hogged(false);
    assert!(report.host.as_ref().unwrap().lock_holders.is_empty());
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("Which thread held the interpreter's lock (GIL) is unknown"), "{evidence}");
    assert!(report.bottleneck.recommendation.contains("other Python threads"));
}

/// Eight threads that launch in turns, each while it holds the lock.
pub(crate) fn taking_turns() -> Report {
    const THREADS: u64 = 8;
    const TURN: u64 = 40;
    let mut scenario = Scenario::new();
    let turns = 50_000;
    for turn in 0..turns {
        let (thread, at) = (10 + (turn % THREADS) as u32, turn * TURN);
        gpu(0).kernel("small").at(at + 8).lasting(2).launched(&mut scenario, thread, at, 5);
    }
    let mut since = 0;
    for at in (5_030..turns * TURN).step_by(5_030) {
        for thread in 0..THREADS {
            let sample = if at / TURN % THREADS == thread { holds() } else { waits() };
            scenario.sample(10 + thread as u32, since, at, sample, &[("/home/u/serve.py", "work", 20)]);
        }
        since = at;
    }
    scenario.report()
}

#[test]
fn threads_that_take_turns_with_the_lock_are_named_beside_the_launches() {
    let report = taking_turns();
    assert_eq!(report.bottleneck.cause, Cause::Launch);
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("waited for the interpreter's lock (GIL) 88 % of the time"), "{evidence}");
    assert!(report.bottleneck.recommendation.contains("one thread in each process"));
    let host = report.host.unwrap();
    assert_eq!(host.lock_holders.iter().map(|row| row.samples).sum::<u64>(), host.lock_waits);
    assert!(host.lock_holders.iter().all(|row| row.calls_cuda));
}
