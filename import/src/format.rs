//! File formats, recognized by the first bytes. No other module recognizes formats.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Byte order mark that some editors put in front of a JSON text when they save it.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
/// Number of bytes within which a trace of the PyTorch profiler contains the key of its events.
const KINETO_HEAD: u64 = 1 << 16;

/// Format that the first bytes indicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// gzip (RFC 1952).
    Gzip,
    /// SQLite 3 database (per SQLite's file format documentation).
    Sqlite,
    /// JSON text that starts after `mark` bytes.
    Json { mark: usize },
    /// A trace of gpuwhy or an unknown format; the reader of traces reports the error.
    Trace,
}

impl Format {
    /// Recognizes the format by the first bytes of a file.
    pub(crate) fn of(head: &[u8]) -> Self {
        let text = head.strip_prefix(UTF8_MARK).unwrap_or(head);
        match text.trim_ascii_start().first() {
            _ if head.starts_with(&[0x1f, 0x8b]) => Self::Gzip,
            _ if head.starts_with(b"SQLite format 3\0") => Self::Sqlite,
            Some(b'{' | b'[') => Self::Json { mark: head.len() - text.len() },
            _ => Self::Trace,
        }
    }

    /// Name for messages and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Sqlite => "SQLite",
            Self::Json { .. } => "JSON",
            Self::Trace => "trace",
        }
    }
}

/// True if a JSON file, compressed or not, is a trace of the PyTorch profiler rather than another file in the
/// program's output folder. False if the file cannot be read.
#[must_use]
pub fn is_kineto(path: &Path) -> bool {
    kineto_head(path).is_ok_and(|head| {
        let text = String::from_utf8_lossy(&head);
        text.contains("\"traceEvents\"") || (text.trim_start().starts_with('[') && text.contains("\"ph\""))
    })
}

fn kineto_head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut file = BufReader::new(File::open(path)?);
    match Format::of(file.fill_buf()?) {
        Format::Gzip => MultiGzDecoder::new(file).take(KINETO_HEAD).read_to_end(&mut head)?,
        _ => file.take(KINETO_HEAD).read_to_end(&mut head)?,
    };
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn the_first_bytes_determine_the_format() {
        assert_eq!(Format::of(b"\x1f\x8b\x08"), Format::Gzip);
        assert_eq!(Format::of(b"SQLite format 3\0\x10"), Format::Sqlite);
        assert_eq!(Format::of(b"\n [1]"), Format::Json { mark: 0 });
        assert_eq!(Format::of(b"\xef\xbb\xbf {}"), Format::Json { mark: 3 });
        for other in [&b""[..], b"\x89GPT\r\n\x1a\n", b"SQLite format 2", b"text", b"\xef\xbb\xbftext"] {
            assert_eq!(Format::of(other), Format::Trace);
        }
    }
}
