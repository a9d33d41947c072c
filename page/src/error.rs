//! Errors of writing a page.

use std::fmt;
use std::io;

use gpuwhy_import::OpenError;

/// Reason why a page was not written. The message for a trace names its file.
#[derive(Debug)]
#[non_exhaustive]
pub enum PageError {
    /// The trace could not be read.
    Open(OpenError),
    /// The page could not be written.
    Write(io::Error),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Write(error) => write!(f, "the page cannot be written: {error}"),
        }
    }
}

impl std::error::Error for PageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => error.source(),
            Self::Write(error) => Some(error),
        }
    }
}

impl From<OpenError> for PageError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}
