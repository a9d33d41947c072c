//! Steps through the records of a buffer.
//!
//! Record sizes come from a measured table, which saves a C call per record. The contents of the
//! buffer are not trusted: a record that would extend past the valid bytes ends the walk, and the rest is
//! reported as broken.
//!
//! Neither the API version nor the file name determines the record sizes of a library: 11.8, 12.0 and 12.1
//! all return version 18 although the kernel record grew. So the sizes are measured at start-up: the
//! library's own iterator steps over a buffer of empty records.

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

/// Position at which a walk had to stop before the end of the valid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Offset of the first byte that was not walked over.
    pub offset: usize,
    /// Bytes from there to the end, which hold an unknown number of records.
    pub bytes: usize,
}

impl<'a> Records<'a> {
    pub(crate) const fn new(valid: &'a [u8], strings: Strings, sizes: &'a RecordSizes) -> Self {
        Self { valid, strings, sizes, offset: 0, broken: false }
    }

    /// Bytes that could not be walked, once the iterator has returned `None`; `None` if the walk reached the
    /// end of the valid bytes.
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

/// Kinds below this number are measured. CUDA 13.4 ends at 59.
pub const MEASURED_KINDS: u32 = 128;

/// Size in bytes of the buffer for measuring. It must hold two records of a kind; the largest known record
/// takes 304 bytes. Records that do not fit twice have no table entry, so the walk queries the library for
/// each of them.
const PROBE_BYTES: usize = 16 * 1024;

/// Record sizes in bytes, by kind.
#[derive(Clone)]
pub struct RecordSizes {
    /// 0: unknown.
    by_kind: [u32; MEASURED_KINDS as usize],
    /// Queried for kinds that are not in the table. `None` for records that are not from this library.
    library: Option<&'static Cupti>,
}

impl fmt::Debug for RecordSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl RecordSizes {
    /// Measures with the library's own iterator; if that fails, calls `cuptiActivityGetStructSize` (13.2 and
    /// later).
    ///
    /// # Errors
    /// If the kernel record cannot be measured, with the library's return code; from 13.3 on, this happens
    /// without a driver. [`CuptiResult::UNKNOWN`] if the kernel record appears smaller than in any known
    /// version.
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
        // Smaller than in any known version: its records would be misread.
        if kernel.is_ok()
            && sizes.get(Kind::CONCURRENT_KERNEL).is_none_or(|size| (size as usize) < KernelRecord::LEAST_BYTES)
        {
            kernel = Err(Error { function: "cuptiActivityGetNextRecord", code: CuptiResult::UNKNOWN });
        }
        kernel.map(|()| sizes)
    }

    /// Sizes from a known table, for records from a recording. Invalid kinds and sizes are ignored.
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

    /// Size of a kind's record in bytes, always a multiple of 8; `None` if this library does not know the
    /// kind.
    #[inline]
    pub fn get(&self, kind: Kind) -> Option<u32> {
        self.by_kind.get(kind.0 as usize).copied().filter(|&size| size != 0)
    }

    /// All known sizes, by ascending kind.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u32)> + '_ {
        (0..).map(Kind).zip(self.by_kind).filter(|&(_, size)| size != 0)
    }

    /// Bytes from the record at `offset` to the next, from the library's iterator; `None` without a library,
    /// or if the library does not know the kind either. The last record of a buffer extends to its end.
    pub(crate) fn ask(&self, valid: &[u8], offset: usize) -> Option<usize> {
        let cupti = self.library?;
        let start = valid.as_ptr().cast_mut();
        let mut record = start.wrapping_add(offset);
        // SAFETY: the library reads `valid.len()` bytes at most and writes none; `record` is at an offset
        // that previous steps reached.
        let code = unsafe { (cupti.symbols.next_record)(start, valid.len(), &raw mut record) };
        match code {
            CuptiResult::SUCCESS => (record as usize).checked_sub(start as usize)?.checked_sub(offset),
            CuptiResult::MAX_LIMIT_REACHED => valid.len().checked_sub(offset),
            _ => None,
        }
    }
}

/// Measures one kind with the library's iterator, which steps from the first to the second of many empty
/// records.
fn measure(cupti: &Cupti, kind: Kind) -> Result<u32, CuptiResult> {
    // Every 8-byte word holds the kind, so the second record has this kind at any multiple of 8 bytes.
    let mut records = vec![u64::from(kind.0); PROBE_BYTES / 8];
    let start = records.as_mut_ptr().cast::<u8>();
    let mut record = ptr::null_mut();
    let mut next = || {
        // SAFETY: the memory holds `PROBE_BYTES` initialized bytes, 8-aligned; `record` is NULL or the
        // previous result.
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
    // SAFETY: version 0 selects the current layout; the pointer is to a live local.
    let code = unsafe { (cupti.symbols.struct_size?)(kind, 0, &raw mut size) };
    plausible(size).filter(|_| code == CuptiResult::SUCCESS)
}

/// The size, if it is a positive multiple of 8 that fits the probe buffer. With any other size, all later
/// reads would be misaligned.
fn plausible(size: usize) -> Option<u32> {
    (size >= 8 && size.is_multiple_of(8) && size <= PROBE_BYTES).then_some(u32::try_from(size).ok()?)
}

#[cfg(test)]
mod tests;
