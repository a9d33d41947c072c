//! A faulty disk for tests: preloaded (`LD_PRELOAD`), it intercepts `write` for files named `*.gpuwhy`.
//!
//! `FAULTY_DISK` is `full` (no space), `broken` (an I/O error), `limited` (the limit of the process for the
//! size of files, as of `ulimit -f`, is some bytes beyond the end of the trace) or `slow:MS` (each write takes this
//! long). With `FAULTY_DISK_FROM`, the fault begins when that file exists. All other writes are passed on: except by
//! `limited`, the program's own files and output are not affected.
#![expect(unsafe_code, reason = "stands before a function of the C library")]

use std::ffi::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Once, OnceLock};
use std::time::Duration;

enum Fault {
    Full,
    Broken,
    Limited,
    Slow(Duration),
}

fn fault() -> Option<&'static Fault> {
    static FAULT: OnceLock<Option<(Fault, Option<PathBuf>)>> = OnceLock::new();
    let read = || {
        let text = std::env::var("FAULTY_DISK").ok()?;
        let fault = match (text.as_str(), text.strip_prefix("slow:")) {
            ("full", _) => Fault::Full,
            ("broken", _) => Fault::Broken,
            ("limited", _) => Fault::Limited,
            (_, millis) => Fault::Slow(Duration::from_millis(millis?.parse().ok()?)),
        };
        Some((fault, std::env::var_os("FAULTY_DISK_FROM").map(PathBuf::from)))
    };
    let (fault, from) = FAULT.get_or_init(read).as_ref()?;
    from.as_ref().is_none_or(|file| file.exists()).then_some(fault)
}

fn is_trace(file: i32) -> bool {
    let name = std::fs::read_link(format!("/proc/self/fd/{file}"));
    name.is_ok_and(|name| name.as_os_str().as_bytes().ends_with(b".gpuwhy"))
}

/// Limits the size of files to that of this one now, and some bytes: the next write is cut short.
fn limit_size(file: i32) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let size = std::fs::metadata(format!("/proc/self/fd/{file}")).expect("the size of the trace").len();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid pointer for the duration of the call.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0, "reading the limit");
        limit.rlim_cur = size + 8;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0, "setting the limit");
    });
}

/// `write(2)`, unless a fault applies.
///
/// # Safety
/// `length` bytes at `bytes` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: i32, bytes: *const c_void, length: usize) -> isize {
    if let Some(fault) = fault()
        && is_trace(file)
    {
        let error = match fault {
            Fault::Full => Some(libc::ENOSPC),
            Fault::Broken => Some(libc::EIO),
            Fault::Limited => {
                limit_size(file);
                None
            }
            Fault::Slow(time) => {
                std::thread::sleep(*time);
                None
            }
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
