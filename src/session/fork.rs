//! The child of a fork: it has copies of locks that threads of its parent held, which nobody will release. So it is
//! told apart before a lock is waited for. CUDA does not survive a fork either.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that began to measure; 0 while none did.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process is the child of a fork of one that had begun to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

/// Makes this the process that measures.
///
/// # Errors
/// In the child of a fork of the one that does.
pub fn own() -> Result<(), Forked> {
    let _ = OWNER.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
    check()
}

/// Whether this process may wait for a lock of a process that measures.
///
/// # Errors
/// As [`own`].
pub fn check() -> Result<(), Forked> {
    match OWNER.load(Ordering::Relaxed) {
        0 => Ok(()),
        owner if owner == process::id() => Ok(()),
        _ => Err(Forked),
    }
}

/// Whether a process has begun to measure: this one, or that of which it is a child.
#[must_use]
pub fn is_owned() -> bool {
    OWNER.load(Ordering::Relaxed) != 0
}

/// A lock that is taken at once where it is free; it is waited for in the process that measures alone. Asking for the
/// process id takes longer than a free lock.
pub fn lock<T>(attempt: impl FnOnce() -> Option<T>, wait: impl FnOnce() -> T) -> Option<T> {
    attempt().or_else(|| (is_owned() && check().is_ok()).then(wait))
}
