//! Writes a trace.
//!
//! The writer runs inside the traced process, so it must be cheap and the file must stay valid if the process
//! is killed at any moment. Data that belongs together (new dictionary rows, the rows that need them, the
//! flush mark) is written by one `write_all`, nothing is ever rewritten, and there is no footer that a killed
//! process could not write. Bytes passed to the kernel survive the process; `fsync` is left to the owner of
//! the file.

use std::io::{self, Write};

use super::block::{self, BLOCK_HEADER, Header, MAX_BODY, MUST_UNDERSTAND, ZSTD, kind};
use super::column::Encoder;
use super::entry::Written;
use super::events::Rows;
use super::pack::Packer;
use super::{
    StoredReport, collectives, counters, graph_nodes, kernels, memory_calls, meta, stored_report, utilization,
};
use crate::collective::CollectiveEvent;
use crate::counters::CounterEvent;
use crate::dictionary::Dictionary;
use crate::event::Event;
use crate::graph_node::GraphNode;
use crate::memory_call::MemoryCall;
use crate::process_info::{End, ProcessInfo};
use crate::record::{Loss, Timestamp};

/// Maximum rows of a chunk, all kinds together. In `benches/trace.rs`, 64 Ki rows take 9 % fewer bytes, 4 Ki
/// rows 4 % more. But pending rows use memory of the traced process (about 1 MB now) and are lost if it is
/// killed.
const CHUNK_ROWS: usize = 16 << 10;
/// zstd level 1. In `benches/trace.rs`, level 9 takes 4 % fewer bytes at a third of the speed.
const ZSTD_LEVEL: i32 = 1;
/// Like [`CHUNK_ROWS`], for a compacted trace: a body stays below 16 MiB even with the widest rows.
const COMPACT_ROWS: usize = 128 << 10;
/// Like [`ZSTD_LEVEL`], for a compacted trace.
const COMPACT_LEVEL: i32 = 19;
/// Maximum number of pending counter events: 20 s of samples at 200 Hz, 350 KB.
const COUNTER_EVENTS: usize = 4 << 10;
/// Maximum number of pending collective events, 400 KB.
const COLLECTIVE_EVENTS: usize = 4 << 10;
/// Maximum number of pending nodes of graphs, 130 KB.
const GRAPH_NODES: usize = 4 << 10;
/// Maximum number of pending memory calls, 360 KB.
const MEMORY_CALLS: usize = 4 << 10;
/// Bodies below this many bytes are not compressed; a frame alone takes a dozen.
const ZSTD_FLOOR: usize = 96;

/// Writes events and the dictionary to a sink; see [the module](super).
///
/// If dropped without [`finish`](Self::finish), the trace is valid, ends abruptly and lacks the pending rows.
/// After an error, all data being written is lost and counted in [`rows_lost`](Self::rows_lost); the writer
/// can still be used, and readers detect the gap.
pub struct TraceWriter<W> {
    sink: W,
    rows: Rows,
    counters: Vec<CounterEvent>,
    /// Pending collective events.
    collectives: Vec<CollectiveEvent>,
    /// Pending nodes of graphs.
    graph_nodes: Vec<GraphNode>,
    /// Pending memory calls.
    memory_calls: Vec<MemoryCall>,
    encoder: Encoder,
    packer: Packer,
    /// State that the sink has received. Dictionary rows of a failed write are written again.
    written: Written,
    written_loss: Loss,
    loss: Loss,
    sequence: u32,
    bytes_written: u64,
    rows_lost: u64,
    /// Maximum rows of a chunk, all kinds together.
    chunk_rows: usize,
    /// True if flush marks do not end a chunk.
    long_chunks: bool,
    /// Body under construction, its compressed form, and the blocks for the next `write_all`.
    body: Vec<u8>,
    packed: Vec<u8>,
    out: Vec<u8>,
    /// Positions in `body` at which differently distributed bytes meet.
    ends: Vec<usize>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the file header and `session`.
    ///
    /// # Errors
    /// Errors of the sink; `InvalidInput` if the session exceeds the block limit (16 MiB); or out of memory
    /// for the compressor.
    pub fn new(sink: W, session: &ProcessInfo) -> io::Result<Self> {
        let (encoder, packer) = (Encoder::new(), Packer::new(ZSTD_LEVEL)?);
        Self::with(sink, session, encoder, packer, CHUNK_ROWS, false)
    }

    /// Like [`new`](Self::new), for rewriting an existing trace in a small form: chunks of many flushes, a
    /// high compression level, and the smaller form of each column. Takes some ten times as long, and the
    /// file is not suitable for reading while it is being written.
    ///
    /// # Errors
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
            graph_nodes: Vec::new(),
            memory_calls: Vec::new(),
            encoder,
            packer,
            written: Written::default(),
            written_loss: Loss::default(),
            loss: Loss::default(),
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

    /// Adds an event. Records, counters, collectives, nodes and memory calls are buffered until the next flush mark at
    /// the latest; losses are written with that mark if they changed. Any other event writes all buffered data, then
    /// itself. `dictionary` must contain everything that the events refer to when they are written.
    ///
    /// # Errors
    /// Errors of the sink if data was written.
    #[inline]
    pub fn event(&mut self, event: &Event, dictionary: &Dictionary) -> io::Result<()> {
        // Small enough to be inlined: a call would add 5 % to the time of encoding a record.
        let Event::Record(record) = event else { return self.rare(event, dictionary) };
        self.rows.push(record);
        if self.rows.len() >= self.chunk_rows { self.write_chunk(dictionary) } else { Ok(()) }
    }

    /// Like [`event`](Self::event), for all events except records.
    fn rare(&mut self, event: &Event, dictionary: &Dictionary) -> io::Result<()> {
        let is_full = match *event {
            Event::Counters(ref event) => {
                self.counters.push(**event);
                self.counters.len() >= COUNTER_EVENTS
            }
            Event::Collective(event) => {
                self.collectives.push(event);
                self.collectives.len() >= COLLECTIVE_EVENTS
            }
            Event::GraphNode(node) => {
                self.graph_nodes.push(node);
                self.graph_nodes.len() >= GRAPH_NODES
            }
            Event::MemoryCall(ref call) => {
                self.memory_calls.push(**call);
                self.memory_calls.len() >= MEMORY_CALLS
            }
            Event::Loss(ref loss) => {
                self.loss = **loss;
                false
            }
            Event::Flush(at) if self.long_chunks && self.loss == self.written_loss => {
                self.rows.mark(at);
                self.rows.marks() >= self.chunk_rows
            }
            _ => return self.write_now(event, dictionary),
        };
        if is_full { self.write_chunk(dictionary) } else { Ok(()) }
    }

    /// Writes all buffered data, then a block for the event itself.
    fn write_now(&mut self, event: &Event, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            let body = &mut writer.body;
            let (kind, from, to) = match event {
                // These are buffered and were written by `stage_chunk`, or with the next mark.
                Event::Record(_)
                | Event::Counters(_)
                | Event::Collective(_)
                | Event::GraphNode(_)
                | Event::MemoryCall(_)
                | Event::Loss(_) => return Ok(()),
                Event::Utilization { at, reading } => {
                    utilization::encode(reading, body);
                    (kind::UTILIZATION, *at, *at)
                }
                Event::KernelProfile(profile) => {
                    kernels::encode(profile, body);
                    (kind::KERNEL_PROFILE, profile.begin, profile.end)
                }
                Event::Capture(mark) => {
                    let at = meta::encode_capture(*mark, body);
                    (kind::CAPTURE, at, at)
                }
                Event::Cost { at, cost } => {
                    meta::encode_cost(cost, body);
                    (kind::COST, *at, *at)
                }
                Event::Flush(at) => {
                    writer.stage_loss(*at)?;
                    (kind::FLUSH, *at, *at)
                }
                Event::End(end, at) => {
                    writer.stage_loss(*at)?;
                    meta::encode_end(*end, &mut writer.body);
                    (kind::END, *at, *at)
                }
            };
            writer.stage(kind, 0, (from.nanos(), to.nanos()))
        })?;
        // A concurrent reader sees all data that is final.
        if matches!(event, Event::Flush(_)) { self.sink.flush() } else { Ok(()) }
    }

    /// Writes all buffered data and the final report; only the end may follow.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn answer(&mut self, at: Timestamp, answer: &StoredReport, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            stored_report::encode(answer, &mut writer.body);
            if writer.body.is_empty() { Ok(()) } else { writer.stage(kind::ANSWER, 0, (at.nanos(), at.nanos())) }
        })
    }

    /// Adds the final losses and the end, writes all buffered data, and returns the sink.
    ///
    /// # Errors
    /// Errors of the sink, which is then dropped.
    pub fn finish(mut self, end: End, at: Timestamp, loss: &Loss, dictionary: &Dictionary) -> io::Result<W> {
        self.loss = *loss;
        self.event(&Event::End(end, at), dictionary)?;
        Ok(self.close(dictionary)?.1)
    }

    /// Writes all buffered data and returns the sink with the number of bytes written to it. Without an
    /// earlier [end](Event::End), the trace ends [abruptly](End::Abrupt).
    ///
    /// # Errors
    /// Errors of the sink, which is then dropped.
    pub fn close(mut self, dictionary: &Dictionary) -> io::Result<(u64, W)> {
        self.transaction(|writer| {
            writer.stage_chunk(dictionary)?;
            writer.stage_loss(Timestamp::ZERO)
        })?;
        self.sink.flush()?;
        Ok((self.bytes_written, self.sink))
    }

    /// Bytes accepted by the sink.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Number of rows and events lost in failed writes.
    pub fn rows_lost(&self) -> u64 {
        self.rows_lost
    }

    #[cold]
    fn write_chunk(&mut self, dictionary: &Dictionary) -> io::Result<()> {
        self.transaction(|writer| writer.stage_chunk(dictionary))
    }

    /// Runs `stage` and writes the staged data. All buffers are empty afterwards, even on failure; then the
    /// rows count as lost, and the dictionary and losses as not written.
    fn transaction(&mut self, stage: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let (written, written_loss) = (self.written, self.written_loss);
        let result = stage(self).and_then(|()| self.commit());
        if result.is_err() {
            self.written = written;
            self.written_loss = written_loss;
            let beside =
                self.counters.len() + self.collectives.len() + self.graph_nodes.len() + self.memory_calls.len();
            self.rows_lost += (self.rows.len() + beside) as u64;
        }
        self.rows.clear();
        self.counters.clear();
        self.collectives.clear();
        self.graph_nodes.clear();
        self.memory_calls.clear();
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

    /// Stages counter events, new dictionary rows, and then all buffered rows. Counter events precede the
    /// rows, so that a reader has them before it reaches the flush mark after or among the rows.
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
            // After the dictionary, which contains the names of communicators.
            let times = collectives::times(&self.collectives);
            collectives::encode(&self.collectives, times.0, &mut self.body);
            self.stage(kind::COLLECTIVES, 0, times)?;
        }
        if !self.graph_nodes.is_empty() {
            // After the dictionary, which contains their stacks.
            let times = graph_nodes::times(&self.graph_nodes);
            graph_nodes::encode(&self.graph_nodes, times.0, &mut self.body);
            self.stage(kind::GRAPH_NODES, 0, times)?;
        }
        if !self.memory_calls.is_empty() {
            // After the dictionary, which contains their stacks and libraries.
            let times = memory_calls::times(&self.memory_calls);
            memory_calls::encode(&self.memory_calls, times.0, &mut self.body);
            self.stage(kind::MEMORY_CALLS, 0, times)?;
        }
        if self.rows.is_empty() {
            return Ok(());
        }
        self.rows.encode(times.0, &mut self.encoder, &mut self.body, &mut self.ends)?;
        self.stage(kind::EVENTS, 0, times)
    }

    fn stage_loss(&mut self, at: Timestamp) -> io::Result<()> {
        if self.loss == self.written_loss {
            return Ok(());
        }
        self.written_loss = self.loss;
        meta::encode_loss(&self.loss, &mut self.body);
        self.stage(kind::LOSS, 0, (at.nanos(), at.nanos()))
    }

    /// Appends `body` as a block to the staged blocks and clears it.
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
