//! Steps through the records of a buffer.
//!
//! The step comes from the measured size table rather than from a C call a record. What lies in the buffer is not
//! trusted: a record that would reach behind the valid bytes ends the walk, and what is left is reported as broken.
//!
//! How large the records of this library are, neither the API version nor the file name tells: 11.8, 12.0 and 12.1 all
//! answer version 18 while the kernel record grew. So the library is asked, at start-up, by letting its own iterator
//! step over a buffer of empty records.

use crate::abi::{CuptiResult, Kind};
use crate::cupti::{Cupti, Error};
use crate::record::KernelRecord;
use crate::record::view::{Record, Strings};
use std::fmt;
use std::ptr;

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

/// Kinds below this are measured. CUDA 13.4 ends at 59.
pub const MEASURED_KINDS: u32 = 128;

/// Bytes of the buffer that is walked to measure. Twice the largest known record (304) many times over, so that a
/// second record is there to step to; larger records, should they come, are asked for one by one while walking.
const PROBE_BYTES: usize = 16 * 1024;

/// Record sizes in bytes, by kind.
#[derive(Clone)]
pub struct RecordSizes {
    /// 0: not known.
    by_kind: [u32; MEASURED_KINDS as usize],
    /// Asked about kinds that are not in the table. `None` where records come from elsewhere.
    library: Option<&'static Cupti>,
}

impl fmt::Debug for RecordSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl RecordSizes {
    /// Measures with the library's own iterator; where that does not answer, asks `cuptiActivityGetStructSize`
    /// (13.2 and later).
    ///
    /// # Errors
    /// When not even the kernel record can be measured, with what the library answered: without a driver from 13.3 on.
    /// [`CuptiResult::UNKNOWN`] when it seems smaller than it ever was.
    pub fn probe(cupti: &'static Cupti) -> Result<Self, Error> {
        let mut sizes = Self { by_kind: [0; MEASURED_KINDS as usize], library: Some(cupti) };
        let mut kernel = Ok(());
        for (number, slot) in (0..).zip(&mut sizes.by_kind).skip(1) {
            match measure(cupti, Kind(number)).or_else(|code| struct_size(cupti, Kind(number)).ok_or(code)) {
                Ok(size) => *slot = size,
                Err(code) if Kind(number) == Kind::CONCURRENT_KERNEL => {
                    kernel = Err(Error { function: "cuptiActivityGetNextRecord", code });
                }
                Err(_) => {}
            }
        }
        // Smaller than it ever was: whatever this is, its records would be read as something else.
        if kernel.is_ok()
            && sizes.get(Kind::CONCURRENT_KERNEL).is_none_or(|size| (size as usize) < KernelRecord::LEAST_BYTES)
        {
            kernel = Err(Error { function: "cuptiActivityGetNextRecord", code: CuptiResult::UNKNOWN });
        }
        kernel.map(|()| sizes)
    }

    /// From a known table, for records that come from a recording. Kinds and sizes that cannot be are left out.
    #[must_use]
    pub fn from_pairs(pairs: &[(Kind, u32)]) -> Self {
        let mut sizes = Self { by_kind: [0; MEASURED_KINDS as usize], library: None };
        for &(kind, size) in pairs {
            if let Some(slot) = sizes.by_kind.get_mut(kind.0 as usize)
                && size >= 8
                && size % 8 == 0
            {
                *slot = size;
            }
        }
        sizes
    }

    /// Size of a kind's record in bytes, always a multiple of 8; `None` when this library does not know the kind.
    #[must_use]
    #[inline]
    pub fn get(&self, kind: Kind) -> Option<u32> {
        self.by_kind.get(kind.0 as usize).copied().filter(|&size| size != 0)
    }

    /// All known sizes, by ascending kind.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u32)> + '_ {
        (0..).map(Kind).zip(self.by_kind).filter(|&(_, size)| size != 0)
    }

    /// Bytes from `offset` to the record behind the one there, as the library steps; `None` without a library, or
    /// when it does not know the kind either. The last record of a buffer reaches to its end.
    pub(crate) fn ask(&self, valid: &[u8], offset: usize) -> Option<usize> {
        let cupti = self.library?;
        let start = valid.as_ptr().cast_mut();
        let mut record = start.wrapping_add(offset);
        // SAFETY: the library reads `valid.len()` bytes at most and writes to none of them; `record` is the record
        // that its previous answers led to.
        let code = unsafe { (cupti.symbols.next_record)(start, valid.len(), &raw mut record) };
        match code {
            CuptiResult::SUCCESS => (record as usize).checked_sub(start as usize)?.checked_sub(offset),
            CuptiResult::MAX_LIMIT_REACHED => valid.len().checked_sub(offset),
            _ => None,
        }
    }
}

/// Lets the library step from the first to the second of many empty records of one kind.
fn measure(cupti: &Cupti, kind: Kind) -> Result<u32, CuptiResult> {
    // The kind at every eighth byte: wherever the second record begins, it is one of this kind.
    let mut records = vec![u64::from(kind.0); PROBE_BYTES / 8];
    let start = records.as_mut_ptr().cast::<u8>();
    let mut record = ptr::null_mut();
    let mut next = || {
        // SAFETY: the memory holds `PROBE_BYTES` initialized bytes, 8-aligned; `record` is NULL or the last answer.
        match unsafe { (cupti.symbols.next_record)(start, PROBE_BYTES, &raw mut record) } {
            CuptiResult::SUCCESS => Ok(record as usize),
            code => Err(code),
        }
    };
    let first = next()?;
    let second = next()?;
    plausible(second.wrapping_sub(first)).ok_or(CuptiResult::UNKNOWN)
}

fn struct_size(cupti: &Cupti, kind: Kind) -> Option<u32> {
    let mut size = 0_usize;
    // SAFETY: version 0 asks for the current layout; the pointer is to a live local.
    let code = unsafe { (cupti.symbols.struct_size?)(kind, 0, &raw mut size) };
    plausible(size).filter(|_| code == CuptiResult::SUCCESS)
}

/// A record is a non-empty multiple of 8 bytes, or every read after it would be misaligned.
fn plausible(size: usize) -> Option<u32> {
    (size >= 8 && size.is_multiple_of(8) && size <= PROBE_BYTES).then_some(u32::try_from(size).ok()?)
}

#[cfg(test)]
mod tests;
