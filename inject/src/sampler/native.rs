//! Native functions for the stacks of host samples: the source of the registers, and the validity of the
//! result.

use std::fmt;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::ThreadState;
use host_sampler::native::merge::{Taken, merge, native_frames};
use host_sampler::native::{End, Native, NativeStack, Registers, StackCopy};
use host_sampler::python::{Bytecode, Frame};
use host_sampler::thread::Thread;

use crate::sys::perf::{self, ThreadSamples};
use crate::sys::threads;

/// CPU time between two copies of the registers of a running thread, normally and while programs are
/// monitored: 200 and 50 a second. A copy took 30 to 80 us of the thread's time on a busy virtual machine
/// with two cores, for any stack size: the cost of a timer there.
const PERIOD: Duration = Duration::from_millis(5);
const MONITORING_PERIOD: Duration = Duration::from_millis(20);
/// A copy is merged with a Python stack that was taken at most this much later, in CPU time: one period, and
/// half of one for a late timer.
const MERGED_AGE: Duration = Duration::from_micros(7_500);
/// DWARF number of the stack pointer on x86-64.
const SP: usize = 7;

/// Reciprocal of the share of the sampler's CPU time for native stacks: half of its limit.
const SHARE: u32 = 200;
/// Total time that they may take beyond that, for the symbols of the libraries that a program starts with:
/// the largest have hundreds of thousands.
const CREDIT: Duration = Duration::from_millis(250);

/// Limits native stacks to their share.
#[derive(Debug)]
struct Budget {
    since: Option<Instant>,
    spent: Duration,
}

impl Budget {
    fn allows_more(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.spent.saturating_sub(CREDIT) * SHARE <= now.duration_since(since)
    }
}

#[derive(Debug)]
pub struct NativeStackReader {
    unwinder: Native,
    budget: Budget,
    /// True if the system provides the registers of running threads.
    has_registers: bool,
    period: Duration,
    counts: Counts,
}

/// Results of native stacks, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples with native functions, down to Python or to the thread's first function.
    pub whole: u64,
    /// Samples with only the innermost native functions.
    pub cut: u64,
    /// Samples without native functions because the thread ran while it was sampled; or with separate ones,
    /// because the two stacks are of different moments.
    pub moved: u64,
    /// Samples without native functions because the system does not provide the thread's registers.
    pub unknown: u64,
    /// Samples without native functions because native stacks had used their share of the time.
    pub spared: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, cut, moved, unknown, spared } = self;
        write!(
            f,
            "native stacks: {whole} samples with one, {cut} with the innermost part of one, {moved} of threads that had moved \
             on, {unknown} of threads whose registers are not known, {spared} left out to save time"
        )
    }
}

/// Native functions of a sample.
#[derive(Debug)]
pub enum NativeFrames {
    /// With the Python functions that called them.
    Merged(Vec<Frame>),
    /// Separate: they are from a moment before, and the thread was in other Python lines since.
    Earlier(Vec<Frame>),
}

/// State of a thread when it was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Kernel id of the thread.
    pub thread: u32,
    /// Activity of the thread.
    pub state: ThreadState,
    /// CPU time of the thread before anything else was read.
    pub on_cpu: Duration,
    /// Python stack.
    pub python: &'a [Frame],
    /// Bytecode of its innermost function.
    pub bytecode: Option<&'a Bytecode>,
    /// Python stack at the previous sample, and the CPU time since.
    pub before: Option<(&'a [Frame], Duration)>,
}

impl NativeStackReader {
    /// Tests whether the system provides registers of running threads, and notes if it does not. If a filter
    /// of system calls might end the program for the test, it is run only if native stacks were requested.
    pub fn new(unwinder: Native, monitors: bool, is_asked_for: bool) -> (Self, Option<String>) {
        let period = if monitors { MONITORING_PERIOD } else { PERIOD };
        if !is_asked_for && perf::calls_are_filtered() {
            let note = "native stacks of waiting threads only: a filter of system calls holds for this process, which might end it \
                        over perf events; GPUWHY_NATIVE_STACKS=auto tries them";
            return (Self::with(unwinder, period, false), Some(note.to_owned()));
        }
        let refused = ThreadSamples::start(0, period).err();
        let note = refused.as_ref().map(|error| {
            format!(
                "native stacks of waiting threads only: this system does not allow perf events ({error}), which give the registers \
                 of running threads; kernel.perf_event_paranoid=2 and, in a container, a seccomp profile with perf_event_open \
                 would allow them"
            )
        });
        (Self::with(unwinder, period, refused.is_none()), note)
    }

    fn with(unwinder: Native, period: Duration, has_registers: bool) -> Self {
        let budget = Budget { since: None, spent: Duration::ZERO };
        Self { unwinder, budget, has_registers, period, counts: Counts::default() }
    }

    /// Starts copying the registers of a thread while it runs, if the system allows that.
    pub fn start(&self, thread: u32) -> Option<ThreadSamples> {
        self.has_registers.then(|| ThreadSamples::start(thread, self.period).ok())?
    }

    /// Results up to now.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Time taken up to now, on the sampler's thread.
    pub fn spent(&self) -> Duration {
        self.budget.spent
    }

    /// Returns the stack of a thread with its native functions, innermost first; `None` if there are none to
    /// add.
    pub fn stack(
        &mut self,
        moment: &Moment<'_>,
        files: &Thread,
        registers: Option<&mut ThreadSamples>,
    ) -> Option<NativeFrames> {
        if !self.budget.allows_more(Instant::now()) {
            self.counts.spared += 1;
            return None;
        }
        let own = threads::thread_id();
        let before = threads::thread_cpu_time(own).unwrap_or_default();
        let stack = match moment.state {
            ThreadState::Running => self.running(moment, registers),
            _ => self.waiting(moment, files),
        };
        self.budget.spent += threads::thread_cpu_time(own).unwrap_or_default().saturating_sub(before);
        stack
    }

    fn waiting(&mut self, moment: &Moment<'_>, files: &Thread) -> Option<NativeFrames> {
        let Some((sp, pc)) = files.place() else {
            self.counts.unknown += 1;
            return None;
        };
        let stack = self.unwinder.waiting(sp, pc, !moment.python.is_empty());
        // A thread whose clock is unchanged has not run since before its Python stack was read.
        if threads::thread_cpu_time(moment.thread) != Some(moment.on_cpu) {
            self.counts.moved += 1;
            return None;
        }
        self.count(&stack, merge(&stack, moment.python, Taken::Together)).map(NativeFrames::Merged)
    }

    fn running(&mut self, moment: &Moment<'_>, registers: Option<&mut ThreadSamples>) -> Option<NativeFrames> {
        let newest = registers.and_then(|samples| samples.newest(moment.on_cpu));
        let Some(copied) = newest.filter(|copied| copied.age <= self.period.mul_f32(1.5)) else {
            self.counts.unknown += 1;
            return None;
        };
        let registers: Registers = copied.registers;
        let begin = registers.get(SP).unwrap_or(0);
        let copy = StackCopy { begin, bytes: copied.stack };
        let stack = self.unwinder.copied(registers, copy, !moment.python.is_empty());
        let before = moment.before.filter(|(_, ago)| copied.age <= *ago).map(|(frames, _)| frames);
        let taken = Taken::Earlier(moment.bytecode, before.unwrap_or_default());
        let merged = (copied.age <= MERGED_AGE).then(|| merge(&stack, moment.python, taken)).flatten();
        match self.count(&stack, merged) {
            Some(frames) => Some(NativeFrames::Merged(frames)),
            // Only from a moment since the last sample, so that none is used twice.
            None => before.map(|_| NativeFrames::Earlier(native_frames(&stack))),
        }
    }

    fn count(&mut self, stack: &NativeStack, merged: Option<Vec<Frame>>) -> Option<Vec<Frame>> {
        let counter = match (&merged, &stack.end) {
            (None, _) => &mut self.counts.moved,
            (Some(_), End::Cut(_)) => &mut self.counts.cut,
            (Some(_), _) => &mut self.counts.whole,
        };
        *counter += 1;
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_allowed_when_the_time_for_it_has_passed() {
        let begin = Instant::now();
        let mut budget = Budget { since: None, spent: Duration::ZERO };
        assert!(budget.allows_more(begin));
        budget.spent = CREDIT + Duration::from_millis(10);
        assert!(!budget.allows_more(begin + Duration::from_millis(1999)));
        assert!(budget.allows_more(begin + Duration::from_millis(2000)));
    }
}
