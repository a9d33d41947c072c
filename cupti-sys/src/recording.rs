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
//! no checksum and no index: it is test material, not the trace format. `testing/cupti-replay` reads it. Each
//! section is written in one piece, so a process that dies leaves a file that is valid up to its last complete
//! section.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::abi::{Domain, Kind};
use crate::buffer::CompletedBuffer;
use crate::record::string_offsets;
use crate::walk::RecordSizes;

/// First bytes of a recording.
pub const MAGIC: [u8; 8] = *b"CUPTIREC";
/// Version of the format; a reader refuses others.
pub const VERSION: u32 = 1;

/// Tags of sections.
#[expect(missing_docs, reason = "the table of the module")]
pub mod tag {
    pub const META: u32 = 1;
    pub const API_NAME: u32 = 2;
    pub const STRING: u32 = 3;
    pub const BUFFER: u32 = 4;
    pub const FLUSH: u32 = 5;
    pub const DROPPED: u32 = 6;
    pub const END: u32 = 7;
    pub const GRAPH_NODE: u32 = 8;
}

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

/// Writes the sections of a recording to `W`, which should be buffered.
#[derive(Debug)]
pub struct RecordingWriter<W: Write> {
    out: W,
    /// Last text seen at each address: addresses can be reused for other texts.
    strings: HashMap<u64, Box<[u8]>>,
    written: u64,
    payload: Vec<u8>,
}

impl<W: Write> RecordingWriter<W> {
    /// Writes the header and META.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn new(mut out: W, meta: &Meta) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Self { out, strings: HashMap::new(), written: MAGIC.len() as u64 + 4, payload: Vec::new() };
        writer.section(tag::META, |payload| {
            payload.extend(meta.cupti_version.to_le_bytes());
            payload.extend(meta.driver_cuda_version.to_le_bytes());
            payload.extend(meta.start.to_le_bytes());
            string(payload, meta.library_path.as_bytes())?;
            payload.extend(length(meta.sizes.len())?);
            for (kind, size) in &meta.sizes {
                payload.extend(kind.0.to_le_bytes());
                payload.extend(size.to_le_bytes());
            }
            Ok(())
        })?;
        Ok(writer)
    }

    /// Number of bytes written, to limit the file size.
    pub const fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes the name of an API function.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn api_name(&mut self, domain: Domain, callback_id: u32, name: &str) -> io::Result<()> {
        self.section(tag::API_NAME, |payload| {
            payload.extend(domain.0.to_le_bytes());
            payload.extend(callback_id.to_le_bytes());
            string(payload, name.as_bytes())
        })
    }

    /// Writes the text at an address that records hold. [`buffer`](Self::buffer) does this for strings that
    /// it can read.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn string(&mut self, address: u64, text: &[u8]) -> io::Result<()> {
        if self.strings.get(&address).is_some_and(|known| **known == *text) {
            return Ok(());
        }
        self.section(tag::STRING, |payload| {
            payload.extend(address.to_le_bytes());
            string(payload, text)
        })?;
        self.strings.insert(address, text.into());
        Ok(())
    }

    /// Writes a buffer that was delivered at `at`, after the strings that its records point to.
    ///
    /// # Errors
    /// If the output cannot be written to, or the buffer has 4 GiB or more.
    pub fn buffer(&mut self, buffer: &CompletedBuffer, sizes: &RecordSizes, at: u64) -> io::Result<()> {
        for record in buffer.records(sizes) {
            for &offset in string_offsets(record.kind()) {
                if let Some(text) = record.string(offset) {
                    self.string(record.string_address(offset), text.to_bytes())?;
                }
            }
        }
        self.section(tag::BUFFER, |payload| {
            payload.extend(at.to_le_bytes());
            payload.extend((buffer.context() as u64).to_le_bytes());
            payload.extend(buffer.stream().to_le_bytes());
            payload.extend(buffer.bytes());
            Ok(())
        })
    }

    /// Writes a flush.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn flush(&mut self, at: u64) -> io::Result<()> {
        self.section(tag::FLUSH, |payload| {
            payload.extend(at.to_le_bytes());
            Ok(())
        })
    }

    /// Writes a number of dropped records.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn dropped(&mut self, count: u64) -> io::Result<()> {
        self.section(tag::DROPPED, |payload| {
            payload.extend(count.to_le_bytes());
            Ok(())
        })
    }

    /// Writes a callback about a node of a graph; before the buffers that name it.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn graph_node(&mut self, node: &GraphNode) -> io::Result<()> {
        self.section(tag::GRAPH_NODE, |payload| {
            payload.extend(node.at.to_le_bytes());
            payload.extend(node.thread.to_le_bytes());
            payload.extend(u32::from(node.is_copy).to_le_bytes());
            payload.extend(node.node.to_le_bytes());
            payload.extend(node.original.to_le_bytes());
            Ok(())
        })
    }

    /// Ends the recording and returns the flushed output.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.section(tag::END, |_| Ok(()))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn section(&mut self, tag: u32, fill: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        self.payload.clear();
        fill(&mut self.payload)?;
        self.out.write_all(&tag.to_le_bytes())?;
        self.out.write_all(&length(self.payload.len())?)?;
        self.out.write_all(&self.payload)?;
        self.written += 8 + self.payload.len() as u64;
        Ok(())
    }
}

fn string(payload: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    payload.extend(length(text.len())?);
    payload.extend(text);
    Ok(())
}

fn length(length: usize) -> io::Result<[u8; 4]> {
    let length = u32::try_from(length).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{length} bytes do not fit into a section of a recording"))
    })?;
    Ok(length.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn the_name_of_a_kernel_is_written_once_before_the_first_buffer_that_points_to_it() {
        let name = c"_Z3addPfS_";
        let mut buffer = Buffer::new(216).unwrap();
        buffer.bytes_mut()[..4].copy_from_slice(&Kind::CONCURRENT_KERNEL.0.to_le_bytes());
        buffer.bytes_mut()[104..112].copy_from_slice(&(name.as_ptr() as u64).to_le_bytes());
        // SAFETY: the name is a constant.
        let buffer = unsafe { CompletedBuffer::from_cupti(buffer, 216, 0x7000, 7) };
        let sizes = RecordSizes::from_pairs(&[(Kind::CONCURRENT_KERNEL, 216)]);
        let written = |times: usize| {
            let mut writer = RecordingWriter::new(Vec::new(), &Meta::default()).unwrap();
            (0..times).for_each(|_| writer.buffer(&buffer, &sizes, 2_000).unwrap());
            writer.finish().unwrap()
        };
        let (none, one, two) = (written(0), written(1), written(2));
        let end = none.len() - 8;
        let string = [tag::STRING.to_le_bytes(), 22_u32.to_le_bytes()].concat();
        assert_eq!((&one[..end], &one[end..end + 8]), (&none[..end], &string[..]));
        assert_eq!(one[end + 16..end + 30], [&10_u32.to_le_bytes()[..], name.to_bytes()].concat());
        // The second buffer adds only itself.
        assert_eq!(two.len() - one.len(), 8 + 20 + 216);
    }
}
