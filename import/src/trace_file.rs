//! A trace on disk that an exporter can read from start to end repeatedly.
//!
//! Reading again instead of keeping records bounds the memory. All passes over a file see the same records,
//! since a finished trace does not change; a trace that is still being written is read up to its size when it
//! was opened.

use std::cell::Cell;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::bounded::Counted;
use gpuwhy_report::run::Report;
use gpuwhy_report::run::operators::{Operators, OperatorsBy};
use gpuwhy_report::words::losses;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{Damage, TraceReader};
use gpuwhy_trace::own_marks::is_own;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, Record};
use profiler_core::leaf::Cause;

use crate::error::OpenError;
use crate::format::Format;
use crate::input::{FromStart, Input, Watched, unpacked};
use crate::kineto::Imported;
use crate::operators::Recorder;
use crate::progress::{Progress, Ticks, unwatched};
use crate::recompute::{Observer, report_of_part};
use crate::request::Request;
use crate::scratch::{self, Translated};
use crate::translate::{self, NOT_SEVERAL};

/// Name of a trace without its extensions (`.gpuwhy`, `.gpuwhy.gz`).
pub fn stem(path: &Path) -> String {
    let unpacked = match path.extension() {
        Some(packed) if packed == "gz" => path.file_stem().map(Path::new).unwrap_or(path),
        _ => path,
    };
    let stem = unpacked.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "trace".to_owned())
}

/// A trace whose records can be read repeatedly. See [`open`](crate::open()) for the supported files. Clones share the
/// open file.
#[derive(Clone, Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// The file itself, or the trace that it was translated into.
    contents: Contents,
    /// Size when it was opened.
    bytes: u64,
    session: ProcessInfo,
    /// Records that its translation did not use as they are.
    notes: Vec<String>,
    other_processes: Option<String>,
    lacks_cuda: bool,
    /// What rows of the operators in the trace are about in its reports.
    operators_by: Option<OperatorsBy>,
    /// A file of Kineto, and the process to read of it: its translation has no operators.
    json: Option<(Arc<Input>, Option<u32>)>,
    /// Its operators for reports.
    operators: Option<Operators>,
}

/// The bytes of a trace.
#[derive(Clone, Debug)]
enum Contents {
    Open(Arc<File>),
    /// Opened again for each pass: device and inode number.
    Closed(u64, u64),
}

/// Result of a pass, in addition to what its visitor kept.
pub struct Passed {
    /// The traced process.
    pub session: ProcessInfo,
    /// Everything that the records refer to.
    pub dictionary: Dictionary,
    /// Records lost before they reached the trace.
    pub loss: Loss,
    /// How the trace ended.
    pub end: End,
    /// Missing parts of the file.
    pub(crate) damage: Damage,
    /// The reason if reading ended early.
    pub(crate) stopped: Option<String>,
}

impl Passed {
    /// Describes the unreadable parts of the file: sentences for the user.
    pub fn damaged(&self) -> Vec<String> {
        let mut sentences = self.damage.sentences();
        sentences.extend(self.stopped.clone());
        sentences
    }

    /// Describes everything missing from the trace: sentences for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.damaged();
        notes.extend(losses(&self.loss));
        if self.end != End::Clean {
            notes.push("the trace has no clean end: what the program did last may be missing".to_owned());
        }
        notes
    }
}

/// Context of the records seen up to now.
pub struct Scope<'a> {
    /// The traced process.
    pub session: &'a ProcessInfo,
    /// All names and configurations up to now.
    pub dictionary: &'a Dictionary,
}

impl TraceFile {
    /// Opens a trace and reads its start; translates a trace of another profiler. A pipe is copied to a
    /// temporary file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or is not a trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_process(path, None, &mut unwatched)
    }

    /// As [`open`](Self::open), with the process `pid` of a file that holds several.
    ///
    /// # Errors
    /// As [`open`](Self::open); also if `pid` is given and the file has no such process or is of a kind that
    /// holds only one, and if `progress` stops the work.
    pub fn open_process(
        path: impl AsRef<Path>,
        pid: Option<u32>,
        progress: &mut Progress<'_>,
    ) -> Result<Self, OpenError> {
        let input = Input::open(path)?.spooled(progress)?;
        let interrupted = Rc::default();
        let mut bytes = input.unpacked(progress, &interrupted)?;
        let format = Format::of(bytes.fill_buf().map_err(|error| input.failed(error, &interrupted))?);
        if let Format::NotRead(advice) = format {
            return Err(OpenError::refused(input.path(), advice));
        }
        if format == Format::Sqlite {
            let database = translate::database(&input, bytes, &interrupted)?;
            return Self::translated(&input, translate::nsys(&input, database, pid, progress)?);
        }
        if pid.is_some() && !matches!(format, Format::Json { .. }) {
            return Err(OpenError::refused(input.path(), NOT_SEVERAL));
        }
        drop(bytes);
        if matches!(format, Format::Json { .. }) {
            let imported = imported(&input, pid, None, progress)?;
            let trace = translate::kineto(input.path(), imported, progress)?;
            let file = Self::of(&input, trace)?;
            return Ok(Self { json: Some((Arc::new(input), pid)), ..file });
        }
        let (path, contents, bytes) = input.into_file();
        Self::begun(path, Contents::Open(contents), bytes)
    }

    /// A process of a file with several.
    pub(crate) fn translated(input: &Input, from: Translated) -> Result<Self, OpenError> {
        let Translated { trace, notes, other_processes, lacks_cuda } = from;
        Ok(Self { notes, other_processes, lacks_cuda, ..Self::of(input, trace)? })
    }

    /// The trace that `input` was translated into.
    pub(crate) fn of(input: &Input, trace: File) -> Result<Self, OpenError> {
        let bytes = trace.metadata().map_err(scratch::failed)?.len();
        let path = input.path().to_owned();
        Self::begun(path, Contents::Open(Arc::new(trace)), bytes)
    }

    /// Closes the file until it is read, for callers with more traces than a process may have open files. Has
    /// no effect on a trace that was translated or copied.
    pub fn close(&mut self) {
        let Contents::Open(file) = &self.contents else { return };
        let inode = |found: io::Result<Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
        if let Some((device, number)) = inode(file.metadata())
            && inode(fs::metadata(&self.path)) == Some((device, number))
        {
            self.contents = Contents::Closed(device, number);
        }
    }

    fn contents(&self) -> Result<Arc<File>, OpenError> {
        let (device, number) = match &self.contents {
            Contents::Open(file) => return Ok(Arc::clone(file)),
            Contents::Closed(device, number) => (*device, *number),
        };
        let file = File::open(&self.path).map_err(|error| OpenError::io(&self.path, error))?;
        let found = file.metadata().map_err(|error| OpenError::io(&self.path, error))?;
        if (found.dev(), found.ino()) != (device, number) {
            let replaced = io::Error::other("another file has its name by now; do not move traces while they are read");
            return Err(OpenError::io(&self.path, replaced));
        }
        Ok(Arc::new(file))
    }

    /// Reads the description of the traced process.
    fn begun(path: PathBuf, contents: Contents, bytes: u64) -> Result<Self, OpenError> {
        let session = ProcessInfo::default();
        let mut trace = Self {
            path,
            contents,
            bytes,
            session,
            notes: Vec::new(),
            other_processes: None,
            lacks_cuda: false,
            operators_by: None,
            json: None,
            operators: None,
        };
        trace.session = trace.reader(&Rc::default())?.session().clone();
        Ok(trace)
    }

    /// Returns the same file with the trace in `contents` as its contents, without operators of Kineto.
    ///
    /// # Errors
    /// Fails if the size of `contents` cannot be determined.
    pub fn with_contents(&self, contents: File) -> Result<Self, OpenError> {
        let bytes = contents.metadata().map_err(scratch::failed)?.len();
        Ok(Self {
            path: self.path.clone(),
            contents: Contents::Open(Arc::new(contents)),
            bytes,
            session: self.session.clone(),
            notes: self.notes.clone(),
            other_processes: self.other_processes.clone(),
            lacks_cuda: self.lacks_cuda,
            operators_by: self.operators_by,
            json: None,
            operators: None,
        })
    }

    /// Has reports contain operators, if they were recorded.
    ///
    /// # Errors
    /// Fails if a file of Kineto cannot be read again, and if `progress` stops the work.
    pub fn with_operators(self, by: Option<OperatorsBy>, progress: &mut Progress<'_>) -> Result<Self, OpenError> {
        let operators = by.map_or(Ok(None), |by| self.of_json(by, progress))?;
        Ok(Self { operators_by: by.filter(|_| self.json.is_none()), operators, ..self })
    }

    /// Operators of a file of Kineto.
    fn of_json(&self, by: OperatorsBy, progress: &mut Progress<'_>) -> Result<Option<Operators>, OpenError> {
        let Some((input, pid)) = &self.json else { return Ok(None) };
        let operators = imported(input, *pid, Some(by), progress)?.operators(&mut || progress(1, 1));
        operators.map_err(|error| OpenError::kineto(input.path(), error))
    }

    /// Makes the report of the trace, about one capture of a run in pieces or the newest.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and if `progress` stops the work.
    pub fn report(&self, capture: Option<u32>, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
        self.reported(capture, None, progress)
    }

    /// As [`report`](Self::report); `observer` receives every record.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn observe(
        &self,
        capture: Option<u32>,
        observer: &mut dyn Observer,
        progress: &mut Progress<'_>,
    ) -> Result<Report, OpenError> {
        self.reported(capture, Some(observer), progress)
    }

    fn reported(
        &self,
        capture: Option<u32>,
        observer: Option<&mut dyn Observer>,
        progress: &mut Progress<'_>,
    ) -> Result<Report, OpenError> {
        let interrupted = Rc::default();
        let reader = TraceReader::new(self.watched(progress, &interrupted)?);
        let request = Request { capture, operators: self.operators_by, ..Request::default() };
        let report = reader.and_then(|reader| report_of_part(reader, request, None, observer));
        if interrupted.get() {
            return Err(OpenError::interrupted(&self.path));
        }
        let mut report = report.map_err(|error| OpenError::trace(&self.path, error))?;
        report.completeness.damage.extend_from_slice(&self.notes);
        report.other_processes.clone_from(&self.other_processes);
        report.operators = report.operators.take().or_else(|| self.operators.clone());
        if self.lacks_cuda && report.bottleneck.cause == Cause::NoWork {
            report.bottleneck.recommendation = translate::without_cuda();
        }
        Ok(report)
    }

    /// Operators of the newest capture or the run; `None` if none were recorded.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and if `progress` stops the work.
    pub fn operators(&self, by: OperatorsBy, progress: &mut Progress<'_>) -> Result<Option<Operators>, OpenError> {
        if self.json.is_some() {
            return self.of_json(by, progress);
        }
        let mut recorder = Recorder::new(by, None);
        let passed = self.pass(progress, |event, scope| {
            recorder.event(event, scope.dictionary);
            Ok::<(), OpenError>(())
        })?;
        Ok(recorder.operators(&passed.dictionary))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The other processes of a file with several, which are left out: a sentence for the user, without a period.
    pub fn other_processes(&self) -> Option<&str> {
        self.other_processes.as_deref()
    }

    /// The traced process.
    pub fn session(&self) -> &ProcessInfo {
        &self.session
    }

    /// Passes every event to `visit`, in file order, except for gpuwhy's own marks: they are no ranges of the program.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if `visit` fails.
    pub fn pass<E: From<OpenError>>(
        &self,
        progress: &mut Progress<'_>,
        mut visit: impl FnMut(&Event, &Scope<'_>) -> Result<(), E>,
    ) -> Result<Passed, E> {
        let mut pass = self.read()?;
        let mut ticks = Ticks::default();
        while let Some((event, scope)) = pass.next_event() {
            visit(&event, &scope)?;
            if ticks.is_due() {
                self.report_progress(progress, pass.position())?;
            }
        }
        self.report_progress(progress, self.bytes)?;
        let passed = pass.finish();
        tracing::debug!(file = %self.path.display(), bytes = self.bytes, "read from front to back");
        for damage in passed.damaged() {
            tracing::debug!(file = %self.path.display(), damage, "damaged");
        }
        Ok(passed)
    }

    /// Starts a [`pass`](Self::pass) whose caller takes the events one by one.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(&self) -> Result<Pass, OpenError> {
        let position = Rc::default();
        let reader = self.reader(&position)?;
        Ok(Pass { reader, position, loss: Loss::default(), end: End::Abrupt, stopped: None })
    }

    /// Size of the file when it was opened, bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// Reports the number of bytes read.
    fn report_progress(&self, progress: &mut Progress<'_>, done: u64) -> Result<(), OpenError> {
        if progress(done, self.bytes).is_break() { Err(OpenError::interrupted(&self.path)) } else { Ok(()) }
    }

    /// Returns the decompressed bytes of the trace, for other readers. Reading fails if `progress` stops the
    /// work.
    ///
    /// # Errors
    /// Fails if the file cannot be decompressed.
    pub fn bytes<'p>(&self, progress: &'p mut Progress<'_>) -> Result<impl Read + 'p, OpenError> {
        self.watched(progress, &Rc::default())
    }

    fn watched<'p>(
        &self,
        progress: &'p mut Progress<'_>,
        interrupted: &Rc<Cell<bool>>,
    ) -> Result<Box<dyn BufRead + 'p>, OpenError> {
        let position = Rc::default();
        let contents = self.contents()?;
        let source = Counted::new(FromStart::new(&contents, self.bytes), Rc::clone(&position));
        let watched = Watched {
            source,
            position: Rc::clone(&position),
            total: self.bytes,
            progress,
            interrupted: Rc::clone(interrupted),
        };
        unpacked(watched, position).map_err(|error| OpenError::io(&self.path, error))
    }

    /// Reads from the start. `position` is updated to the number of the file's bytes read.
    fn reader(&self, position: &Rc<Cell<u64>>) -> Result<TraceReader<Box<dyn BufRead>>, OpenError> {
        let contents = self.contents()?;
        let source = Counted::new(FromStart::new(&contents, self.bytes), Rc::clone(position));
        let bytes = unpacked(source, Rc::clone(position)).map_err(|error| OpenError::io(&self.path, error))?;
        TraceReader::new(bytes).map_err(|error| OpenError::of_trace(&self.path, error))
    }
}

/// A pass over a trace; see [`TraceFile::read`].
pub struct Pass {
    reader: TraceReader<Box<dyn BufRead>>,
    position: Rc<Cell<u64>>,
    loss: Loss,
    end: End,
    stopped: Option<String>,
}

impl Pass {
    /// Decodes only these kinds of records; see [`TraceReader::records`].
    pub fn records(&mut self, kinds: u32) {
        self.reader.records(kinds);
    }

    /// Returns the next event; `None` at the end, and where the file cannot be read further.
    pub fn next_event(&mut self) -> Option<(Event, Scope<'_>)> {
        let event = loop {
            let event = match self.reader.next_event() {
                Ok(event) => event?,
                Err(error) => {
                    self.stopped = Some(format!("reading stopped early: {error}"));
                    return None;
                }
            };
            match &event {
                Event::Record(Record::Range(mark)) if is_own(mark, self.reader.dictionary()) => continue,
                Event::Loss(newer) => self.loss = **newer,
                Event::End(how, _) => self.end = *how,
                _ => {}
            }
            break event;
        };
        Some((event, Scope { session: self.reader.session(), dictionary: self.reader.dictionary() }))
    }

    /// Number of the file's bytes that were read.
    pub fn position(&self) -> u64 {
        self.position.get()
    }

    /// Returns what was learned beside the events.
    #[must_use]
    pub fn finish(self) -> Passed {
        let Self { reader, loss, end, stopped, .. } = self;
        let (session, dictionary, damage) = reader.into_parts();
        Passed { session, dictionary, loss, end, damage, stopped }
    }
}

/// Reads a file of Kineto, with or without operators.
fn imported(
    input: &Input,
    pid: Option<u32>,
    operators: Option<OperatorsBy>,
    progress: &mut Progress<'_>,
) -> Result<Imported, OpenError> {
    let interrupted = Rc::default();
    let mut bytes = input.unpacked(progress, &interrupted)?;
    if let Format::Json { mark } = Format::of(bytes.fill_buf().map_err(|error| input.failed(error, &interrupted))?) {
        bytes.consume(mark);
    }
    let imported = Imported::read(bytes, pid, operators);
    if interrupted.get() {
        return Err(OpenError::interrupted(input.path()));
    }
    imported.map_err(|error| OpenError::kineto(input.path(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::format::TraceWriter;
    use gpuwhy_trace::record::Timestamp;

    #[test]
    fn a_closed_trace_is_opened_again_unless_another_file_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rank0.gpuwhy");
        let session = ProcessInfo { process_id: 7, ..ProcessInfo::default() };
        let writer = TraceWriter::new(Vec::new(), &session).unwrap();
        let bytes = writer.finish(End::Clean, Timestamp::from_nanos(1), &Loss::default(), &Dictionary::new()).unwrap();
        fs::write(&path, &bytes).unwrap();
        let mut trace = TraceFile::open(&path).unwrap();
        trace.close();
        assert!(matches!(trace.contents, Contents::Closed(..)));
        let pass = |trace: &TraceFile| trace.pass(&mut unwatched, |_, _| Ok::<_, OpenError>(()));
        assert_eq!(pass(&trace).unwrap().session.process_id, 7);
        fs::write(folder.path().join("other"), &bytes).unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        let error = pass(&trace).err().unwrap().to_string();
        assert!(error.contains("rank0.gpuwhy") && error.contains("another file has its name"), "{error}");
    }
}
