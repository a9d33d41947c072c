//! While a thread of ours is in NVIDIA's libraries, the program neither exits nor forks.
//!
//! libcupti and libnvperf_host.so register destructors of objects as they first need them.
//! - An exit runs those that are younger than our own handler before it, and takes objects from under an opening that
//!   is under way: three of 100 programs crashed that ended in its 100 ms (H100, CUPTI 13.0).
//! - Registering takes a lock of the C library that a fork does not reset: a child that was forked meanwhile waits for
//!   ever as soon as it registers a destructor. Loaders of PyTorch hung in three of 30 runs that sampled.
//!
//! So both wait for the calls, for a bounded time. Calls on the program's own threads need none of this.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The thread that reads counters may take so long to end at the end of the program: closing takes 50 ms a device, and
/// opening one, which it may be at, 300 ms (H200), or longer on a busy machine. Past it, libraries go away under it.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a thread looks whether forks are over, which take some 10 ms.
const LOOK_EVERY: Duration = Duration::from_millis(1);

static CALLS: Mutex<()> = Mutex::new(());
static FORKS: AtomicU32 = AtomicU32::new(0);

/// To be held by a thread of ours during calls that may register destructors.
pub fn enter() -> MutexGuard<'static, ()> {
    loop {
        let calls = CALLS.lock();
        if FORKS.load(Ordering::SeqCst) == 0 {
            return calls;
        }
        drop(calls);
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits until no thread of ours is in such calls. Once that was in vain, it no longer waits until a call has returned:
/// a library that hangs must not hold up each fork of the program.
pub fn wait_until_over() {
    static WAS_IN_VAIN: AtomicBool = AtomicBool::new(false);
    let timeout = if WAS_IN_VAIN.load(Ordering::Relaxed) { Duration::ZERO } else { STOP_TIMEOUT };
    WAS_IN_VAIN.store(CALLS.try_lock_for(timeout).is_none(), Ordering::Relaxed);
}

/// A fork begins, on the thread that forks. New calls wait until [`fork_ends`].
pub fn fork_begins() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    wait_until_over();
}

/// It is over, in the parent.
pub fn fork_ends() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// It is over, in the child, which has none of our threads.
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
            thread::sleep(3 * LOOK_EVERY);
            assert_eq!(has_entered.try_recv(), Err(TryRecvError::Empty));
            fork_ends();
            has_entered.recv().unwrap();
        });
    }
}
