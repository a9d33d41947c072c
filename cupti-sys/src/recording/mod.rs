//! Files with the raw CUPTI buffers of a session, so that real records can be replayed on a host without a
//! GPU.
//!
//! The buffers are stored byte for byte: replay runs the same code on them as a live session. The file also
//! stores what the buffers alone do not hold: record sizes, names of API functions, and the strings that
//! records point to.
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
//! | 3 | STRING | address u64, text string: from here on this address in records means this text |
//! | 4 | BUFFER | delivered at u64, context address u64, stream u32, the valid bytes up to the end of the section |
//! | 5 | FLUSH | at u64: the client flushed here |
//! | 6 | DROPPED | count u64: number of records that CUPTI reported as dropped |
//! | 7 | END | empty |
//! | 8 | GRAPH_NODE | at u64, thread u32, 1 if copied from another node u32, node id u64, id of that other node u64 |
//!
//! Times are nanoseconds on CUPTI's clock. A STRING precedes the first buffer that points to it, and is
//! repeated when the address means another text. A reader skips unknown tags. The file is not compressed, has
//! no checksum and no index: it is test material, not the trace format.

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
const GRAPH_NODE: u32 = 8;

/// Description of the recorded session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// As returned by [`Cupti::version`](crate::Cupti::version).
    pub cupti_version: u32,
    /// As returned by [`driver_cuda_version`](crate::driver_cuda_version); 0 if unknown.
    pub driver_cuda_version: u32,
    /// Start of the session on CUPTI's clock.
    pub start: u64,
    /// Path of the recorded libcupti.
    pub library_path: String,
    /// Its record sizes.
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

/// A callback about a node of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphNode {
    /// Time of the callback.
    pub at: u64,
    /// Thread on which it ran.
    pub thread: u32,
    /// True if the node was copied, false if the program added it.
    pub is_copy: bool,
    /// Its id in records.
    pub node: u64,
    /// Id of the node it was copied from; 0 if unknown or none.
    pub original: u64,
}

#[cfg(test)]
mod tests;
