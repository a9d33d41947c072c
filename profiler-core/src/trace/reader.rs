//! Reads a trace back, whole or not.
//!
//! A block is decoded completely before its first record comes out: either all of its rows or none. The dictionary
//! grows along the way, always ahead of the records that need it.

use std::collections::VecDeque;
use std::io::Read;

use zstd::bulk::Decompressor;

use super::block::{Header, MUST_UNDERSTAND, ZSTD, kind};
use super::entry::Rebuilt;
use super::source::Source;
use super::varint::Malformed;
use super::{Damage, Item, TraceError, events, gauges, meta, pack};
use crate::dictionary::Dictionary;
use crate::record::Timestamp;
use crate::session::Session;

/// The block version that is read, of every kind.
const BLOCK_VERSION: u8 = 1;

/// Iterates over a trace; see [the module](super). Ends after the last block that is whole, or after an error.
pub struct TraceReader<R> {
    source: Source<R>,
    decompressor: Decompressor<'static>,
    session: Session,
    rebuilt: Rebuilt,
    items: VecDeque<Item>,
    /// Blocks of records wholly outside are not decoded.
    window: Option<(Timestamp, Timestamp)>,
    ended: bool,
}

impl<R: Read> TraceReader<R> {
    /// Reads the file header and the first block, which holds the session.
    ///
    /// # Errors
    ///
    /// When the bytes are no trace, are of a newer major version, or hold no block. A damaged session is not an
    /// error: [`session`](Self::session) is empty then and [`damage`](Self::damage) says so.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let source = Source::new(source)?;
        let decompressor = Decompressor::new().map_err(|source| TraceError::Io { offset: 0, source })?;
        let mut reader = Self {
            source,
            decompressor,
            session: Session::default(),
            rebuilt: Rebuilt::default(),
            items: VecDeque::new(),
            window: None,
            ended: false,
        };
        if reader.read_block()? { Ok(reader) } else { Err(TraceError::Truncated { offset: reader.source.offset() }) }
    }

    /// From here on, decodes only blocks of records with a time between `from` and `to`, and those without times. What
    /// comes out reaches beyond the window by up to a block on either side: what lay between two flushes, or 16,384 records.
    pub fn only(&mut self, from: Timestamp, to: Timestamp) {
        self.window = Some((from, to));
    }

    /// Who was traced.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Everything that the items read so far refer to.
    #[must_use]
    pub fn dictionary(&self) -> &Dictionary {
        &self.rebuilt.dictionary
    }

    /// What was missing or unreadable so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.source.damage
    }

    /// The session, dictionary and damage of a trace that has been read.
    #[must_use]
    pub fn into_parts(self) -> (Session, Dictionary, Damage) {
        (self.session, self.rebuilt.dictionary, self.source.damage)
    }

    /// The next item; `None` at the end and after an error.
    ///
    /// # Errors
    ///
    /// When reading fails, or at a block that must be understood and is not.
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            if self.ended {
                return Ok(None);
            }
            match self.read_block() {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
    }

    /// Takes in one block; false when there is none.
    fn read_block(&mut self) -> Result<bool, TraceError> {
        let Some(header) = self.source.next_block()? else { return Ok(false) };
        let known = (kind::SESSION..=kind::ANSWER).contains(&header.kind)
            && header.version == BLOCK_VERSION
            && header.flags & !(MUST_UNDERSTAND | ZSTD) == 0;
        if !known && header.flags & MUST_UNDERSTAND != 0 {
            let (kind, version) = (header.kind, header.version);
            return Err(TraceError::MustUnderstand { kind, version, offset: self.source.offset() });
        }
        let outside = |(from, to): (Timestamp, Timestamp)| header.t_max < from.nanos() || header.t_min > to.nanos();
        if !known {
            self.source.damage.unknown_blocks += 1;
        } else if header.kind == kind::EVENTS && header.t_max > 0 && self.window.is_some_and(outside) {
            // Checked, and passed over.
        } else if self.take_in(&header).is_err() {
            self.items.clear();
            self.source.reject();
        }
        Ok(true)
    }

    fn take_in(&mut self, header: &Header) -> Result<(), Malformed> {
        let unpacked;
        let mut body = self.source.body();
        if header.flags & ZSTD != 0 {
            unpacked = pack::unpack(&mut self.decompressor, body)?;
            body = &unpacked;
        }
        let at = Timestamp::from_nanos(header.t_max);
        match header.kind {
            // Not a part of what was recorded: `Answer::read` is for it.
            kind::ANSWER => {}
            kind::SESSION => self.session = meta::decode_session(body)?,
            kind::DICTIONARY => self.rebuilt.apply(body)?,
            kind::EVENTS => {
                let items = &mut self.items;
                let unknown = events::decode(body, header.t_min, |item| items.push_back(item))?;
                self.source.damage.unknown_rows += unknown;
            }
            kind::LOSS => self.items.push_back(Item::Loss(meta::decode_loss(body)?)),
            kind::CAPTURE => self.items.push_back(Item::Capture(meta::decode_capture(body, at)?)),
            kind::COST => self.items.push_back(Item::Cost(meta::decode_cost(body)?)),
            kind::UTILISATION => self.items.push_back(Item::Utilisation(gauges::decode(body)?)),
            kind::FLUSH => self.items.push_back(Item::Flush(at)),
            _ => self.items.push_back(Item::End(meta::decode_end(body)?, at)),
        }
        Ok(())
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}
