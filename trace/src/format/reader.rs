//! Reads a trace, complete or not.
//!
//! [`BlockReader`] provides decoded blocks; this module assembles them in order. Dictionary entries precede the
//! records that refer to them.

use std::io::Read;

use super::blocks::{Block, BlockReader, Content};
use super::entry::Rebuilt;
use super::{Damage, TraceError};
use crate::dictionary::Dictionary;
use crate::event::Event;
use crate::process_info::ProcessInfo;
use crate::record::Timestamp;

/// Maximum number of kernel profiles that are returned; a writer measures some dozens.
const MAX_PROFILES: usize = 1_024;
/// Maximum memory of all profiles together, in bytes. A profile takes about 40 kB.
const MAX_KEPT: usize = 128 << 20;

/// State accumulated from the blocks of a trace, in order.
#[derive(Default)]
pub struct Assembly {
    session: ProcessInfo,
    has_session: bool,
    rebuilt: Rebuilt,
    /// Number of kernel profiles returned, and their memory, bytes.
    profiles: usize,
    kept: usize,
    /// Complete blocks that contradict the blocks before them or exceed the limits.
    rejected: Damage,
}

impl Assembly {
    /// Processes the next block and returns its events.
    pub fn take(&mut self, block: Block) -> Vec<Event> {
        let memory = block.memory();
        match block.content {
            Content::Events(events) if self.has_room(&events, memory) => return events,
            Content::Events(_) => self.rejected.reject(block.offset, block.bytes),
            // A second session block is damage and is counted elsewhere; the first one applies.
            Content::ProcessInfo(_) if self.has_session => {}
            Content::ProcessInfo(session) => (self.session, self.has_session) = (*session, true),
            Content::Dictionary(body) => {
                if self.rebuilt.apply(&body).is_err() {
                    self.rejected.reject(block.offset, block.bytes);
                }
            }
        }
        Vec::new()
    }

    /// Checks the limits for profiles, which sinks keep until the end. Each of them has a separate block.
    fn has_room(&mut self, events: &[Event], memory: usize) -> bool {
        let Some(Event::KernelProfile(_)) = events.first() else { return true };
        let kept = self.kept + memory;
        if self.profiles >= MAX_PROFILES || kept > MAX_KEPT {
            return false;
        }
        self.profiles += 1;
        self.kept = kept;
        true
    }

    /// Description of the traced process.
    pub fn session(&self) -> &ProcessInfo {
        &self.session
    }

    /// Dictionary of all events returned up to this point.
    pub fn dictionary(&self) -> &Dictionary {
        &self.rebuilt.dictionary
    }

    /// Damage up to this point, including `blocks`, the damage found by the block reader.
    pub fn damage(&self, blocks: &Damage) -> Damage {
        blocks.with(&self.rejected)
    }
}

/// Iterates over a trace; see [the module](super). Ends after the last complete block or after an error.
pub struct TraceReader<R> {
    blocks: BlockReader<R>,
    assembly: Assembly,
    events: Vec<Event>,
    given: usize,
}

impl<R: Read> TraceReader<R> {
    /// Reads the file header and the first block, which contains the session.
    ///
    /// # Errors
    /// If the bytes are not a trace, are of a newer major version, or contain no block. A damaged session is
    /// not an error: [`session`](Self::session) is then empty and [`damage`](Self::damage) reports it.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let mut blocks = BlockReader::new(source)?;
        let mut assembly = Assembly::default();
        match blocks.next_block()? {
            Some(block) => {
                let events = assembly.take(block);
                Ok(Self { blocks, assembly, events, given: 0 })
            }
            None => Err(TraceError::Truncated { offset: blocks.offset() }),
        }
    }

    /// From now on, decodes only record blocks with a time between `from` and `to`, and those without times.
    /// The returned records extend beyond the window by up to one block on either side. A block holds the data
    /// between two flushes, or 16,384 records.
    pub fn only(&mut self, from: Timestamp, to: Timestamp) {
        self.blocks.only(from, to);
    }

    /// Like [`BlockReader::records`].
    pub fn records(&mut self, kinds: u32) {
        self.blocks.records(kinds);
    }

    /// Description of the traced process.
    pub fn session(&self) -> &ProcessInfo {
        self.assembly.session()
    }

    /// Dictionary of all events read up to this point.
    pub fn dictionary(&self) -> &Dictionary {
        self.assembly.dictionary()
    }

    /// Missing and unreadable data up to this point.
    pub fn damage(&self) -> Damage {
        self.assembly.damage(self.blocks.damage())
    }

    /// The session, dictionary and damage of a trace that has been read.
    #[must_use]
    pub fn into_parts(self) -> (ProcessInfo, Dictionary, Damage) {
        let damage = self.damage();
        (self.assembly.session, self.assembly.rebuilt.dictionary, damage)
    }

    /// Splits the reader into the remaining blocks, the state assembled up to this point, and the events not yet
    /// returned, so that decoding and assembling can continue on two threads.
    #[must_use]
    pub fn into_halves(mut self) -> (BlockReader<R>, Assembly, Vec<Event>) {
        self.events.drain(..self.given);
        (self.blocks, self.assembly, self.events)
    }

    /// Returns the next event, or `None` at the end and after an error.
    ///
    /// # Errors
    /// If reading fails, or if a block is unknown and marked as indispensable.
    pub fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.events.get(self.given) {
                self.given += 1;
                return Ok(Some(event.clone()));
            }
            self.blocks.reuse(std::mem::take(&mut self.events));
            self.given = 0;
            let Some(block) = self.blocks.next_block()? else { return Ok(None) };
            self.events = self.assembly.take(block);
        }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}
