//! What an export writes: a file that gets its name when it is complete, or a stream.
//!
//! A conversion that fails or is interrupted leaves no file that looks like a whole one. Until a file is complete it
//! lies beside its place, under a name that nobody can foresee.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::{Builder, TempPath};

use crate::destination::{Destination, check, folder};
use crate::error::ExportError;

/// Mode of what is made of a trace, whatever the mask of the process is: as the trace, it is for its user alone. It has
/// the command line, names of files, perhaps source text.
pub const OWN_FILE: u32 = 0o600;
pub const OWN_FOLDER: u32 = 0o700;
const BUFFER_BYTES: usize = 1 << 20;

pub fn unfinished_name() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".gpuwhy-").suffix(".partial").rand_bytes(12);
    builder
}

/// A file that has another name until it is complete, and vanishes unless it becomes so.
#[derive(Debug)]
pub struct Unfinished {
    temporary: TempPath,
    to: Destination,
}

impl Unfinished {
    /// Makes an empty file in the folder of the one that it will be.
    pub fn create(to: Destination) -> Result<(File, Self), ExportError> {
        let made = unfinished_name().permissions(Permissions::from_mode(OWN_FILE)).tempfile_in(folder(to.path()));
        let (file, temporary) = made.map_err(|error| ExportError::io(to.path(), error))?.into_parts();
        Ok((file, Self { temporary, to }))
    }

    /// Where it is meanwhile.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<(), ExportError> {
        let Self { temporary, to } = self;
        // What is there may have become another thing since.
        check(to.path(), to.replaces())?;
        let named = if to.replaces() { temporary.persist(to.path()) } else { without_replacing(temporary, to.path()) };
        named.map_err(|error| ExportError::io(to.path(), error.error))
    }
}

fn without_replacing(temporary: TempPath, path: &Path) -> Result<(), tempfile::PathPersistError> {
    temporary.persist_noclobber(path).or_else(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems can neither rename without replacing nor link; that nothing is there was looked up.
        _ => error.path.persist(path),
    })
}

/// Bytes from front to back, packed with gzip when the name ends with `.gz`.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
    /// Of a file; a stream is complete when it ends.
    place: Option<Unfinished>,
}

#[derive(Debug)]
enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Output {
    /// Begins to write.
    ///
    /// # Errors
    /// When no file can be made.
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

    /// An error of writing, with the name of the file.
    #[must_use]
    pub fn failed(&self, error: io::Error) -> ExportError {
        ExportError::io(&self.path, error)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When the rest cannot be written, or the file cannot get its name.
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
