//! Errors of exports and statistics. Every error names the file concerned.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gpuwhy_import::OpenError;

/// A file and the problem with it.
pub struct ExportError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// The trace; the error contains its name.
    Input(OpenError),
    Io(io::Error),
    Foreign(&'static str),
    /// Message of a library.
    Library(String),
}

impl ExportError {
    /// An operation on `path` failed.
    pub fn io(path: &Path, error: io::Error) -> Self {
        Self { path: path.to_owned(), cause: Cause::Io(error) }
    }

    /// The database `path` cannot be written.
    pub fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(format!("SQLite: {error}")) }
    }

    /// A query cannot be run; `what` states the reason.
    pub fn query(what: String) -> Self {
        Self { path: "query".into(), cause: Cause::Library(what) }
    }

    /// `path` is rejected; `why` is a sentence that explains the remedy.
    pub fn refused(path: &Path, why: String) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(why) }
    }

    /// The Parquet file `path` cannot be written.
    pub fn parquet(path: &Path, error: &parquet::errors::ParquetError) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(error.to_string()) }
    }

    /// Writing to standard output failed.
    pub fn output(error: io::Error) -> Self {
        Self::io(Path::new("standard output"), error)
    }

    /// True if the reader of the output closed it; it has everything that it wanted.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(&self.cause, Cause::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// True if a [`Progress`](gpuwhy_import::Progress) ended the work.
    pub fn is_interrupted(&self) -> bool {
        matches!(&self.cause, Cause::Input(error) if error.is_interrupted())
    }

    /// `path` is something other than expected; `what` is a sentence.
    pub fn foreign(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), cause: Cause::Foreign(what) }
    }
}

impl From<OpenError> for ExportError {
    fn from(error: OpenError) -> Self {
        Self { path: error.path().to_owned(), cause: Cause::Input(error) }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Input(error) => write!(f, "{error}"),
            Cause::Io(error) => write!(f, "{path}: {error}"),
            Cause::Foreign(what) => write!(f, "{path}: {what}"),
            Cause::Library(what) => write!(f, "{path}: {what}"),
        }
    }
}

/// The display text, because a program that returns this error from `main` or unwraps it prints this form.
impl fmt::Debug for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// No `source`: the text includes the cause, so a caller that prints the chain would print it twice.
impl Error for ExportError {}
