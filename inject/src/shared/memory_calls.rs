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
use crate::sys::threads;

/// Library of a call whose stack was not read: another thread's was being read, or a limit was reached. The owner of
/// what it takes is unknown, while a call without a library belongs to its Python stack.
const UNKNOWN: &str = "?";

thread_local! {
    /// Start of the call that this thread is in; 0 outside.
    static START: Cell<u64> = const { Cell::new(0) };
    /// True while this thread captures a CUDA graph.
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
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
    waiting: CallbackQueue<QueuedCall>,
}

impl MemoryCalls {
    /// Creates an empty queue, which is off. Without `reads_stacks` calls have no Python stack.
    pub fn new(reads_stacks: bool) -> Self {
        let reader = Mutex::new(StackReader::new(reads_stacks));
        Self { is_on: AtomicBool::new(false), reader, waiting: CallbackQueue::default() }
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
        match call.function {
            F::BeginCapture if succeeded => CAPTURES.set(true),
            F::EndCapture => CAPTURES.set(false),
            _ => {}
        }
        if matches!(call.function, F::BeginCapture | F::EndCapture) {
            return false;
        }
        let start = if start == 0 { end } else { Timestamp::from_nanos(start) };
        let thread = threads::thread_id();
        let gives = matches!(
            call.function,
            F::Free | F::FreeAsync | F::Release | F::Map | F::Unmap | F::DestroyArray | F::UnloadModule | F::Pool
        );
        let mut queued =
            QueuedCall { call, start, end, thread, captures: CAPTURES.get(), frames: Arc::new([]), library: None };
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
}
