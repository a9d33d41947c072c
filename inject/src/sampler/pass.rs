//! Repeated samples of one thread.
//!
//! A thread that sleeps and whose clock is unchanged is in the same place as before: only the clock is read,
//! and the next sample covers the complete sleep.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::{HostSample, InterpreterLock, ThreadId, ThreadState, Timestamp};
use host_sampler::children::{ChildCounts, Children};
use host_sampler::process::Process;
use host_sampler::python::{Bytecode, Frame, Lock, Miss, Python};
use host_sampler::thread::Thread;

use crate::sampler::native::{Moment, NativeFrames, NativeStackReader};
use crate::shared::samples::{QueuedSample, SampleBatch};
use crate::sys::perf::ThreadSamples;
use crate::sys::{clock, threads};

/// Reciprocal of the share of a core that the sampler may take.
const SHARE: u32 = 100;
/// Pause per child process after a scan of the children, which is only done while a launching thread waits. A
/// child takes some 10 microseconds: 0.4 % of a core for any number of children.
const CHILD_COUNTS_A_CHILD: Duration = Duration::from_micros(2_500);

/// Maximum number of threads that are sampled because they hold the interpreter's lock.
const MAX_HOLDERS: usize = 4;

/// A sleep is reported in pieces of this length, nanoseconds, so that it is known before it ends.
const PIECE: u64 = 50_000_000;

/// Data sources for samples, in addition to the threads themselves.
#[derive(Debug)]
pub struct Tools {
    pub(super) process: Process,
    pub(super) python: Option<Python>,
    pub(super) native: Option<NativeStackReader>,
    /// CPU time of native stacks at the last pause.
    pub(super) native_spent: Duration,
    pub(super) children: Children,
    pub(super) child_counts_due: Instant,
    /// Threads that held the interpreter's lock while a sampled one waited, since the threads were chosen.
    pub(super) holders: Vec<u32>,
}

impl Tools {
    /// Returns the pause after an amount of CPU time. Native stacks have a separate share, so that the
    /// symbols of a large library do not stop the rest; each then has half of the limit.
    pub fn pause(&mut self, spent: Duration) -> Duration {
        let Some(native) = &self.native else { return spent * SHARE };
        let native = native.spent();
        let other = spent.saturating_sub(native.saturating_sub(mem::replace(&mut self.native_spent, native)));
        other * (2 * SHARE)
    }

    /// Logs the results of native stacks.
    pub fn finish(&self) {
        if let Some(native) = &self.native {
            tracing::info!("{}", native.counts());
        }
    }
}

/// A thread and its last sample.
#[derive(Debug)]
pub struct WatchedThread {
    thread: u32,
    files: Thread,
    /// Its registers while it runs, if the system provides them.
    registers: Option<ThreadSamples>,
    last: Option<Last>,
    /// Name at the last read; `None` before the first.
    name: Option<String>,
}

/// The last sample.
#[derive(Debug)]
struct Last {
    newest: QueuedSample,
    /// Python part of the stack.
    python: Arc<[Frame]>,
    /// CPU time of the thread at the sample.
    on_cpu: Duration,
    /// Time that it had waited for a core, nanoseconds.
    runnable: u64,
    /// Last time at which it was found asleep in the same place.
    still: Timestamp,
}

impl WatchedThread {
    /// Creates a thread without samples.
    pub fn new(thread: u32, files: Thread, registers: Option<ThreadSamples>) -> Self {
        Self { thread, files, registers, last: None, name: None }
    }

    /// Kernel id of the thread.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// True if its name was read.
    pub fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// Reads its name. `None` if that has not changed since the last read, or the thread has ended.
    pub fn new_name(&mut self) -> Option<String> {
        let name = self.files.name().ok();
        let changed = name.clone().filter(|name| self.name.as_ref() != Some(name));
        self.name = Some(name.unwrap_or_default());
        changed
    }

    /// Samples the thread if it has moved. Returns `false` if it has ended. The time of a sample is that of its stack:
    /// that of an earlier moment would assign a short wait to the line after it.
    pub fn tick(&mut self, clock: impl Fn() -> Timestamp, tools: &mut Tools, batch: &mut SampleBatch) -> bool {
        let Some(on_cpu) = threads::thread_cpu_time(self.thread) else { return false };
        if let Some(last) = &mut self.last {
            if last.on_cpu == on_cpu && last.newest.sample.state != ThreadState::Running {
                let now = clock();
                last.still = now;
                if now.since(last.newest.sample.at) >= PIECE {
                    last.tell_sleep(batch);
                }
                return true;
            }
            last.tell_sleep(batch);
        }
        let (Ok(state), Ok(times)) = (self.files.state(), self.files.times()) else { return false };
        let (now, begun) = (clock(), Instant::now());
        let (mut seen, bytecode) = take_sample(self.thread, state, (now, begun), tools, batch);
        // The clock of a host that is played back may stand still, where the other one goes on.
        let now = seen.sample.at.min(clock());
        seen.sample.at = now;
        let python = match &self.last {
            Some(last) if last.python == seen.frames => Arc::clone(&last.python),
            _ => Arc::clone(&seen.frames),
        };
        // Without the Python part of a stack, its native functions cannot be assigned to the program's lines.
        if let (Some(native), Some(bytecode)) = (&mut tools.native, &bytecode) {
            let last = self.last.as_ref();
            let moment = Moment {
                thread: self.thread,
                state,
                on_cpu,
                python: &python,
                bytecode: bytecode.as_ref(),
                before: last.map(|last| (&*last.python, on_cpu.saturating_sub(last.on_cpu))),
            };
            match native.stack(&moment, &self.files, self.registers.as_mut()) {
                Some(NativeFrames::Merged(frames)) => seen.frames = frames.into(),
                Some(NativeFrames::Earlier(frames)) => seen.earlier = frames.into(),
                None => {}
            }
            if python.is_empty() {
                seen.sample.read_within = nanos(begun.elapsed());
            }
        }
        seen.sample.since = now;
        if let Some(last) = &self.last {
            seen.sample.since = last.newest.sample.at;
            seen.sample.on_cpu = clock::nanos(on_cpu.saturating_sub(last.on_cpu));
            seen.sample.runnable = times.runnable.saturating_sub(last.runnable);
            for (new, old) in [(&mut seen.frames, &last.newest.frames), (&mut seen.earlier, &last.newest.earlier)] {
                if new == old {
                    *new = Arc::clone(old);
                }
            }
            // If the clock was set back, there is no sample, only a new start.
            if seen.sample.since < now {
                batch.samples.push(seen.clone());
            }
        }
        self.last = Some(Last { newest: seen, python, on_cpu, runnable: times.runnable, still: now });
        true
    }
}

impl Last {
    /// Reports the sleep since the last sample, if there was one.
    fn tell_sleep(&mut self, batch: &mut SampleBatch) {
        let sample = &mut self.newest.sample;
        if self.still <= sample.at {
            return;
        }
        sample.since = sample.at;
        sample.at = self.still;
        // It has not run since the stack was read.
        sample.read_within = sample.read_within.min(1);
        (sample.on_cpu, sample.runnable) = (0, 0);
        (sample.children, sample.children_running, sample.children_in_io) = (0, 0, 0);
        batch.samples.push(self.newest.clone());
    }
}

/// A duration in nanoseconds, at least 1.
fn nanos(of: Duration) -> u32 {
    u32::try_from(of.as_nanos()).unwrap_or(u32::MAX).max(1)
}

/// Samples the current state of a thread, `now` by two clocks, and the bytecode of its innermost Python function.
/// `None` if its Python stack could not be read.
fn take_sample(
    thread: u32,
    state: ThreadState,
    (now, begun): (Timestamp, Instant),
    tools: &mut Tools,
    batch: &mut SampleBatch,
) -> (QueuedSample, Option<Option<Bytecode>>) {
    let mut bytecode = Some(None);
    let mut sample = HostSample { at: now, thread: ThreadId(thread), state, ..HostSample::default() };
    let mut frames: Arc<[Frame]> = Arc::new([]);
    match tools.python.as_mut().map(|python| python.sample(thread)) {
        Some(Ok(seen)) => {
            let (from, to) = seen.read;
            sample.at = Timestamp::from_nanos(now.nanos() + clock::nanos(from.saturating_duration_since(begun)));
            sample.read_within = nanos(to.saturating_duration_since(from));
            sample.interpreter_lock = match seen.lock {
                Lock::ThisThread => InterpreterLock::ThisThread,
                Lock::OtherThread => InterpreterLock::OtherThread,
                Lock::Free => InterpreterLock::Free,
            };
            sample.collecting_garbage = seen.is_collecting;
            if state == ThreadState::Futex
                && let Some(holder) = seen.holder
                && tools.holders.len() < MAX_HOLDERS
                && !tools.holders.contains(&holder)
            {
                tools.holders.push(holder);
            }
            frames = seen.frames.into();
            bytecode = Some(seen.bytecode);
        }
        Some(Err(Miss::Torn | Miss::Closed)) => {
            batch.failed += 1;
            bytecode = None;
        }
        Some(Err(Miss::NoPython)) | None => {}
    }
    if state != ThreadState::Running && Instant::now() >= tools.child_counts_due {
        let ChildCounts { all, running, in_io } = tools.children.child_counts();
        (sample.children, sample.children_running, sample.children_in_io) = (all, running, in_io);
        tools.child_counts_due = Instant::now() + CHILD_COUNTS_A_CHILD * all.max(1);
    }
    (QueuedSample { sample, frames, earlier: Arc::new([]) }, bytecode)
}
