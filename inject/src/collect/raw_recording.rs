//! Opt-in copy of the buffers as CUPTI delivered them, for the replay library and for bug reports.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use cupti_sys::recording::{GraphNode, Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Cupti, Domain, RecordSizes};
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::Timestamp;
use host_sampler::own::Own;

use crate::config;
use crate::cupti::recorder;
use crate::shared::graph_origins::QueuedNode;
use crate::sys::files;

/// Bytes of buffers at which a recording stops.
const LIMIT: u64 = 64 << 20;

/// A recording in progress. It stops after an error or at its size limit, and logs that.
#[derive(Debug)]
pub struct RawRecording {
    writer: Option<RecordingWriter<BufWriter<Own<File>>>>,
    path: PathBuf,
    written: u64,
    dropped: u64,
}

impl RawRecording {
    /// Starts a recording, or logs why it cannot.
    pub fn create(path: PathBuf, cupti: &Cupti, sizes: &RecordSizes, session: &ProcessInfo) -> Option<Self> {
        let meta = Meta {
            cupti_version: session.cupti_version,
            driver_cuda_version: session.driver_cuda_version,
            start: session.start.nanos(),
            library_path: session.cupti_path.clone(),
            sizes: sizes.iter().collect(),
        };
        let created = files::create_new(path.clone())
            .and_then(|(file, path)| Ok((RecordingWriter::new(BufWriter::new(Own::of_file(file)?), &meta)?, path)));
        match created {
            Ok((writer, used)) => {
                if used != path {
                    let (path, used) = (path.display(), used.display());
                    tracing::warn!("{}: {path} exists and is left alone; recording to {used}", config::RAW_RECORDING);
                }
                let path = used;
                let mut recording = Self { writer: Some(writer), path, written: 0, dropped: 0 };
                recording.api_names(cupti);
                Some(recording)
            }
            Err(error) => {
                tracing::warn!("{}: {}: {error}; nothing is recorded", config::RAW_RECORDING, path.display());
                None
            }
        }
    }

    /// Writes all names, since the replay library must also know functions that were not called.
    fn api_names(&mut self, cupti: &Cupti) {
        for domain in [Domain::RUNTIME, Domain::DRIVER] {
            for (id, name) in recorder::api_functions(cupti, domain) {
                self.write(|writer| writer.api_name(domain, id, &name));
            }
        }
    }

    pub fn buffer(&mut self, buffer: &CompletedBuffer, sizes: &RecordSizes, at: Timestamp) {
        self.written += buffer.bytes().len() as u64;
        if self.written > LIMIT && self.writer.is_some() {
            tracing::warn!("{}: reached its limit of {LIMIT} bytes and stops here", self.path.display());
            self.end();
        }
        self.write(|writer| writer.buffer(buffer, sizes, at.nanos()));
    }

    /// Adds callbacks about nodes of graphs, before the buffers that name them.
    pub fn graph_nodes(&mut self, nodes: &[QueuedNode]) {
        for &QueuedNode { node, original, at, thread, .. } in nodes {
            let is_copy = original.is_some();
            let node = GraphNode { at: at.nanos(), thread, is_copy, node, original: original.unwrap_or(0) };
            self.write(|writer| writer.graph_node(&node));
        }
    }

    /// Adds the mark of a flush.
    pub fn flushed(&mut self, at: Timestamp, dropped_by_cupti: u64) {
        let new = dropped_by_cupti.saturating_sub(std::mem::replace(&mut self.dropped, dropped_by_cupti));
        self.write(|writer| if new > 0 { writer.dropped(new) } else { Ok(()) });
        self.write(|writer| writer.flush(at.nanos()));
    }

    /// Ends the recording.
    pub fn end(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.finish().and_then(|mut buffered| io::Write::flush(&mut buffered))
        {
            tracing::warn!("{}: {error}; the recording lacks its end", self.path.display());
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut RecordingWriter<BufWriter<Own<File>>>) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = write(writer) {
            tracing::warn!("{}: {error}; the recording stops here", self.path.display());
            self.writer = None;
        }
    }
}
