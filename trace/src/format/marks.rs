//! Flush marks inside a block of rows.
//!
//! A live trace ends a block at each flush, and the mark is a separate block. A compacted trace has longer
//! blocks, but the marks must not move: the accounting counts flushes to decide how long it waits for a
//! missing record. A mark therefore stores its time and, for each kind of record, the number of rows since
//! the previous mark.

use std::io;

use super::column::{Codec, Decoder, Directory, Encoder, MAX_COLUMNS};
use super::varint::{self, Malformed};
use crate::event::Event;
use crate::record::{Record, Timestamp};

/// The marks of one block, in order.
#[derive(Default)]
pub(super) struct Marks {
    rows: Vec<Mark>,
    /// Number of rows by kind at the newest mark.
    before: [u64; Marks::KINDS],
}

/// The columns of one mark.
#[derive(Clone, Copy, Default)]
struct Mark {
    at: u64,
    /// Rows since the previous mark; indexed by kind minus one.
    rows: [u64; Marks::KINDS],
}

impl Mark {
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.step(0, &mut self.at);
        for (kind, rows) in (1..).zip(&mut self.rows) {
            codec.raw(kind, rows);
        }
    }
}

impl Marks {
    /// Number of the group in the file.
    pub(super) const KIND: u8 = 0;
    /// Number of record kinds that are counted, starting at kind 1; each has a column.
    pub(super) const KINDS: usize = MAX_COLUMNS - 1;

    /// Adds a mark at `at`. `rows` is the number of preceding rows in the block, indexed by kind minus one.
    pub(super) fn push(&mut self, at: Timestamp, rows: [u64; Self::KINDS]) {
        let before = std::mem::replace(&mut self.before, rows);
        let rows = std::array::from_fn(|kind| rows[kind] - before[kind]);
        self.rows.push(Mark { at: at.nanos(), rows });
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.before = [0; Self::KINDS];
    }

    /// Appends the group, which precedes those of records; appends no bytes if there are no marks.
    pub(super) fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>, ends: &mut Vec<usize>) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        encoder.reset(0);
        for &(mut mark) in &self.rows {
            mark.transfer(encoder);
        }
        out.push(Self::KIND);
        varint::put(out, self.rows.len() as u64);
        encoder.finish(out, ends)
    }

    /// Reads the group.
    pub(super) fn decode(rows: u64, directory: Directory<'_>) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(directory, 0);
        let mut marks = Self::default();
        for _ in 0..rows {
            let mut mark = Mark::default();
            mark.transfer(&mut decoder);
            if decoder.is_malformed() {
                return Err(Malformed);
            }
            marks.rows.push(mark);
        }
        decoder.finish(1 + Self::KINDS)?;
        Ok(marks)
    }

    /// Passes the records of all `groups` (kind and rows) to `sink`, with the marks between them. If a mark
    /// announces more rows than exist, the block is malformed; a group of an unknown kind has no rows.
    pub(super) fn interleave(
        &self,
        groups: &[(u8, Vec<Record>)],
        mut sink: impl FnMut(Event),
    ) -> Result<(), Malformed> {
        let mut rest: Vec<_> = groups.iter().map(|(kind, rows)| (*kind, &rows[..])).collect();
        for mark in &self.rows {
            for (kind, rows) in &mut rest {
                let count = mark.rows.get(usize::from(*kind) - 1).copied().unwrap_or(0);
                if rows.is_empty() {
                    continue;
                }
                let count = usize::try_from(count).map_err(|_| Malformed)?;
                let (before, behind) = rows.split_at_checked(count).ok_or(Malformed)?;
                before.iter().for_each(|record| sink(Event::Record(*record)));
                *rows = behind;
            }
            sink(Event::Flush(Timestamp::from_nanos(mark.at)));
        }
        rest.iter().flat_map(|(_, rows)| *rows).for_each(|record| sink(Event::Record(*record)));
        Ok(())
    }
}
