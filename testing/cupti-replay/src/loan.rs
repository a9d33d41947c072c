//! A client's buffer while the library holds it: requesting, checking and filling it.
//!
//! The real library trusts its client and crashes later. Here everything that would make it crash is a
//! violation, and the record is dropped instead.
//!
//! Between `bufferRequested` and `bufferCompleted` the memory belongs to the library alone. A client that
//! frees it or writes to it corrupts records in a real run, far from the cause. Here everything written is
//! remembered and the rest is filled with a pattern, so that any change is detected when the buffer is
//! returned. The pattern stays after the valid part on purpose: a client that reads beyond `validSize` finds
//! kind 0xa5a5a5a5, not a convenient zero.
//!
//! A buffer that the client has unmapped causes the segmentation fault that it would cause in a real run.
#![expect(unsafe_code, reason = "calls the client's C function and uses memory that it gave away by pointer")]

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use cupti_sys::abi::{BufferRequested, NULL_BUFFER_TOLERATED_SINCE};

use crate::ffi;
use crate::violation::{Rule, Violations};

/// Fills the unwritten part. Not a kind, not a small number, not a valid pointer.
pub const POISON: u8 = 0xa5;

/// Size of the blocks for comparison: one `memcmp` each, so that debug builds stay fast.
const BLOCK: usize = 4096;
/// Maximum wait for a client that only has to keep up with real time. A client that has no buffer for this
/// long has stopped; the limit ensures that a test ends.
const BUFFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts: much less than a client needs for a buffer of records.
const RETRY_INTERVAL: Duration = Duration::from_micros(200);
/// Alignment that the documentation requires: records consist of 8-byte words.
const ALIGNMENT: usize = 8;

/// Conditions of a buffer request.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The buffer that the library still holds.
    pub open: Option<&'a Loan>,
    /// True if the client guarantees zeroed memory.
    pub zeroed: bool,
    /// Version of the library that is played.
    pub version: u32,
    /// True to request again if the client has none.
    pub patient: bool,
}

/// A buffer, or `None` if the client has none or returns one that cannot be used.
pub fn request(requested: BufferRequested, terms: &Terms<'_>, violations: &Violations) -> Option<Loan> {
    let begun = Instant::now();
    loop {
        let (mut address, mut size, mut most_records) = (ptr::null_mut(), 0, 0);
        ffi::in_callback("bufferRequested", || {
            // SAFETY: the client registered this function for this call; the pointers are to live locals.
            unsafe { requested(&raw mut address, &raw mut size, &raw mut most_records) };
        });
        if !address.is_null() && size > 0 {
            return take(address, size, most_records, terms, violations);
        }
        if terms.version < NULL_BUFFER_TOLERATED_SINCE {
            violations.note(Rule::NullBuffer, || format!("the library played is version {}", terms.version));
        }
        if !terms.patient || begun.elapsed() > BUFFER_TIMEOUT {
            return None;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

fn take(
    address: *mut u8,
    size: usize,
    most_records: usize,
    terms: &Terms<'_>,
    violations: &Violations,
) -> Option<Loan> {
    if !address.addr().is_multiple_of(ALIGNMENT) {
        violations.note(Rule::MisalignedBuffer, || format!("{address:p}, {size} bytes"));
        return None;
    }
    if terms.open.is_some_and(|open| open.overlaps(address, size)) {
        violations.note(Rule::OverlappingBuffer, || format!("{address:p}, {size} bytes"));
        return None;
    }
    // SAFETY: by its reply to the request the client has lent `size` bytes at `address` until
    // `bufferCompleted`. The alignment was checked just now.
    Some(unsafe { Loan::take(address, size, most_records, terms.zeroed, violations) })
}

/// Memory that the client lent and expects back.
#[derive(Debug)]
pub struct Loan {
    address: *mut u8,
    size: usize,
    most_records: usize,
    records: usize,
    /// Copy of everything written; its length is the valid size.
    written: Vec<u8>,
    filler: u8,
}

// SAFETY: between `bufferRequested` and `bufferCompleted` the memory belongs to the library, on any thread;
// `Loan` is its only owner and hands out no reference to it.
unsafe impl Send for Loan {}

impl Loan {
    /// Takes over `size` bytes at `address`. `most_records` limits the number of records; 0 means no limit.
    ///
    /// With `zeroed` the client guarantees zeroed memory: this is checked, and the memory stays as it is.
    ///
    /// # Safety
    /// `size` bytes at `address` are valid for reads and writes, and used by no other code until
    /// [`Loan::give_back`]: the contract of `bufferRequested`. `address` is a multiple of 8.
    pub unsafe fn take(
        address: *mut u8,
        size: usize,
        most_records: usize,
        zeroed: bool,
        violations: &Violations,
    ) -> Self {
        let filler = if zeroed { 0 } else { POISON };
        let loan = Self { address, size, most_records, records: 0, written: Vec::new(), filler };
        if zeroed {
            if let Some(at) = loan.first_change() {
                violations.note(Rule::UnzeroedBuffer, || format!("byte {at} of {size} is not 0"));
                // SAFETY: the caller guarantees `size` bytes at `address`.
                unsafe { address.write_bytes(0, size) };
            }
        } else {
            // SAFETY: as above.
            unsafe { address.write_bytes(POISON, size) };
        }
        loan
    }

    /// True if another record of `length` bytes fits.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        let room = self.size - self.written.len();
        length <= room && (self.most_records == 0 || self.records < self.most_records)
    }

    /// True if no record was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// True if the memory overlaps `size` bytes at `address`.
    #[must_use]
    pub fn overlaps(&self, address: *const u8, size: usize) -> bool {
        let (ours, theirs) = (self.address as usize, address as usize);
        ours < theirs.saturating_add(size) && theirs < ours + self.size
    }

    /// Appends a record. Returns false, and writes no byte, if it does not fit.
    pub fn write(&mut self, record: &[u8]) -> bool {
        if !self.has_room(record.len()) {
            return false;
        }
        // SAFETY: `has_room` ensures that the record ends within the `size` bytes that are ours until
        // returned; the source is ordinary memory of this library, which no client buffer overlaps.
        unsafe {
            self.address.add(self.written.len()).copy_from_nonoverlapping(record.as_ptr(), record.len());
        }
        self.written.extend_from_slice(record);
        self.records += 1;
        true
    }

    /// Ends the ownership: address, size and valid size for `bufferCompleted`.
    pub fn give_back(self, violations: &Violations) -> (*mut u8, usize, usize) {
        if let Some(at) = self.first_change() {
            violations.note(Rule::TouchedBuffer, || {
                let valid = self.written.len();
                format!("byte {at} of {} (valid up to {valid})", self.size)
            });
        }
        (self.address, self.size, self.written.len())
    }

    /// Offset of the first byte that the client has changed.
    fn first_change(&self) -> Option<usize> {
        // SAFETY: `size` bytes are readable and not written to while held, see `take`. If the client breaks
        // that contract the comparison may see torn bytes, which is what it is meant to detect.
        let memory = unsafe { std::slice::from_raw_parts(self.address, self.size) };
        let (valid, rest) = memory.split_at(self.written.len());
        if valid != self.written {
            return valid.iter().zip(&self.written).position(|(found, left)| found != left);
        }
        let filled = [self.filler; BLOCK];
        rest.chunks(BLOCK).enumerate().find_map(|(index, block)| {
            let expected = filled.get(..block.len())?;
            if block == expected {
                return None;
            }
            let within = block.iter().position(|&byte| byte != self.filler)?;
            Some(self.written.len() + index * BLOCK + within)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(memory: &mut [u64], most: usize, zeroed: bool, violations: &Violations) -> Loan {
        // SAFETY: `memory` outlives the test's use of the buffer, and the tests touch it only to provoke a violation.
        unsafe { Loan::take(memory.as_mut_ptr().cast(), memory.len() * 8, most, zeroed, violations) }
    }

    fn rules(violations: &Violations) -> Vec<Rule> {
        violations.list().iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn records_go_in_until_the_buffer_is_full() {
        let (mut memory, violations) = ([0u64; 4], Violations::default());
        let mut loan = take(&mut memory, 0, false, &violations);
        assert!(loan.write(&[1; 24]));
        assert!(!loan.write(&[2; 16]), "only 8 bytes are left");
        assert!(loan.write(&[3; 8]));
        let (_, size, valid) = loan.give_back(&violations);
        assert_eq!((size, valid), (32, 32));
        assert_eq!(memory.map(u64::to_le_bytes), [[1; 8], [1; 8], [1; 8], [3; 8]]);
        assert_eq!(rules(&violations), []);
    }

    #[test]
    fn the_limit_of_records_is_kept() {
        let (mut memory, violations) = ([0u64; 4], Violations::default());
        let mut loan = take(&mut memory, 1, false, &violations);
        assert!(loan.write(&[1; 8]));
        assert!(!loan.write(&[1; 8]));
    }

    #[test]
    fn any_byte_that_changes_is_noticed() {
        for byte in 0..40 {
            let (mut memory, violations) = ([0u64; 5], Violations::default());
            let mut loan = take(&mut memory, 0, false, &violations);
            loan.write(&[7; 16]);
            // SAFETY: inside the array, which is alive; this is the violation.
            unsafe { *loan.address.add(byte) ^= 1 };
            loan.give_back(&violations);
            assert_eq!(rules(&violations), [Rule::TouchedBuffer], "byte {byte}");
        }
    }

    #[test]
    fn a_broken_promise_of_zeroes_is_noticed() {
        let (mut memory, violations) = ([0u64, 0, 9, 0], Violations::default());
        take(&mut memory, 0, true, &violations).give_back(&violations);
        assert_eq!(rules(&violations), [Rule::UnzeroedBuffer]);
    }

    #[test]
    fn overlap_is_noticed_on_both_sides() {
        let (mut memory, violations) = ([0u64; 8], Violations::default());
        let base = memory.as_mut_ptr().cast::<u8>();
        let loan = take(&mut memory[2..4], 0, false, &violations);
        assert!(loan.overlaps(base.wrapping_add(8), 16) && loan.overlaps(base.wrapping_add(24), 64));
        assert!(!loan.overlaps(base, 16) && !loan.overlaps(base.wrapping_add(32), 8));
    }
}
