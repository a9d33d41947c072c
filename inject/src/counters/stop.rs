//! How the thread of the counters is told to end, and says that it has.
//!
//! The flushing thread waits for it before the last mark, so that the last samples come before it; a bounded time, as a
//! driver that is going down may not answer any more.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Shared by the two threads.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The thread was given its work.
    runs: bool,
    asked: bool,
    over: bool,
}

/// Says that the thread is over, however it ended.
#[derive(Debug)]
pub struct Over<'a>(&'a Stop);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Stop {
    /// The thread begins its work; what this gives is dropped when it ends.
    pub fn begin(&self) -> Over<'_> {
        self.state.lock().runs = true;
        Over(self)
    }

    /// Sleeps for so long. Answers whether the thread is to end.
    pub fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.asked {
            let _ = self.changed.wait_for(&mut state, time);
        }
        state.asked
    }

    /// Asks the thread to end, and waits until it has, so long at most. Answers whether it has.
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
