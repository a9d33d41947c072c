//! Reads a recording from a file, plain or compressed.
//!
//! Compression is detected by the first bytes, not by the name. A recording that ends early is refused: a
//! replay of half a session would look like a complete one.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::str::FromStr;

use crate::recording::{RecordingReader, Section};
use crate::session::{Action, Origin, Session};

/// First bytes of a Zstandard frame.
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Variable: number of times in a row that the recording is played; default 1.
const REPEAT: &str = "GPUWHY_REPLAY_REPEAT";

/// Variable: recordings that are played after the first one, as one program: `FILE*TIMES` each, separated by
/// commas.
const THEN: &str = "GPUWHY_REPLAY_THEN";

/// Variable: the version that `cuptiGetVersion` returns, such as 130200; default is that of the recorded
/// library.
const VERSION: &str = "GPUWHY_REPLAY_VERSION";

/// The session in the file at `path`.
///
/// # Errors
/// If the file cannot be read, is not a complete recording, or has buffers that cannot be parsed.
pub fn session(path: &Path) -> Result<Session, String> {
    let mut session = one(path, number(REPEAT)?.unwrap_or(1))?;
    let then = std::env::var(THEN).unwrap_or_default();
    for part in then.split(',').filter(|part| !part.is_empty()) {
        let (file, times) = part.rsplit_once('*').unwrap_or((part, "1"));
        let times: u32 = times.parse().map_err(|_| format!("{THEN}: {part}: give FILE*TIMES"))?;
        let mut next = one(Path::new(file), 1)?;
        if next.origin.version != session.origin.version || next.origin.sizes != session.origin.sizes {
            return Err(format!("{THEN}: {file} was recorded with another version of CUPTI"));
        }
        (0..times).for_each(|_| session.then(&mut next));
    }
    session.order();
    Ok(session)
}

/// The session in a file, repeated this many times.
fn one(path: &Path, times: u64) -> Result<Session, String> {
    let at_path = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = File::open(path).map_err(|error| at_path(&error))?;
    let mut first = Vec::new();
    file.by_ref().take(ZSTANDARD.len() as u64).read_to_end(&mut first).map_err(|error| at_path(&error))?;
    file.rewind().map_err(|error| at_path(&error))?;
    if first == ZSTANDARD {
        let decoder = zstd::Decoder::new(file).map_err(|error| at_path(&error))?;
        read_times(BufReader::new(decoder), times).map_err(|error| at_path(&error))
    } else {
        read_times(BufReader::new(file), times).map_err(|error| at_path(&error))
    }
}

/// The session in an uncompressed stream.
///
/// # Errors
/// As for [`session`].
pub fn read(input: impl Read) -> Result<Session, String> {
    read_times(input, number(REPEAT)?.unwrap_or(1))
}

fn read_times(input: impl Read, times: u64) -> Result<Session, String> {
    let reader = RecordingReader::new(input).map_err(|error| error.to_string())?;
    let meta = reader.meta();
    let sizes = meta.sizes.iter().filter_map(|&(kind, size)| Some((kind.0, usize::try_from(size).ok()?))).collect();
    let version = number(VERSION)?.unwrap_or(meta.cupti_version);
    let mut session = Session::new(Origin { version, sizes, start: meta.start });
    // A dropped-records section has no time: it was queried together with the section before it. A node comes
    // before the buffers that name it, which is what its place in the recording says.
    for section in reader {
        match section.map_err(|error| error.to_string())? {
            Section::ApiName { domain, callback_id, name } => {
                session.add_name(domain.0, callback_id, text(name.into_bytes()));
            }
            Section::String { address, text: bytes } => session.add_text(address, text(bytes)),
            Section::Buffer { delivered_at, context, stream, bytes } => {
                session.add_buffer(delivered_at, context, stream, &bytes).map_err(|error| error.to_string())?;
            }
            Section::Flush { at } => session.add_step(at, Action::Flush),
            Section::GraphNode(node) => session.add_step(session.end(), Action::GraphNode(node)),
            Section::Dropped { count } => session.add_step(session.end(), Action::Dropped(count)),
        }
    }
    Ok(session.finish(times))
}

/// Value of a variable, if it is set.
fn number<T: FromStr>(variable: &str) -> Result<Option<T>, String> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{variable}={text}: not a number"))
}

/// Up to the first NUL, where a C program stops reading.
fn text(mut bytes: Vec<u8>) -> CString {
    bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
    CString::new(bytes).unwrap_or_default()
}
