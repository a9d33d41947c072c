//! The body of an EVENTS block: rows of all kinds that waited for the same write.
//!
//! One block for all kinds, because a flush every 100 ms of a slow program has few rows of each and a block header
//! costs 40 bytes. Kinds without rows and columns that are all 0 take no byte.

use super::column::{Decoder, Directory, Encoder};
use super::row::Row;
use super::varint::{self, Cursor, Malformed};
use crate::record::{
    ApiCall, Copy, CudaEvent, HostSample, Kernel, MemoryEvent, Memset, Overhead, RangeEvent, Record, Sync,
};

/// Rows of one block that a reader accepts. Constant columns need no bytes, so lengths alone would not bound it.
pub(super) const MAX_ROWS: u64 = 1 << 20;

/// Rows that wait to be written, by kind, in the order in which they came.
#[derive(Default)]
pub(super) struct Rows {
    kernels: Vec<Kernel>,
    copies: Vec<Copy>,
    memsets: Vec<Memset>,
    api_calls: Vec<ApiCall>,
    syncs: Vec<Sync>,
    events: Vec<CudaEvent>,
    overheads: Vec<Overhead>,
    ranges: Vec<RangeEvent>,
    samples: Vec<HostSample>,
    memory: Vec<MemoryEvent>,
    count: usize,
}

impl Rows {
    #[inline]
    pub(super) fn push(&mut self, record: &Record) {
        match *record {
            Record::Kernel(row) => self.kernels.push(row),
            Record::Copy(row) => self.copies.push(row),
            Record::Memset(row) => self.memsets.push(row),
            Record::Api(row) => self.api_calls.push(row),
            Record::Sync(row) => self.syncs.push(row),
            Record::Event(row) => self.events.push(row),
            Record::Overhead(row) => self.overheads.push(row),
            Record::Range(row) => self.ranges.push(row),
            Record::Sample(row) => self.samples.push(row),
            Record::Memory(row) => self.memory.push(row),
        }
        self.count += 1;
    }

    /// Rows of all kinds.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn clear(&mut self) {
        self.kernels.clear();
        self.copies.clear();
        self.memsets.clear();
        self.api_calls.clear();
        self.syncs.clear();
        self.events.clear();
        self.overheads.clear();
        self.ranges.clear();
        self.samples.clear();
        self.memory.clear();
        self.count = 0;
    }

    /// Earliest and latest time of all rows, nanoseconds; times that were not recorded do not count.
    pub(super) fn times(&self) -> (u64, u64) {
        fn widen<R: Row>(range: &mut (u64, u64), rows: &[R]) {
            for time in rows.iter().flat_map(Row::times).map(|time| time.nanos()).filter(|&time| time != 0) {
                *range = (range.0.min(time), range.1.max(time));
            }
        }
        let mut range = (u64::MAX, 0);
        widen(&mut range, &self.kernels);
        widen(&mut range, &self.copies);
        widen(&mut range, &self.memsets);
        widen(&mut range, &self.api_calls);
        widen(&mut range, &self.syncs);
        widen(&mut range, &self.overheads);
        widen(&mut range, &self.ranges);
        widen(&mut range, &self.samples);
        widen(&mut range, &self.memory);
        (range.0.min(range.1), range.1)
    }

    /// Appends one group for each kind that has rows.
    pub(super) fn encode(&self, base: u64, encoder: &mut Encoder, out: &mut Vec<u8>) {
        encode_group(&self.kernels, base, encoder, out);
        encode_group(&self.copies, base, encoder, out);
        encode_group(&self.memsets, base, encoder, out);
        encode_group(&self.api_calls, base, encoder, out);
        encode_group(&self.syncs, base, encoder, out);
        encode_group(&self.events, base, encoder, out);
        encode_group(&self.overheads, base, encoder, out);
        encode_group(&self.ranges, base, encoder, out);
        encode_group(&self.samples, base, encoder, out);
        encode_group(&self.memory, base, encoder, out);
    }
}

fn encode_group<R: Row>(rows: &[R], base: u64, encoder: &mut Encoder, out: &mut Vec<u8>) {
    if rows.is_empty() {
        return;
    }
    encoder.reset(base);
    for &(mut row) in rows {
        row.transfer(encoder);
    }
    out.push(R::KIND);
    varint::put(out, rows.len() as u64);
    encoder.finish(out);
}

/// Hands every row of a body to `sink`. Answers how many rows could not be understood because they are of a newer
/// version. After an error what `sink` got is to be thrown away.
pub(super) fn decode(body: &[u8], base: u64, mut sink: impl FnMut(Record)) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut total = 0u64;
    let mut unknown = 0;
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        let rows = cursor.varint()?;
        total = total.saturating_add(rows);
        if total > MAX_ROWS {
            return Err(Malformed);
        }
        let directory = Directory::read(&mut cursor)?;
        unknown += match kind {
            Kernel::KIND => decode_group::<Kernel>(rows, directory, base, &mut sink)?,
            Copy::KIND => decode_group::<Copy>(rows, directory, base, &mut sink)?,
            Memset::KIND => decode_group::<Memset>(rows, directory, base, &mut sink)?,
            ApiCall::KIND => decode_group::<ApiCall>(rows, directory, base, &mut sink)?,
            Sync::KIND => decode_group::<Sync>(rows, directory, base, &mut sink)?,
            CudaEvent::KIND => decode_group::<CudaEvent>(rows, directory, base, &mut sink)?,
            Overhead::KIND => decode_group::<Overhead>(rows, directory, base, &mut sink)?,
            RangeEvent::KIND => decode_group::<RangeEvent>(rows, directory, base, &mut sink)?,
            HostSample::KIND => decode_group::<HostSample>(rows, directory, base, &mut sink)?,
            MemoryEvent::KIND => decode_group::<MemoryEvent>(rows, directory, base, &mut sink)?,
            _ => rows,
        };
    }
    Ok(unknown)
}

/// Answers how many rows are in an encoding that this version does not know: all or none.
fn decode_group<R: Row>(
    rows: u64,
    directory: Directory<'_>,
    base: u64,
    sink: &mut impl FnMut(Record),
) -> Result<u64, Malformed> {
    if !directory.is_readable(R::COLUMNS) {
        return Ok(rows);
    }
    let mut decoder = Decoder::new(directory, base);
    for _ in 0..rows {
        let mut row = R::default();
        row.transfer(&mut decoder);
        if decoder.is_malformed() {
            return Err(Malformed);
        }
        sink(row.into());
    }
    decoder.finish(R::COLUMNS)?;
    Ok(0)
}
