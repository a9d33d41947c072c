//! Body of an EVENTS block: rows of all kinds that are written together.
//!
//! All kinds share one block because a flush every 100 ms of a slow program has few rows of each, and a block
//! header takes 40 bytes. Kinds without rows and columns that are all 0 take no space. A compacted trace has
//! blocks that are longer than the time between two flushes; their flush marks form a separate group
//! (`marks`).

use std::io;

use super::block::MAX_ROWS;
use super::column::{Decoder, Directory, Encoder};
use super::marks::Marks;
use super::row::RecordRow;
use super::varint::{self, Cursor, Malformed};
use crate::event::Event;
use crate::record::{
    ApiCall, Copy, CudaEvent, HostSample, Kernel, ManagedEvent, MemoryEvent, Memset, Overhead, RangeEvent, Record,
    Sync, Timestamp,
};

/// Calls `$do!(field, type)` for each kind of record, in the order of writing.
macro_rules! for_each_kind {
    ($do:ident) => {
        $do!(kernels, Kernel);
        $do!(copies, Copy);
        $do!(memsets, Memset);
        $do!(api_calls, ApiCall);
        $do!(syncs, Sync);
        $do!(events, CudaEvent);
        $do!(overheads, Overhead);
        $do!(ranges, RangeEvent);
        $do!(samples, HostSample);
        $do!(memory, MemoryEvent);
        $do!(managed, ManagedEvent);
    };
}

/// Rows to be written, by kind, in order of arrival.
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
    managed: Vec<ManagedEvent>,
    count: usize,
    marks: Marks,
    extent: Extent,
}

/// Time interval covered by rows, nanoseconds; times that were not recorded do not count.
struct Extent {
    first: u64,
    last: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Self { first: u64::MAX, last: 0 }
    }
}

impl Extent {
    fn add(&mut self, times: [Timestamp; 2]) {
        for time in times.map(Timestamp::nanos).into_iter().filter(|&time| time != 0) {
            (self.first, self.last) = (self.first.min(time), self.last.max(time));
        }
    }
}

impl Rows {
    pub(super) fn push(&mut self, record: &Record) {
        // One match for both the times and the row: calling `Record::span` made encoding 2 % slower.
        macro_rules! keep {
            ($field:ident, $row:ident: $begin:ident $end:ident) => {{
                self.extent.add([$row.$begin, $row.$end]);
                self.$field.push(*$row);
            }};
        }
        match record {
            Record::Kernel(row) => keep!(kernels, row: start end),
            Record::Copy(row) => keep!(copies, row: start end),
            Record::Memset(row) => keep!(memsets, row: start end),
            Record::Api(row) => keep!(api_calls, row: start end),
            Record::Sync(row) => keep!(syncs, row: start end),
            Record::Event(row) => self.events.push(*row),
            Record::Overhead(row) => keep!(overheads, row: start end),
            Record::Range(row) => keep!(ranges, row: at at),
            Record::Sample(row) => keep!(samples, row: since at),
            Record::Memory(row) => keep!(memory, row: at at),
            Record::Managed(row) => keep!(managed, row: start end),
        }
        self.count += 1;
    }

    /// Adds a flush mark after the pending rows.
    pub(super) fn mark(&mut self, at: Timestamp) {
        let mut rows = [0; Marks::KINDS];
        macro_rules! count {
            ($field:ident, $kind:ty) => {
                rows[usize::from(<$kind>::KIND) - 1] = self.$field.len() as u64;
            };
        }
        for_each_kind!(count);
        self.marks.push(at, rows);
    }

    pub(super) const fn marks(&self) -> usize {
        self.marks.len()
    }

    /// Number of rows of all kinds.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// True if there are no rows and no marks.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.marks.len() == 0
    }

    pub(super) fn clear(&mut self) {
        macro_rules! clear {
            ($field:ident, $kind:ty) => {
                self.$field.clear();
            };
        }
        for_each_kind!(clear);
        self.marks.clear();
        self.count = 0;
        self.extent = Extent::default();
    }

    /// Earliest and latest time of all rows, nanoseconds; 0 without rows.
    pub(super) fn times(&self) -> (u64, u64) {
        (self.extent.first.min(self.extent.last), self.extent.last)
    }

    /// Appends one group for each kind that has rows. `ends` receives the positions in `out` at which
    /// differently distributed bytes meet.
    ///
    /// # Errors
    /// If zstd runs out of memory.
    pub(super) fn encode(
        &self,
        base: u64,
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) -> io::Result<()> {
        self.marks.encode(encoder, out, ends)?;
        macro_rules! encode {
            ($field:ident, $kind:ty) => {
                encode_group(&self.$field, base, encoder, out, ends)?;
            };
        }
        for_each_kind!(encode);
        Ok(())
    }
}

fn encode_group<R: RecordRow>(
    rows: &[R],
    base: u64,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    ends: &mut Vec<usize>,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    encoder.reset(base);
    for &(mut row) in rows {
        row.transfer(encoder);
    }
    out.push(R::KIND);
    varint::put(out, rows.len() as u64);
    encoder.finish(out, ends)
}

/// Passes every event of a body to `sink`: rows, and flush marks between them if there are any. Returns the
/// number of rows that could not be decoded because they are of a newer version. After an error, the events
/// passed to `sink` must be discarded. `kinds`: see [`BlockReader::records`](super::BlockReader::records).
pub(super) fn decode(body: &[u8], base: u64, kinds: u32, mut sink: impl FnMut(Event)) -> Result<u64, Malformed> {
    let mut marks = None;
    let mut groups: Vec<(u8, Vec<Record>)> = Vec::new();
    let mut cursor = Cursor::new(body);
    let mut total = 0u64;
    let (mut unknown, mut seen) = (0, 0u32);
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        // At most one group of each kind, and marks first: the order of records in two groups would be
        // undefined.
        let bit = 1u32.checked_shl(kind.into()).unwrap_or(0);
        if seen & bit != 0 || (kind == Marks::KIND && seen != 0) {
            return Err(Malformed);
        }
        seen |= bit;
        let rows = cursor.varint()?;
        total = total.saturating_add(rows);
        if total > MAX_ROWS {
            return Err(Malformed);
        }
        let directory = Directory::read(&mut cursor, rows)?;
        if kind == Marks::KIND {
            marks = Some(Marks::decode(rows, directory)?);
            continue;
        }
        // With marks, rows must be interleaved with those of other kinds.
        let mut waiting = Vec::new();
        let mut take = |record: Record| {
            if marks.is_some() { waiting.push(record) } else { sink(Event::Record(record)) }
        };
        macro_rules! decode {
            ($field:ident, $kind:ty) => {
                if kind == <$kind>::KIND {
                    if kinds >> (kind - 1) & 1 == 0 {
                        unknown += if directory.is_readable(<$kind>::COLUMNS) { 0 } else { rows };
                        continue;
                    }
                    unknown += decode_group::<$kind>(rows, directory, base, &mut take)?;
                    groups.push((kind, waiting));
                    continue;
                }
            };
        }
        for_each_kind!(decode);
        unknown += rows;
    }
    if let Some(marks) = marks {
        marks.interleave(&groups, sink)?;
    }
    Ok(unknown)
}

/// Returns the number of rows in an encoding unknown to this version: all or none.
fn decode_group<R: RecordRow>(
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

#[cfg(test)]
mod tests {
    use super::super::pack::Packer;
    use super::*;
    use crate::record::{LaunchConfigId, ThreadId};

    const ROWS: u64 = 700;

    /// A call and a kernel; the columns of both are constant up to row `from` and vary after it.
    fn pair(index: u64, from: u64) -> [Record; 2] {
        let noise = if index < from { 7 } else { 1 + index * index * 7919 % 100_003 };
        let (start, end) = (Timestamp::from_nanos(1 + index * 1_000), Timestamp::from_nanos(1 + index * 1_000 + noise));
        let call =
            ApiCall { start, end, thread: ThreadId(noise as u32), return_value: noise as u32, ..ApiCall::default() };
        let kernel = Kernel { start, end, config: LaunchConfigId(noise as u32), graph_id: 3, ..Kernel::default() };
        [Record::Kernel(kernel), Record::Api(call)]
    }

    #[test]
    fn columns_that_begin_to_vary_in_any_row_come_back() {
        for from in [0, 1, 255, 256, 257, 511, 512, 513, ROWS - 1, ROWS] {
            let mut rows = Rows::default();
            (0..ROWS).flat_map(|index| pair(index, from)).for_each(|record| rows.push(&record));
            let (base, last) = rows.times();
            assert_eq!(base, 1);
            assert!(last > (ROWS - 1) * 1_000);
            for mut encoder in [Encoder::new(), Encoder::thorough(Packer::new(1).unwrap())] {
                let mut body = Vec::new();
                rows.encode(base, &mut encoder, &mut body, &mut Vec::new()).unwrap();
                let mut back = [Vec::new(), Vec::new()];
                let keep = |event| match event {
                    Event::Record(record) => back[usize::from(matches!(record, Record::Api(_)))].push(record),
                    other => panic!("{other:?}"),
                };
                assert_eq!(decode(&body, base, u32::MAX, keep), Ok(0));
                for index in 0..ROWS {
                    assert_eq!([0, 1].map(|kind| back[kind][index as usize]), pair(index, from), "{index} of {from}");
                }
            }
        }
    }
}
