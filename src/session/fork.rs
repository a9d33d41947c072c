//! Detects the child of a fork. A child has copies of locks that threads of its parent held. They are never
//! released, so the check comes before waiting for a lock. CUDA does not survive a fork either.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Id of the process that started measuring; 0 before that.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Error: this process was forked from one that had started measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

/// Makes this the measuring process.
///
/// # Errors
/// In a process forked from the measuring one.
pub fn own() -> Result<(), Forked> {
    let _ = OWNER.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
    check()
}

/// Checks that this process may wait for the measuring process's locks.
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

/// True if this process, or one that it was forked from, has started measuring.
#[must_use]
pub fn is_owned() -> bool {
    OWNER.load(Ordering::Relaxed) != 0
}

/// Acquires a lock if it is free; only the measuring process waits for it. Acquiring a free lock is faster than
/// getting the process id, so the attempt comes first.
pub fn lock<T>(attempt: impl FnOnce() -> Option<T>, wait: impl FnOnce() -> T) -> Option<T> {
    attempt().or_else(|| (is_owned() && check().is_ok()).then(wait))
}
