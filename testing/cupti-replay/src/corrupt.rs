//! Corrupts a record according to a [`RecordFault`].
//!
//! The same record is corrupted in the same way on each run: noise comes from a fixed sequence, not from a
//! clock.

use crate::fault::RecordFault;
use crate::layout;

/// A kind that no CUPTI has.
const UNKNOWN_KIND: u32 = 0x7fff_0000;
/// Within a second of the last nanosecond that a signed clock can represent.
const FUTURE: u64 = i64::MAX as u64 - 1_000_000_000;

/// Corrupts `record`, which has this kind. `seed` selects the noise.
pub fn corrupt(record: &mut [u8], kind: u32, fault: RecordFault, seed: u64) {
    match fault {
        RecordFault::Garbage => garble(record, kind, seed),
        RecordFault::Nameless => layout::texts(kind).iter().for_each(|&field| layout::put_u64(record, field, 0)),
        RecordFault::Timeless => change_times(record, kind, |_, _| (0, 0)),
        RecordFault::Backwards => change_times(record, kind, |start, end| (end, start)),
        RecordFault::Future => change_times(record, kind, |start, _| (FUTURE, FUTURE + start % 1_000)),
        RecordFault::Unknown => {
            if let Some(field) = record.first_chunk_mut() {
                *field = UNKNOWN_KIND.to_le_bytes();
            }
        }
    }
}

fn change_times(record: &mut [u8], kind: u32, change: impl Fn(u64, u64) -> (u64, u64)) {
    let Some((first, last)) = layout::times(kind) else { return };
    let (Some(start), Some(end)) = (layout::u64_at(record, first), layout::u64_at(record, last)) else { return };
    let (start, end) = change(start, end);
    layout::put_u64(record, first, start);
    layout::put_u64(record, last, end);
}

fn garble(record: &mut [u8], kind: u32, seed: u64) {
    // xorshift64: any sequence without a pattern is fine, but it must not start at 0.
    let mut noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut offset = 0;
    for word in record.chunks_mut(8) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let kept = if offset == 0 { 4 } else { 0 };
        if !layout::texts(kind).contains(&offset) {
            for (byte, noise) in word.iter_mut().zip(noise.to_le_bytes()).skip(kept) {
                *byte = noise;
            }
        }
        offset += 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cupti_sys::Kind;

    #[test]
    fn noise_leaves_the_kind_and_addresses_of_texts() {
        let kind = Kind::CONCURRENT_KERNEL.0;
        let mut record = [7_u8; 160];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        let before = record;
        corrupt(&mut record, kind, RecordFault::Garbage, 5);
        assert_eq!((&record[..4], &record[104..112]), (&before[..4], &before[104..112]));
        assert!(record[4..104].iter().filter(|&&byte| byte == 7).count() < 10);
        let mut again = before;
        corrupt(&mut again, kind, RecordFault::Garbage, 5);
        assert_eq!(record, again);
    }

    #[test]
    fn times_are_found_by_kind() {
        let mut record = [0_u8; 48];
        layout::put_u64(&mut record, 8, 10);
        layout::put_u64(&mut record, 16, 20);
        corrupt(&mut record, Kind::RUNTIME.0, RecordFault::Backwards, 0);
        assert_eq!((layout::u64_at(&record, 8), layout::u64_at(&record, 16)), (Some(20), Some(10)));
    }
}
