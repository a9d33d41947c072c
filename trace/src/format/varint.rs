//! The two number encodings used inside blocks, and a cursor that decodes them.
//!
//! Varints are LEB128: seven bits per byte, least significant first, at most ten bytes. The cursor never
//! panics and never reads past its slice: it returns [`Malformed`], and the reader drops the block. It
//! accepts overlong encodings, which are harmless.

/// The bytes are not valid in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Maximum bytes of a varint.
const LONGEST: usize = 10;

pub(super) fn put(out: &mut Vec<u8>, value: u64) {
    put_all(out, &[value]);
}

pub(super) fn put_all(out: &mut Vec<u8>, values: &[u64]) {
    // Reserve space once instead of checking for each byte.
    let mut at = out.len();
    out.resize(at + values.len() * LONGEST, 0);
    for &value in values {
        let mut rest = value;
        while rest >= 0x80 {
            out[at] = rest as u8 | 0x80;
            rest >>= 7;
            at += 1;
        }
        out[at] = rest as u8;
        at += 1;
    }
    out.truncate(at);
}

/// Appends the length of `bytes`, then `bytes`.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// One-based position of `value` in a list.
pub(super) fn number_in<T: PartialEq>(list: &[T], value: T) -> u64 {
    list.iter().position(|known| *known == value).map_or(0, |index| index as u64 + 1)
}

/// The inverse of [`number_in`].
pub(super) fn at_place<T: Copy>(list: &[T], number: u64) -> Option<T> {
    list.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Maps signed to unsigned numbers such that small magnitudes stay small: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub(super) const fn zigzag(value: u64) -> u64 {
    let signed = value.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub(super) const fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Reads a slice from front to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of remaining bytes.
    pub(super) const fn rest(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte may contain only one bit.
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A varint that must fit into 32 bits.
    pub(super) fn varint32(&mut self) -> Result<u32, Malformed> {
        self.varint()?.try_into().map_err(|_| Malformed)
    }

    /// A varint, or 0 at the end of the bytes: a field that an older writer did not have.
    pub(super) fn optional(&mut self) -> Result<u64, Malformed> {
        if self.is_empty() { Ok(0) } else { self.varint() }
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Length-prefixed bytes, as written by [`put_bytes`].
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(length)
    }

    /// Length-prefixed string. Invalid UTF-8 is replaced, not rejected: names are only displayed.
    pub(super) fn string(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u64; 10] = [0, 1, 127, 128, 16383, 16384, u32::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

    #[test]
    fn varints_come_back_and_end_where_they_should() {
        for value in EDGES {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.varint(), Ok(value));
            assert!(cursor.is_empty());
            assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).varint(), Err(Malformed), "{value}");
        }
    }

    #[test]
    fn eleven_bytes_or_a_65th_bit_are_refused() {
        assert_eq!(Cursor::new(&[0x80; 11]).varint(), Err(Malformed));
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(Cursor::new(&bytes).varint(), Err(Malformed));
    }

    #[test]
    fn zigzag_keeps_small_magnitudes_small_and_comes_back() {
        assert_eq!([0u64, u64::MAX, 1, u64::MAX - 1].map(zigzag), [0, 1, 2, 3]);
        for value in EDGES {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn a_length_beyond_the_slice_is_refused() {
        let mut bytes = Vec::new();
        put(&mut bytes, u64::MAX);
        assert_eq!(Cursor::new(&bytes).bytes(), Err(Malformed));
    }
}
