//! Output of an export: a file that gets its name when it is complete, or a stream.
//!
//! A conversion that fails or is interrupted leaves no file that looks complete. Until then, the file is in
//! its final folder under an unpredictable name.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::{Builder, TempPath};

use crate::destination::{Destination, check, folder};
use crate::error::ExportError;

/// Mode of files derived from a trace, regardless of the umask: accessible to the user only, like the trace.
/// They contain the command line, file names, and possibly source text.
pub const OWN_FILE: u32 = 0o600;
pub const OWN_FOLDER: u32 = 0o700;
const BUFFER_BYTES: usize = 1 << 20;

pub fn unfinished_name() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".gpuwhy-").suffix(".partial").rand_bytes(12);
    builder
}

/// A file with a temporary name until it is complete; removed if dropped before that.
#[derive(Debug)]
pub struct Unfinished {
    temporary: TempPath,
    to: Destination,
}

impl Unfinished {
    /// Creates an empty file in the destination folder.
    pub fn create(to: Destination) -> Result<(File, Self), ExportError> {
        let made = unfinished_name().permissions(Permissions::from_mode(OWN_FILE)).tempfile_in(folder(to.path()));
        let (file, temporary) = made.map_err(|error| ExportError::io(to.path(), error))?.into_parts();
        Ok((file, Self { temporary, to }))
    }

    /// Current path.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Moves the file to its final path.
    pub fn finish(self) -> Result<(), ExportError> {
        let Self { temporary, to } = self;
        // The path may have changed since the first check.
        check(to.path(), to.replaces())?;
        let named = if to.replaces() { temporary.persist(to.path()) } else { without_replacing(temporary, to.path()) };
        named.map_err(|error| ExportError::io(to.path(), error.error))
    }
}

fn without_replacing(temporary: TempPath, path: &Path) -> Result<(), tempfile::PathPersistError> {
    temporary.persist_noclobber(path).or_else(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems can neither rename without replacing nor link; the path was checked above.
        _ => error.path.persist(path),
    })
}

/// Bytes written sequentially, compressed with gzip if the name ends with `.gz`.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
    /// Set for a file; a stream is complete when it ends.
    place: Option<Unfinished>,
}

#[derive(Debug)]
enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Output {
    /// Starts writing.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(to: Destination) -> Result<Self, ExportError> {
        let path = to.path().to_owned();
        let (file, place) = match to.into_stream() {
            Ok(file) => (file, None),
            Err(to) => Unfinished::create(to).map(|(file, place)| (file, Some(place)))?,
        };
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let sink =
            if packed { Sink::Gzip(Box::new(GzEncoder::new(file, Compression::default()))) } else { Sink::Plain(file) };
        Ok(Self { path, sink, place })
    }

    /// Adds the file name to an error of writing.
    pub fn failed(&self, error: io::Error) -> ExportError {
        ExportError::io(&self.path, error)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the rest cannot be written, or the file cannot be renamed.
    pub fn finish(self) -> Result<(), ExportError> {
        let Self { path, sink, place } = self;
        let written = match sink {
            Sink::Plain(mut file) => file.flush(),
            Sink::Gzip(encoder) => encoder.finish().and_then(|mut file| file.flush()),
        };
        written.map_err(|error| ExportError::io(&path, error))?;
        place.map_or(Ok(()), Unfinished::finish)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(encoder) => encoder.flush(),
        }
    }
}
