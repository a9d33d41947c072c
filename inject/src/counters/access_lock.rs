//! Exclusive access to the GPU counters: PM sampling and the range profiler exclude each other.
//!
//! Each user in this process first acquires access here, and then checks with CUPTI whether another tool has the
//! counters. Sampling has access whenever no other user needs it, and releases it on demand.

use std::time::{Duration, Instant};

use cupti_sys::counters::Counters;
use cupti_sys::counters::refusal::CounterError;
use parking_lot::{Condvar, Mutex};

/// Access to the counters of this process, for all devices together.
#[derive(Debug)]
pub struct AccessLock {
    state: Mutex<LockState>,
    /// Signals that the counters are free or requested.
    changed: Condvar,
}

#[derive(Debug)]
struct LockState {
    /// True if the counters are in use.
    is_taken: bool,
    /// Number of users that wait for sampling to release the counters.
    waiting: u32,
}

pub static COUNTER_ACCESS: AccessLock = AccessLock::new();

/// Exclusive access to the counters, until it is dropped.
#[derive(Debug)]
pub struct CounterAccess<'a>(&'a AccessLock);

impl Drop for CounterAccess<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.changed.notify_all();
    }
}

impl AccessLock {
    const fn new() -> Self {
        Self { state: Mutex::new(LockState { is_taken: false, waiting: 0 }), changed: Condvar::new() }
    }

    /// Acquires the counters for sampling, unless another user has or needs them.
    pub fn for_sampling(&self) -> Option<CounterAccess<'_>> {
        let mut state = self.state.lock();
        if state.is_taken || state.waiting > 0 {
            return None;
        }
        state.is_taken = true;
        Some(CounterAccess(self))
    }

    /// True if sampling has to release the counters.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Acquires the counters for a user other than sampling, which releases them. It blocks, so never call it
    /// in a CUPTI callback; `None` after the timeout.
    pub fn take(&self, timeout: Duration) -> Option<CounterAccess<'_>> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.is_taken && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        state.waiting -= 1;
        if state.is_taken {
            return None;
        }
        state.is_taken = true;
        Some(CounterAccess(self))
    }
}

impl CounterAccess<'_> {
    /// Checks with CUPTI that the counters of a device are free of other tools and processes, and permitted.
    /// Fails if they are not, or if CUPTI's profiler cannot be initialized.
    pub fn ask(&self, counters: &Counters, device: u32) -> Result<(), CounterError> {
        let asked = counters.initialize().and_then(|()| counters.sampling_availability(device));
        asked.map_err(|error| CounterError::of(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_has_the_counters_and_sampling_gives_way() {
        let access_lock = AccessLock::new();
        let sampling = access_lock.for_sampling().unwrap();
        assert!(access_lock.for_sampling().is_none() && !access_lock.is_wanted());
        assert!(access_lock.take(Duration::from_millis(1)).is_none(), "sampling did not give way");
        assert!(!access_lock.is_wanted(), "whoever went away wants nothing");
        thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let access = access_lock.take(Duration::from_secs(60));
                assert!(access_lock.for_sampling().is_none());
                access.is_some()
            });
            while !access_lock.is_wanted() {
                thread::yield_now();
            }
            drop(sampling);
            assert!(taker.join().unwrap());
        });
        assert!(access_lock.for_sampling().is_some(), "free again");
    }
}
