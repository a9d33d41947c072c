//! Decodes the blocks of a trace one by one, independently of earlier blocks.
//!
//! This is the expensive half of reading: checksums, decompression and the rows of event blocks. It needs no
//! dictionary, so it can run ahead of the other half ([`Assembly`](super::Assembly)), also on another thread.
//! A block is decoded completely before its first record is returned: either all of its rows or none.

use std::io::Read;
use std::sync::Arc;

use zstd::bulk::Decompressor;

use super::block::{Header, MUST_UNDERSTAND, ZSTD, kind};
use super::source::ByteSource;
use super::varint::Malformed;
use super::{
    Damage, TraceError, collectives, counters, events, graph_nodes, kernels, memory_calls, meta, pack, utilization,
};
use crate::counters::CounterEvent;
use crate::event::Event;
use crate::kernels::KernelProfile;
use crate::memory_call::MemoryCall;
use crate::process_info::ProcessInfo;
use crate::record::Timestamp;

/// Block version that is read; the same for every kind.
const BLOCK_VERSION: u8 = 1;
/// Number of spare event buffers.
const SPARE: usize = 4;
/// Maximum events of a spare buffer: twice a block of a compacted trace. Larger blocks are not a writer's.
const SPARE_EVENTS: usize = 256 << 10;

/// A decoded block.
#[derive(Debug)]
pub struct Block {
    /// Offset in the file and length, bytes.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Decompressed bytes of the body; 0 if it was not decoded.
    unpacked: usize,
    pub(super) content: Content,
}

impl Block {
    /// Approximate memory use in bytes. Texts count: a name of megabytes compresses to a few hundred bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + match &self.content {
                Content::Events(events) => {
                    let beside = events.first().map_or(0, |event| self.beside(event));
                    size_of_val(events.as_slice()) + events.len() * beside
                }
                Content::Dictionary(body) => body.len(),
                Content::ProcessInfo(_) => size_of::<ProcessInfo>() + self.unpacked,
            }
    }

    /// Memory of an event in addition to its own size. A block contains only records, only counters, or one
    /// large event.
    fn beside(&self, event: &Event) -> usize {
        match event {
            Event::Counters(_) => size_of::<CounterEvent>(),
            Event::MemoryCall(_) => size_of::<MemoryCall>(),
            Event::KernelProfile(profile) => {
                let lists = size_of_val(profile.values.as_slice()) + size_of_val(profile.missing.as_slice());
                size_of::<KernelProfile>() + lists + self.unpacked
            }
            _ => 0,
        }
    }
}

/// Contents of a block.
#[derive(Debug)]
pub(super) enum Content {
    ProcessInfo(Box<ProcessInfo>),
    /// New dictionary rows, to be appended to the existing ones.
    Dictionary(Vec<u8>),
    Events(Vec<Event>),
}

/// Iterates over the blocks of a trace. Ends after the last complete block or after an error.
pub struct BlockReader<R> {
    source: ByteSource<R>,
    decompressor: Decompressor<'static>,
    /// Record blocks entirely outside this window are not decoded.
    window: Option<(Timestamp, Timestamp)>,
    /// Kinds of records that are decoded, one bit each.
    kinds: u32,
    /// Reusable memory for events: a block has a megabyte of them, too much to allocate each time.
    spare: Vec<Vec<Event>>,
    ended: bool,
    position: FilePosition,
}

/// Position in the expected order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilePosition {
    /// Before the first block.
    Begin,
    Middle,
    /// After END, which must be the last block.
    Behind,
}

impl<R: Read> BlockReader<R> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If the bytes are not a trace, or are of a newer major version.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let source = ByteSource::new(source)?;
        let decompressor = Decompressor::new().map_err(|source| TraceError::Io { offset: 0, source })?;
        Ok(Self {
            source,
            decompressor,
            window: None,
            kinds: u32::MAX,
            spare: Vec::new(),
            ended: false,
            position: FilePosition::Begin,
        })
    }

    /// Like [`TraceReader::only`](super::TraceReader::only).
    pub fn only(&mut self, from: Timestamp, to: Timestamp) {
        self.window = Some((from, to));
    }

    /// From now on, decodes only these kinds of records: bit `n` is the kind with index `n` in
    /// [`Record::KINDS`](crate::record::Record::KINDS). The rows of the others are verified by the checksum alone.
    pub fn records(&mut self, kinds: u32) {
        self.kinds = kinds;
    }

    /// Returns the memory of processed events for reuse by later blocks.
    pub fn reuse(&mut self, mut events: Vec<Event>) {
        // Other blocks contain only one event.
        if (2..=SPARE_EVENTS).contains(&events.capacity()) && self.spare.len() < SPARE {
            events.clear();
            self.spare.push(events);
        }
    }

    /// Missing and unreadable data up to this point.
    pub fn damage(&self) -> &Damage {
        &self.source.damage
    }

    /// Bytes read up to this point.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Returns the next block, or `None` at the end and after an error.
    ///
    /// # Errors
    /// If reading fails, or if a block is unknown and marked as indispensable.
    pub fn next_block(&mut self) -> Result<Option<Block>, TraceError> {
        if self.ended {
            return Ok(None);
        }
        let block = self.read_block();
        self.ended = !matches!(block, Ok(Some(_)));
        block
    }

    fn read_block(&mut self) -> Result<Option<Block>, TraceError> {
        let Some(header) = self.source.next_block()? else { return Ok(None) };
        let known = kind::ALL.iter().any(|&(kind, _)| kind == header.kind)
            && header.version == BLOCK_VERSION
            && header.flags & !(MUST_UNDERSTAND | ZSTD) == 0;
        if !known && header.flags & MUST_UNDERSTAND != 0 {
            let (kind, version) = (header.kind, header.version);
            return Err(TraceError::MustUnderstand { kind, version, offset: self.source.offset() });
        }
        let outside = |(from, to): (Timestamp, Timestamp)| header.t_max < from.nanos() || header.t_min > to.nanos();
        self.check_place(&header);
        let (mut content, mut unpacked) = (Content::Events(Vec::new()), 0);
        if !known {
            self.source.damage.unknown_blocks += 1;
        } else if matches!(header.kind, kind::EVENTS | kind::COUNTERS | kind::COLLECTIVES)
            && header.t_max > 0
            && self.window.is_some_and(outside)
        {
            // Its checksum is verified, but the body is skipped.
        } else {
            match self.take_apart(&header) {
                Ok(apart) => (content, unpacked) = apart,
                Err(Malformed) => self.source.reject(),
            }
        }
        let (offset, bytes) = self.source.current();
        Ok(Some(Block { offset, bytes, unpacked, content }))
    }

    /// Counts blocks at positions that the format does not allow. Their contents are used because they are
    /// complete. A lost first block is counted as missing instead.
    fn check_place(&mut self, header: &Header) {
        let is_session = header.kind == kind::SESSION;
        let right = match self.position {
            FilePosition::Begin => is_session || header.sequence > 0,
            FilePosition::Middle => !is_session,
            FilePosition::Behind => false,
        };
        if !right {
            self.source.damage.note(self.source.offset());
            self.source.damage.misplaced_blocks += 1;
        }
        if header.kind == kind::END {
            self.position = FilePosition::Behind;
        } else if self.position == FilePosition::Begin {
            self.position = FilePosition::Middle;
        }
    }

    fn take_apart(&mut self, header: &Header) -> Result<(Content, usize), Malformed> {
        let inflated;
        let mut body = self.source.body();
        if header.flags & ZSTD != 0 {
            inflated = pack::unpack(&mut self.decompressor, body)?;
            body = &inflated;
        }
        let at = Timestamp::from_nanos(header.t_max);
        let unpacked = body.len();
        let event = match header.kind {
            kind::SESSION => return Ok((Content::ProcessInfo(Box::new(meta::decode_session(body)?)), unpacked)),
            kind::DICTIONARY => return Ok((Content::Dictionary(body.to_vec()), unpacked)),
            // Not part of the recorded data: `StoredReport::read` reads it.
            kind::ANSWER => return Ok((Content::Events(Vec::new()), unpacked)),
            kind::EVENTS => {
                let mut events = self.spare.pop().unwrap_or_default();
                let unknown = events::decode(body, header.t_min, self.kinds, |event| events.push(event))?;
                self.source.damage.unknown_rows += unknown;
                return Ok((Content::Events(events), unpacked));
            }
            kind::COUNTERS => {
                let mut events = self.spare.pop().unwrap_or_default();
                let unknown = counters::decode(body, header.t_min, |event| events.push(event.into()))?;
                self.source.damage.unknown_rows += unknown;
                return Ok((Content::Events(events), unpacked));
            }
            kind::COLLECTIVES => {
                let mut events = self.spare.pop().unwrap_or_default();
                let unknown = collectives::decode(body, header.t_min, |event| events.push(Event::Collective(event)))?;
                self.source.damage.unknown_rows += unknown;
                return Ok((Content::Events(events), unpacked));
            }
            // Never outside a window: records name nodes that were added long before.
            kind::GRAPH_NODES => {
                let mut events = self.spare.pop().unwrap_or_default();
                let unknown = graph_nodes::decode(body, header.t_min, |node| events.push(Event::GraphNode(node)))?;
                self.source.damage.unknown_rows += unknown;
                return Ok((Content::Events(events), unpacked));
            }
            // Never outside a window: what is held at its start was taken long before.
            kind::MEMORY_CALLS => {
                let mut events = self.spare.pop().unwrap_or_default();
                let give = |call| events.push(Event::MemoryCall(Box::new(call)));
                let unknown = memory_calls::decode(body, header.t_min, give)?;
                self.source.damage.unknown_rows += unknown;
                return Ok((Content::Events(events), unpacked));
            }
            kind::KERNEL_PROFILE => Event::KernelProfile(Arc::new(kernels::decode(body)?)),
            kind::LOSS => meta::decode_loss(body)?.into(),
            kind::CAPTURE => Event::Capture(meta::decode_capture(body, at)?),
            kind::COST => (at, meta::decode_cost(body)?).into(),
            kind::UTILIZATION => (at, utilization::decode(body)?).into(),
            kind::FLUSH => Event::Flush(at),
            kind::CALL_RECORDING => {
                self.source.damage.calls_left_out += u64::from(body == [0]);
                return Ok((Content::Events(Vec::new()), unpacked));
            }
            kind::END => Event::End(meta::decode_end(body)?, at),
            _ => return Err(Malformed),
        };
        Ok((Content::Events(vec![event]), unpacked))
    }
}
