//! Writing to stderr without a signal and without waiting forever.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use super::signals::with_signals_blocked;

/// Bytes that a pipe takes in one piece, and never blocks on if `poll` reports it as writable. `PIPE_BUF` of
/// Linux.
const PIPE_BUF: usize = 4096;

/// Writes to stderr for at most `timeout`, on any thread of the program; the rest is discarded.
///
/// A pipe without a reader would send `SIGPIPE`, and a file at its size limit `SIGXFSZ`. Both would kill a
/// program that had no intention of writing there. They are blocked meanwhile, and consumed if this write
/// caused them.
pub fn write_stderr(bytes: &[u8], timeout: Duration) {
    with_signals_blocked(|| {
        // SAFETY: each call gets pointers to live locals of the type that it fills or reads, and `write` a
        // slice with the length that it is passed. A closed descriptor is an error code.
        unsafe {
            let mut ours = MaybeUninit::uninit();
            let mut pending = MaybeUninit::uninit();
            libc::sigemptyset(ours.as_mut_ptr());
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                libc::sigpending(pending.as_mut_ptr());
                if libc::sigismember(pending.as_ptr(), signal) == 0 {
                    libc::sigaddset(ours.as_mut_ptr(), signal);
                }
            }
            write_pieces(bytes, Instant::now() + timeout);
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            while libc::sigtimedwait(ours.as_ptr(), std::ptr::null_mut(), &raw const at_once) > 0 {}
        }
    });
}

fn write_pieces(mut bytes: &[u8], deadline: Instant) {
    while let Some(piece) = bytes.get(..bytes.len().min(PIPE_BUF)).filter(|piece| !piece.is_empty()) {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live element. The time is positive and signals are blocked, so this ends in time.
        let ready = unsafe { libc::poll(&raw mut stderr, 1, c_int::try_from(left).unwrap_or(c_int::MAX)) };
        if ready <= 0 {
            return;
        }
        // SAFETY: the slice is live and has this length.
        let written = unsafe { libc::write(libc::STDERR_FILENO, piece.as_ptr().cast(), piece.len()) };
        let retry = written < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        match usize::try_from(written) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            // A nonblocking descriptor that has room for less than a piece.
            Err(_) if retry && left > 0 => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}
