//! The trace file: opened when there is something to write, given up at the first error.
//!
//! A full disk or a read-only folder must not disturb the host or the verdict: one line says what happened, and
//! everything goes on without the file.

use std::fs::File;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};

use host_sampler::own::Own;
use profiler_core::process_info::ProcessInfo;
use profiler_core::trace::TraceWriter;

use crate::config::pattern::Expanded;
use crate::config::{self, Settings};
use crate::sys::files;

/// The file's states.
#[derive(Default)]
pub enum TraceFile {
    /// Nothing to write yet: a process that only queries the GPU leaves no file.
    Waiting(PathBuf),
    /// Being written.
    Open(Box<TraceWriter<Own<File>>>, PathBuf),
    /// Switched off, or given up.
    #[default]
    Off,
}

impl TraceFile {
    /// Where the settings say, expanded for this process.
    pub fn new(settings: &Settings, session: &ProcessInfo) -> Self {
        settings.output.as_ref().map_or(Self::Off, |pattern| {
            let Expanded { path, unset } = pattern.expand(session.process_id, &session.host);
            for name in unset {
                tracing::warn!(
                    "{}: the variable {name} is not set; the file is named {}",
                    config::OUTPUT,
                    path.display()
                );
            }
            // Where the program stood when it started; it may have gone elsewhere by its first kernel.
            Self::Waiting(std::path::absolute(&path).unwrap_or(path))
        })
    }

    /// Whether there was nothing to write yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// The file, once it exists.
    pub fn path(&self) -> Option<&Path> {
        if let Self::Open(_, path) = self { Some(path) } else { None }
    }

    /// There is something to write: creates the file unless that was tried before.
    #[inline]
    pub fn open(&mut self, session: &ProcessInfo) {
        if let Self::Waiting(path) = self {
            *self = create(mem::take(path), session);
        }
    }

    /// Writes if the file is open.
    #[inline]
    pub fn write(&mut self, write: impl FnOnce(&mut TraceWriter<Own<File>>) -> io::Result<()>) {
        let Self::Open(writer, path) = self else { return };
        if let Err(error) = write(writer) {
            tracing::warn!("{}: {error}; the trace ends here, the report goes on", path.display());
            *self = Self::Off;
        }
    }

    /// Writes the last part with `finish` and answers with the file's name, if there is one.
    pub fn finish(self, finish: impl FnOnce(TraceWriter<Own<File>>) -> io::Result<Own<File>>) -> Option<PathBuf> {
        let Self::Open(writer, path) = self else { return None };
        if let Err(error) = finish(*writer) {
            tracing::warn!("{}: {error}; the trace lacks its last part", path.display());
        } else if !path.exists() {
            tracing::warn!("{}: was removed while it was written; there is no trace", path.display());
        }
        Some(path)
    }
}

fn create(path: PathBuf, session: &ProcessInfo) -> TraceFile {
    let created = files::create_new(path.clone())
        .and_then(|(file, path)| Ok((TraceWriter::new(Own::of_file(file)?, session)?, path)));
    match created {
        Ok((writer, path)) => {
            tracing::info!("writing {}", path.display());
            TraceFile::Open(Box::new(writer), path)
        }
        Err(error) => {
            tracing::warn!(
                "{}: {error}; no trace is written (set {} to a writable place)",
                path.display(),
                config::OUTPUT
            );
            TraceFile::Off
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_place_switches_the_trace_off() {
        let mut trace = TraceFile::Waiting(PathBuf::from("/proc/no-such-folder/x.gpuwhy"));
        trace.open(&ProcessInfo::default());
        assert!(matches!(trace, TraceFile::Off));
    }
}
