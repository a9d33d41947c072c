//! Checks the memory left for this library if the process's memory is limited (`ulimit -v`, `ulimit -d`).
//!
//! An allocation that fails on a thread of this library ends the program: the standard library aborts, and
//! stable Rust has no way around that. So if there is a limit, measuring does not start close to it, and
//! records are dropped and counted while the program comes close to it later. Without a limit there is no
//! check: the kernel then chooses the process that it ends.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that must be left at the start, for the program too: buffers and tables take up to 500 MB, and the
/// C library reserves 64 MiB of addresses per thread. CUDA itself takes many times that.
pub const TO_START: u64 = 1 << 30;
/// Memory that must be left to decode a buffer. The largest table that grows for its records doubles to 26
/// MB.
const TO_GO_ON: u64 = 64 << 20;

/// True if there was too little at the last check. `Relaxed`: seeing it a moment later is fine.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Bytes that the process may still allocate; `None` without a limit, or if the kernel does not report it.
pub fn left() -> Option<u64> {
    let [address_space, data] = memory_limits();
    if address_space.is_none() && data.is_none() {
        return None;
    }
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = |at| statm.split_ascii_whitespace().nth(at)?.parse::<u64>().ok();
    let left = |limit: Option<u64>, pages: Option<u64>| Some(limit?.saturating_sub(pages? * page_bytes()));
    // The first number is the address space, the sixth data and stack.
    [left(address_space, pages(0)), left(data, pages(5))].into_iter().flatten().min()
}

/// Checks whether there is too little for another buffer. From the collector.
pub fn check() -> bool {
    let short = left().is_some_and(|left| left < TO_GO_ON);
    SHORT.store(short, Ordering::Relaxed);
    short
}

/// True if there was too little at the last check. From any thread.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// Limits on this process's address space and on its data, bytes; `None` if unlimited.
pub fn memory_limits() -> [Option<u64>; 2] {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: writes to the struct, which is live, or returns an error.
        let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        Some(limit.rlim_cur).filter(|&bytes| known && bytes != libc::RLIM_INFINITY)
    })
}

pub fn page_bytes() -> u64 {
    // SAFETY: takes a number and returns one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
