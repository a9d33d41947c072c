//! A file or a pipe, opened once.
//!
//! All reads of a file go through this one handle, each from the start of the file. A pipe is read once. Only
//! SQLite opens a file again by name.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::bounded::{Counted, Unpacked};
use flate2::bufread::MultiGzDecoder;
use gpuwhy_report::text_format::printable_lines;
use gpuwhy_trace::format::{StoredReport, TraceReader};
use gpuwhy_trace::process_info::ProcessInfo;

use crate::error::OpenError;
use crate::format::Format;
use crate::progress::Progress;
use crate::scratch;

/// Bytes per read: rows and blocks are small, and system calls have a cost.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes by which a format is recognized.
const HEAD: u64 = 4096;

/// An open file or pipe. See [`open`](crate::open()) for what it may hold.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    file: Arc<File>,
    /// False for a pipe.
    is_file: bool,
    /// True if `path` still leads to the file.
    is_named: bool,
    /// For a file: its size when it was opened.
    bytes: u64,
    /// For a pipe: its first bytes, which cannot be read again.
    head: Vec<u8>,
    format: Format,
}

impl Input {
    /// Opens a file or a pipe and reads its first bytes.
    ///
    /// # Errors
    /// Fails if it cannot be opened or read, and for folders and devices.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let failed = |error| OpenError::io(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(OpenError::refused(path, "this is a folder; name the trace files in it"));
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Err(OpenError::refused(path, "this is a device; name a file or a pipe"));
        }
        // A pipe may return only a few bytes at first; recognizing the format takes more.
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head).map_err(failed)?;
        let format = Format::of(&head);
        let bytes = metadata.len();
        tracing::info!(file = %path.display(), format = format.name(), bytes, "opened");
        let is_file = kind.is_file();
        if is_file {
            head.clear();
        }
        Ok(Self { path: path.to_owned(), file: Arc::new(file), is_file, is_named: is_file, bytes, head, format })
    }

    /// Path under which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Report that the trace of a long run contains. `None` if there is none, if the trace is damaged, and
    /// for all other formats and pipes.
    pub fn stored_report(&self) -> Option<StoredReport> {
        let readable = self.is_file && self.format == Format::Trace;
        let read = || StoredReport::read(BufReader::with_capacity(BUFFER_BYTES, self.again())).ok().flatten();
        // These texts go to a terminal unchanged; the author of the file must not be able to control it.
        readable.then(read).flatten().map(|stored| StoredReport {
            summary: printable_lines(&stored.summary),
            full: printable_lines(&stored.full),
            ranges: printable_lines(&stored.ranges),
            ..stored
        })
    }

    /// The traced process, from the start of a trace of gpuwhy. `None` as for [`stored_report`](Self::stored_report).
    pub fn process(&self) -> Option<ProcessInfo> {
        let readable = self.is_file && self.format == Format::Trace;
        let read = || TraceReader::new(BufReader::with_capacity(BUFFER_BYTES, self.again())).ok();
        Some(readable.then(read)??.session().clone())
    }

    /// True if the bytes can be read a second time.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Size of a file when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if SQLite can open it by name. A deleted file and a copy have no name.
    pub(crate) fn is_named_database(&self) -> bool {
        self.format == Format::Sqlite && self.is_named && self.path.canonicalize().is_ok()
    }

    /// Error of reading the input, or of an interruption.
    pub(crate) fn failed(&self, error: io::Error, interrupted: &Cell<bool>) -> OpenError {
        if interrupted.get() { OpenError::interrupted(&self.path) } else { OpenError::io(&self.path, error) }
    }

    /// Returns an input that can be read again: the file, or a temporary file with all bytes of the pipe.
    pub(crate) fn spooled(self, progress: &mut Progress<'_>) -> Result<Self, OpenError> {
        if self.is_file {
            return Ok(self);
        }
        let interrupted = Rc::default();
        let mut copy = scratch::create()?;
        let bytes = io::copy(&mut self.watched(progress, Rc::default(), &interrupted), &mut copy)
            .map_err(|error| self.failed(error, &interrupted))?;
        tracing::debug!(file = %self.path.display(), bytes, "copied from a pipe");
        Ok(Self { file: Arc::new(copy), is_file: true, is_named: false, bytes, ..self })
    }

    /// Returns the path, the handle and the size of a file.
    pub(crate) fn into_file(self) -> (PathBuf, Arc<File>, u64) {
        (self.path, self.file, self.bytes)
    }

    fn again(&self) -> FromStart {
        FromStart::new(&self.file, self.bytes)
    }

    /// Returns the decompressed bytes. Reading fails if `progress` stops the work; `interrupted` is then set.
    pub(crate) fn unpacked<'p>(
        &'p self,
        progress: &'p mut Progress<'_>,
        interrupted: &Rc<Cell<bool>>,
    ) -> Result<Box<dyn BufRead + 'p>, OpenError> {
        let position: Rc<Cell<u64>> = Rc::default();
        let watched = self.watched(progress, Rc::clone(&position), interrupted);
        unpacked(watched, position).map_err(|error| self.failed(error, interrupted))
    }

    fn watched<'p>(
        &'p self,
        progress: &'p mut Progress<'_>,
        position: Rc<Cell<u64>>,
        interrupted: &Rc<Cell<bool>>,
    ) -> impl Read + 'p {
        let source: Box<dyn Read> = match self.is_file {
            true => Box::new(self.again()),
            false => Box::new(Cursor::new(&self.head).chain(&*self.file)),
        };
        let source = Counted::new(source, Rc::clone(&position));
        Watched { source, position, total: self.bytes, progress, interrupted: Rc::clone(interrupted) }
    }
}

/// Decompresses `source` if it is packed. `position` is the number of its bytes read.
pub(crate) fn unpacked<'s>(source: impl Read + 's, position: Rc<Cell<u64>>) -> io::Result<Box<dyn BufRead + 's>> {
    let mut packed = BufReader::with_capacity(BUFFER_BYTES, source);
    if Format::of(packed.fill_buf()?) != Format::Gzip {
        return Ok(Box::new(packed));
    }
    let mut unpacked = BufReader::with_capacity(BUFFER_BYTES, Unpacked::new(MultiGzDecoder::new(packed), position));
    match unpacked.fill_buf() {
        Ok(beginning) => {
            tracing::debug!(format = Format::of(beginning).name(), "packed with gzip");
            Ok(Box::new(unpacked))
        }
        Err(error) => Err(io::Error::new(error.kind(), format!("broken gzip file: {error}"))),
    }
}

/// Reads a file from the start up to a size, independently of other readers of the same handle.
#[derive(Debug)]
pub(crate) struct FromStart {
    file: Arc<File>,
    position: u64,
    end: u64,
}

impl FromStart {
    pub(crate) fn new(file: &Arc<File>, end: u64) -> Self {
        Self { file: Arc::clone(file), position: 0, end }
    }
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..left], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Reports the number of bytes read, and fails if the work is to stop.
pub(crate) struct Watched<'w, 'p, R> {
    pub(crate) source: R,
    pub(crate) position: Rc<Cell<u64>>,
    pub(crate) total: u64,
    pub(crate) progress: &'w mut Progress<'p>,
    pub(crate) interrupted: Rc<Cell<bool>>,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.progress)(self.position.get(), self.total).is_break() {
            self.interrupted.set(true);
            return Err(io::Error::other("interrupted"));
        }
        self.source.read(buffer)
    }
}
