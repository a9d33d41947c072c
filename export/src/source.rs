//! A trace on disk that can be read from front to back as often as an exporter needs.
//!
//! UtilizationReading again instead of keeping is what bounds memory. All passes over a file see the same records, since a
//! finished trace does not change; one that is still being written is read up to where the first pass ended.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use profiler_core::bounded::{Counted, Unpacked};
use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::Loss;
use profiler_core::trace::{Damage, Item, TraceReader};
use tempfile::{NamedTempFile, TempPath};

use crate::error::ExportError;
use crate::nsys;
use crate::scratch::Scratch;

const BUFFER_BYTES: usize = 1 << 20;
/// RFC 1952.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// A report of progress every so many items.
const PROGRESS_ITEMS: u32 = 1 << 14;

/// Writes what a JSON text says as a trace into the file, or says why it cannot.
pub type TranslateJson = fn(&mut dyn BufRead, File) -> Result<(), String>;

/// Is told now and then how much of a pass is done, bytes read and bytes in all, and answers whether to go on: a break ends
/// the work with [`ExportError::is_interrupted`], and nothing that is unfinished stays behind.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// A [`Progress`] that nobody sees and that goes on to the end.
pub fn unwatched(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The progress of a pass that is the part `percent` of the work.
pub fn share(progress: &mut Progress<'_>, percent: Range<u64>) -> impl FnMut(u64, u64) -> ControlFlow<()> {
    move |done, total| progress((total * percent.start + done * (percent.end - percent.start)) / 100, total)
}

/// The name of a trace without its endings (`.gpuwhy`, `.gpuwhy.gz`).
#[must_use]
pub fn stem(path: &Path) -> String {
    let unpacked = match path.extension() {
        Some(packed) if packed == "gz" => path.file_stem().map(Path::new).unwrap_or(path),
        _ => path,
    };
    let stem = unpacked.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "trace".to_owned())
}

/// A trace file of gpuwhy or an SQLite file of Nsight Systems, packed with gzip or not. A pipe is copied to a temporary file.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// The trace that a foreign file was translated into.
    translated: Option<Scratch>,
    /// Size when it was opened.
    bytes: u64,
    session: ProcessInfo,
}

/// What a pass leaves besides what its visitor kept.
pub struct Passed {
    /// Who was traced.
    pub session: ProcessInfo,
    /// Everything that the records refer to.
    pub dictionary: Dictionary,
    /// What was lost before it came into the trace.
    pub loss: Loss,
    /// How the trace ended.
    pub end: End,
    /// What the file lacks.
    damage: Damage,
    /// Why reading ended early, if it did.
    stopped: Option<String>,
}

impl Passed {
    /// What of the file could not be read: sentences for the user.
    pub fn damaged(&self) -> Vec<String> {
        let mut sentences = self.damage.sentences();
        sentences.extend(self.stopped.clone());
        sentences
    }

    /// What is missing from the trace: sentences for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.damaged();
        notes.extend(self.loss.sentences());
        if self.end != End::Clean {
            notes.push("the trace has no clean end: what the program did last may be missing".to_owned());
        }
        notes
    }
}

/// What the records seen so far refer to.
pub struct Scope<'a> {
    /// Who was traced.
    pub session: &'a ProcessInfo,
    /// All names and configurations so far.
    pub dictionary: &'a Dictionary,
}

impl TraceFile {
    /// Opens a trace and reads its beginning.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or is neither.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ExportError> {
        Self::open_process(path, None, None)
    }

    /// As [`open`](Self::open); of a file that holds several processes the one of the number `pid`. With `json` a JSON
    /// text is translated too.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and when a number is given and the file has no such process, or is none of the files that
    /// can hold several.
    pub fn open_process(
        path: impl AsRef<Path>,
        pid: Option<u32>,
        json: Option<TranslateJson>,
    ) -> Result<Self, ExportError> {
        let path = path.as_ref();
        let failed = |error| ExportError::io(path, error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(ExportError::foreign(path, "this is a folder; name the trace files in it"));
        }
        if metadata.file_type().is_char_device() || metadata.file_type().is_block_device() {
            return Err(ExportError::foreign(path, "this is a device; name a file or a pipe"));
        }
        if !metadata.is_file() {
            let mut pipe = File::open(path).map_err(failed)?;
            let copy = Scratch::new()?;
            io::copy(&mut pipe, &mut copy.writer()?).map_err(failed)?;
            let opened = Self::open_process(copy.path(), pid, json).map_err(|error| error.of(path))?;
            let opened = if opened.translated.is_some() { opened } else { opened.replaced(copy)? };
            return Ok(Self { path: path.to_owned(), ..opened });
        }
        let trace =
            Self { path: path.to_owned(), translated: None, bytes: metadata.len(), session: ProcessInfo::default() };
        // SQLite opens files by their names, which a copy of a pipe has not.
        if nsys::is_sqlite(path) && path.canonicalize().is_ok() {
            return trace.replaced(nsys::translate(path, pid)?)?.begun();
        }
        let mut beginning = trace.unpacked(&Rc::default())?;
        let text = beginning.fill_buf().map_err(failed)?;
        if text.starts_with(nsys::MAGIC) {
            let copy = copied(&mut beginning).map_err(failed)?;
            return trace.replaced(nsys::translate(&copy, pid).map_err(|error| error.of(path))?)?.begun();
        }
        if pid.is_some() {
            return Err(ExportError::foreign(
                path,
                "a process can be chosen in SQLite files of Nsight Systems only; this file holds one",
            ));
        }
        if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) {
            return trace.begun();
        }
        let Some(translate) = json else {
            return Err(ExportError::foreign(
                path,
                "this is JSON, perhaps a trace of another profiler; it has to be translated first",
            ));
        };
        let translated = Scratch::new()?;
        translate(&mut beginning, translated.writer()?).map_err(|why| ExportError::translation(path, why))?;
        trace.replaced(translated)?.begun()
    }

    /// Reads who was traced.
    fn begun(mut self) -> Result<Self, ExportError> {
        let reader =
            TraceReader::new(self.unpacked(&Rc::default())?).map_err(|error| ExportError::trace(&self.path, error))?;
        self.session = reader.session().clone();
        Ok(self)
    }

    /// The same with the contents of another file, which vanishes with the answer.
    pub(crate) fn replaced(&self, by: Scratch) -> Result<Self, ExportError> {
        let bytes = by.bytes()?;
        Ok(Self { path: self.path.clone(), translated: Some(by), bytes, session: self.session.clone() })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file that holds a trace of gpuwhy: this one, or what it was translated into, for as long as `self` lives.
    #[must_use]
    pub fn readable(&self) -> &Path {
        self.translated.as_ref().map_or(&self.path, Scratch::path)
    }

    /// Who was traced.
    #[must_use]
    pub fn session(&self) -> &ProcessInfo {
        &self.session
    }

    /// Hands every item to `visit`, in the order of the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read at all, or `visit` fails.
    pub fn pass(
        &self,
        progress: &mut Progress<'_>,
        mut visit: impl FnMut(&Item, &Scope<'_>) -> Result<(), ExportError>,
    ) -> Result<Passed, ExportError> {
        let position = Rc::new(Cell::new(0));
        let source = self.unpacked(&position)?;
        let mut reader = TraceReader::new(source).map_err(|error| ExportError::trace(&self.path, error))?;
        let (mut loss, mut end, mut stopped) = (Loss::default(), End::Abrupt, None);
        let mut items = 0u32;
        loop {
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(error) => {
                    stopped = Some(format!("reading stopped early: {error}"));
                    break;
                }
            };
            match &item {
                Item::Loss(newer) => loss = *newer,
                Item::End(how, _) => end = *how,
                _ => {}
            }
            visit(&item, &Scope { session: reader.session(), dictionary: reader.dictionary() })?;
            items = items.wrapping_add(1);
            if items.is_multiple_of(PROGRESS_ITEMS) {
                self.told(progress, position.get())?;
            }
        }
        let (session, dictionary, damage) = reader.into_parts();
        self.told(progress, self.bytes)?;
        Ok(Passed { session, dictionary, loss, end, damage, stopped })
    }

    /// Tells how many bytes are read.
    fn told(&self, progress: &mut Progress<'_>, done: u64) -> Result<(), ExportError> {
        if progress(done, self.bytes).is_break() { Err(ExportError::interrupted(&self.path)) } else { Ok(()) }
    }

    /// The bytes of the trace, unpacked, for what reads them in another way. UtilizationReading fails when `progress` ends the work.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or unpacked.
    pub fn bytes(&self, progress: &mut Progress<'_>) -> Result<impl Read, ExportError> {
        let position = Rc::new(Cell::new(0));
        let source = self.unpacked(&position)?;
        Ok(Watched { source, position, total: self.bytes, progress })
    }

    /// The bytes of the trace, unpacked. `position` follows how many of the file's have been read.
    fn unpacked(&self, position: &Rc<Cell<u64>>) -> Result<Box<dyn BufRead>, ExportError> {
        let failed = |error: io::Error| ExportError::io(&self.path, error);
        let file = File::open(self.readable()).map_err(failed)?.take(self.bytes);
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, Counted::new(file, Rc::clone(position)));
        if !packed.fill_buf().map_err(failed)?.starts_with(&GZIP_MAGIC) {
            return Ok(Box::new(packed));
        }
        let unpacked = Unpacked::new(MultiGzDecoder::new(packed), Rc::clone(position));
        let mut unpacked = BufReader::with_capacity(BUFFER_BYTES, unpacked);
        match unpacked.fill_buf() {
            Ok(_) => Ok(Box::new(unpacked)),
            Err(error) => Err(failed(io::Error::new(error.kind(), format!("broken gzip file: {error}")))),
        }
    }
}

/// Tells how much is read.
struct Watched<'w, 'p> {
    source: Box<dyn BufRead>,
    position: Rc<Cell<u64>>,
    total: u64,
    progress: &'w mut Progress<'p>,
}

impl Read for Watched<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.progress)(self.position.get(), self.total).is_break() {
            return Err(io::Error::other("interrupted"));
        }
        self.source.read(buffer)
    }
}

/// All of `source` in a temporary file with a name, which SQLite needs. It vanishes with the answer.
///
/// # Errors
///
/// When `source` cannot be read or there is no room.
pub fn copied(source: &mut dyn Read) -> io::Result<TempPath> {
    let (mut file, path) = NamedTempFile::with_prefix("gpuwhy-input-")?.into_parts();
    io::copy(source, &mut file)?;
    Ok(path)
}
