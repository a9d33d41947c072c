//! The trace file: opened at the first event to write, abandoned at the first error.
//!
//! A full disk or a read-only folder must not affect the program or the analysis: one line reports it, and
//! everything continues without the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, mem};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::format::{StoredReport, TraceWriter};
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::Timestamp;
use gpuwhy_trace::utilization::{Utilization, UtilizationReading};
use host_sampler::own::Own;

use crate::config::pattern::Expanded;
use crate::config::{self, Settings};
use crate::control::watcher::{self, Progress};
use crate::sys::clock::after;
use crate::sys::files;

/// Interval at which utilization is written: the trace of a killed program has it too, and it can be
/// attributed to the times between two writes.
const UTILIZATION_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// The file, and the totals that are written at intervals.
pub struct TraceFile {
    state: FileState,
    utilization: Utilization,
    utilization_due: Timestamp,
}

/// State of the file.
enum FileState {
    /// No event to write yet: a process that only queries the GPU leaves no file.
    Waiting(PathBuf),
    /// Being written.
    Open(Box<TraceWriter<Own<File>>>, PathBuf),
    /// Disabled, or abandoned after an error.
    Off,
}

impl TraceFile {
    /// Sets the path from the settings, expanded for this process.
    pub fn new(settings: &Settings, session: &ProcessInfo) -> Self {
        let state = settings.output.as_ref().map_or(FileState::Off, |pattern| {
            let Expanded { path, unset } = pattern.expand(session.process_id, &session.host);
            for name in unset {
                tracing::warn!(
                    "{}: the variable {name} is not set; the file is named {}",
                    config::OUTPUT,
                    path.display()
                );
            }
            // Relative to the working directory at the start; the program may change it before its first
            // kernel.
            FileState::Waiting(std::path::absolute(&path).unwrap_or(path))
        });
        Self::of(state)
    }

    fn of(state: FileState) -> Self {
        Self { state, utilization: Utilization::default(), utilization_due: Timestamp::ZERO }
    }

    /// True if there has been no event to write yet.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, FileState::Waiting(_))
    }

    /// Path of the file once it exists.
    pub fn path(&self) -> Option<&Path> {
        if let FileState::Open(_, path) = &self.state { Some(path) } else { None }
    }

    /// Creates the file for the first event, unless that was tried before.
    pub fn open(&mut self, session: &ProcessInfo) {
        if let FileState::Waiting(path) = &mut self.state {
            self.state = create(mem::take(path), session);
        }
    }

    /// Writes device utilization if it is due: totals, so not every reading has to be written.
    pub fn write_utilization_if_due(&mut self, at: Timestamp, dictionary: &Dictionary) {
        if at >= self.utilization_due && !self.utilization.is_empty() {
            self.write_utilization(at, dictionary);
        }
    }

    /// Writes device utilization as of `at`.
    pub fn write_utilization(&mut self, at: Timestamp, dictionary: &Dictionary) {
        let absence = self.utilization.absence.map(UtilizationReading::Absent);
        let devices = mem::take(&mut self.utilization.devices);
        for reading in devices.iter().copied().map(UtilizationReading::Device).chain(absence) {
            self.write(|trace| trace.event(&(at, reading).into(), dictionary));
        }
        self.utilization.devices = devices;
        self.utilization_due = after(at, UTILIZATION_WRITTEN_EVERY);
    }

    /// Writes the report of the complete run.
    pub fn answer(&mut self, at: Timestamp, answer: &StoredReport, dictionary: &Dictionary) {
        self.write(|trace| trace.answer(at, answer, dictionary));
    }

    #[inline]
    fn write(&mut self, write: impl FnOnce(&mut TraceWriter<Own<File>>) -> io::Result<()>) {
        let FileState::Open(writer, path) = &mut self.state else { return };
        if let Err(error) = write(writer) {
            tracing::warn!("{}: {error}; the trace ends here, the report goes on", path.display());
            self.state = FileState::Off;
        }
    }

    /// Writes the last part, which is `end`. Returns the path of the file, if there is one.
    pub fn finish(self, end: &Event, dictionary: &Dictionary) -> Option<PathBuf> {
        let FileState::Open(mut writer, path) = self.state else { return None };
        if let Err(error) = writer.event(end, dictionary).and_then(|()| writer.close(dictionary)) {
            tracing::warn!("{}: {error}; the trace lacks its last part", path.display());
        } else if !path.exists() {
            tracing::warn!("{}: was removed while it was written; there is no trace", path.display());
        }
        Some(path)
    }
}

impl Sink for TraceFile {
    #[inline]
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Utilization { reading, .. } => self.utilization.take(**reading),
            _ => self.write(|trace| trace.event(event, dictionary)),
        }
    }
}

fn create(path: PathBuf, session: &ProcessInfo) -> FileState {
    let created = files::create_new(path.clone())
        .and_then(|(file, path)| Ok((TraceWriter::new(Own::of_file(file)?, session)?, path)));
    match created {
        Ok((writer, path)) => {
            tracing::info!("writing {}", path.display());
            watcher::tell(Progress::Done);
            FileState::Open(Box::new(writer), path)
        }
        Err(error) => {
            tracing::warn!(
                "{}: {error}; no trace is written (set {} to a writable place)",
                path.display(),
                config::OUTPUT
            );
            FileState::Off
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_place_switches_the_trace_off() {
        let mut trace = TraceFile::of(FileState::Waiting(PathBuf::from("/proc/no-such-folder/x.gpuwhy")));
        trace.open(&ProcessInfo::default());
        assert!(matches!(trace.state, FileState::Off));
    }
}
