//! A client's buffer while the library holds it.
//!
//! Between `bufferRequested` and `bufferCompleted` the memory is the library's alone. A client that frees it or
//! writes to it corrupts records in a real run, far from the cause. Here everything written is remembered and the
//! rest is filled with a pattern, so that any change is seen when the buffer goes back. The pattern stays behind the
//! valid part on purpose: a client that reads beyond `validSize` meets kind 0xa5a5a5a5, not a convenient zero.
//!
//! A buffer that the client has unmapped altogether ends in the segmentation fault it would be in a real run.
#![expect(unsafe_code, reason = "the memory belongs to a client that gave it away by pointer")]

use crate::violation::{Rule, Violations};

/// Fills what no record was written to. Not a kind, not a small number, not a valid pointer.
pub const POISON: u8 = 0xa5;

/// Compared in blocks of this size: one `memcmp` each, so that debug builds stay fast.
const BLOCK: usize = 4096;

/// Memory that the client gave and waits to get back.
#[derive(Debug)]
pub struct Held {
    address: *mut u8,
    size: usize,
    most_records: usize,
    records: usize,
    /// Copy of everything written so far; its length is the valid size.
    written: Vec<u8>,
    filler: u8,
}

// SAFETY: between `bufferRequested` and `bufferCompleted` the memory is the library's, on whichever thread it runs;
// `Held` is its only owner and gives no reference to it away.
unsafe impl Send for Held {}

impl Held {
    /// Takes over `size` bytes at `address`. `most_records` limits the number of records; 0 means no limit.
    ///
    /// With `zeroed` the client has promised zeroed memory: that is checked, and the memory stays as it is.
    ///
    /// # Safety
    /// `size` bytes at `address` are valid for reads and writes, and nobody else uses them, until [`Held::give_back`]:
    /// the contract of `bufferRequested`. `address` is a multiple of 8.
    pub unsafe fn take(
        address: *mut u8,
        size: usize,
        most_records: usize,
        zeroed: bool,
        violations: &Violations,
    ) -> Self {
        let filler = if zeroed { 0 } else { POISON };
        let held = Self { address, size, most_records, records: 0, written: Vec::new(), filler };
        if zeroed {
            if let Some(at) = held.first_change() {
                violations.note(Rule::UnzeroedBuffer, || format!("byte {at} of {size} is not 0"));
                // SAFETY: the caller vouches for `size` bytes at `address`.
                unsafe { address.write_bytes(0, size) };
            }
        } else {
            // SAFETY: as above.
            unsafe { address.write_bytes(POISON, size) };
        }
        held
    }

    /// Whether a record of `length` bytes still goes in.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        let room = self.size - self.written.len();
        length <= room && (self.most_records == 0 || self.records < self.most_records)
    }

    /// Whether no record was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether the memory overlaps `size` bytes at `address`.
    #[must_use]
    pub fn overlaps(&self, address: *const u8, size: usize) -> bool {
        let (ours, theirs) = (self.address as usize, address as usize);
        ours < theirs.saturating_add(size) && theirs < ours + self.size
    }

    /// Writes a record behind the others. Returns false, and writes nothing, without room for it.
    pub fn write(&mut self, record: &[u8]) -> bool {
        if !self.has_room(record.len()) {
            return false;
        }
        // SAFETY: `has_room` says that the record ends within the `size` bytes that are ours until given back; the
        // source is ordinary memory of this library, which no client buffer overlaps.
        unsafe {
            self.address.add(self.written.len()).copy_from_nonoverlapping(record.as_ptr(), record.len());
        }
        self.written.extend_from_slice(record);
        self.records += 1;
        true
    }

    /// Ends the ownership: address, size and valid size as `bufferCompleted` wants them.
    pub fn give_back(self, violations: &Violations) -> (*mut u8, usize, usize) {
        if let Some(at) = self.first_change() {
            violations.note(Rule::TouchedBuffer, || {
                let valid = self.written.len();
                format!("byte {at} of {} (valid up to {valid})", self.size)
            });
        }
        (self.address, self.size, self.written.len())
    }

    /// Offset of the first byte that is not what the library left there.
    fn first_change(&self) -> Option<usize> {
        // SAFETY: `size` bytes are readable and written by nobody while held, see `take`. If the client breaks that
        // contract the comparison may see torn bytes, which is the very thing it looks for.
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

    fn take(memory: &mut [u64], most: usize, zeroed: bool, violations: &Violations) -> Held {
        // SAFETY: `memory` outlives the test's use of the buffer, and the tests touch it only to provoke a violation.
        unsafe { Held::take(memory.as_mut_ptr().cast(), memory.len() * 8, most, zeroed, violations) }
    }

    fn rules(violations: &Violations) -> Vec<Rule> {
        violations.list().iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn records_go_in_until_the_buffer_is_full() {
        let (mut memory, violations) = ([0u64; 4], Violations::default());
        let mut held = take(&mut memory, 0, false, &violations);
        assert!(held.write(&[1; 24]));
        assert!(!held.write(&[2; 16]), "only 8 bytes are left");
        assert!(held.write(&[3; 8]));
        let (_, size, valid) = held.give_back(&violations);
        assert_eq!((size, valid), (32, 32));
        assert_eq!(memory.map(u64::to_le_bytes), [[1; 8], [1; 8], [1; 8], [3; 8]]);
        assert_eq!(rules(&violations), []);
    }

    #[test]
    fn the_limit_of_records_is_kept() {
        let (mut memory, violations) = ([0u64; 4], Violations::default());
        let mut held = take(&mut memory, 1, false, &violations);
        assert!(held.write(&[1; 8]));
        assert!(!held.write(&[1; 8]));
    }

    #[test]
    fn any_byte_that_changes_is_noticed() {
        for byte in 0..40 {
            let (mut memory, violations) = ([0u64; 5], Violations::default());
            let mut held = take(&mut memory, 0, false, &violations);
            held.write(&[7; 16]);
            // SAFETY: inside the array, which is alive; this is the violation.
            unsafe { *held.address.add(byte) ^= 1 };
            held.give_back(&violations);
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
        let held = take(&mut memory[2..4], 0, false, &violations);
        assert!(held.overlaps(base.wrapping_add(8), 16) && held.overlaps(base.wrapping_add(24), 64));
        assert!(!held.overlaps(base, 16) && !held.overlaps(base.wrapping_add(32), 8));
    }
}
