//! Asks the client for a buffer and looks at what comes.
//!
//! The real library trusts its client and crashes later. Here everything that would make it crash is a violation,
//! and the record is dropped instead.
#![expect(unsafe_code, reason = "calls the client's C function and takes over its memory")]

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use cupti_sys::abi::{BufferRequested, NULL_BUFFER_TOLERATED_SINCE};

use crate::border;
use crate::held::Held;
use crate::violation::{Rule, Violations};

/// How long a client is waited for that only has to keep up with real time. A client that has no buffer for so long
/// has stopped; the limit is there so that a test ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts: much less than a client needs for a buffer of records.
const PAUSE: Duration = Duration::from_micros(200);
/// What the documentation asks for: records are made of 8-byte words.
const ALIGNMENT: usize = 8;

/// Under which conditions a buffer is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The buffer that the library still holds.
    pub open: Option<&'a Held>,
    /// The client has promised zeroed memory.
    pub zeroed: bool,
    /// Version of the library that is played.
    pub version: u32,
    /// Ask again when the client has none.
    pub patient: bool,
}

/// A buffer, or `None` when the client has none or gives one that cannot be used.
pub fn request(requested: BufferRequested, terms: &Terms<'_>, violations: &Violations) -> Option<Held> {
    let begun = Instant::now();
    loop {
        let (mut address, mut size, mut most_records) = (ptr::null_mut(), 0, 0);
        border::in_callback("bufferRequested", || {
            // SAFETY: the client registered this function for this call; the pointers are to live locals.
            unsafe { requested(&raw mut address, &raw mut size, &raw mut most_records) };
        });
        if !address.is_null() && size > 0 {
            return take(address, size, most_records, terms, violations);
        }
        if terms.version < NULL_BUFFER_TOLERATED_SINCE {
            violations.note(Rule::NullBuffer, || format!("the library played is version {}", terms.version));
        }
        if !terms.patient || begun.elapsed() > PATIENCE {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

fn take(
    address: *mut u8,
    size: usize,
    most_records: usize,
    terms: &Terms<'_>,
    violations: &Violations,
) -> Option<Held> {
    if !address.addr().is_multiple_of(ALIGNMENT) {
        violations.note(Rule::MisalignedBuffer, || format!("{address:p}, {size} bytes"));
        return None;
    }
    if terms.open.is_some_and(|open| open.overlaps(address, size)) {
        violations.note(Rule::OverlappingBuffer, || format!("{address:p}, {size} bytes"));
        return None;
    }
    // SAFETY: by answering the request the client has lent `size` bytes at `address` until `bufferCompleted`.
    // Alignment was checked just now.
    Some(unsafe { Held::take(address, size, most_records, terms.zeroed, violations) })
}
