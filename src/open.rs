//! From a trace file to its report.
//!
//! The one place where a file's format is recognized. A trace of ours goes through `recompute` to the attributor that the
//! injected library feeds with the same items while the program runs, so both say the same; other profilers' traces go
//! through `import` to it.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use profiler_core::attribution::leaf::Group;
use profiler_core::bounded::{Counted, Unpacked};
use profiler_core::record::Timestamp;
use profiler_core::report::{Part, Report};
use profiler_core::trace::{TraceError, TraceReader};

use crate::import::{KinetoError, import_kineto};
use crate::recompute::{report_from, report_of_part};
use crate::window::Window;

/// Read at once: rows and blocks are small, system calls are not free.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes by which formats are told apart.
const HEAD: u64 = 4096;
/// RFC 1952.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// How an SQLite file begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Some editors put it in front of a JSON text that they save.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a trace gave no report.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Folder,
    Trace(TraceError),
    Kineto(KinetoError),
    /// Names the file itself.
    Nsys(String),
    /// The part that was asked for is none.
    Part(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Cause::Nsys(error) = &self.cause {
            return f.write_str(error);
        }
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            Cause::Nsys(_) => Ok(()),
            Cause::Io(error) => write!(f, "{error}"),
            Cause::Folder => f.write_str("this is a folder; name the trace files in it"),
            Cause::Trace(error) => write!(f, "{error}"),
            Cause::Kineto(error) => write!(f, "{error}"),
            Cause::Part(error) => write!(f, "{error}"),
        }
    }
}

// The cause is part of the text: a caller that prints a chain of sources would print it twice.
impl Error for OpenError {}

/// Reads the trace file at `path` and makes its report.
///
/// The file is a trace of gpuwhy or of the PyTorch profiler (Kineto's JSON), or
/// an SQLite file of Nsight Systems (`nsys export --type sqlite`), which takes the feature `export`; each of them packed with gzip or not.
/// Its contents say which, not its name. A pipe will do. What is packed 200 to 1 or more is taken for an attack, and has to be
/// unpacked by hand. A trace that was cut off or damaged is no error: the report covers what can
/// be read, and its completeness says what is missing and where.
///
/// # Errors
///
/// When the file cannot be opened, is no trace, was written in a format of the future, or ends before anything was
/// recorded. The error names the file, and the offset where there is one.
pub fn open(path: impl AsRef<Path>) -> Result<Report, OpenError> {
    open_capture(path, None)
}

/// As [`open`], about one capture of a run that was measured in pieces. `None` is the newest. A number that does not
/// exist gives an empty report whose [`captures`](Report::captures) say which there are.
///
/// # Errors
///
/// As [`open`].
pub fn open_capture(path: impl AsRef<Path>, capture: Option<u32>) -> Result<Report, OpenError> {
    open_watched(path, capture, &mut |_, _| ())
}

/// As [`open_capture`]; `progress` is told now and then how many bytes of the file are read, and how many it has.
///
/// # Errors
///
/// As [`open`].
pub fn open_watched(
    path: impl AsRef<Path>,
    capture: Option<u32>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, OpenError> {
    let path = path.as_ref();
    report_of(path, capture, progress).map_err(|cause| OpenError { path: path.to_owned(), cause })
}

/// As [`open`], about a part of the run: from `from` to `to` after its start. What overlaps the part is in it whole, device
/// work with the call that launched it (up to two seconds before); the report's [`part`](Report::part) says what it is about.
/// Blocks that are about another time are not decoded. Only traces of gpuwhy, packed or not, can be read in part, and not from a
/// pipe, as they are read twice.
///
/// # Errors
///
/// As [`open`], when the file is of another kind, when the part ends before it begins, and when it lies behind the end of the
/// trace.
pub fn open_window(path: impl AsRef<Path>, from: Duration, to: Duration) -> Result<Report, OpenError> {
    let path = path.as_ref();
    window_of(path, from, to).map_err(|cause| OpenError { path: path.to_owned(), cause })
}

fn window_of(path: &Path, from: Duration, to: Duration) -> Result<Report, Cause> {
    if to <= from {
        return Err(Cause::Part(format!("a part from {from:?} to {to:?} ends before it begins")));
    }
    let is_pipe = path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if is_pipe {
        return Err(Cause::Part("a part takes a file, since it is read twice; this is a pipe".to_owned()));
    }
    let mut unwatched = |_, _| ();
    let first = TraceReader::new(Input::open(path, &mut unwatched)?.bytes).map_err(Cause::Trace)?;
    let start = first.session().start;
    let time = |since: Duration| {
        Timestamp::from_nanos(start.nanos().saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
    };
    let window = Window::find(first, time(from), time(to)).map_err(Cause::Trace)?;
    let since_start = |at: Timestamp| at.nanos().saturating_sub(start.nanos());
    let (length, end) = (since_start(window.last()), since_start(window.end()));
    let length = Duration::from_nanos(length);
    if from >= length {
        return Err(Cause::Part(format!("the trace is {length:.2?} long, nothing of it lies behind {from:?}")));
    }
    let mut second = TraceReader::new(Input::open(path, &mut unwatched)?.bytes).map_err(Cause::Trace)?;
    second.only(window.read_from(), time(to));
    let mut report = report_of_part(second, None, Some(window)).map_err(Cause::Trace)?;
    report.part = Some(Part { from_ns: since_start(time(from)), to_ns: end, of_ns: length.as_nanos() as u64 });
    if report.verdict.group == Group::NoWork {
        report.verdict.recommendation = "No device work in this part: the report of the whole run has more.".to_owned();
    }
    report
        .process
        .notes
        .push(format!("a part of the run: from {from:?} to {:?} after its start", Duration::from_nanos(end)));
    Ok(report)
}

fn report_of(path: &Path, capture: Option<u32>, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Cause> {
    let mut input = Input::open(path, progress)?;
    if input.bytes.fill_buf().map_err(Cause::Io)?.starts_with(SQLITE_MAGIC) {
        return of_nsys(path, input, capture);
    }
    by_content(input.bytes, capture)
}

/// What a file or a pipe holds.
struct Input<'p> {
    /// Unpacked.
    bytes: Box<dyn BufRead + 'p>,
    /// Whether they are those of a file as it lies on the disk.
    #[cfg_attr(not(feature = "export"), expect(dead_code, reason = "only SQLite needs a file"))]
    is_file: bool,
}

impl<'p> Input<'p> {
    /// `progress` as for [`open_watched`].
    fn open(path: &Path, progress: &'p mut dyn FnMut(u64, u64)) -> Result<Self, Cause> {
        let mut file = File::open(path).map_err(Cause::Io)?;
        let metadata = file.metadata().map_err(Cause::Io)?;
        if metadata.is_dir() {
            return Err(Cause::Folder);
        }
        // A pipe may give a few bytes at first, and the format is told by more of them.
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head).map_err(Cause::Io)?;
        let is_packed = head.starts_with(&GZIP_MAGIC);
        let position = Rc::default();
        let whole = Counted::new(Cursor::new(head).chain(file), Rc::clone(&position));
        let whole = Watched { source: whole, position: Rc::clone(&position), total: metadata.len(), progress };
        let reader = BufReader::with_capacity(BUFFER_BYTES, whole);
        if !is_packed {
            return Ok(Self { bytes: Box::new(reader), is_file: metadata.is_file() });
        }
        let mut unpacked = BufReader::with_capacity(BUFFER_BYTES, Unpacked::new(MultiGzDecoder::new(reader), position));
        match unpacked.fill_buf() {
            Ok(_) => Ok(Self { bytes: Box::new(unpacked), is_file: false }),
            Err(error) => Err(Cause::Io(io::Error::new(error.kind(), format!("broken gzip file: {error}")))),
        }
    }
}

/// Tells how much is read.
struct Watched<'p, R> {
    source: R,
    position: Rc<Cell<u64>>,
    total: u64,
    progress: &'p mut dyn FnMut(u64, u64),
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.progress)(self.position.get(), self.total);
        self.source.read(buffer)
    }
}

#[cfg(feature = "export")]
fn of_nsys(path: &Path, mut input: Input<'_>, capture: Option<u32>) -> Result<Report, Cause> {
    let nsys = |error: gpuwhy_export::ExportError| Cause::Nsys(error.of(path).to_string());
    let copy = match input.is_file {
        true => None,
        false => Some(gpuwhy_export::copied(&mut input.bytes).map_err(Cause::Io)?),
    };
    let translated = gpuwhy_export::TraceFile::open(copy.as_deref().unwrap_or(path)).map_err(nsys)?;
    read_capture(File::open(translated.readable()).map_err(Cause::Io)?, capture).map_err(Cause::Trace)
}

#[cfg(not(feature = "export"))]
fn of_nsys(path: &Path, _: Input<'_>, _: Option<u32>) -> Result<Report, Cause> {
    let why = "an SQLite file, which this build cannot read: the crate's feature `export` is off";
    Err(Cause::Nsys(format!("{}: {why}", path.display())))
}

/// Tells the two formats apart by how they begin: a trace of ours has a magic that no text has.
fn by_content(mut source: impl BufRead, capture: Option<u32>) -> Result<Report, Cause> {
    let beginning = source.fill_buf().map_err(Cause::Io)?;
    let first = beginning.strip_prefix(UTF8_MARK).unwrap_or(beginning).trim_ascii_start().first().copied();
    if matches!(first, Some(b'{' | b'[')) {
        if beginning.starts_with(UTF8_MARK) {
            source.consume(UTF8_MARK.len());
        }
        return import_kineto(source).map_err(Cause::Kineto);
    }
    read_capture(source, capture).map_err(Cause::Trace)
}

/// Makes the report of a trace that comes from anywhere, as [`open`] does for a file.
///
/// # Errors
///
/// When `source` is no trace, was written in a format of the future, or ends before anything was recorded.
pub fn read(source: impl Read) -> Result<Report, TraceError> {
    read_capture(source, None)
}

fn read_capture(source: impl Read, capture: Option<u32>) -> Result<Report, TraceError> {
    report_from(TraceReader::new(source)?, capture)
}
