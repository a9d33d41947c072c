//! Errors that prevent reading a trace, and damage found in a trace that was read.
//!
//! Damage never stops the reader. Errors do, and contain the byte offset; the code that opened the file adds
//! its name.

use std::error::Error;
use std::{fmt, io};

/// Why a trace cannot be read, or cannot be read further.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The file is empty.
    Empty,
    /// The file does not start like a trace.
    NotATrace {
        /// Probable file type by the first bytes, if recognized.
        looks_like: Option<&'static str>,
    },
    /// Written in a format that is newer than this version supports.
    TooNew {
        /// Major and minor version of the file.
        found: (u16, u16),
        /// Newest major and minor version that can be read.
        supported: (u16, u16),
    },
    /// The file ends before its first block does: it contains no data.
    Truncated {
        /// Offset of the end, bytes.
        offset: u64,
    },
    /// A block is unknown to this version and marked as indispensable by the writer.
    MustUnderstand {
        /// Kind number of the block.
        kind: u16,
        /// Version of the block.
        version: u8,
        /// Offset of the block, bytes.
        offset: u64,
    },
    /// Reading failed.
    Io {
        /// Offset at which reading failed, bytes.
        offset: u64,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty: the program ended before anything was written"),
            Self::NotATrace { looks_like: Some(what) } => {
                write!(f, "not a gpuwhy trace: at byte 0 it looks like {what}")
            }
            Self::NotATrace { looks_like: None } => f.write_str("not a gpuwhy trace: unknown bytes at byte 0"),
            Self::TooNew { found, supported } => write!(
                f,
                "trace format {}.{} at byte 8 is newer than {}.{}, the newest this version reads: update gpuwhy",
                found.0, found.1, supported.0, supported.1
            ),
            Self::Truncated { offset } => {
                write!(f, "the trace ends at byte {offset}, before its first block is complete: nothing was recorded")
            }
            Self::MustUnderstand { kind, version, offset } => write!(
                f,
                "block kind {kind} version {version} at byte {offset} must be understood and is not: update gpuwhy"
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

/// Damage found by the reader. Final once the last event has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The file header is damaged after its magic bytes. Blocks have their own checksums, so reading
    /// continued.
    pub file_header: bool,
    /// Bytes after the last valid block: the block that was being written when the process died.
    pub torn_tail_bytes: u64,
    /// Blocks with a valid header whose body is damaged, or that repeat an earlier sequence number.
    pub skipped_blocks: u64,
    /// Bytes, other than a torn tail, that belong to no valid block.
    pub skipped_bytes: u64,
    /// Number of sequence numbers for which no block was found.
    pub missing_blocks: u64,
    /// Complete blocks at positions that the format does not allow: a session that is not the first block,
    /// any other kind as the first block, or any block after the end. Their contents are used nevertheless.
    pub misplaced_blocks: u64,
    /// Complete blocks of a kind or version unknown to this version.
    pub unknown_blocks: u64,
    /// Intervals of the run in which an earlier version left out API calls.
    pub calls_left_out: u64,
    /// Rows of a kind, or in an encoding, unknown to this version.
    pub unknown_rows: u64,
    /// Offset of the first damage, bytes.
    pub first_offset: Option<u64>,
}

impl Damage {
    /// True if everything in the file was valid and known.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Describes the missing data, one sentence for each kind of damage. Empty without damage.
    pub fn sentences(&self) -> Vec<String> {
        let counted = |count: u64, thing: &str, what: &str| {
            (count > 0).then(|| format!("{count} {thing}{} {what}", if count == 1 { "" } else { "s" }))
        };
        let mut notes: Vec<String> = [
            self.file_header.then(|| "the file header is damaged".to_owned()),
            counted(self.torn_tail_bytes, "byte", "at the end belong to a block that was cut off while being written"),
            counted(self.skipped_blocks, "block", "skipped: the checksum does not fit, or the block came twice"),
            counted(self.skipped_bytes, "byte", "skipped that belong to no intact block"),
            counted(self.missing_blocks, "block", "missing"),
            counted(
                self.misplaced_blocks,
                "block",
                "in a place where no gpuwhy writes it: the file was put together by hand",
            ),
            counted(self.unknown_blocks, "block", "of a kind that this version of gpuwhy does not read"),
            counted(
                self.calls_left_out,
                "part",
                "of the run without records of API calls, as earlier versions could record: causes of idle time there are \
                 not known",
            ),
            counted(self.unknown_rows, "record", "of a kind that this version of gpuwhy does not read"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let (false, Some(offset)) = (notes.is_empty(), self.first_offset) {
            notes.push(format!("the first damage is at byte {offset}"));
        }
        notes
    }

    /// Counts a damaged block of `bytes` at `offset`.
    pub(super) fn reject(&mut self, offset: u64, bytes: u64) {
        self.note(offset);
        self.skipped_blocks += 1;
        self.skipped_bytes += bytes;
    }

    /// Sum of the damage found in two parts of reading one trace.
    pub(super) fn with(&self, other: &Self) -> Self {
        Self {
            file_header: self.file_header || other.file_header,
            torn_tail_bytes: self.torn_tail_bytes + other.torn_tail_bytes,
            skipped_blocks: self.skipped_blocks + other.skipped_blocks,
            skipped_bytes: self.skipped_bytes + other.skipped_bytes,
            missing_blocks: self.missing_blocks + other.missing_blocks,
            misplaced_blocks: self.misplaced_blocks + other.misplaced_blocks,
            unknown_blocks: self.unknown_blocks + other.unknown_blocks,
            calls_left_out: self.calls_left_out + other.calls_left_out,
            unknown_rows: self.unknown_rows + other.unknown_rows,
            first_offset: self.first_offset.into_iter().chain(other.first_offset).min(),
        }
    }

    /// Notes the offset of damage if it is the first.
    pub(super) fn note(&mut self, offset: u64) {
        self.first_offset.get_or_insert(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::Damage;

    #[test]
    fn an_intact_trace_has_no_damage_to_describe() {
        assert!(Damage::default().sentences().is_empty());
    }

    #[test]
    fn every_kind_of_damage_has_a_sentence_and_the_place_is_named() {
        let damage = Damage {
            file_header: true,
            torn_tail_bytes: 17,
            skipped_blocks: 1,
            skipped_bytes: 40,
            missing_blocks: 2,
            misplaced_blocks: 5,
            unknown_blocks: 3,
            unknown_rows: 4,
            calls_left_out: 6,
            first_offset: Some(4096),
        };
        let notes = damage.sentences();
        assert_eq!(notes.len(), 10);
        assert!(notes[1].starts_with("17 bytes") && notes[2].starts_with("1 block skipped"), "{notes:?}");
        assert!(notes[9].contains("4096"));
    }
}
