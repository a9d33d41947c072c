//! Writes a trace.
//!
//! Runs inside the traced process, so it must be cheap and must survive that process being killed at any moment:
//! whatever belongs together (new dictionary rows, the rows that need them, the flush mark) goes out in one
//! `write_all`, nothing is ever rewritten, and there is no footer that a killed process would not write. Bytes that
//! have been handed to the kernel survive the process; `fsync` is left to whoever owns the file.

use std::io::{self, Write};

use super::block::{self, BLOCK_HEADER, Header, MAX_BODY, MUST_UNDERSTAND, ZSTD, kind};
use super::column::Encoder;
use super::entry::Written;
use super::events::Rows;
use super::pack::Packer;
use super::{StoredReport, collectives, counters, kernels, meta, program_counters, stored_report, utilization};
use crate::collective::CollectiveEvent;
use crate::cost::Cost;
use crate::counters::CounterEvent;
use crate::dictionary::Dictionary;
use crate::kernels::KernelProfile;
use crate::kernels::PcWindow;
use crate::process_info::{End, ProcessInfo};
use crate::record::{CaptureMark, Loss, Record, Timestamp};
use crate::utilization::UtilizationReading;

/// Rows of a full chunk, all kinds together. In `benches/trace.rs` 64 Ki rows take 9 % fewer bytes, 4 Ki rows 4 % more;
/// but what waits here is memory of the traced process (about 1 MB now) and lost when that process is killed.
const CHUNK_ROWS: usize = 16 << 10;
/// Level 1 of zstd. In `benches/trace.rs` level 9 takes 4 % fewer bytes at a third of the speed.
const ZSTD_LEVEL: i32 = 1;
/// As [`CHUNK_ROWS`] for a compacted trace: a body of at most 16 MiB also with the widest rows.
const COMPACT_ROWS: usize = 128 << 10;
/// As [`ZSTD_LEVEL`] for a compacted trace.
const COMPACT_LEVEL: i32 = 19;
/// Counter events that wait at most: 20 s of samples at 200 Hz, 350 KB.
const COUNTER_EVENTS: usize = 4 << 10;
/// Events of communicators that wait at most, 400 KB.
const COLLECTIVE_EVENTS: usize = 4 << 10;
/// Bodies below this many bytes are not worth a compressor call; its own frame takes a dozen.
const ZSTD_FLOOR: usize = 96;

/// Writes records, dictionary and loss counters to a sink; see [the module](super).
///
/// Dropping it without [`finish`](Self::finish) leaves a valid trace that ended abruptly, less the rows that were
/// still waiting. After an error everything that was being written is gone and counted in
/// [`rows_lost`](Self::rows_lost); the writer can be used further, and a reader will see the gap.
pub struct TraceWriter<W> {
    sink: W,
    rows: Rows,
    /// Counter events that wait.
    counters: Vec<CounterEvent>,
    /// Events of communicators that wait.
    collectives: Vec<CollectiveEvent>,
    encoder: Encoder,
    packer: Packer,
    /// What the sink is known to have. Dictionary rows that were in a failed write are written again.
    written: Written,
    written_loss: Loss,
    sequence: u32,
    bytes_written: u64,
    rows_lost: u64,
    /// Rows of a full chunk, all kinds together.
    chunk_rows: usize,
    /// Flush marks do not end a chunk.
    long_chunks: bool,
    /// The body being built, its compressed form, and the blocks that wait for the next `write_all`.
    body: Vec<u8>,
    packed: Vec<u8>,
    out: Vec<u8>,
    /// Where unlike bytes meet in `body`.
    ends: Vec<usize>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the file header and `session`.
    ///
    /// # Errors
    ///
    /// What the sink answers; `InvalidInput` when the session is larger than a block may be (16 MiB); or out of
    /// memory for the compressor.
    pub fn new(sink: W, session: &ProcessInfo) -> io::Result<Self> {
        let (encoder, packer) = (Encoder::new(), Packer::new(ZSTD_LEVEL)?);
        Self::with(sink, session, encoder, packer, CHUNK_ROWS, false)
    }

    /// As [`new`](Self::new), for a trace that exists and is to be small: chunks of many flushes, a high level of
    /// compression, and the smaller form of each column. Takes some ten times as long, and what is written before the
    /// end is of no use to anybody who wants to read along.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn compact(sink: W, session: &ProcessInfo) -> io::Result<Self> {
        let encoder = Encoder::thorough(Packer::new(COMPACT_LEVEL)?);
        Self::with(sink, session, encoder, Packer::new(COMPACT_LEVEL)?, COMPACT_ROWS, true)
    }

    fn with(
        sink: W,
        session: &ProcessInfo,
        encoder: Encoder,
        packer: Packer,
        chunk_rows: usize,
        long_chunks: bool,
    ) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            rows: Rows::default(),
            counters: Vec::new(),
            collectives: Vec::new(),
            encoder,
            packer,
            written: Written::default(),
            written_loss: Loss::default(),
            sequence: 0,
            bytes_written: 0,
            rows_lost: 0,
            chunk_rows,
            long_chunks,
            body: Vec::new(),
            packed: Vec::new(),
            out: block::encode_file_header().to_vec(),
            ends: Vec::new(),
        };
        meta::encode_session(session, &mut writer.body);
        let start = session.start.nanos();
        writer.stage(kind::SESSION, MUST_UNDERSTAND, (start, start))?;
        writer.commit()?;
        Ok(writer)
    }

    /// Adds a record. It is written together with others, at the latest by the next [`flush`](Self::flush);
    /// `dictionary` must hold what it refers to by then.
    ///
    /// # Errors
    ///
    /// What the sink answers when a chunk was full and could not be written.
    #[inline]
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) -> io::Result<()> {
        self.rows.push(record);
        if self.rows.len() >= self.chunk_rows { self.write_chunk(dictionary) } else { Ok(()) }
    }

    /// Adds a sample of hardware counters, a reading of gauges, or what is known of them. It is written together with
    /// others, before the records that wait, at the latest by the next [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// What the sink answers when many wait and could not be written.
    pub fn counters(&mut self, event: CounterEvent, dictionary: &Dictionary) -> io::Result<()> {
        self.counters.push(event);
        if self.counters.len() >= COUNTER_EVENTS { self.write_chunk(dictionary) } else { Ok(()) }
    }

    /// Adds a communicator or an operation of one. It is written together with others, before the records that wait, at
    /// the latest by the next [`flush`](Self::flush); `dictionary` must hold the name of the communicator by then.
    ///
    /// # Errors
    ///
    /// What the sink answers when many wait and could not be written.
    pub fn collective(&mut self, event: CollectiveEvent, dictionary: &Dictionary) -> io::Result<()> {
        self.collectives.push(event);
        if self.collectives.len() >= COLLECTIVE_EVENTS { self.write_chunk(dictionary) } else { Ok(()) }
    }

    /// Writes everything that waits, `loss` if it changed, and the mark that everything which completed before
    /// `at`, and could be delivered, has been pushed. Then flushes the sink.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn flush(&mut self, at: Timestamp, loss: &Loss, dictionary: &Dictionary) -> io::Result<()> {
        if self.long_chunks && *loss == self.written_loss {
            self.rows.mark(at);
            return if self.rows.marks() >= self.chunk_rows { self.write_chunk(dictionary) } else { Ok(()) };
        }
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            writer.stage_loss(at, loss)?;
            writer.stage(kind::FLUSH, 0, (at.nanos(), at.nanos()))
        })?;
        self.sink.flush()
    }

    /// Writes everything that waits and then `mark`: what is pushed from here on belongs to that capture.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn capture(&mut self, mark: CaptureMark, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            let at = meta::encode_capture(mark, &mut writer.body).nanos();
            writer.stage(kind::CAPTURE, 0, (at, at))
        })
    }

    /// Writes everything that waits and what tracing took by `at`.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn cost(&mut self, at: Timestamp, cost: &Cost, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            meta::encode_cost(cost, &mut writer.body);
            writer.stage(kind::COST, 0, (at.nanos(), at.nanos()))
        })
    }

    /// Writes everything that waits and how busy devices were by `at`.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn utilization(
        &mut self,
        at: Timestamp,
        reading: &UtilizationReading,
        dictionary: &Dictionary,
    ) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            utilization::encode(reading, &mut writer.body);
            writer.stage(kind::UTILIZATION, 0, (at.nanos(), at.nanos()))
        })
    }

    /// Writes everything that waits and what measuring one kernel came to; `dictionary` must hold its launch
    /// configuration.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn kernel_profile(&mut self, profile: &KernelProfile, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            kernels::encode(profile, &mut writer.body);
            writer.stage(kind::KERNEL_PROFILE, 0, (profile.begin.nanos(), profile.end.nanos()))
        })
    }

    /// Writes everything that waits and what sampling the program counters of a device came to.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn program_counters(&mut self, window: &PcWindow, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            program_counters::encode(window, &mut writer.body);
            writer.stage(kind::PROGRAM_COUNTERS, 0, (window.opened.nanos(), window.closed.nanos()))
        })
    }

    /// Writes everything that waits and what the run says at its end; nothing but the end is to come behind it.
    ///
    /// # Errors
    ///
    /// What the sink answers.
    pub fn answer(&mut self, at: Timestamp, answer: &StoredReport, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            stored_report::encode(answer, &mut writer.body);
            if writer.body.is_empty() { Ok(()) } else { writer.stage(kind::ANSWER, 0, (at.nanos(), at.nanos())) }
        })
    }

    /// Writes everything that waits and how the trace ended, and hands the sink back.
    ///
    /// # Errors
    ///
    /// What the sink answers. The sink is gone then.
    pub fn finish(self, end: End, at: Timestamp, loss: &Loss, dictionary: &Dictionary) -> io::Result<W> {
        Ok(self.finish_counted(end, at, loss, dictionary)?.1)
    }

    /// As [`finish`](Self::finish), with the bytes that the sink took.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_counted(
        mut self,
        end: End,
        at: Timestamp,
        loss: &Loss,
        dictionary: &Dictionary,
    ) -> io::Result<(u64, W)> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            writer.stage_loss(at, loss)?;
            meta::encode_end(end, &mut writer.body);
            writer.stage(kind::END, 0, (at.nanos(), at.nanos()))
        })?;
        self.sink.flush()?;
        Ok((self.bytes_written, self.sink))
    }

    /// Writes everything that waits and no end: the copy of a trace that ended [abruptly](End::Abrupt). Answers with
    /// the bytes that the sink took.
    ///
    /// # Errors
    ///
    /// What the sink answers. The sink is gone then.
    pub fn break_off(mut self, loss: &Loss, dictionary: &Dictionary) -> io::Result<(u64, W)> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            writer.stage_loss(Timestamp::ZERO, loss)
        })?;
        self.sink.flush()?;
        Ok((self.bytes_written, self.sink))
    }

    /// Bytes that the sink took.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Records that were pushed and went down with a write that failed.
    #[must_use]
    pub fn rows_lost(&self) -> u64 {
        self.rows_lost
    }

    #[cold]
    fn write_chunk(&mut self, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| writer.stage_chunk(dictionary))
    }

    /// Runs `stage` and writes what it staged. Afterwards nothing waits, whether that worked or not; if not, the
    /// rows count as lost and dictionary and loss as not written.
    fn transaction(&mut self, stage: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let (written, written_loss) = (self.written, self.written_loss);
        let result = stage(self).and_then(|()| self.commit());
        if result.is_err() {
            self.written = written;
            self.written_loss = written_loss;
            self.rows_lost += (self.rows.len() + self.counters.len() + self.collectives.len()) as u64;
        }
        self.rows.clear();
        self.counters.clear();
        self.collectives.clear();
        self.body.clear();
        self.out.clear();
        result
    }

    fn commit(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.out)?;
        self.bytes_written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Stages counter events and new dictionary rows and then all rows that wait. Counter events come before the rows,
    /// so that a reader has them when it meets the flush mark behind them, or among them.
    fn stage_chunk(&mut self, dictionary: &Dictionary) -> io::Result<()> {
        if !self.counters.is_empty() {
            let times = counters::times(&self.counters);
            counters::encode(&self.counters, times.0, &mut self.body);
            self.stage(kind::COUNTERS, 0, times)?;
        }
        let times = self.rows.times();
        loop {
            self.written.encode_tail(dictionary, &mut self.body);
            if self.body.is_empty() {
                break;
            }
            self.stage(kind::DICTIONARY, 0, times)?;
        }
        if !self.collectives.is_empty() {
            // Behind the dictionary, which has the names of communicators.
            let times = collectives::times(&self.collectives);
            collectives::encode(&self.collectives, times.0, &mut self.body);
            self.stage(kind::COLLECTIVES, 0, times)?;
        }
        if self.rows.is_empty() {
            return Ok(());
        }
        self.rows.encode(times.0, &mut self.encoder, &mut self.body, &mut self.ends)?;
        self.stage(kind::EVENTS, 0, times)
    }

    fn stage_loss(&mut self, at: Timestamp, loss: &Loss) -> io::Result<()> {
        if *loss == self.written_loss {
            return Ok(());
        }
        self.written_loss = *loss;
        meta::encode_loss(loss, &mut self.body);
        self.stage(kind::LOSS, 0, (at.nanos(), at.nanos()))
    }

    /// Turns `body` into a block behind the others and empties it.
    fn stage(&mut self, kind: u16, flags: u8, (t_min, t_max): (u64, u64)) -> io::Result<()> {
        if self.body.len() > MAX_BODY {
            self.ends.clear();
            let text = format!("trace block of kind {kind} has {} bytes, at most {MAX_BODY} fit", self.body.len());
            self.body.clear();
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut flags = flags;
        if self.body.len() >= ZSTD_FLOOR {
            self.packed.clear();
            self.packed.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
            self.packer.pack(&self.body, &self.ends, &mut self.packed)?;
            if self.packed.len() < self.body.len() {
                std::mem::swap(&mut self.body, &mut self.packed);
                flags |= ZSTD;
            }
        }
        self.ends.clear();
        let header = Header {
            kind,
            version: 1,
            flags,
            body_bytes: self.body.len() as u32,
            sequence: self.sequence,
            t_min,
            t_max,
            body_crc: crc32fast::hash(&self.body),
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.out.reserve(BLOCK_HEADER + self.body.len());
        self.out.extend_from_slice(&header.encode());
        self.out.append(&mut self.body);
        Ok(())
    }
}
