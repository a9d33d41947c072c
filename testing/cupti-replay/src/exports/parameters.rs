//! Parameters that clients pass by address.

use std::ffi::{CStr, c_char};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use cupti_sys::CuptiResult;

use crate::counters::image::Data;
use crate::ffi;
use crate::player::Player;
use crate::violation::Rule;

/// True once the exit handlers of NVIDIA's metric libraries have run, which destroy their state.
static GONE: AtomicBool = AtomicBool::new(false);

extern "C" fn gone() {
    GONE.store(true, Ordering::Release);
}

/// Registers an exit handler at the first use, as NVIDIA's metric libraries do when they are loaded.
pub fn register_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: a plain function of a library that is never unloaded.
        let _ = unsafe { libc::atexit(gone) };
    });
}

/// True between the configuration of a sampler and its start. In this interval the real libraries register
/// destructors of objects as they first need them, under a lock of the C library that a fork does not reset.
static OPENING: AtomicBool = AtomicBool::new(false);

/// Marks the start of opening a sampler. Exit handlers registered earlier run after those of the libraries.
/// The child of a fork would wait forever for the lock, so here it ends with an error.
pub fn opening_begins() {
    static REGISTERED: Once = Once::new();
    extern "C" fn in_child() {
        if OPENING.load(Ordering::Acquire) {
            eprintln!("forked while a sampler was being opened");
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) };
        }
    }
    OPENING.store(true, Ordering::Release);
    REGISTERED.call_once(|| {
        // SAFETY: plain functions of a library that is never unloaded.
        unsafe {
            libc::atexit(gone);
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

/// Marks the end of opening a sampler, successful or not.
pub fn opening_ends() {
    OPENING.store(false, Ordering::Release);
}

/// Checks a struct: not NULL, and long enough for the fields that are used.
///
/// # Safety
/// `parameters` is NULL or the address of a struct that starts with its size.
pub unsafe fn checked<P>(
    player: &Player,
    function: &str,
    parameters: *mut P,
    size: usize,
) -> Result<&'static mut P, CuptiResult> {
    if let Some(callback) = ffi::callback_on_this_thread() {
        player.violations.note(Rule::CountersInCallback, || format!("{function}, from {callback}"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { checked_anywhere(parameters, size) }
}

/// Like [`checked`], for a function that may be called from inside a callback.
///
/// # Safety
/// As for [`checked`].
pub unsafe fn checked_anywhere<P>(parameters: *mut P, size: usize) -> Result<&'static mut P, CuptiResult> {
    if GONE.load(Ordering::Acquire) {
        // The real library reads freed memory here. No caller can handle an error any more.
        eprintln!("counters were used behind the exit handlers of the libraries of metrics");
        std::process::abort();
    }
    if parameters.is_null() {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    // SAFETY: every struct starts with its size, as guaranteed by the caller.
    if unsafe { parameters.cast::<usize>().read() } < size {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    // SAFETY: not NULL, long enough, and used only during the call.
    Ok(unsafe { &mut *parameters })
}

/// Bytes of a client.
///
/// # Safety
/// `size` bytes at `address` are readable during the call.
pub unsafe fn bytes(address: *const u8, size: usize) -> Result<&'static [u8], CuptiResult> {
    if address.is_null() {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(address, size) })
}

/// Names of a client.
///
/// # Safety
/// `names` points to `count` NUL-terminated texts.
pub unsafe fn names(names: *const *const c_char, count: usize) -> Result<Vec<String>, CuptiResult> {
    if names.is_null() || count == 0 {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    // SAFETY: guaranteed by the caller.
    let text = |index| unsafe { CStr::from_ptr(names.add(index).read()) }.to_string_lossy().into_owned();
    Ok((0..count).map(text).collect())
}

/// Stores counter data.
///
/// # Safety
/// `size` bytes at `address` are writable.
pub unsafe fn store(address: *mut u8, size: usize, data: &Data) {
    for (place, byte) in data.bytes().take(size).enumerate() {
        // SAFETY: within the size that the caller guarantees.
        unsafe { address.add(place).write(byte) };
    }
}
