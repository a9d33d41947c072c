//! Errors of a session.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use super::fork::Forked;

/// Reason why there is no session, or no report for it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionError {
    pub(super) kind: SessionErrorKind,
    text: String,
}

/// Kind of a [`SessionError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionErrorKind {
    /// There is no driver or no usable libcupti, as on a machine without CUDA.
    NoCupti,
    /// Another profiler holds CUPTI in this process.
    OtherProfiler,
    /// CUPTI or the system refused.
    Refused,
    /// A session is open in this process.
    Busy,
    /// Measuring has ended in this process, because it exits or is the child of a fork.
    Over,
    /// The collector did not respond in time.
    TimedOut,
    /// The trace cannot be written or read.
    Trace,
}

impl SessionErrorKind {
    /// Kind for a code of the C interface.
    pub(crate) const fn from_code(code: i32) -> Self {
        match code {
            1 => Self::NoCupti,
            2 => Self::OtherProfiler,
            4 => Self::Busy,
            5 | 6 => Self::Over,
            7 => Self::TimedOut,
            8 => Self::Trace,
            _ => Self::Refused,
        }
    }
}

impl SessionError {
    pub(crate) fn new(kind: SessionErrorKind, text: String) -> Self {
        Self { kind, text }
    }

    pub(crate) fn of_file(path: Option<&Path>, error: &io::Error) -> Self {
        let path = path.map_or_else(|| "the temporary trace".to_owned(), |path| path.display().to_string());
        Self::new(SessionErrorKind::Trace, format!("{path}: {error}"))
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> SessionErrorKind {
        self.kind
    }
}

/// Readable as well: a test that returns or unwraps this error prints it with `Debug`.
impl fmt::Debug for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for SessionError {}

impl From<Forked> for SessionError {
    fn from(_: Forked) -> Self {
        let why = "this process is the child of a fork; gpuwhy measures its parent. To measure in the child, run it as a \
                   program of its own (exec, spawn)";
        Self::new(SessionErrorKind::Over, why.to_owned())
    }
}
