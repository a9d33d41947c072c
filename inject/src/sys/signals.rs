//! Blocking signals on a thread.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::mem::MaybeUninit;

/// Runs `work` with all signals blocked on this thread, so that a thread started by it receives none of the
/// program's.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are written by the calls before they are read; the mask is restored below.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = work();
    if blocked {
        // SAFETY: `before` was written by the successful call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
