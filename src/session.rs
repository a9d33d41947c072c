//! Measuring from within: a Rust program that links the collector instead of having it injected.

use std::fmt;

use profiler_core::report::Report;

/// Measures this process from [`start`](Self::start) to [`finish`](Self::finish).
///
/// It is the collector of libprof.so, with the same environment variables, and there can be one in a process.
#[derive(Debug)]
#[must_use = "measuring goes on until the session is finished"]
pub struct Session(());

/// Why there is no session, or no report.
#[derive(Debug)]
pub enum SessionError {
    /// Measuring could not start; the text says why and what to do.
    Start(String),
    /// The last records were not processed within `GPUPROF_EXIT_TIMEOUT`.
    TimedOut,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(why) => f.write_str(why),
            Self::TimedOut => {
                f.write_str("the last records were not processed in time (GPUPROF_EXIT_TIMEOUT sets the limit)")
            }
        }
    }
}

impl std::error::Error for SessionError {}

impl Session {
    /// Starts measuring. Call it before the first CUDA call: what ran earlier is not seen.
    ///
    /// # Errors
    /// When no usable libcupti is found, another profiler holds CUPTI, or a session (or the injected library) has
    /// been started before in this process.
    pub fn start() -> Result<Self, SessionError> {
        prof::start_from_env().map(|()| Self(())).map_err(|error| SessionError::Start(error.to_string()))
    }

    /// Fetches what is left, closes the trace, and gives the report.
    ///
    /// # Errors
    /// When CUPTI does not hand over its last records in time.
    pub fn finish(self) -> Result<Report, SessionError> {
        prof::finish_quietly().map(|outcome| outcome.report).ok_or(SessionError::TimedOut)
    }
}
