//! Watches the range of the program that controls a capture.
//!
//! Called for every range that a program opens and closes, so while no range is requested it is one load of a
//! flag. The range is followed from its opening to the matching closing, by thread and depth or by its
//! number; others of the same name that open meanwhile do not count. A range that was open before CUDA
//! started has no recorded opening.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::capture::plan::CaptureEvent;
use crate::config::request::RangeName;
use crate::runtime::Profiler;
use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::threads;

/// True if a range is requested. `Acquire`/`Release`: a thread that sees it set sees the name.
static ARMED: AtomicBool = AtomicBool::new(false);
static WANTED: OnceLock<RangeName> = OnceLock::new();
/// The range that is open.
///
/// Threads of the program lock it, so with a timeout. A panic leaves it valid: it is one value.
static FOLLOWED: Mutex<Option<Followed>> = Mutex::new(None);
/// Number of ranges that opened or closed while the lock was not available. `Relaxed`: a statistic.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Properties by which the closing is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// Pushed by this thread in this domain, with this number of others on top.
    Pushed { thread: u32, domain: u32, above: u32 },
    /// Started with this number.
    Started { range: u64 },
}

/// Reports ranges with this name to the plan from now on.
pub fn arm(name: RangeName) {
    let _ = WANTED.set(name);
    ARMED.store(true, Ordering::Release);
}

/// True if the functions below are to be called.
#[inline]
pub fn is_armed() -> bool {
    ARMED.load(Ordering::Acquire)
}

/// Called before this thread pushes a range; `name` compares its message and domain.
pub fn pushing(domain: u32, name: impl FnOnce(&RangeName) -> bool) {
    let thread = threads::thread_id();
    tell_if(CaptureEvent::RangeOpened, |followed| match followed {
        Some(Followed::Pushed { thread: by, domain: within, above }) if (*by, *within) == (thread, domain) => {
            *above += 1;
            false
        }
        Some(_) => false,
        None => open(followed, Followed::Pushed { thread, domain, above: 0 }, name),
    });
}

/// Called after this thread has popped a range.
pub fn popped(domain: u32) {
    let thread = threads::thread_id();
    tell_if(CaptureEvent::RangeClosed, |followed| match followed {
        Some(Followed::Pushed { thread: by, domain: within, above }) if (*by, *within) == (thread, domain) => {
            let closed = *above == 0;
            *above = above.saturating_sub(1);
            if closed {
                *followed = None;
            }
            closed
        }
        _ => false,
    });
}

/// Called before a range with this number is started.
pub fn starting(range: u64, name: impl FnOnce(&RangeName) -> bool) {
    tell_if(CaptureEvent::RangeOpened, |followed| {
        followed.is_none() && open(followed, Followed::Started { range }, name)
    });
}

pub fn ended(range: u64) {
    tell_if(CaptureEvent::RangeClosed, |followed| {
        followed.take_if(|open| *open == Followed::Started { range }).is_some()
    });
}

/// Follows the range if it is the requested one.
fn open(followed: &mut Option<Followed>, range: Followed, name: impl FnOnce(&RangeName) -> bool) -> bool {
    let wanted = WANTED.get().is_some_and(name);
    if wanted {
        *followed = Some(range);
    }
    wanted
}

/// Reports `event` to the plan if `change` returns true; without the lock.
fn tell_if(event: CaptureEvent, change: impl FnOnce(&mut Option<Followed>) -> bool) {
    let Some(changed) = followed().map(|mut followed| change(&mut followed)) else { return };
    if changed && let Some(profiler) = Profiler::running() {
        profiler.controller().event(event);
    }
}

/// Locks, unless another thread has held the lock for too long.
fn followed() -> Option<MutexGuard<'static, Option<Followed>>> {
    let followed = FOLLOWED.try_lock_for(CALLBACK_LOCK_TIMEOUT);
    MISSED.fetch_add(u64::from(followed.is_none()), Ordering::Relaxed);
    followed
}

/// Returns and resets the number of missed ranges.
pub fn take_missed() -> u64 {
    MISSED.swap(0, Ordering::Relaxed)
}

/// Called in the child of a fork, where another thread of the parent may have held the lock: it is never
/// taken again.
pub fn disarm() {
    ARMED.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_lock_that_another_thread_holds_ends_the_wait_and_is_counted() {
        let held = FOLLOWED.lock();
        let begun = Instant::now();
        std::thread::scope(|scope| scope.spawn(|| ended(7)).join().unwrap());
        assert!(begun.elapsed() >= CALLBACK_LOCK_TIMEOUT);
        assert_eq!(take_missed(), 1);
        drop(held);
    }
}
