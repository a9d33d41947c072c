//! Why there is no measurement.

use std::error::Error;
use std::fmt;

use crate::session::SessionError;

/// Why there is no measurement.
#[non_exhaustive]
pub enum BenchError {
    /// No session could be had.
    Session(SessionError),
    /// A launch failed.
    Launch(Box<dyn Error + Send + Sync>),
    /// A kernel failed: the number of the CUDA error.
    Device(i32),
    /// The trace cannot be read.
    Trace(profiler_core::trace::TraceError),
    /// The trace lacks records, so a repetition may be longer than it looks.
    Lost(String),
    /// No repetition launched anything that was recorded.
    NothingRan,
    /// The L2 cache cannot be flushed.
    Flush(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::Launch(error) => write!(f, "a launch failed: {error}"),
            Self::Device(error) => write!(f, "a kernel failed: CUDA error {error}; compute-sanitizer finds out where"),
            Self::Trace(error) => write!(f, "the trace of the measurement: {error}"),
            Self::Lost(what) => write!(f, "the measurement is incomplete: {what}"),
            Self::NothingRan => f.write_str(
                "nothing was measured: no device work was launched, or CUDA was in use before the first session of this process \
                 (call prepare first)",
            ),
            Self::Flush(why) => write!(f, "the L2 cache cannot be flushed: {why}"),
        }
    }
}

/// The sentence, for people: a test prints it that ends with this error, or unwraps it.
impl fmt::Debug for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for BenchError {}
