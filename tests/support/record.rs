//! Hand-made activity records, for features that no recorded session on a GPU used.

use cupti_sys::Kind;

/// A record of `size` bytes with these numbers at these offsets.
pub fn record(kind: Kind, size: usize, wide: &[(usize, u64)], narrow: &[(usize, u32)]) -> Vec<u8> {
    // Unset bytes are not zero: no data beyond a shorter layout may be read.
    let mut bytes = vec![0xa5; size];
    bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
    wide.iter().for_each(|&(at, value)| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()));
    narrow.iter().for_each(|&(at, value)| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()));
    bytes
}
