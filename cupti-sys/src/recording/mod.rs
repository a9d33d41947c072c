//! Sessions of raw CUPTI buffers in a file, so that real records can be replayed on a machine without a GPU.
//!
//! The buffers are kept byte for byte: whatever reads records live reads them again on replay. What a buffer alone
//! does not hold is kept beside it: record sizes, names of API functions, and the strings that records point to.
//!
//! ```text
//! file    = "CUPTIREC" version:u32 section*
//! section = tag:u32 length:u32 payload[length]
//! ```
//! Numbers are little-endian. The first section is META, the last END; strings are a `u32` length and bytes.
//!
//! | tag | section | payload |
//! |---|---|---|
//! | 1 | META | cupti version u32, driver CUDA version u32, start u64, library path string, count u32, (kind u32, size u32) times count |
//! | 2 | API_NAME | domain u32, callback id u32, name string |
//! | 3 | STRING | address u64, text string: from here on records mean this text by this address |
//! | 4 | BUFFER | delivered at u64, context address u64, stream u32, the valid bytes up to the end of the section |
//! | 5 | FLUSH | at u64: the client flushed here |
//! | 6 | DROPPED | count u64: CUPTI said that it dropped so many |
//! | 7 | END | nothing |
//!
//! Times are nanoseconds on CUPTI's clock. A STRING comes before the first buffer that points to it, and comes again
//! when the address means another text. A reader skips tags that it does not know. The file is not compressed, has no
//! checksum and no index: it is test material, not the trace format.

mod read;
mod write;

pub use read::{RecordingError, RecordingReader};
pub use write::RecordingWriter;

use crate::abi::{Domain, Kind};

/// First bytes of a recording.
pub const MAGIC: [u8; 8] = *b"CUPTIREC";
/// Version of the format; a reader refuses others.
pub const VERSION: u32 = 1;

const META: u32 = 1;
const API_NAME: u32 = 2;
const STRING: u32 = 3;
const BUFFER: u32 = 4;
const FLUSH: u32 = 5;
const DROPPED: u32 = 6;
const END: u32 = 7;

/// What a recording says about the session as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// As [`Cupti::version`](crate::Cupti::version) gives it.
    pub cupti_version: u32,
    /// As [`driver_cuda_version`](crate::driver_cuda_version) gives it; 0 when not known.
    pub driver_cuda_version: u32,
    /// When the session began, on CUPTI's clock.
    pub start: u64,
    /// The recorded libcupti.
    pub library_path: String,
    /// Record sizes of that library.
    pub sizes: Vec<(Kind, u32)>,
}

/// One step of a recorded session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// Name of an API function.
    ApiName {
        /// Driver or runtime.
        domain: Domain,
        /// Its number there.
        callback_id: u32,
        /// Its name.
        name: String,
    },
    /// Text behind an address that records hold.
    String {
        /// The address in the recorded process.
        address: u64,
        /// The text, without the NUL; in whatever encoding.
        text: Vec<u8>,
    },
    /// A buffer as it was delivered.
    Buffer {
        /// When.
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
        /// When.
        at: u64,
    },
    /// CUPTI reported dropped records.
    Dropped {
        /// How many since the last report.
        count: u64,
    },
}

#[cfg(test)]
mod tests;
