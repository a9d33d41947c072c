//! Actions of the client that the real library punishes with a crash, a deadlock or silent loss.
//!
//! A mistake for which CUPTI returns an error code is not a violation: the client sees the code. This module
//! lists what a client can do wrong without an error, so that a test fails instead of a training job.
//! Violations do not change what is played.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A rule of CUPTI that has no error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `cuptiActivityFlushAll` from inside a buffer or resource callback: the real library deadlocks.
    FlushInCallback,
    /// Two threads in `cuptiActivityFlushAll`: the real library deadlocks.
    ConcurrentFlush,
    /// A buffer whose address is not a multiple of 8: records are read and written as 8-byte words.
    MisalignedBuffer,
    /// A buffer into which not even one record fits: every record is dropped.
    SmallBuffer,
    /// A buffer that overlaps another one that the library still holds.
    OverlappingBuffer,
    /// The memory changed between `bufferRequested` and `bufferCompleted`: freed and reused, or written to.
    TouchedBuffer,
    /// The client guaranteed zeroed buffers (`ZEROED_OUT_ACTIVITY_BUFFER`) and provided one that is not.
    UnzeroedBuffer,
    /// A request got no buffer: CUPTI before 12.9 writes to address 0.
    NullBuffer,
    /// An attribute that only takes effect before the first buffer was set after it; the real library ignores
    /// it.
    LateAttribute,
    /// `cuptiActivityDisable` from inside a callback: the call waits for locks that the callback's thread may
    /// hold.
    DisableInCallback,
    /// `cuptiActivityDisable` of kernel records before CUDA 13.0 update 1, whose release notes list it as a deadlock.
    EarlyKernelDisable,
    /// `CUPTI_ACTIVITY_KIND_GRAPH_TRACE` enabled after CUDA started: the next launch of a graph that was instantiated
    /// before crashes (seen with CUPTI 13.0).
    LateGraphTrace,
    /// Records had to be written while no buffer callbacks were registered.
    NoCallbacks,
    /// A function of hardware counters from inside a callback: most take milliseconds, which would delay the
    /// program.
    CountersInCallback,
    /// A range profiler was disabled while a pass was open.
    OpenPass,
    /// Passes of one range measured different kernels: the values belong to neither.
    MixedPasses,
    /// A range profiler was given metrics other than those of its first configuration.
    SecondConfiguration,
    /// CUPTI was called in the child of a fork, where its threads do not exist and its locks may be held
    /// forever.
    CallAfterFork,
}

impl Rule {
    const fn text(self) -> &'static str {
        match self {
            Self::FlushInCallback => "cuptiActivityFlushAll called from inside a callback",
            Self::ConcurrentFlush => "cuptiActivityFlushAll called while another thread is in it",
            Self::MisalignedBuffer => "buffer not aligned to 8 bytes",
            Self::SmallBuffer => "buffer too small for a record",
            Self::OverlappingBuffer => "buffer overlaps one that the library still holds",
            Self::TouchedBuffer => "buffer changed while the library held it",
            Self::UnzeroedBuffer => "buffer not zeroed although the client promised it",
            Self::NullBuffer => "no buffer given, which crashes CUPTI before 12.9",
            Self::LateAttribute => "attribute set after the first buffer was requested",
            Self::DisableInCallback => "cuptiActivityDisable called from inside a callback",
            Self::EarlyKernelDisable => "kernel records disabled in a library that can deadlock on it",
            Self::LateGraphTrace => "graph records enabled where launches of older graphs crash",
            Self::NoCallbacks => "records to deliver but no buffer callbacks",
            Self::CountersInCallback => "counter function called from inside a callback",
            Self::OpenPass => "range profiler disabled while a pass was open",
            Self::MixedPasses => "passes of different kernels in one range",
            Self::SecondConfiguration => "range profiler configured for other metrics without being opened again",
            Self::CallAfterFork => "called in the child of a fork",
        }
    }
}

/// A violated rule, with the number of violations.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The violated rule.
    pub rule: Rule,
    /// Details of the first violation.
    pub detail: String,
    /// Number of violations.
    pub times: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule.text(), self.detail)?;
        if self.times > 1 {
            write!(f, " ({} times)", self.times)?;
        }
        Ok(())
    }
}

/// All violations, one entry for each rule.
#[derive(Debug, Default)]
pub struct Violations(Mutex<Vec<Violation>>);

impl Violations {
    /// Records a violation. The first detail of each rule is kept, the others are only counted.
    pub fn note(&self, rule: Rule, detail: impl FnOnce() -> String) {
        let mut list = self.lock();
        match list.iter_mut().find(|known| known.rule == rule) {
            Some(known) => known.times += 1,
            None => list.push(Violation { rule, detail: detail(), times: 1 }),
        }
    }

    /// Violations in order of first occurrence.
    #[must_use]
    pub fn list(&self) -> Vec<Violation> {
        self.lock().clone()
    }

    /// Usable even after a panic elsewhere: a list of texts has no invariant that a panic could break.
    fn lock(&self) -> MutexGuard<'_, Vec<Violation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
