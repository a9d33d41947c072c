//! Who held Python's interpreter lock while another thread waited for it.
//!
//! The sampler samples all its threads in one pass, so the samples of other threads in that pass show two
//! things: the line of the thread that held the lock, and whether a thread without a Python stack waited for
//! the lock or for work. Such a thread is PyTorch's backward thread, which has an interpreter state and is in
//! no Python function. It waits for work only while another thread that calls CUDA runs.
//!
//! A library releases the lock during its work, so threads that share it hold it for microseconds, and at most samples
//! it is on its way from one to the next. Then a thread in a futex waited for it too, if another one was there to take
//! it and the wait was short.

use std::collections::BTreeMap;
use std::mem;

use gpuwhy_trace::record::{HostSample, InterpreterLock, StackId, ThreadId, ThreadState};

use super::samples::HostSampleView;
use crate::attribution::stacks::{LineId, StackClass};

/// Longest time from a sample to that of the next thread in one pass of the sampler, nanoseconds: a thread takes 15 to
/// 50 us, and passes are at least 3 ms apart.
const PASS: u64 = 1_000_000;
/// Samples that wait for others of the same pass, at most: some seconds of them, until the next flush.
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

/// Who had the lock while a thread waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockHeldBy {
    /// A thread that was not sampled.
    Unknown,
    /// Nobody: it was on its way between threads that call CUDA.
    Nobody,
    /// This thread, at this line.
    Thread(LockHolder),
}

/// What the other threads that call CUDA did at the time of a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// None of them ran.
    pub(crate) idle: bool,
    /// One of them ran in a Python function, or waited there in a futex.
    pub(crate) contend: bool,
}

/// Samples until the others of their time are known, and what they show of the lock.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    waiting: Vec<(HostSample, StackClass)>,
    /// Samples of a thread that waited for the lock, by that thread and the holder.
    pairs: BTreeMap<(ThreadId, LockHeldBy), u64>,
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
        for group in order.chunk_by(|&a, &b| waiting[b].0.at.since(waiting[a].0.at) < PASS) {
            for &index in group {
                let (sample, class) = &waiting[index];
                let others = || group.iter().map(|&other| &waiting[other]).filter(|of| of.0.thread != sample.thread);
                let runs = |other: &HostSample| other.state == ThreadState::Running || holds(other);
                let working = || others().filter(|(other, _)| gives_work(other.thread));
                let idle = !working().any(|(other, _)| runs(other));
                let contend = working().any(|(other, class)| contends(other, *class));
                let view = HostSampleView::new(sample, *class, Others { idle, contend });
                if view.waits_for_interpreter() {
                    let holder = others().find(|(other, _)| holds(other));
                    let holder = match holder {
                        Some((other, class)) => {
                            LockHeldBy::Thread(LockHolder { thread: other.thread, line: class.line })
                        }
                        None if sample.interpreter_lock == InterpreterLock::Free => LockHeldBy::Nobody,
                        None => LockHeldBy::Unknown,
                    };
                    self.count((sample.thread, holder));
                }
                views[index] = Some((sample.thread, view));
            }
        }
        views.into_iter().flatten().collect()
    }

    fn count(&mut self, pair: (ThreadId, LockHeldBy)) {
        if self.pairs.len() < PAIR_LIMIT || self.pairs.contains_key(&pair) {
            *self.pairs.entry(pair).or_default() += 1;
        }
    }

    /// Number of samples of a thread that waited for the lock, with that thread and the holder.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (ThreadId, LockHeldBy, u64)> {
        self.pairs.iter().map(|(&(thread, holder), &samples)| (thread, holder, samples))
    }
}

fn holds(sample: &HostSample) -> bool {
    sample.interpreter_lock == InterpreterLock::ThisThread
}

/// True if a thread may wait for the interpreter's lock at any moment.
fn contends(sample: &HostSample, class: StackClass) -> bool {
    let state = matches!(sample.state, ThreadState::Running | ThreadState::Futex);
    state && sample.stack != StackId::NONE && !class.waits
}

/// True if a thread in a futex waited for the interpreter's lock.
pub(super) fn waits_for_lock(sample: &HostSample, class: StackClass, others: Others) -> bool {
    if sample.state != ThreadState::Futex {
        return false;
    }
    let in_python = sample.stack != StackId::NONE;
    match sample.interpreter_lock {
        InterpreterLock::OtherThread => {
            let asleep = sample.on_cpu == 0 && sample.at.since(sample.since) > ASLEEP;
            // A thread that takes a lock of the program waits for that lock, regardless of the interpreter.
            !asleep && if in_python { !class.waits } else { others.idle }
        }
        InterpreterLock::Free => in_python && !class.waits && sample.on_cpu > 0 && others.contend,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::host_cause::HostCause;
    use gpuwhy_trace::record::Timestamp;

    const PLAIN: StackClass = StackClass { stage: None, line: LineId::NONE, waits: false, builds: false, role: None };
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
        assert_eq!(cause_beside(&[sample(MAIN, 100 + PASS - 1, Running, ThisThread)]), HostCause::Lock, "in one pass");
        assert_eq!(cause_beside(&[sample(MAIN, 100 + PASS, Running, ThisThread)]), HostCause::InterpreterLock, "later");
        assert_eq!(cause_beside(&[sample(OTHER, 100, Running, ThisThread)]), HostCause::InterpreterLock, "no CUDA");
    }

    #[test]
    fn a_thread_that_waits_for_the_lock_wakes_again_and_again() {
        let time = Timestamp::from_nanos;
        let cause = |nanos: u64, on_cpu: u64| {
            let of = sample(MAIN, 100_000_000, ThreadState::Futex, InterpreterLock::OtherThread);
            let waits = HostSample { since: time(100_000_000 - nanos), on_cpu, stack: StackId(1), ..of };
            HostSampleView::new(&waits, PLAIN, Others { idle: true, contend: false }).split(1)[2].0
        };
        assert_eq!(cause(50_000_000, 0), HostCause::Lock);
        assert_eq!(cause(50_000_000, 200_000), HostCause::InterpreterLock);
        assert_eq!(cause(9_000_000, 0), HostCause::InterpreterLock);
    }

    #[test]
    fn a_lock_on_its_way_between_threads_in_python_is_waited_for() {
        use ThreadState::{Futex, Io, Running};
        let in_python =
            |thread, state, lock| HostSample { stack: StackId(1), on_cpu: 4, ..sample(thread, 100, state, lock) };
        let cause = |of: HostSample, other: HostSample| {
            let mut watch = LockWatch::default();
            watch.push(&of, PLAIN);
            watch.push(&other, PLAIN);
            let first = watch.take(|thread| thread != OTHER)[0].1;
            let cause = first.split(10)[2].0;
            let nobody = watch.pairs().all(|(_, holder, _)| holder == LockHeldBy::Nobody);
            assert!(nobody && (watch.pairs().count() > 0) == (cause == HostCause::InterpreterLock));
            cause
        };
        let free = InterpreterLock::Free;
        let waits = in_python(MAIN, Futex, free);
        for state in [Futex, Running] {
            assert_eq!(cause(waits, in_python(BACKWARD, state, free)), HostCause::InterpreterLock);
        }
        assert_eq!(cause(waits, in_python(BACKWARD, Io, free)), HostCause::Lock);
        assert_eq!(cause(waits, in_python(OTHER, Running, free)), HostCause::Lock, "it launches nothing");
        assert_eq!(cause(waits, sample(BACKWARD, 100, Running, free)), HostCause::Lock, "it is in no Python function");
        let long = HostSample { on_cpu: 0, ..waits };
        assert_eq!(cause(long, in_python(BACKWARD, Running, free)), HostCause::Lock, "it sleeps");
        assert_eq!(cause(sample(MAIN, 100, Futex, free), in_python(BACKWARD, Running, free)), HostCause::Lock);
    }

    #[test]
    fn the_holder_is_counted_for_each_thread_that_waits() {
        let mut watch = LockWatch::default();
        let class = |line| StackClass { line: LineId::of_index(line), ..PLAIN };
        for at in [PASS, 2 * PASS, 3 * PASS] {
            let with_stack = |of: HostSample| HostSample { stack: StackId(1), ..of };
            let waits = sample(MAIN, at, ThreadState::Futex, InterpreterLock::OtherThread);
            watch.push(&with_stack(waits), class(1));
            let holds = sample(OTHER, at, ThreadState::Running, InterpreterLock::ThisThread);
            if at < 3 * PASS {
                watch.push(&with_stack(holds), class(7));
            }
        }
        assert_eq!(watch.take(|thread| thread != OTHER).len(), 5);
        let holder = LockHolder { thread: OTHER, line: LineId::of_index(7) };
        assert_eq!(
            watch.pairs().collect::<Vec<_>>(),
            [(MAIN, LockHeldBy::Unknown, 1), (MAIN, LockHeldBy::Thread(holder), 2)]
        );
    }

    #[test]
    fn samples_keep_their_order() {
        let mut watch = LockWatch::default();
        for (thread, at) in [(MAIN, 3 * PASS), (MAIN, 5 * PASS), (BACKWARD, PASS), (BACKWARD, 5 * PASS)] {
            watch.push(&sample(thread, at, ThreadState::Sleep, InterpreterLock::Unknown), PLAIN);
        }
        assert_eq!(
            watch.take(|thread| thread != OTHER).iter().map(|&(thread, _)| thread).collect::<Vec<_>>(),
            [MAIN, MAIN, BACKWARD, BACKWARD]
        );
        assert!(watch.take(|thread| thread != OTHER).is_empty());
    }
}
