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
    /// A known format that is not read, with a sentence on what to do.
    NotRead(&'static str),
    /// A trace of gpuwhy or an unknown format; the reader of traces reports the error.
    Trace,
}

impl Format {
    /// Recognizes the format by the first bytes of a file.
    pub(crate) fn of(head: &[u8]) -> Self {
        let text = head.strip_prefix(UTF8_MARK).unwrap_or(head);
        if let Some(&(_, advice)) = NOT_READ.iter().find(|(begins, _)| head.starts_with(begins)) {
            return Self::NotRead(advice);
        }
        if is_xplane(head) {
            return Self::NotRead(XPLANE);
        }
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
            Self::NotRead(_) => "not read",
            Self::Trace => "trace",
        }
    }
}

const NSYS: &str = "a report of Nsight Systems: nsys export --type sqlite FILE makes a file that gpuwhy reads";
const NCU: &str = "a report of Nsight Compute, which has single kernels and no timeline: ncu --import FILE shows it";
const QDSTRM: &str = "an unfinished report of Nsight Systems: QdstrmImporter -i FILE makes an .nsys-rep of it, and nsys export \
                      --type sqlite a file that gpuwhy reads";
const XPLANE: &str = "a trace of XLA (jax.profiler, TensorFlow) in protocol buffers: name the .trace.json.gz next to it, which \
                      gpuwhy reads";
const LFS: &str = "a pointer of Git LFS in place of the file: git lfs pull gets the file";
const UTF_16: &str = "text in UTF-16: iconv -f UTF-16 -t UTF-8 FILE > NEW makes a file that gpuwhy reads";
const HTML: &str = "an HTML page: the download got a page about the file in place of the file";
const ZIP: &str = "a ZIP archive: unzip FILE, then name the file in it";
const ZSTD: &str = "a file packed with zstd: zstd -d FILE unpacks it (gpuwhy reads gzip)";
const XZ: &str = "a file packed with xz: xz -dk FILE unpacks it (gpuwhy reads gzip)";
const BZIP2: &str = "a file packed with bzip2: bzip2 -dk FILE unpacks it (gpuwhy reads gzip)";
const PICKLE: &str = "a Python pickle: gpuwhy hang reads dumps of PyTorch's flight recorder; no other pickles are read";

/// First bytes of formats that are not read, and what to do. Sources: the format of Nsight Compute's reports in its
/// Customization Guide; reports of Nsight Systems 2019 to 2026; the specifications of Git LFS and of the archives.
const NOT_READ: [(&[u8], &str); 21] = [
    (b"NVIDIA Tegra Profiler Report", NSYS),
    (b"NVIDIA Nsight Systems Report", NSYS),
    (b"NVIDIA Tegra Profiler Stream", QDSTRM),
    (b"NVR\0", NCU),
    (b"version https://git-lfs.github.com/spec/", LFS),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (b"{\0", UTF_16),
    (b"[\0", UTF_16),
    (b"\0{", UTF_16),
    (b"\0[", UTF_16),
    (b"<!DOCTYPE", HTML),
    (b"<!doctype", HTML),
    (b"<html", HTML),
    (b"PK\x03\x04", ZIP),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\xfd7zXZ\0", XZ),
    (b"BZh", BZIP2),
    (b"\x80\x02", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x80\x05", PICKLE),
];

/// Advice on a file that is of no known format, by the end of its name: their first bytes are not documented.
pub(crate) fn advice_by_name(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let ends = [(".nsys-rep", NSYS), (".qdrep", NSYS), (".qdstrm", QDSTRM), (".ncu-rep", NCU), (".xplane.pb", XPLANE)];
    ends.iter().find(|(end, _)| name.ends_with(end)).map(|&(_, advice)| advice)
}

/// True for a message `XSpace` of XLA: its first field is a list of planes, whose names are those of hosts and
/// devices.
fn is_xplane(head: &[u8]) -> bool {
    let names = [&b"/host:"[..], b"/device:", b"Task Environment"];
    let start = &head[..head.len().min(64)];
    head.first() == Some(&0x0a) && names.iter().any(|name| start.windows(name.len()).any(|part| part == *name))
}

/// True if a JSON file, compressed or not, is a trace of the PyTorch profiler rather than another file in the
/// program's output folder. False if the file cannot be read.
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
    use super::*;

    #[test]
    fn the_first_bytes_determine_the_format() {
        assert_eq!(Format::of(b"\x1f\x8b\x08"), Format::Gzip);
        assert_eq!(Format::of(b"SQLite format 3\0\x10"), Format::Sqlite);
        assert_eq!(Format::of(b"\n [1]"), Format::Json { mark: 0 });
        assert_eq!(Format::of(b"\xef\xbb\xbf {}"), Format::Json { mark: 3 });
        for (head, part) in [
            (&b"NVIDIA Tegra Profiler Report 1.\n"[..], "nsys export"),
            (b"NVR\0\x01", "Nsight Compute"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"),
            (b"\xff\xfe{\0\"\0", "iconv"),
            (b"{\0\"\0", "iconv"),
            (b"\x0a\xf4\x03\x08\x01\x12\x0d/device:GPU:0", ".trace.json.gz"),
            (b"<!DOCTYPE html>", "HTML"),
            (b"\x28\xb5\x2f\xfd\x04", "zstd -d"),
        ] {
            let Format::NotRead(advice) = Format::of(head) else { panic!("{head:?}") };
            assert!(advice.contains(part), "{advice}");
        }
        assert!(advice_by_name(Path::new("/a/b.qdstrm")).unwrap().contains("QdstrmImporter"));
        assert!(advice_by_name(Path::new("/a/b.gpuwhy")).is_none());
        for other in [&b""[..], b"\x89GPT\r\n\x1a\n", b"SQLite format 2", b"text", b"\xef\xbb\xbftext"] {
            assert_eq!(Format::of(other), Format::Trace);
        }
    }
}
