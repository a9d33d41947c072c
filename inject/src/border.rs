//! Every `unsafe` of this crate: the entry point that the driver calls, and three POSIX calls.
//!
//! Nothing may cross this border but plain returns: no panic, no `exit`, no signal handler.
#![expect(unsafe_code, reason = "the C border of the library")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log;
use crate::profiler;
use crate::settings::Settings;

/// The driver calls this during `cuInit`, on the thread that called it, when `CUDA_INJECTION64_PATH` names this
/// library. Always answers 1: whatever is wrong with us must not become the host's CUDA error.
// SAFETY: the name is the one that the driver looks up; in this process nothing of ours calls it.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        let (settings, bad) = Settings::from_env();
        log::set_level(settings.log);
        bad.iter().for_each(|bad| log::warning!("{bad}"));
        if let Err(error) = profiler::start(&settings) {
            log::error!("nothing is measured in this process: {error}");
        }
    });
    1
}

/// What the exit handler and the fork handler call. Set before they are registered.
static EXIT: OnceLock<fn()> = OnceLock::new();
static FORK: OnceLock<fn()> = OnceLock::new();

extern "C" fn on_exit() {
    if let Some(handler) = EXIT.get() {
        let _ = catch_unwind(handler);
    }
}

extern "C" fn on_fork_in_child() {
    if let Some(handler) = FORK.get() {
        let _ = catch_unwind(handler);
    }
}

/// Has `handler` called when the process exits normally.
pub fn at_exit(handler: fn()) {
    let _ = EXIT.set(handler);
    // SAFETY: `on_exit` is a plain function of a library that is never unloaded (linked with `-z nodelete`).
    if unsafe { libc::atexit(on_exit) } != 0 {
        log::warning!("no exit handler can be registered; the end of the trace will be missing");
    }
}

/// As [`at_exit`], but however often it is called, only once more.
pub fn at_exit_once(handler: fn()) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        at_exit(handler);
    }
}

/// Has `handler` called in the child of every fork.
pub fn at_fork(handler: fn()) {
    let _ = FORK.set(handler);
    // SAFETY: as above; the handler only stores one atomic, which is safe in the child of a threaded process.
    if unsafe { libc::pthread_atfork(None, None, Some(on_fork_in_child)) } != 0 {
        log::warning!("no fork handler can be registered");
    }
}

/// Runs `work` with all signals blocked on this thread, so that a thread started by it takes none of the host's.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are written by the calls before they are read; the mask is put back below.
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
