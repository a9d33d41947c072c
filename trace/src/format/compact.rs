//! Rewrites a trace in a smaller form, and measures the size of each kind of record.
//!
//! The copy contains the same events in the same order, so all reports and exports are equal to those of the
//! original. A damaged trace is rejected: its copy would look complete and hide the missing data.

use std::fmt;
use std::io::{self, Read, Write};

use super::{TraceError, TraceReader, TraceWriter};
use crate::dictionary::Dictionary;
use crate::event::Event;
use crate::process_info::End;
use crate::record::{Record, Timestamp};

/// Result of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Records of all kinds.
    pub records: u64,
    /// Bytes of the copy.
    pub bytes: u64,
}

/// Why a trace was not compacted.
#[derive(Debug)]
pub enum CompactError {
    /// The trace could not be read.
    Read(TraceError),
    /// Parts of the trace are missing, unreadable or of a newer version; one sentence each.
    Damaged(Vec<String>),
    /// The copy could not be written.
    Write(io::Error),
}

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "{error}"),
            Self::Damaged(sentences) => {
                write!(f, "not compacted, because the copy would hide what is missing: {}", sentences.join("; "))
            }
            Self::Write(error) => write!(f, "cannot be written: {error}"),
        }
    }
}

impl std::error::Error for CompactError {}

/// Writes the trace in `source` to `sink` in a smaller form.
///
/// # Errors
/// See [`CompactError`]. The data written to `sink` up to then is unusable.
pub fn compact<W: Write>(source: impl Read, sink: W) -> Result<(Compacted, W), CompactError> {
    let mut reader = TraceReader::new(source).map_err(CompactError::Read)?;
    let mut writer = TraceWriter::compact(sink, reader.session()).map_err(CompactError::Write)?;
    let mut records = 0;
    while let Some(event) = reader.next_event().map_err(CompactError::Read)? {
        records += u64::from(matches!(event, Event::Record(_)));
        writer.event(&event, reader.dictionary()).map_err(CompactError::Write)?;
    }
    let damage = reader.damage().sentences();
    if !damage.is_empty() {
        return Err(CompactError::Damaged(damage));
    }
    let (bytes, sink) = writer.close(reader.dictionary()).map_err(CompactError::Write)?;
    Ok((Compacted { records, bytes }, sink))
}

/// Writes the trace in `source` to `sink` with the source lines that `add` adds to its dictionary, as if they had been
/// recorded: for tests, and to judge a trace that was recorded without.
///
/// # Errors
/// See [`CompactError`].
#[doc(hidden)]
pub fn with_source_lines<W: Write>(
    source: impl Read,
    sink: W,
    add: impl FnOnce(&mut Dictionary),
) -> Result<W, CompactError> {
    let mut reader = TraceReader::new(source).map_err(CompactError::Read)?;
    let mut writer = TraceWriter::compact(sink, reader.session()).map_err(CompactError::Write)?;
    let mut end = None;
    while let Some(event) = reader.next_event().map_err(CompactError::Read)? {
        match event {
            Event::End(..) => end = Some(event),
            _ => writer.event(&event, reader.dictionary()).map_err(CompactError::Write)?,
        }
    }
    let mut dictionary = reader.dictionary().clone();
    add(&mut dictionary);
    if let Some(end) = end {
        writer.event(&end, &dictionary).map_err(CompactError::Write)?;
    }
    Ok(writer.close(&dictionary).map_err(CompactError::Write)?.1)
}

/// Size of the records of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSize {
    /// The kind.
    pub name: &'static str,
    /// Number of records.
    pub records: u64,
    /// Size in bytes if only this kind is written.
    pub bytes: u64,
}

/// Size of a trace by kind of record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Kinds that occur in the trace.
    pub kinds: Vec<KindSize>,
    /// Bytes of the session, dictionary, flush marks and end.
    pub rest: u64,
    /// What the trace lacks, a sentence each.
    pub missing: Vec<String>,
}

/// How the trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the traced process writes it: one block for each flush.
    Live,
    /// As [`compact`] does.
    Compact,
}

/// Measures `source` by writing each kind of record separately, with all flushes of the trace. In a real
/// trace, kinds share block headers, so the sum is slightly larger than the file.
///
/// # Errors
/// If `source` cannot be read, or if zstd runs out of memory.
pub fn sizes(source: impl Read, form: Form) -> Result<Sizes, CompactError> {
    let mut reader = TraceReader::new(source).map_err(CompactError::Read)?;
    let open = |session: &_| {
        match form {
            Form::Live => TraceWriter::new(io::sink(), session),
            Form::Compact => TraceWriter::compact(io::sink(), session),
        }
        .map_err(CompactError::Write)
    };
    // The first writer gets no records: its output is common to all writers.
    let mut writers = vec![("", 0, open(reader.session())?)];
    for name in Record::KINDS {
        writers.push((name, 0, open(reader.session())?));
    }
    let mut has_end = false;
    while let Some(event) = reader.next_event().map_err(CompactError::Read)? {
        let dictionary = reader.dictionary();
        match &event {
            Event::End(..) => has_end = true,
            Event::Record(record) => {
                let (_, records, writer) = &mut writers[1 + record.kind()];
                *records += 1;
                writer.event(&event, dictionary).map_err(CompactError::Write)?;
            }
            Event::Flush(_) => {
                for (_, _, writer) in &mut writers {
                    writer.event(&event, dictionary).map_err(CompactError::Write)?;
                }
            }
            _ => {}
        }
    }
    let mut written = Vec::new();
    for (name, records, mut writer) in writers {
        writer.event(&Event::End(End::Clean, Timestamp::ZERO), reader.dictionary()).map_err(CompactError::Write)?;
        let (bytes, _) = writer.close(reader.dictionary()).map_err(CompactError::Write)?;
        written.push((name, records, bytes));
    }
    let rest = written[0].2;
    let kinds = written.into_iter().filter(|&(_, records, _)| records > 0);
    let kinds = kinds.map(|(name, records, bytes)| KindSize { name, records, bytes: bytes.saturating_sub(rest) });
    let mut missing = reader.damage().sentences();
    if !has_end {
        missing.push("the trace has no end: the program still runs or was killed, or the file was cut off".to_owned());
    }
    Ok(Sizes { kinds: kinds.collect(), rest, missing })
}
