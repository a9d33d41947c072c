//! Errors of reading a Kineto trace.

use std::error::Error;
use std::fmt;
use std::io;

/// The reason why a Kineto trace yielded no report.
#[non_exhaustive]
pub enum KinetoError {
    /// The file is JSON but not a trace.
    NotATrace,
    /// The trace has no device work.
    NoDeviceWork {
        /// Number of rows read.
        rows: u64,
        /// The reason if reading ended before the end of the file.
        stopped: Option<String>,
    },
    /// The trace has calls that launch device work, but not the work.
    LostDeviceWork {
        /// Number of these calls.
        launches: u64,
        /// The reason if reading ended before the end of the file.
        stopped: Option<String>,
    },
    /// Reading failed before the first row.
    Unreadable {
        /// Position in the (unpacked) text, bytes.
        offset: u64,
        /// Error at that position.
        what: String,
    },
    /// The file does not have the process that the caller chose, or several with its number; the sentence lists those
    /// in the file.
    OtherProcess(String),
    /// The translated trace cannot be written.
    Write(io::Error),
    /// The caller stopped the work.
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
            Self::LostDeviceWork { launches, stopped } => {
                write!(
                    f,
                    "{launches} calls launch GPU work, but no kernel, copy or memset is among the rows: the profiler did not \
                     get the records of the GPU. Usual causes are another profiler at the same time (nsys, ncu, DCGM, \
                     gpuwhy run), MPS, and a container or driver that does not permit profiling. Record again without"
                )?;
                stopped.as_ref().map_or(Ok(()), |stopped| write!(f, "; {stopped}"))
            }
            Self::Unreadable { offset, what } => write!(f, "unreadable at byte {offset}: {what}"),
            Self::OtherProcess(which) => f.write_str(which),
            Self::Write(error) => write!(f, "cannot write its translation: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Prints the sentence for users, since a program prints this when it returns the error from `main` or
/// unwraps it.
impl fmt::Debug for KinetoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for KinetoError {}
