//! Steps through the records of a buffer.
//!
//! The step comes from the measured size table rather than from a C call a record. What lies in the buffer is not
//! trusted: a record that would reach behind the valid bytes ends the walk, and what is left is reported as broken.

use crate::abi::Kind;
use crate::record::view::{Record, Strings};
use crate::sizes::RecordSizes;

/// Iterator over the records of one buffer.
#[derive(Debug)]
pub struct Records<'a> {
    valid: &'a [u8],
    strings: Strings,
    sizes: &'a RecordSizes,
    offset: usize,
    broken: bool,
}

/// Where a walk had to stop before the end of the valid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Offset of the first byte that could not be walked over.
    pub offset: usize,
    /// Bytes from there to the end: the number of records in them is unknown.
    pub bytes: usize,
}

impl<'a> Records<'a> {
    pub(crate) const fn new(valid: &'a [u8], strings: Strings, sizes: &'a RecordSizes) -> Self {
        Self { valid, strings, sizes, offset: 0, broken: false }
    }

    /// Offset of the next record.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// After the last record: what could not be walked, or `None` when the walk ended where the valid bytes end.
    #[must_use]
    pub const fn remainder(&self) -> Option<Broken> {
        if self.broken { Some(Broken { offset: self.offset, bytes: self.valid.len() - self.offset }) } else { None }
    }

    #[inline]
    fn step(&self, kind: Kind) -> Option<usize> {
        let size = match self.sizes.get(kind) {
            Some(size) => size as usize,
            None => self.sizes.ask(self.valid, self.offset)?,
        };
        (size >= 8 && size.is_multiple_of(8)).then_some(size)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let rest = self.valid.get(self.offset..)?;
        if rest.is_empty() || self.broken {
            return None;
        }
        let record = rest.first_chunk().and_then(|&kind| {
            let kind = Kind(u32::from_ne_bytes(kind));
            Some(Record::new(kind, rest.get(..self.step(kind)?)?, self.strings))
        });
        match &record {
            Some(record) => self.offset += record.bytes().len(),
            None => self.broken = true,
        }
        record
    }
}

impl std::iter::FusedIterator for Records<'_> {}

#[cfg(test)]
mod tests;
