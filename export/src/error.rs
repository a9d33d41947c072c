//! Why an export or a statistic did not come about. Every error names the file that it is about.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gpuwhy_import::OpenError;

/// A file and what is wrong with it.
pub struct ExportError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// The trace, which the error names.
    Input(OpenError),
    Io(io::Error),
    Foreign(&'static str),
    /// Another library's words.
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

    /// A query that cannot be asked; `what` says why.
    pub fn query(what: String) -> Self {
        Self { path: "query".into(), cause: Cause::Library(what) }
    }

    /// `path` is refused; `why` is a sentence that says what to do.
    pub fn refused(path: &Path, why: String) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(why) }
    }

    /// The Parquet file `path` cannot be written.
    pub fn parquet(path: &Path, error: &parquet::errors::ParquetError) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(error.to_string()) }
    }

    /// Standard output does not take what is written.
    pub fn output(error: io::Error) -> Self {
        Self::io(Path::new("standard output"), error)
    }

    /// Whether the reader of the output went away, who then has all that he wanted.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(&self.cause, Cause::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether a [`Progress`](gpuwhy_import::Progress) ended the work.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(&self.cause, Cause::Input(error) if error.is_interrupted())
    }

    /// `path` is something else; `what` is a sentence.
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

/// The sentence, for people: a program prints it that returns this error from `main` or unwraps it.
impl fmt::Debug for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// The cause is part of the text: a caller that prints a chain of sources would print it twice.
impl Error for ExportError {}
