//! Why a Kineto trace cannot be used.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a Kineto trace gave no report.
#[non_exhaustive]
pub enum KinetoError {
    /// It is JSON, and no trace.
    NotATrace,
    /// Nothing about a device is in it.
    NoDeviceWork {
        /// Rows that were read.
        rows: u64,
        /// Why reading ended before the end of the file, when it did.
        stopped: Option<String>,
    },
    /// Reading failed before a single row was read.
    Unreadable {
        /// How far reading had come in the (unpacked) text, bytes.
        offset: u64,
        /// What was wrong there.
        what: String,
    },
    /// The translation cannot be written.
    Write(io::Error),
    /// The caller ended the work.
    Interrupted,
}

impl fmt::Display for KinetoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATrace => f.write_str("this is JSON, but no trace: it has no traceEvents"),
            Self::NoDeviceWork { rows, stopped } => {
                write!(f, "no kernel, copy or memset among the {rows} rows of this trace")?;
                match stopped {
                    Some(stopped) => write!(f, "; {stopped}"),
                    None => f.write_str("; was it recorded with ProfilerActivity.CUDA, on a machine with a GPU?"),
                }
            }
            Self::Unreadable { offset, what } => write!(f, "unreadable at byte {offset}: {what}"),
            Self::Write(error) => write!(f, "cannot write its translation: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// The sentence, for people: a program prints it that returns this error from `main` or unwraps it.
impl fmt::Debug for KinetoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for KinetoError {}
