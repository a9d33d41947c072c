//! Native functions for the stacks of host samples: which registers, from where, and whether the result holds.

use std::fmt;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::ThreadState;
use host_sampler::native::merge::{Taken, merge, native_frames};
use host_sampler::native::{End, Native, NativeStack, Registers, StackCopy};
use host_sampler::python::{Bytecode, Frame};
use host_sampler::thread::Thread;

use crate::sys::perf::{self, ThreadSamples};
use crate::sys::threads;

/// Time on a core between two copies of the registers of a running thread, and the same while programs are monitored:
/// 200 and 50 a second. A copy took 30 to 80 us of the thread's time on a busy virtual machine of two cores, with any
/// size of the stack: what timers cost there.
const PERIOD: Duration = Duration::from_millis(5);
const MONITORING_PERIOD: Duration = Duration::from_millis(20);
/// A copy is merged with a Python stack that was taken at most this much later, in time on a core: a period, and half
/// of one for a timer that comes late.
const MERGED_AGE: Duration = Duration::from_micros(7_500);
/// DWARF number of the stack pointer on x86-64.
const SP: usize = 7;

/// Native stacks take one part in so many of the sampler's time on a core: half of its limit.
const SHARE: u32 = 200;
/// What they may take beyond that in all, for the symbols of the libraries that a program begins with: the largest have
/// hundreds of thousands.
const CREDIT: Duration = Duration::from_millis(250);

/// Holds native stacks to their share.
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
    /// Whether the system gives the registers of running threads.
    has_registers: bool,
    period: Duration,
    counts: Counts,
}

/// What native stacks came to, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// With native functions, down to Python or the thread's first one.
    pub whole: u64,
    /// With the innermost native functions.
    pub cut: u64,
    /// Without, because the thread went on while it was looked at; or alone, as the two stacks are of different
    /// moments.
    pub moved: u64,
    /// Without, because the system does not tell the thread's registers.
    pub unknown: u64,
    /// Without, because native stacks had taken their share of the time.
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

/// The native functions of a sample.
#[derive(Debug)]
pub enum NativeFrames {
    /// With the Python functions that called them.
    Merged(Vec<Frame>),
    /// Alone: they are of a moment before, and the thread was in other Python lines since.
    Earlier(Vec<Frame>),
}

/// A thread when it was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Its kernel id.
    pub thread: u32,
    /// What it was doing.
    pub state: ThreadState,
    /// Its clock before anything of it was read.
    pub on_cpu: Duration,
    /// Its Python stack.
    pub python: &'a [Frame],
    /// The bytecode of the innermost function of that.
    pub bytecode: Option<&'a Bytecode>,
    /// Its Python stack at the sample before, and how long it has been on a core since.
    pub before: Option<(&'a [Frame], Duration)>,
}

impl NativeStackReader {
    /// Finds out whether the system gives registers of running threads, and notes it if it does not. Where a filter of
    /// system calls might end the program for the question, it is asked only if native stacks were asked for.
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

    /// Begins to copy the registers of a thread while it runs, where the system allows that.
    pub fn start(&self, thread: u32) -> Option<ThreadSamples> {
        self.has_registers.then(|| ThreadSamples::start(thread, self.period).ok())?
    }

    /// What native stacks came to so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What they took so far, on the sampler's thread.
    pub fn spent(&self) -> Duration {
        self.budget.spent
    }

    /// The stack of a thread with its native functions, innermost first; `None` when there are none to add.
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
        // A thread whose clock stands still has not run since before its Python stack was read.
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
            // Of a moment since the last sample, so that none is taken twice.
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
