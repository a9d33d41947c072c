//! The file that an export writes: under another name until it is complete.
//!
//! A conversion that fails or is interrupted leaves no file that looks like a whole one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::ExportError;

const BUFFER_BYTES: usize = 1 << 20;

/// Where an unfinished file is; removed unless it was finished.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    partial: PathBuf,
    finished: bool,
}

impl Unfinished {
    /// For the file `path`. Nothing is created yet.
    pub fn new(path: &Path) -> Self {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        Self { path: path.to_owned(), partial: partial.into(), finished: false }
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where to write meanwhile.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Gives the file its name, over an older one.
    pub fn finish(mut self) -> Result<(), ExportError> {
        fs::rename(&self.partial, &self.path).map_err(|error| ExportError::io(&self.path, error))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // It may never have been created; and there is nobody left to tell.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A file of bytes, packed with gzip when its name ends with `.gz`.
#[derive(Debug)]
pub struct Output {
    place: Unfinished,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Output {
    /// Begins the file `path`.
    pub fn create(path: &Path) -> Result<Self, ExportError> {
        let place = Unfinished::new(path);
        let file = File::create(place.partial()).map_err(|error| ExportError::io(path, error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let sink =
            if packed { Sink::Gzip(Box::new(GzEncoder::new(file, Compression::default()))) } else { Sink::Plain(file) };
        Ok(Self { place, sink })
    }

    /// An error of writing, with the name of the file.
    pub fn failed(&self, error: io::Error) -> ExportError {
        ExportError::io(&self.place.path, error)
    }

    /// Completes the file.
    pub fn finish(self) -> Result<(), ExportError> {
        let Self { place, sink } = self;
        let written = match sink {
            Sink::Plain(mut file) => file.flush(),
            Sink::Gzip(encoder) => encoder.finish().and_then(|mut file| file.flush()),
        };
        written.map_err(|error| ExportError::io(&place.path, error))?;
        place.finish()
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
