//! Stops the counter thread, and waits for its end.
//!
//! The flushing thread waits for it before the last mark, so that the last samples come before the mark. The
//! wait is bounded, since a driver that is shutting down may no longer respond.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// State shared by the two threads.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
    /// True if a reading is to be made at once. `Relaxed`, as the next one: seen a moment later is fine.
    reading: AtomicBool,
    /// True while requests for readings are ignored.
    ignores: AtomicBool,
}

/// Why [`Stop::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time is over.
    Due,
    /// A reading was requested.
    Reading,
    /// The thread is to end.
    End,
}

#[derive(Debug, Default)]
struct StopState {
    /// True once the thread has started its work.
    runs: bool,
    asked: bool,
    over: bool,
}

/// Marks the thread as ended when it is dropped, however the thread ended.
#[derive(Debug)]
pub struct Over<'a>(&'a Stop);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Stop {
    /// Called when the thread starts its work; the returned guard is dropped when it ends.
    pub fn begin(&self) -> Over<'_> {
        self.state.lock().runs = true;
        Over(self)
    }

    /// Wakes the thread for a reading: what a call of the program has just changed shows only there. Called in
    /// callbacks, so it never waits: if the lock is taken, the reading is made at the end of the pause.
    pub fn request_reading(&self) {
        if self.ignores.load(Ordering::Relaxed) || self.reading.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(_state) = self.state.try_lock() {
            self.changed.notify_all();
        }
    }

    /// Ignores requests from now on, or no longer.
    pub fn ignore_readings(&self, ignores: bool) {
        self.ignores.store(ignores, Ordering::Relaxed);
    }

    /// Sleeps for `time`, or until a reading is requested. Each request ends one sleep.
    pub fn wait(&self, time: Duration) -> Wake {
        let mut state = self.state.lock();
        if !state.asked && !self.reading.load(Ordering::Relaxed) {
            let _ = self.changed.wait_for(&mut state, time);
        }
        match (state.asked, self.reading.swap(false, Ordering::Relaxed)) {
            (true, _) => Wake::End,
            (false, true) => Wake::Reading,
            (false, false) => Wake::Due,
        }
    }

    /// True if the thread is to end.
    pub fn is_asked(&self) -> bool {
        self.state.lock().asked
    }

    /// Requests the thread to end, and waits for that, at most `timeout`. Returns true if it has ended.
    pub fn stop(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        state.asked = true;
        self.changed.notify_all();
        while state.runs && !state.over {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        !state.runs || state.over
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_is_waited_for_and_one_that_hangs_is_not() {
        let stop = Stop::default();
        assert!(stop.stop(Duration::ZERO), "nobody runs");
        let stop = Stop::default();
        let over = stop.begin();
        assert_eq!(stop.wait(Duration::ZERO), Wake::Due);
        assert!(!stop.stop(Duration::from_millis(1)));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(stop.wait(Duration::from_secs(60)), Wake::End);
                drop(over);
            });
            assert!(stop.stop(Duration::from_secs(60)));
        });
    }

    #[test]
    fn a_request_ends_one_sleep_and_never_waits() {
        let stop = Stop::default();
        let held = stop.state.lock();
        stop.request_reading();
        drop(held);
        assert_eq!(stop.wait(Duration::from_secs(60)), Wake::Reading);
        assert_eq!(stop.wait(Duration::ZERO), Wake::Due, "the request is over, whatever the thread did");
        stop.ignore_readings(true);
        stop.request_reading();
        assert_eq!(stop.wait(Duration::ZERO), Wake::Due);
        stop.ignore_readings(false);
        stop.request_reading();
        assert!(!stop.is_asked());
        assert_eq!(stop.wait(Duration::ZERO), Wake::Reading);
    }
}
