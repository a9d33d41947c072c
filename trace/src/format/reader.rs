//! Reads a trace back, whole or not.
//!
//! Blocks come taken apart ([`BlockReader`]); here they are put together in their order. The dictionary grows along the
//! way, always ahead of the records that need it.

use std::io::Read;

use super::blocks::{Block, BlockReader, Content};
use super::entry::Rebuilt;
use super::{Damage, TraceError};
use crate::dictionary::Dictionary;
use crate::event::Event;
use crate::process_info::ProcessInfo;
use crate::record::Timestamp;

/// Profiles of kernels that are given; a writer measures some dozens.
const MAX_PROFILES: usize = 1_024;
/// The same of windows of program counters, which are larger; a writer makes one for a device.
const MAX_WINDOWS: usize = 16;
/// Memory of both, bytes. A profile takes some 40 kB, and a window at most some 8 MB.
const MAX_KEPT: usize = 128 << 20;

/// What the blocks of a trace add up to, taken in order.
#[derive(Default)]
pub struct Assembly {
    session: ProcessInfo,
    has_session: bool,
    rebuilt: Rebuilt,
    /// Profiles of kernels and windows of program counters that were given, and the memory of both, bytes.
    profiles: usize,
    windows: usize,
    kept: usize,
    /// Blocks that were whole and made no sense behind those before them.
    rejected: Damage,
}

impl Assembly {
    /// Takes in the next block, and gives the events in it.
    pub fn take(&mut self, block: Block) -> Vec<Event> {
        let memory = block.memory();
        match block.content {
            Content::Events(events) if self.has_room(&events, memory) => return events,
            Content::Events(_) => self.rejected.reject(block.offset, block.bytes),
            // A second one is damage, and counted as such; the records are those of the first.
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

    /// Whether sinks have room for the events of a block, which keep profiles and windows until the end. Each of these
    /// has a block of its own.
    fn has_room(&mut self, events: &[Event], memory: usize) -> bool {
        let (given, most) = match events.first() {
            Some(Event::KernelProfile(_)) => (&mut self.profiles, MAX_PROFILES),
            Some(Event::ProgramCounters(_)) => (&mut self.windows, MAX_WINDOWS),
            _ => return true,
        };
        let kept = self.kept + memory;
        if *given >= most || kept > MAX_KEPT {
            return false;
        }
        *given += 1;
        self.kept = kept;
        true
    }

    /// Who was traced.
    pub fn session(&self) -> &ProcessInfo {
        &self.session
    }

    /// Everything that the events given so far refer to.
    pub fn dictionary(&self) -> &Dictionary {
        &self.rebuilt.dictionary
    }

    /// What was missing or unreadable so far, on top of what the reader of the blocks met.
    pub fn damage(&self, blocks: &Damage) -> Damage {
        blocks.with(&self.rejected)
    }
}

/// Iterates over a trace; see [the module](super). Ends after the last block that is whole, or after an error.
pub struct TraceReader<R> {
    blocks: BlockReader<R>,
    assembly: Assembly,
    events: Vec<Event>,
    given: usize,
}

impl<R: Read> TraceReader<R> {
    /// Reads the file header and the first block, which holds the session.
    ///
    /// # Errors
    /// When the bytes are no trace, are of a newer major version, or hold no block. A damaged session is not an
    /// error: [`session`](Self::session) is empty then and [`damage`](Self::damage) says so.
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

    /// From here on, decodes only blocks of records with a time between `from` and `to`, and those without times. What
    /// comes out reaches beyond the window by up to a block on either side: what lay between two flushes, or 16,384
    /// records.
    pub fn only(&mut self, from: Timestamp, to: Timestamp) {
        self.blocks.only(from, to);
    }

    /// Who was traced.
    pub fn session(&self) -> &ProcessInfo {
        self.assembly.session()
    }

    /// Everything that the events read so far refer to.
    pub fn dictionary(&self) -> &Dictionary {
        self.assembly.dictionary()
    }

    /// What was missing or unreadable so far.
    pub fn damage(&self) -> Damage {
        self.assembly.damage(self.blocks.damage())
    }

    /// The session, dictionary and damage of a trace that has been read.
    #[must_use]
    pub fn into_parts(self) -> (ProcessInfo, Dictionary, Damage) {
        let damage = self.damage();
        (self.assembly.session, self.assembly.rebuilt.dictionary, damage)
    }

    /// What is left to be read: the blocks, what those so far add up to, and the events that were not asked for yet.
    /// The two halves of reading can then go on on two threads.
    #[must_use]
    pub fn into_halves(mut self) -> (BlockReader<R>, Assembly, Vec<Event>) {
        self.events.drain(..self.given);
        (self.blocks, self.assembly, self.events)
    }

    /// The next event; `None` at the end and after an error.
    ///
    /// # Errors
    /// When reading fails, or at a block that must be understood and is not.
    pub fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.events.get(self.given) {
                self.given += 1;
                return Ok(Some(event.clone()));
            }
            let Some(block) = self.blocks.next_block()? else { return Ok(None) };
            let done = std::mem::replace(&mut self.events, self.assembly.take(block));
            self.given = 0;
            self.blocks.reuse(done);
        }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}
