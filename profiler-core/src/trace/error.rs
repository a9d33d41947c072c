//! What keeps a trace from being read, and what is missing from one that was read.
//!
//! The line between the two: damage never stops the reader. Errors do, and name the byte offset; whoever opened the
//! file adds its name.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a trace cannot be read, or not further.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// There is not a single byte.
    Empty,
    /// The file starts differently.
    NotATrace {
        /// What the first bytes look like, when they look like something.
        looks_like: Option<&'static str>,
    },
    /// Written in a format that this version does not read.
    TooNew {
        /// Major and minor version of the file.
        found: (u16, u16),
        /// The newest major and minor version that is read.
        supported: (u16, u16),
    },
    /// The file ends before its first block does: nothing was recorded.
    Truncated {
        /// Where it ends, bytes.
        offset: u64,
    },
    /// A block that this version does not know and that the writer marked as indispensable.
    MustUnderstand {
        /// Kind number of the block.
        kind: u16,
        /// Version of the block.
        version: u8,
        /// Where it starts, bytes.
        offset: u64,
    },
    /// Reading failed.
    Io {
        /// How far reading had come, bytes.
        offset: u64,
        /// The operating system's answer.
        source: io::Error,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty: the program ended before anything was written"),
            Self::NotATrace { looks_like: Some(what) } => {
                write!(f, "not a gpuprof trace: at byte 0 it looks like {what}")
            }
            Self::NotATrace { looks_like: None } => f.write_str("not a gpuprof trace: unknown bytes at byte 0"),
            Self::TooNew { found, supported } => write!(
                f,
                "trace format {}.{} at byte 8 is newer than {}.{}, the newest this version reads: update gpuprof",
                found.0, found.1, supported.0, supported.1
            ),
            Self::Truncated { offset } => {
                write!(f, "the trace ends at byte {offset}, before its first block is complete: nothing was recorded")
            }
            Self::MustUnderstand { kind, version, offset } => write!(
                f,
                "block kind {kind} version {version} at byte {offset} must be understood and is not: update gpuprof"
            ),
            Self::Io { offset, source } => write!(f, "reading failed at byte {offset}: {source}"),
        }
    }
}

impl Error for TraceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What the reader met on the way and could not use. Final once the last item has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The file header is damaged behind its magic bytes. The blocks check themselves, so reading went on.
    pub file_header: bool,
    /// Bytes behind the last good block: the block that was being written when the process died.
    pub torn_tail_bytes: u64,
    /// Blocks whose header was good and whose body was not, or which repeat an earlier sequence number.
    pub skipped_blocks: u64,
    /// Bytes, other than a torn tail, that belong to no good block.
    pub skipped_bytes: u64,
    /// Sequence numbers of blocks that were never found.
    pub missing_blocks: u64,
    /// Whole blocks of a kind or version that this version does not know.
    pub unknown_blocks: u64,
    /// Rows of a kind, or in an encoding, that this version does not know.
    pub unknown_rows: u64,
    /// Where the first damage is, bytes.
    pub first_offset: Option<u64>,
}

impl Damage {
    /// Whether everything in the file was good and was understood.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Notes where damage was met for the first time.
    pub(super) fn note(&mut self, offset: u64) {
        self.first_offset.get_or_insert(offset);
    }
}
