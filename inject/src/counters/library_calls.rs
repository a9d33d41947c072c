//! Keeps the program from exiting or forking while a thread of this library is inside NVIDIA's libraries.
//!
//! libcupti and libnvperf_host.so register destructors of objects on their first use.
//! - An exit first runs those that are newer than our own handler. They destroy objects that are still in use
//!   while a device is being opened, which takes 100 ms: of 100 programs that ended in this time, three crashed
//!   (H100, CUPTI 13.0).
//! - Registration takes a lock of the C library that a fork does not reset: a child that is forked meanwhile
//!   hangs as soon as it registers a destructor. PyTorch data loaders hung in three of 30 sampled runs.
//!
//! So both wait for the calls, for a bounded time. Calls on the program's own threads need none of this.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Maximum time to wait at the end of the program for the thread that reads counters: closing takes 50 ms per
/// device, and opening one, which may be in progress, 300 ms (H200), or longer on a busy machine. After that,
/// libraries are torn down under it.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which a thread checks that forks are over; a fork takes some 10 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

static CALLS: Mutex<()> = Mutex::new(());
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A thread of this library must hold the guard during calls that may register destructors.
pub fn enter() -> MutexGuard<'static, ()> {
    loop {
        let calls = CALLS.lock();
        if FORKS.load(Ordering::SeqCst) == 0 {
            return calls;
        }
        drop(calls);
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until no thread of this library is in such a call. If the wait times out, later waits return at once
/// until the hanging call has returned: a library that hangs must not delay each fork of the program.
pub fn wait_until_over() {
    static WAS_IN_VAIN: AtomicBool = AtomicBool::new(false);
    let timeout = if WAS_IN_VAIN.load(Ordering::Relaxed) { Duration::ZERO } else { STOP_TIMEOUT };
    WAS_IN_VAIN.store(CALLS.try_lock_for(timeout).is_none(), Ordering::Relaxed);
}

/// Called at the start of a fork, on the forking thread. New calls wait until [`fork_ends`].
pub fn fork_begins() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    wait_until_over();
}

/// Called at the end of a fork, in the parent.
pub fn fork_ends() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// Called at the end of a fork, in the child, which has no threads of this library.
pub fn forked() {
    FORKS.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};

    use super::*;

    #[test]
    fn forks_wait_for_calls_and_calls_for_forks() {
        let calls = enter();
        let (entered, has_entered) = channel();
        let (began, has_begun) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                fork_begins();
                began.send(()).unwrap();
            });
            while FORKS.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            drop(calls);
            has_begun.recv().unwrap();
            scope.spawn(|| {
                let _calls = enter();
                entered.send(()).unwrap();
            });
            thread::sleep(3 * POLL_INTERVAL);
            assert_eq!(has_entered.try_recv(), Err(TryRecvError::Empty));
            fork_ends();
            has_entered.recv().unwrap();
        });
    }
}
