//! Stops the counter thread, and waits for its end.
//!
//! The flushing thread waits for it before the last mark, so that the last samples come before the mark. The
//! wait is bounded, since a driver that is shutting down may no longer respond.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// State shared by the two threads.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StopState {
    /// True once the thread has started its work.
    runs: bool,
    asked: bool,
    over: bool,
    /// True if a reading is to be made at once.
    reading: bool,
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

    /// Wakes the thread for a reading: what a call of the program has just changed shows only there.
    pub fn request_reading(&self) {
        self.state.lock().reading = true;
        self.changed.notify_all();
    }

    /// True if a reading was requested since the last call.
    pub fn takes_reading(&self) -> bool {
        std::mem::take(&mut self.state.lock().reading)
    }

    /// Sleeps for `time`, or until a reading is requested. Returns true if the thread is to end.
    pub fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.asked && !state.reading {
            let _ = self.changed.wait_for(&mut state, time);
        }
        state.asked
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
        assert!(!stop.wait(Duration::ZERO));
        assert!(!stop.stop(Duration::from_millis(1)));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(stop.wait(Duration::from_secs(60)));
                drop(over);
            });
            assert!(stop.stop(Duration::from_secs(60)));
        });
    }
}
