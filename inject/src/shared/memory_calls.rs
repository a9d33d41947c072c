//! Calls of the driver that take or give device memory: with the stack and the library of the calling thread.
//!
//! CUPTI calls at their start and end, on that thread. Only on request, and never at a launch. Memory that a program
//! takes in its steady part mostly comes from a cache of its framework, so these calls are rare; where they are not,
//! stacks end after a second in all.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cupti_sys::{MemoryCall, MemoryFunction};
use gpuwhy_trace::record::Timestamp;
use host_sampler::python::Frame;
use parking_lot::Mutex;

use super::callback_queue::CallbackQueue;
use super::stack_reader::StackReader;
use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::threads;

/// Library of a call whose stack was not read: another thread's was being read, or a limit was reached. The owner of
/// what it takes is unknown, while a call without a library belongs to its Python stack.
const UNKNOWN: &str = "?";

/// Maximum number of captures at the same time; a further one replaces the oldest.
const MOST_CAPTURES: usize = 64;
/// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`: the capture goes on.
const WRONG_THREAD: u32 = 908;
/// `CU_STREAM_PER_THREAD`, the highest handle of a default stream: each thread has its own.
const PER_THREAD: u64 = 2;

thread_local! {
    /// Start of the call that this thread is in; 0 outside.
    static START: Cell<u64> = const { Cell::new(0) };
}

/// A call on its way to the collector.
#[derive(Clone, Debug)]
pub struct QueuedCall {
    pub call: MemoryCall,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Kernel id of the calling thread.
    pub thread: u32,
    pub captures: bool,
    /// Its Python stack, innermost frame first; empty if unknown.
    pub frames: Arc<[Frame]>,
    /// File that called, if known; [`UNKNOWN`] if neither it nor a stack was read.
    pub library: Option<Arc<str>>,
}

/// Calls on their way from the callbacks to the collector.
#[derive(Debug)]
pub struct MemoryCalls {
    /// True if they are recorded. `Relaxed`: set before any callback is enabled.
    is_on: AtomicBool,
    reader: Mutex<StackReader>,
    /// Captures in progress: handle of the stream and thread that began. Another thread may end a relaxed one.
    captures: Mutex<Vec<(u64, u32)>>,
    waiting: CallbackQueue<QueuedCall>,
}

impl MemoryCalls {
    /// Creates an empty queue, which is off. Without `reads_stacks` calls have no Python stack.
    pub fn new(reads_stacks: bool) -> Self {
        let reader = Mutex::new(StackReader::new(reads_stacks));
        let captures = Mutex::new(Vec::with_capacity(MOST_CAPTURES));
        Self { is_on: AtomicBool::new(false), reader, captures, waiting: CallbackQueue::default() }
    }

    /// Records calls from now on. Takes milliseconds, once.
    pub fn switch_on(&self) {
        self.reader.lock().prepare();
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// This thread starts a call.
    pub fn begins(&self, now: impl Fn() -> Timestamp) {
        if self.is_on.load(Ordering::Relaxed) {
            START.set(now().nanos());
        }
    }

    /// This thread ends a call. Returns true if what it changed shows only in a reading of the device's memory.
    pub fn called(&self, call: MemoryCall, now: impl Fn() -> Timestamp) -> bool {
        use MemoryFunction as F;
        if !self.is_on.load(Ordering::Relaxed) {
            return false;
        }
        let (end, start) = (now(), START.take());
        let succeeded = call.result == 0;
        let thread = threads::thread_id();
        if matches!(call.function, F::BeginCapture | F::EndCapture) {
            self.capture(&call, thread);
            return false;
        }
        let start = if start == 0 { end } else { Timestamp::from_nanos(start) };
        let captures = self.captures.try_lock_for(CALLBACK_LOCK_TIMEOUT);
        let captures = captures.is_some_and(|captures| captures.iter().any(|&(_, by)| by == thread));
        let gives = matches!(
            call.function,
            F::Free | F::FreeAsync | F::Release | F::Map | F::Unmap | F::DestroyArray | F::UnloadModule | F::Pool
        );
        let mut queued = QueuedCall { call, start, end, thread, captures, frames: Arc::new([]), library: None };
        if !gives {
            if let Some(mut reader) = self.reader.try_lock() {
                queued.frames = reader.stack(thread).unwrap_or_else(|_| Arc::new([]));
                queued.library = reader.library();
            }
            if queued.library.is_none() && queued.frames.is_empty() {
                queued.library = Some(UNKNOWN.into());
            }
        }
        self.waiting.put(queued);
        succeeded && matches!(call.function, F::LoadModule | F::CreateContext | F::RetainContext | F::GraphMemory)
    }

    /// A capture begins or ends.
    fn capture(&self, call: &MemoryCall, thread: u32) {
        let (begins, stream) = (call.function == MemoryFunction::BeginCapture, call.handle);
        let changes = if begins { call.result == 0 } else { call.result != WRONG_THREAD };
        if changes && let Some(mut captures) = self.captures.try_lock_for(CALLBACK_LOCK_TIMEOUT) {
            captures.retain(|&(of, by)| of != stream || stream <= PER_THREAD && by != thread);
            if begins {
                if captures.len() >= MOST_CAPTURES {
                    captures.remove(0);
                }
                captures.push((stream, thread));
            }
        }
    }

    /// Takes the waiting calls, in the order in which they ended. Also takes note of files that were loaded, since the
    /// callbacks leave that to the collector.
    pub fn take(&self) -> Vec<QueuedCall> {
        if self.is_on.load(Ordering::Relaxed)
            && let Some(mut reader) = self.reader.try_lock()
        {
            reader.renew();
        }
        self.waiting.take()
    }

    /// Number of calls that were lost because too many waited.
    pub fn dropped(&self) -> u64 {
        self.waiting.dropped()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn call(function: MemoryFunction, result: u32) -> MemoryCall {
        MemoryCall { function, address: 0x1000, handle: 0, bytes: 7, result, device: None, context_id: 1 }
    }

    #[test]
    fn calls_are_kept_only_on_request_and_know_of_a_capture_on_their_thread() {
        use MemoryFunction as F;
        let calls = MemoryCalls::new(false);
        let now = || Timestamp::from_nanos(7);
        calls.begins(now);
        assert!(!calls.called(call(F::LoadModule, 0), now) && calls.take().is_empty(), "off");
        calls.switch_on();
        calls.begins(now);
        assert!(calls.called(call(F::LoadModule, 0), now), "asks for a reading");
        let asks = [(F::LoadModule, 2), (F::BeginCapture, 0), (F::Allocate, 0), (F::EndCapture, 0), (F::Free, 0)]
            .map(|(function, result)| calls.called(call(function, result), now));
        assert_eq!(asks, [false; 5]);
        let taken: Vec<_> = calls.take().into_iter().map(|queued| (queued.call.function, queued.captures)).collect();
        assert_eq!(taken, [(F::LoadModule, false), (F::LoadModule, false), (F::Allocate, true), (F::Free, false)]);
        assert_eq!(calls.dropped(), 0);
    }

    #[test]
    fn a_call_whose_stack_was_not_read_says_so() {
        let calls = MemoryCalls::new(false);
        calls.switch_on();
        let now = || Timestamp::from_nanos(7);
        let reading = calls.reader.lock();
        calls.called(call(MemoryFunction::Allocate, 0), now);
        calls.called(call(MemoryFunction::Free, 0), now);
        drop(reading);
        let libraries: Vec<_> = calls.take().into_iter().map(|queued| queued.library).collect();
        assert_eq!(libraries, [Some(UNKNOWN.into()), None], "nobody asks who gives memory back");
    }

    #[test]
    fn a_capture_ends_with_its_stream_whichever_thread_ends_it() {
        use MemoryFunction as F;
        let calls = MemoryCalls::new(false);
        calls.switch_on();
        let now = || Timestamp::from_nanos(7);
        let mark = |function, stream, result| {
            calls.called(MemoryCall { handle: stream, ..call(function, result) }, now);
        };
        let captures = || {
            calls.called(call(F::Free, 0), now);
            calls.take().iter().any(|queued| queued.captures)
        };
        mark(F::BeginCapture, 8, 1);
        assert!(!captures(), "refused");
        mark(F::BeginCapture, 8, 0);
        mark(F::BeginCapture, 9, 0);
        mark(F::EndCapture, 8, 0);
        assert!(captures(), "one of two has ended");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(!captures(), "another thread");
                mark(F::EndCapture, 9, WRONG_THREAD);
            });
            other.join().unwrap();
            assert!(captures(), "not its own");
            scope.spawn(|| mark(F::EndCapture, 9, 0)).join().unwrap();
        });
        assert!(!captures());
        (0..1000).for_each(|stream| mark(F::BeginCapture, stream, 0));
        assert_eq!(calls.captures.lock().len(), MOST_CAPTURES);
    }
}
