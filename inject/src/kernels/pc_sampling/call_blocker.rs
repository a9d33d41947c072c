//! Keeps threads of the program out of CUDA calls for a moment.
//!
//! CUPTI's functions of PC sampling take a lock of CUPTI and then one of the driver; a launch takes them in
//! the opposite order. So they are called only while no other thread is inside a call: all calls are counted
//! at their start and end, and calls that start while the call blocker is closed wait there, where they hold no lock
//! of the driver yet.

use std::cell::Cell;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Maximum wait of a call at the call blocker: CUPTI's functions take some 0.3 s once, in total. After that the call
/// continues, because a hanging program is worse.
const WAIT: Duration = Duration::from_secs(5);

pub static CALL_BLOCKER: CallBlocker = CallBlocker::new();

thread_local! {
    /// Number of nested calls that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug)]
pub struct CallBlocker {
    state: Mutex<BlockerState>,
    /// Signals that the call blocker was opened, or that a thread has left its call.
    changed: Condvar,
}

#[derive(Debug)]
struct BlockerState {
    /// Number of threads inside a call.
    inside: usize,
    is_closed: bool,
    /// Number of calls that continued after the maximum wait.
    passed: u64,
}

/// Keeps the call blocker closed, with no other thread inside a call, until it is dropped.
#[derive(Debug)]
pub struct Closed<'a>(&'a CallBlocker);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        self.0.open();
    }
}

impl CallBlocker {
    const fn new() -> Self {
        let state = BlockerState { inside: 0, is_closed: false, passed: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Called at the start of a call, on its thread. Waits while the call blocker is closed.
    pub fn enter(&self) {
        self.enter_within(WAIT);
    }

    fn enter_within(&self, wait: Duration) {
        let depth = DEPTH.get();
        DEPTH.set(depth.saturating_add(1));
        if depth > 0 {
            return;
        }
        let mut state = self.state.lock();
        if state.is_closed {
            let deadline = Instant::now() + wait;
            while state.is_closed && !self.changed.wait_until(&mut state, deadline).timed_out() {}
            state.passed += u64::from(state.is_closed);
        }
        state.inside += 1;
    }

    /// Called at the end of a call, on its thread. Has no effect if its start was not seen.
    pub fn leave(&self) {
        let depth = DEPTH.get();
        DEPTH.set(depth.saturating_sub(1));
        if depth == 1 {
            let mut state = self.state.lock();
            state.inside = state.inside.saturating_sub(1);
            let is_closed = state.is_closed;
            drop(state);
            if is_closed {
                self.changed.notify_all();
            }
        }
    }

    /// True if this thread is in exactly one call, without a nested one.
    pub fn is_outermost(&self) -> bool {
        DEPTH.get() == 1
    }

    /// Number of calls that continued although the call blocker was closed.
    pub fn passed(&self) -> u64 {
        self.state.lock().passed
    }

    /// Closes the call blocker, and waits until no other thread is inside a call; `None` if one still is after
    /// `patience`, or if another thread has closed it. This thread may be at the start of a call.
    pub fn close(&self, patience: Duration) -> Option<Closed<'_>> {
        let deadline = Instant::now() + patience;
        let own = usize::from(DEPTH.get() > 0);
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.is_closed = true;
        while state.inside > own && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        let is_empty = state.inside <= own;
        drop(state);
        if !is_empty {
            self.open();
            return None;
        }
        // Lets the calls pass that CUPTI makes in access on this thread.
        DEPTH.set(DEPTH.get().saturating_add(1));
        Some(Closed(self))
    }

    fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn inside(call_blocker: &CallBlocker) -> usize {
        call_blocker.state.lock().inside
    }

    #[test]
    fn the_call_blocker_closes_when_the_last_call_of_another_thread_has_ended() {
        let call_blocker = CallBlocker::new();
        let (tell, hear) = channel();
        let (go, end) = channel::<()>();
        let call_blocker = &call_blocker;
        thread::scope(|scope| {
            scope.spawn(move || {
                call_blocker.enter();
                call_blocker.enter();
                call_blocker.leave();
                tell.send(()).unwrap();
                end.recv().unwrap();
                call_blocker.leave();
            });
            hear.recv().unwrap();
            call_blocker.enter();
            assert!(call_blocker.is_outermost());
            assert!(call_blocker.close(Duration::from_millis(1)).is_none(), "the other thread is inside");
            // If closing the call blocker fails, it is open: no call waits at it.
            scope.spawn(|| {
                call_blocker.enter();
                call_blocker.leave();
            });
            go.send(()).unwrap();
            assert!(call_blocker.close(LONG).is_some());
            call_blocker.leave();
        });
        assert_eq!((inside(call_blocker), call_blocker.passed()), (0, 0));
    }

    #[test]
    fn calls_wait_in_front_of_a_closed_call_blocker_and_its_own_thread_passes() {
        let call_blocker = CallBlocker::new();
        call_blocker.enter();
        let closed = call_blocker.close(LONG).unwrap();
        assert!(call_blocker.close(LONG).is_none(), "closed once");
        call_blocker.enter();
        call_blocker.leave();
        let (tell, hear) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                call_blocker.enter();
                tell.send(()).unwrap();
                call_blocker.leave();
            });
            assert!(hear.recv_timeout(Duration::from_millis(50)).is_err(), "somebody has passed");
            drop(closed);
            hear.recv().unwrap();
        });
        call_blocker.leave();
        assert!(!call_blocker.is_outermost());
        assert_eq!((inside(&call_blocker), call_blocker.passed()), (0, 0));
    }

    #[test]
    fn nobody_waits_for_ever_and_who_went_on_is_counted() {
        let call_blocker = CallBlocker::new();
        let closed = call_blocker.close(LONG).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                call_blocker.enter_within(Duration::from_millis(1));
                call_blocker.leave();
            });
        });
        drop(closed);
        assert_eq!(call_blocker.passed(), 1);
        // The end of a call whose start was not seen.
        call_blocker.leave();
        assert!(call_blocker.close(LONG).is_some());
    }
}
