//! Why an export or a statistic did not come about. Every error names the file that it is about.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use profiler_core::trace::TraceError;

/// A file and what is wrong with it.
#[derive(Debug)]
pub struct ExportError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Trace(TraceError),
    Foreign(&'static str),
    /// Whoever watches the work ended it.
    Interrupted,
    /// Another library's words.
    Library(String),
}

impl ExportError {
    /// An operation on `path` failed.
    pub fn io(path: &Path, error: io::Error) -> Self {
        Self { path: path.to_owned(), cause: Cause::Io(error) }
    }

    /// `path` is no trace that can be read.
    pub fn trace(path: &Path, error: TraceError) -> Self {
        Self { path: path.to_owned(), cause: Cause::Trace(error) }
    }

    /// The same about `path`, of which a copy was read.
    #[must_use]
    pub fn of(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The database `path` cannot be written.
    pub fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(format!("SQLite: {error}")) }
    }

    /// `path` holds other processes than the one that is asked for; `which` says so.
    pub fn process(path: &Path, which: String) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(which) }
    }

    /// `path` cannot be translated into a trace; `why` is a sentence.
    pub fn translation(path: &Path, why: String) -> Self {
        Self { path: path.to_owned(), cause: Cause::Library(why) }
    }

    /// A query that cannot be asked; `what` says why.
    pub fn query(what: String) -> Self {
        Self { path: "query".into(), cause: Cause::Library(what) }
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

    /// The work on `path` was ended from outside.
    pub fn interrupted(path: &Path) -> Self {
        Self { path: path.to_owned(), cause: Cause::Interrupted }
    }

    /// Whether a [`Progress`](crate::Progress) ended the work.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(self.cause, Cause::Interrupted)
    }

    /// `path` is something else; `what` is a sentence.
    pub fn foreign(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), cause: Cause::Foreign(what) }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            Cause::Io(error) => write!(f, "{error}"),
            Cause::Trace(error) => write!(f, "{error}"),
            Cause::Interrupted => f.write_str("interrupted"),
            Cause::Foreign(what) => f.write_str(what),
            Cause::Library(what) => f.write_str(what),
        }
    }
}

// The cause is part of the text: a caller that prints a chain of sources would print it twice.
impl Error for ExportError {}
