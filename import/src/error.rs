//! Errors of opening a trace. Every error names its file.

use std::borrow::Cow;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use gpuwhy_trace::format::TraceError;

use crate::format::advice_by_name;
use crate::kineto::KinetoError;

/// The reason why a file yielded no trace or no report: the file, and what is wrong with it.
pub struct OpenError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Trace(TraceError),
    Kineto(KinetoError),
    /// A [`Progress`](crate::Progress) stopped the work.
    Interrupted,
    Refused(Cow<'static, str>),
}

impl OpenError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self { path: path.to_owned(), cause: Cause::Io(error) }
    }

    pub(crate) fn trace(path: &Path, error: TraceError) -> Self {
        Self { path: path.to_owned(), cause: Cause::Trace(error) }
    }

    /// As [`trace`](Self::trace), for a file that may be of another format, which its name shows.
    pub(crate) fn of_trace(path: &Path, error: TraceError) -> Self {
        match advice_by_name(path) {
            Some(advice) if matches!(error, TraceError::NotATrace { .. }) => Self::refused(path, advice),
            _ => Self::trace(path, error),
        }
    }

    pub(crate) fn kineto(path: &Path, error: KinetoError) -> Self {
        let cause = if matches!(error, KinetoError::Interrupted) { Cause::Interrupted } else { Cause::Kineto(error) };
        Self { path: path.to_owned(), cause }
    }

    /// A [`Progress`](crate::Progress) stopped the work on `path`.
    pub fn interrupted(path: &Path) -> Self {
        Self { path: path.to_owned(), cause: Cause::Interrupted }
    }

    /// `why` is a sentence.
    pub(crate) fn refused(path: &Path, why: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.to_owned(), cause: Cause::Refused(why.into()) }
    }

    #[cfg(feature = "nsys")]
    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        Self::refused(path, format!("SQLite: {error}"))
    }

    /// Path of the file that cannot be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if a [`Progress`](crate::Progress) stopped the work.
    pub fn is_interrupted(&self) -> bool {
        matches!(self.cause, Cause::Interrupted)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            Cause::Io(error) => write!(f, "{error}"),
            Cause::Trace(error) => write!(f, "{error}"),
            Cause::Kineto(error) => write!(f, "{error}"),
            Cause::Interrupted => f.write_str("interrupted"),
            Cause::Refused(why) => f.write_str(why),
        }
    }
}

/// Prints the sentence for users, since a program prints this when it returns the error from `main` or
/// unwraps it.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// The text includes the cause: a caller that prints a chain of sources would print it twice.
impl Error for OpenError {}
