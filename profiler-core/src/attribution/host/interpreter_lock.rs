//! Who held Python's interpreter lock while another thread waited for it.
//!
//! The sampler samples all its threads at one time, so the samples of other threads at that time show two
//! things: the line of the thread that held the lock, and whether a thread without a Python stack waited for
//! the lock or for work. Such a thread is PyTorch's backward thread, which has an interpreter state and is in
//! no Python function. It waits for work only while another thread that calls CUDA runs.

use std::collections::BTreeMap;
use std::mem;

use gpuwhy_trace::record::{HostSample, InterpreterLock, StackId, ThreadId, ThreadState};

use super::samples::HostSampleView;
use super::stacks::{LineId, StackClass};

/// Samples that wait for others of the same time, at most: some seconds of them, until the next flush.
const WAITING_LIMIT: usize = 8_192;
/// Longest time without CPU time of a thread that waits for the lock: it wakes every 5 ms to request it
/// (`sys.setswitchinterval`).
const ASLEEP: u64 = 20_000_000;
/// Distinct pairs of a waiting thread and a holder (48 bytes each).
const PAIR_LIMIT: usize = 16_384;

/// A thread that held the lock, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockHolder {
    /// The thread.
    pub thread: ThreadId,
    /// Its line.
    pub line: LineId,
}

/// Samples until the others of their time are known, and what they show of the lock.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    waiting: Vec<(HostSample, StackClass)>,
    /// Samples of a thread that waited for the lock, by that thread and the holder; `None` if no sampled
    /// thread held it.
    pairs: BTreeMap<(ThreadId, Option<LockHolder>), u64>,
}

impl LockWatch {
    /// Adds a sample. True if the waiting ones should be taken.
    pub(crate) fn push(&mut self, sample: &HostSample, class: StackClass) -> bool {
        self.waiting.push((*sample, class));
        self.waiting.len() >= WAITING_LIMIT
    }

    /// The waiting samples in order of arrival. `gives_work`: whether a thread calls CUDA.
    pub(crate) fn take(&mut self, gives_work: impl Fn(ThreadId) -> bool) -> Vec<(ThreadId, HostSampleView)> {
        let waiting = mem::take(&mut self.waiting);
        let mut order: Vec<usize> = (0..waiting.len()).collect();
        order.sort_by_key(|&index| waiting[index].0.at);
        let mut views: Vec<Option<(ThreadId, HostSampleView)>> = vec![None; waiting.len()];
        for group in order.chunk_by(|&a, &b| waiting[a].0.at == waiting[b].0.at) {
            for &index in group {
                let (sample, class) = &waiting[index];
                let others = || group.iter().map(|&other| &waiting[other]).filter(|of| of.0.thread != sample.thread);
                let runs = |other: &HostSample| other.state == ThreadState::Running || holds(other);
                let idle = !others().any(|(other, _)| runs(other) && gives_work(other.thread));
                let view = HostSampleView::new(sample, *class, idle);
                if view.waits_for_interpreter() {
                    let holder = others().find(|(other, _)| holds(other));
                    let holder = holder.map(|(other, class)| LockHolder { thread: other.thread, line: class.line });
                    self.count((sample.thread, holder));
                }
                views[index] = Some((sample.thread, view));
            }
        }
        views.into_iter().flatten().collect()
    }

    fn count(&mut self, pair: (ThreadId, Option<LockHolder>)) {
        if self.pairs.len() < PAIR_LIMIT || self.pairs.contains_key(&pair) {
            *self.pairs.entry(pair).or_default() += 1;
        }
    }

    /// Number of samples of a thread that waited for the lock, with that thread and the holder.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (ThreadId, Option<LockHolder>, u64)> {
        self.pairs.iter().map(|(&(thread, holder), &samples)| (thread, holder, samples))
    }
}

fn holds(sample: &HostSample) -> bool {
    sample.interpreter_lock == InterpreterLock::ThisThread
}

/// True if a thread in a futex waited for the interpreter's lock. `idle`: no other thread
/// that calls CUDA ran.
pub(super) fn waits_for_lock(sample: &HostSample, class: StackClass, idle: bool) -> bool {
    let asleep = sample.on_cpu == 0 && sample.at.since(sample.since) > ASLEEP;
    let held = sample.state == ThreadState::Futex && sample.interpreter_lock == InterpreterLock::OtherThread && !asleep;
    // A thread that takes a lock of the program waits for that lock, regardless of the interpreter.
    held && if sample.stack == StackId::NONE { idle } else { !class.waits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::host_cause::HostCause;
    use gpuwhy_trace::record::Timestamp;

    const PLAIN: StackClass = StackClass { stage: None, line: LineId::NONE, waits: false };
    const MAIN: ThreadId = ThreadId(1);
    const BACKWARD: ThreadId = ThreadId(2);
    const OTHER: ThreadId = ThreadId(3);

    fn sample(thread: ThreadId, at: u64, state: ThreadState, interpreter_lock: InterpreterLock) -> HostSample {
        let (since, at) = (Timestamp::from_nanos(at - 10), Timestamp::from_nanos(at));
        HostSample { thread, since, at, state, interpreter_lock, stack: StackId::NONE, ..HostSample::default() }
    }

    /// Causes of the time off the cores of the backward thread, which waits while another thread has the lock.
    fn cause_beside(others: &[HostSample]) -> HostCause {
        let mut watch = LockWatch::default();
        watch.push(&sample(BACKWARD, 100, ThreadState::Futex, InterpreterLock::OtherThread), PLAIN);
        others.iter().for_each(|other| _ = watch.push(other, PLAIN));
        watch.take(|thread| thread != OTHER)[0].1.split(10)[2].0
    }

    #[test]
    fn a_thread_without_a_stack_waits_for_the_lock_only_while_no_other_one_runs() {
        use InterpreterLock::{Free, OtherThread, ThisThread};
        use ThreadState::{Futex, Running};
        assert_eq!(cause_beside(&[]), HostCause::InterpreterLock);
        assert_eq!(cause_beside(&[sample(MAIN, 100, Futex, OtherThread)]), HostCause::InterpreterLock);
        assert_eq!(cause_beside(&[sample(MAIN, 100, Running, ThisThread)]), HostCause::Lock, "it has no work yet");
        assert_eq!(cause_beside(&[sample(MAIN, 100, Running, Free)]), HostCause::Lock);
        assert_eq!(cause_beside(&[sample(MAIN, 101, Running, ThisThread)]), HostCause::InterpreterLock, "later");
        assert_eq!(cause_beside(&[sample(OTHER, 100, Running, ThisThread)]), HostCause::InterpreterLock, "no CUDA");
    }

    #[test]
    fn a_thread_that_waits_for_the_lock_wakes_again_and_again() {
        let time = Timestamp::from_nanos;
        let cause = |nanos: u64, on_cpu: u64| {
            let of = sample(MAIN, 100_000_000, ThreadState::Futex, InterpreterLock::OtherThread);
            let waits = HostSample { since: time(100_000_000 - nanos), on_cpu, stack: StackId(1), ..of };
            HostSampleView::new(&waits, PLAIN, true).split(1)[2].0
        };
        assert_eq!(cause(50_000_000, 0), HostCause::Lock);
        assert_eq!(cause(50_000_000, 200_000), HostCause::InterpreterLock);
        assert_eq!(cause(9_000_000, 0), HostCause::InterpreterLock);
    }

    #[test]
    fn the_holder_is_counted_for_each_thread_that_waits() {
        let mut watch = LockWatch::default();
        let class = |line| StackClass { line: LineId::of_index(line), ..PLAIN };
        for at in [100, 200, 300] {
            let with_stack = |of: HostSample| HostSample { stack: StackId(1), ..of };
            let waits = sample(MAIN, at, ThreadState::Futex, InterpreterLock::OtherThread);
            watch.push(&with_stack(waits), class(1));
            let holds = sample(OTHER, at, ThreadState::Running, InterpreterLock::ThisThread);
            if at < 300 {
                watch.push(&with_stack(holds), class(7));
            }
        }
        assert_eq!(watch.take(|thread| thread != OTHER).len(), 5);
        let holder = LockHolder { thread: OTHER, line: LineId::of_index(7) };
        assert_eq!(watch.pairs().collect::<Vec<_>>(), [(MAIN, None, 1), (MAIN, Some(holder), 2)]);
    }

    #[test]
    fn samples_keep_their_order() {
        let mut watch = LockWatch::default();
        for (thread, at) in [(MAIN, 30), (MAIN, 40), (BACKWARD, 20), (BACKWARD, 40)] {
            watch.push(&sample(thread, at, ThreadState::Sleep, InterpreterLock::Unknown), PLAIN);
        }
        assert_eq!(
            watch.take(|thread| thread != OTHER).iter().map(|&(thread, _)| thread).collect::<Vec<_>>(),
            [MAIN, MAIN, BACKWARD, BACKWARD]
        );
        assert!(watch.take(|thread| thread != OTHER).is_empty());
    }
}
