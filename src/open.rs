//! From a trace file to its report.
//!
//! The one place where the reader, the attributor and the report meet for a finished trace. The injected library
//! feeds the same attributor with the same items while the program runs, so both say the same.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use profiler_core::attribution::Attributor;
use profiler_core::record::{Loss, Timestamp};
use profiler_core::report::Report;
use profiler_core::session::End;
use profiler_core::trace::{Damage, Item, TraceError, TraceReader};

/// Why a trace gave no report.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Folder,
    Trace(TraceError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            Cause::Io(error) => write!(f, "{error}"),
            Cause::Folder => f.write_str("this is a folder; name the trace files in it"),
            Cause::Trace(error) => write!(f, "{error}"),
        }
    }
}

// The cause is part of the text: a caller that prints a chain of sources would print it twice.
impl Error for OpenError {}

/// Reads the trace file at `path` and makes its report.
///
/// A trace that was cut off or damaged is no error: the report covers what can be read, and its completeness says
/// what is missing and where.
///
/// # Errors
///
/// When the file cannot be opened, is no trace, was written in a format of the future, or ends before anything was
/// recorded. The error names the file, and the offset where there is one.
pub fn open(path: impl AsRef<Path>) -> Result<Report, OpenError> {
    let path = path.as_ref();
    let error = |cause| OpenError { path: path.to_owned(), cause };
    let file = File::open(path).map_err(|io| error(Cause::Io(io)))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(error(Cause::Folder));
    }
    read(BufReader::with_capacity(1 << 20, file)).map_err(|trace| error(Cause::Trace(trace)))
}

/// Makes the report of a trace that comes from anywhere, as [`open`] does for a file.
///
/// # Errors
///
/// When `source` is no trace, was written in a format of the future, or ends before anything was recorded.
pub fn read(source: impl Read) -> Result<Report, TraceError> {
    let mut reader = TraceReader::new(source)?;
    let mut attributor = Attributor::new();
    let mut loss = Loss::default();
    let mut end = End::Abrupt;
    let mut last = Timestamp::ZERO;
    let mut stopped = None;
    while let Some(item) = reader.next() {
        match item {
            Ok(Item::Record(record)) => attributor.push(&record, reader.dictionary()),
            Ok(Item::Flush(at)) => {
                attributor.flushed(at, reader.dictionary());
                last = last.max(at);
            }
            Ok(Item::Loss(newer)) => loss = newer,
            Ok(Item::End(how, at)) => {
                end = how;
                last = last.max(at);
            }
            Err(error) => {
                stopped = Some(format!("reading stopped early: {error}"));
                break;
            }
        }
    }
    attributor.finish(last, reader.dictionary());
    let mut notes = describe(reader.damage());
    notes.extend(stopped);
    Ok(Report::new(reader.session(), &attributor, reader.dictionary(), &loss, end, notes))
}

/// What a damaged trace lacks, a sentence for each kind of damage. Empty when nothing is damaged.
fn describe(damage: &Damage) -> Vec<String> {
    let counted = |count: u64, thing: &str, what: &str| {
        (count > 0).then(|| format!("{count} {thing}{} {what}", if count == 1 { "" } else { "s" }))
    };
    let mut notes: Vec<String> = [
        damage.file_header.then(|| "the file header is damaged".to_owned()),
        counted(damage.torn_tail_bytes, "byte", "at the end belong to a block that was cut off while being written"),
        counted(damage.skipped_blocks, "block", "skipped: the checksum does not fit, or the block came twice"),
        counted(damage.skipped_bytes, "byte", "skipped that belong to no intact block"),
        counted(damage.missing_blocks, "block", "missing"),
        counted(damage.unknown_blocks, "block", "of a kind that only a newer gpuprof reads"),
        counted(damage.unknown_rows, "record", "of a kind that only a newer gpuprof reads"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let (false, Some(offset)) = (notes.is_empty(), damage.first_offset) {
        notes.push(format!("the first damage is at byte {offset}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intact_trace_has_no_damage_to_describe() {
        assert!(describe(&Damage::default()).is_empty());
    }

    #[test]
    fn every_kind_of_damage_has_a_sentence_and_the_place_is_named() {
        let damage = Damage {
            file_header: true,
            torn_tail_bytes: 17,
            skipped_blocks: 1,
            skipped_bytes: 40,
            missing_blocks: 2,
            unknown_blocks: 3,
            unknown_rows: 4,
            first_offset: Some(4096),
        };
        let notes = describe(&damage);
        assert_eq!(notes.len(), 8);
        assert!(notes[1].starts_with("17 bytes") && notes[2].starts_with("1 block skipped"), "{notes:?}");
        assert!(notes[7].contains("4096"));
    }
}
