//! Framing: the file header and the block header, each with its encoder and decoder side by side.
//!
//! Blocks that belong together are written by one `write`, so a killed process leaves complete blocks and at
//! most one torn block. The header has its own checksum, so its lengths and times are valid even if the body
//! is damaged. Sequence numbers make lost blocks countable.

use super::TraceError;

/// Starts every file. The non-ASCII first byte and the two kinds of line ends reveal transfers that were not
/// binary-safe.
pub(super) const MAGIC: [u8; 8] = *b"\x89GPT\r\n\x1a\n";
/// Major and minor version written, which is also the newest version read.
pub(super) const VERSION: (u16, u16) = (1, 6);
pub(super) const FILE_HEADER: usize = 16;
pub(super) const BLOCK_HEADER: usize = 40;
/// Starts every block. It may occur in a body by chance; the header checksum distinguishes the two.
pub(super) const SYNC: u32 = u32::from_le_bytes([0xf5, b'G', 0xb6, 0xc3]);
/// Maximum size of a body, stored or decompressed, bytes. 16 Ki rows of the widest kind at ten bytes per
/// field are 2.9 MB, and a dictionary row is at most 1 MiB. The rest is headroom; larger lengths are rejected
/// as hostile.
pub(super) const MAX_BODY: usize = 16 << 20;
/// Maximum number of records of a block that a reader accepts. Constant columns take no bytes per row, so
/// lengths alone are no limit.
pub(super) const MAX_ROWS: u64 = 1 << 20;
/// Maximum number of counter events, collective events, nodes of graphs or memory calls of a block that a reader
/// accepts: 32 times as many as a writer puts into one. A body of zeros has millions and compresses to kilobytes.
pub(super) const MAX_EVENTS: usize = 1 << 17;
/// Block flag: a reader that does not know this kind and version must stop.
pub(super) const MUST_UNDERSTAND: u8 = 1;
/// Block flag: the body is its decompressed length (u32) and one zstd frame.
pub(super) const ZSTD: u8 = 2;

macro_rules! kinds {
    ($(#[doc = $about:literal] $name:ident = $number:literal;)*) => {
        /// Block kinds. Numbers are never reused: 25 was PROGRAM_COUNTERS (PC sampling).
        pub(super) mod kind {
            $(#[doc = $about] pub(in crate::format) const $name: u16 = $number;)*
            /// All kinds, with their names.
            pub(in crate::format) const ALL: &[(u16, &str)] = &[$(($name, stringify!($name)),)*];
        }
    };
}

kinds! {
    /// Description of the traced process.
    SESSION = 1;
    /// New dictionary rows.
    DICTIONARY = 2;
    /// Records.
    EVENTS = 3;
    /// Counters of what was lost.
    LOSS = 4;
    /// Flush mark, without a body.
    FLUSH = 5;
    /// Orderly end.
    END = 6;
    /// Start or end of a capture, or the capture that the following records belong to.
    CAPTURE = 7;
    /// Overhead of tracing since the start.
    COST = 8;
    /// Utilization of a device since the start.
    UTILIZATION = 9;
    /// Final report of a long run.
    ANSWER = 10;
    /// Samples of hardware counters, NVML readings, and lost samples.
    COUNTERS = 11;
    /// Measurements of one kernel.
    KERNEL_PROFILE = 24;
    /// Communicators and the operations queued in them.
    COLLECTIVES = 26;
    /// Start or end of API call recording. Only read; this version does not write it.
    CALL_RECORDING = 27;
    /// Nodes of CUDA graphs that were added or copied.
    GRAPH_NODES = 28;
    /// Calls that take or give device memory.
    MEMORY_CALLS = 29;
}

/// Block header. On disk: sync, these fields in order, all little-endian, then the CRC-32 of everything
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) version: u8,
    pub(super) flags: u8,
    /// Stored bytes that follow the header.
    pub(super) body_bytes: u32,
    /// Block number, starting at 0; wraps.
    pub(super) sequence: u32,
    /// Earliest time in the block, nanoseconds.
    pub(super) t_min: u64,
    /// Latest time in the block, nanoseconds.
    pub(super) t_max: u64,
    /// CRC-32 of the stored body.
    pub(super) body_crc: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut out = [0; BLOCK_HEADER];
        out[0..4].copy_from_slice(&SYNC.to_le_bytes());
        out[4..6].copy_from_slice(&self.kind.to_le_bytes());
        out[6] = self.version;
        out[7] = self.flags;
        out[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.t_min.to_le_bytes());
        out[24..32].copy_from_slice(&self.t_max.to_le_bytes());
        out[32..36].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..36]);
        out[36..40].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns `None` unless `bytes` starts with a header that has a valid checksum and a permitted length.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BLOCK_HEADER] = bytes.first_chunk()?;
        let header = Self {
            kind: u16::from_le_bytes([bytes[4], bytes[5]]),
            version: bytes[6],
            flags: bytes[7],
            body_bytes: word(bytes, 8),
            sequence: word(bytes, 12),
            t_min: long(bytes, 16),
            t_max: long(bytes, 24),
            body_crc: word(bytes, 32),
        };
        let good = word(bytes, 0) == SYNC
            && header.body_bytes as usize <= MAX_BODY
            && crc32fast::hash(&bytes[..36]) == word(bytes, 36);
        good.then_some(header)
    }
}

fn word(bytes: &[u8; BLOCK_HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; BLOCK_HEADER], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Encodes the file header: magic, version, and the CRC-32 of both.
pub(super) fn encode_file_header() -> [u8; FILE_HEADER] {
    let mut out = [0; FILE_HEADER];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION.0.to_le_bytes());
    out[10..12].copy_from_slice(&VERSION.1.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks the first bytes of a file, at most [`FILE_HEADER`] of them. Returns true if the header is
/// undamaged. The version in a damaged header is ignored, because every block has its own.
pub(super) fn check_file_header(bytes: &[u8]) -> Result<bool, TraceError> {
    if bytes.is_empty() {
        return Err(TraceError::Empty);
    }
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(TraceError::NotATrace { looks_like: recognize(bytes) });
    }
    let Some(header) = bytes.first_chunk::<FILE_HEADER>() else {
        return Err(TraceError::Truncated { offset: bytes.len() as u64 });
    };
    if crc32fast::hash(&header[..12]).to_le_bytes() != header[12..] {
        return Ok(false);
    }
    let found = (u16::from_le_bytes([header[8], header[9]]), u16::from_le_bytes([header[10], header[11]]));
    if found.0 > VERSION.0 {
        return Err(TraceError::TooNew { found, supported: VERSION });
    }
    Ok(true)
}

/// Guesses the file type from well-known first bytes, for the error message.
fn recognize(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 8] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"SQLite format 3", "an SQLite database (an Nsight Systems export?)"),
        (b"PK\x03\x04", "a zip archive"),
        (b"PAR1", "Parquet"),
        (b"\x7fELF", "an ELF program or library"),
        (b"\x89GPT\n", "a gpuwhy trace whose line ends were converted: copy it in binary mode"),
        (b"#!", "a script"),
    ];
    let known = KNOWN.iter().find(|(start, _)| bytes.starts_with(start)).map(|&(_, what)| what);
    known.or_else(|| match bytes.trim_ascii_start().first() {
        Some(b'{' | b'[') => Some("JSON"),
        _ if bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => Some("text"),
        _ => None,
    })
}
