//! Writes a recording. Each section is written in one piece, so a process that dies leaves a file that is
//! valid up to its last complete section.

use super::{API_NAME, BUFFER, DROPPED, END, FLUSH, GRAPH_NODE, GraphNode, MAGIC, META, Meta, STRING, VERSION};
use crate::abi::Domain;
use crate::buffer::CompletedBuffer;
use crate::record::string_offsets;
use crate::walk::RecordSizes;
use std::collections::HashMap;
use std::io::{self, Write};

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
        writer.section(META, |payload| {
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
        self.section(API_NAME, |payload| {
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
        self.section(STRING, |payload| {
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
        self.section(BUFFER, |payload| {
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
        self.section(FLUSH, |payload| {
            payload.extend(at.to_le_bytes());
            Ok(())
        })
    }

    /// Writes a number of dropped records.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn dropped(&mut self, count: u64) -> io::Result<()> {
        self.section(DROPPED, |payload| {
            payload.extend(count.to_le_bytes());
            Ok(())
        })
    }

    /// Writes a callback about a node of a graph; before the buffers that name it.
    ///
    /// # Errors
    /// If the output cannot be written to.
    pub fn graph_node(&mut self, node: &GraphNode) -> io::Result<()> {
        self.section(GRAPH_NODE, |payload| {
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
        self.section(END, |_| Ok(()))?;
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
