//! Reads a recording. The file is not trusted: lengths are checked, and memory grows only with bytes that are
//! present.

use std::fmt;
use std::io::{self, Read};

use cupti_sys::recording::{GraphNode, MAGIC, Meta, VERSION, tag};
use cupti_sys::{Domain, Kind};

/// One step of a recorded session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// Name of an API function.
    ApiName {
        /// Driver or runtime.
        domain: Domain,
        /// Its number there.
        callback_id: u32,
        /// Its callback id.
        name: String,
    },
    /// Text at an address that records hold.
    String {
        /// The address in the recorded process.
        address: u64,
        /// The text, without the NUL; in any encoding.
        text: Vec<u8>,
    },
    /// A buffer as it was delivered.
    Buffer {
        /// Time of delivery.
        delivered_at: u64,
        /// Address of the context in the recorded process, or 0.
        context: u64,
        /// Stream, or 0.
        stream: u32,
        /// The valid bytes.
        bytes: Vec<u8>,
    },
    /// The client flushed.
    Flush {
        /// Time of the flush.
        at: u64,
    },
    /// CUPTI reported dropped records.
    Dropped {
        /// Number of records since the previous report.
        count: u64,
    },
    /// A node was added to a graph, or copied.
    GraphNode(GraphNode),
}

/// Why a file is not a complete recording.
#[derive(Debug)]
pub enum RecordingError {
    /// The file does not start like a recording.
    NotARecording,
    /// Written in another version of the format.
    Version(u32),
    /// The file ends inside the element at this offset.
    Truncated {
        /// Bytes from the start of the file.
        offset: u64,
    },
    /// The content of a section does not match its tag.
    Malformed {
        /// Offset of the section in bytes from the start of the file.
        offset: u64,
        /// Its tag.
        tag: u32,
    },
    /// Reading failed.
    Io {
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARecording => {
                f.write_str("not a recording of CUPTI buffers (wrong first bytes; is it compressed?)")
            }
            Self::Version(version) => write!(f, "recording of version {version}; this program reads version {VERSION}"),
            Self::Truncated { offset } => write!(f, "the recording ends inside the section at byte {offset}"),
            Self::Malformed { offset, tag } => {
                write!(f, "malformed section (tag {tag}) at byte {offset} of the recording")
            }
            Self::Io { offset, source } => write!(f, "reading the recording at byte {offset}: {source}"),
        }
    }
}

impl std::error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io { source, .. } = self { Some(source) } else { None }
    }
}

/// Reads the sections of a recording from `R`, which should be buffered.
#[derive(Debug)]
pub struct RecordingReader<R: Read> {
    input: R,
    meta: Meta,
    /// Number of bytes read.
    offset: u64,
    ended: bool,
}

impl<R: Read> RecordingReader<R> {
    /// Reads the header and META.
    ///
    /// # Errors
    /// If this is no recording of this version, or it ends early.
    pub fn new(input: R) -> Result<Self, RecordingError> {
        let mut reader = Self { input, meta: Meta::default(), offset: 0, ended: false };
        if reader.exactly(MAGIC.len() as u64, 0)? != MAGIC {
            return Err(RecordingError::NotARecording);
        }
        let version = reader.number(0)?;
        if version != VERSION {
            return Err(RecordingError::Version(version));
        }
        let offset = reader.offset;
        let (tag, payload) = reader.section()?;
        let malformed = RecordingError::Malformed { offset, tag };
        reader.meta = parse_meta(&payload).filter(|_| tag == tag::META).ok_or(malformed)?;
        Ok(reader)
    }

    /// Description of the session.
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    fn step(&mut self) -> Result<Option<Section>, RecordingError> {
        while !self.ended {
            let offset = self.offset;
            let (tag, payload) = self.section()?;
            if tag == tag::END {
                self.ended = true;
            } else if (tag::API_NAME..=tag::DROPPED).contains(&tag) || tag == tag::GRAPH_NODE {
                return parse(tag, &payload).map(Some).ok_or(RecordingError::Malformed { offset, tag });
            }
        }
        Ok(None)
    }

    fn section(&mut self) -> Result<(u32, Vec<u8>), RecordingError> {
        let start = self.offset;
        let tag = self.number(start)?;
        let length = self.number(start)?;
        Ok((tag, self.exactly(length.into(), start)?))
    }

    fn number(&mut self, section: u64) -> Result<u32, RecordingError> {
        let bytes = self.exactly(4, section)?;
        bytes.first_chunk().map(|&bytes| u32::from_le_bytes(bytes)).ok_or(RecordingError::Truncated { offset: section })
    }

    fn exactly(&mut self, length: u64, section: u64) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(length).read_to_end(&mut bytes);
        let read = read.map_err(|source| RecordingError::Io { offset: self.offset, source })? as u64;
        self.offset += read;
        if read == length { Ok(bytes) } else { Err(RecordingError::Truncated { offset: section }) }
    }
}

/// The steps of the session. In a file that ends early or is malformed, the last item is an error; the steps
/// before it are valid: a process that died left them. A complete recording ends without an error.
impl<R: Read> Iterator for RecordingReader<R> {
    type Item = Result<Section, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        self.ended |= matches!(step, Some(Err(_)));
        step
    }
}

impl<R: Read> std::iter::FusedIterator for RecordingReader<R> {}

/// Unread rest of a payload.
struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.string()?).into_owned())
    }
}

fn parse_meta(payload: &[u8]) -> Option<Meta> {
    let mut payload = Payload(payload);
    let mut meta = Meta {
        cupti_version: payload.u32()?,
        driver_cuda_version: payload.u32()?,
        start: payload.u64()?,
        library_path: payload.text()?,
        sizes: Vec::new(),
    };
    for _ in 0..payload.u32()? {
        meta.sizes.push((Kind(payload.u32()?), payload.u32()?));
    }
    payload.0.is_empty().then_some(meta)
}

fn parse(tag: u32, payload: &[u8]) -> Option<Section> {
    let mut payload = Payload(payload);
    let section = match tag {
        tag::API_NAME => {
            Section::ApiName { domain: Domain(payload.u32()?), callback_id: payload.u32()?, name: payload.text()? }
        }
        tag::STRING => Section::String { address: payload.u64()?, text: payload.string()?.to_vec() },
        tag::BUFFER => Section::Buffer {
            delivered_at: payload.u64()?,
            context: payload.u64()?,
            stream: payload.u32()?,
            bytes: std::mem::take(&mut payload.0).to_vec(),
        },
        tag::FLUSH => Section::Flush { at: payload.u64()? },
        tag::DROPPED => Section::Dropped { count: payload.u64()? },
        tag::GRAPH_NODE => Section::GraphNode(GraphNode {
            at: payload.u64()?,
            thread: payload.u32()?,
            is_copy: payload.u32()? != 0,
            node: payload.u64()?,
            original: payload.u64()?,
        }),
        _ => return None,
    };
    payload.0.is_empty().then_some(section)
}

#[cfg(test)]
mod tests;
