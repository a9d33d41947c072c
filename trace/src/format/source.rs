//! Finds complete blocks in bytes that may be cut, overwritten or torn.
//!
//! It works on any `Read`, so it buffers one block and grows only by bytes that have actually arrived; a
//! hostile length allocates no memory. After an invalid block, the search continues right after its first
//! byte rather than after its body: after a gap, the announced length points into the middle of another
//! block. Every byte is either part of a valid block or counted. Reading bodies that turn out invalid is
//! wasted work, and a file of headers that announce large bodies would take quadratic time. Beyond a limit
//! that real gaps do not approach, the search therefore continues after an invalid body.

use std::io::{self, Read};

use super::block::{BLOCK_HEADER, FILE_HEADER, Header, SYNC, check_file_header};
use super::{Damage, TraceError};

/// Bytes requested per read.
const READ: usize = 64 << 10;

/// Maximum bytes of invalid bodies that are checked; beyond it, such a body is skipped entirely.
const WASTE: u64 = 256 << 20;

pub(super) struct ByteSource<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Start of the unread bytes in `buffer`.
    at: usize,
    /// Where `buffer` starts in the file.
    origin: u64,
    /// Bytes of the block returned last, still at `at`.
    current: usize,
    /// Expected sequence number of the next block.
    expected: u32,
    /// Bytes of bodies that were checked and found invalid.
    wasted: u64,
    /// True if the end of the file was reached.
    at_end: bool,
    pub(super) damage: Damage,
}

impl<R: Read> ByteSource<R> {
    /// Reads and checks the file header.
    pub(super) fn new(inner: R) -> Result<Self, TraceError> {
        let mut source = Self {
            inner,
            buffer: Vec::new(),
            at: 0,
            origin: 0,
            current: 0,
            expected: 0,
            wasted: 0,
            at_end: false,
            damage: Damage::default(),
        };
        source.fill(FILE_HEADER)?;
        let head = source.unread();
        if !check_file_header(&head[..head.len().min(FILE_HEADER)])? {
            source.damage.file_header = true;
            source.damage.note(0);
        }
        source.at += FILE_HEADER;
        Ok(source)
    }

    /// Bytes read up to this point: the start of the current block, or the end of the file.
    pub(super) fn offset(&self) -> u64 {
        self.origin + self.at as u64
    }

    /// Stored body of the block found by [`next_block`](Self::next_block).
    pub(super) fn body(&self) -> &[u8] {
        self.buffer.get(self.at + BLOCK_HEADER..self.at + self.current).unwrap_or_default()
    }

    /// Offset and length of the block returned last, bytes.
    pub(super) fn current(&self) -> (u64, u64) {
        (self.offset(), self.current as u64)
    }

    /// Rejects the block returned last: its checksum is correct, but its content is not.
    pub(super) fn reject(&mut self) {
        let (offset, bytes) = self.current();
        self.damage.reject(offset, bytes);
    }

    /// Returns the header of the next valid block, or `None` at the end of the file.
    pub(super) fn next_block(&mut self) -> Result<Option<Header>, TraceError> {
        self.at += std::mem::take(&mut self.current);
        let mut lost = 0u64;
        loop {
            self.fill(BLOCK_HEADER)?;
            if self.unread().is_empty() {
                self.damage.torn_tail_bytes += lost;
                return Ok(None);
            }
            let mut bad = 0;
            if let Some(header) = Header::decode(self.unread()) {
                let total = BLOCK_HEADER + header.body_bytes as usize;
                self.fill(total)?;
                if let Some(body) = self.unread().get(BLOCK_HEADER..total) {
                    let whole = crc32fast::hash(body) == header.body_crc;
                    let missing = header.sequence.wrapping_sub(self.expected);
                    // Lower numbers are repetitions: a piece of the file occurs twice.
                    let in_order = missing <= u32::MAX / 2;
                    if in_order {
                        self.damage.missing_blocks += u64::from(missing);
                        self.expected = header.sequence.wrapping_add(1);
                        if missing > 0 {
                            self.damage.note(self.offset());
                        }
                    }
                    if whole && in_order {
                        self.damage.skipped_bytes += lost;
                        self.current = total;
                        return Ok(Some(header));
                    }
                    self.damage.skipped_blocks += 1;
                    bad = total;
                }
            }
            self.damage.note(self.offset());
            self.wasted += bad as u64;
            lost += if bad > 0 && self.wasted > WASTE { self.step(bad) } else { self.resync() } as u64;
        }
    }

    /// Advances to the next byte that may start a block. Returns the number of bytes skipped.
    fn resync(&mut self) -> usize {
        let unread = self.unread();
        let behind = unread.iter().skip(1).position(|&byte| byte == SYNC.to_le_bytes()[0]);
        self.step(behind.map_or(unread.len(), |position| position + 1))
    }

    fn step(&mut self, bytes: usize) -> usize {
        self.at += bytes;
        bytes
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Reads until `wanted` unread bytes are buffered; fewer at the end of the file.
    fn fill(&mut self, wanted: usize) -> Result<(), TraceError> {
        // Near the end of the file, every candidate for a block requests more: moving the rest each time
        // would take quadratic time.
        if self.at_end || self.unread().len() >= wanted {
            return Ok(());
        }
        self.origin += self.at as u64;
        self.buffer.drain(..self.at);
        self.at = 0;
        while self.buffer.len() < wanted {
            let have = self.buffer.len();
            self.buffer.resize(have + READ, 0);
            let read = self.inner.read(&mut self.buffer[have..]);
            self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => {
                    self.at_end = true;
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Io { offset: self.origin + have as u64, source }),
            }
        }
        Ok(())
    }
}
