//! A faulty disk for tests: preloaded (`LD_PRELOAD`), it intercepts `write` for files named `*.gpuwhy`.
//!
//! `FAULTY_DISK` is `full:BYTES` (no space after this many bytes), `slow:MS` (each write takes this long) or
//! `broken` (an I/O error). All other writes are passed on: the program's own files and output are not
//! affected.
#![expect(unsafe_code, reason = "stands before a function of the C library")]

use std::ffi::c_void;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

enum Fault {
    Full(usize),
    Slow(Duration),
    Broken,
}

fn fault() -> Option<&'static Fault> {
    static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
    let read = || {
        let text = std::env::var("FAULTY_DISK").ok()?;
        match text.split_once(':') {
            Some(("full", bytes)) => Some(Fault::Full(bytes.parse().ok()?)),
            Some(("slow", millis)) => Some(Fault::Slow(Duration::from_millis(millis.parse().ok()?))),
            _ => (text == "broken").then_some(Fault::Broken),
        }
    };
    FAULT.get_or_init(read).as_ref()
}

fn is_trace(file: i32) -> bool {
    let name = std::fs::read_link(format!("/proc/self/fd/{file}"));
    name.is_ok_and(|name| name.as_os_str().as_bytes().ends_with(b".gpuwhy"))
}

/// `write(2)`, unless a fault applies.
///
/// # Safety
/// `length` bytes at `bytes` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: i32, bytes: *const c_void, length: usize) -> isize {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    if let Some(fault) = fault()
        && is_trace(file)
    {
        let error = match fault {
            Fault::Full(limit) => {
                (WRITTEN.fetch_add(length, Ordering::SeqCst) + length > *limit).then_some(libc::ENOSPC)
            }
            Fault::Slow(time) => {
                std::thread::sleep(*time);
                None
            }
            Fault::Broken => Some(libc::EIO),
        };
        if let Some(error) = error {
            // SAFETY: the address of this thread's own error number.
            unsafe { *libc::__errno_location() = error };
            return -1;
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { libc::syscall(libc::SYS_write, file, bytes, length) as isize }
}
