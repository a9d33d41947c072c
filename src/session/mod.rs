//! Measuring from within: a program measures a part of itself.
//!
//! A session is a trace from its start to its end, and its report is made from that trace like any other, so
//! [`Session::finish`] returns the same report that `gpuwhy report` would print for the file. Without a name,
//! the file is invisible to other processes. This module does not process records: it opens the file,
//! notifies the collector, and reads the file.

mod error;
pub mod fork;
pub(crate) mod functions;
pub(crate) mod range;

use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gpuwhy_report::run::Report;
use parking_lot::Mutex;

use self::functions::Collector;
use self::range::{Range, StepRanges};

pub use self::error::{SessionError, SessionErrorKind};

/// Interval between checks for the end of another thread's session.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Maximum time that tests of one process wait for each other's sessions.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Thread that started the open session, which must not wait for itself.
static HOLDER: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Measures what the process launches on its devices, from [`start`](Self::start) to [`finish`](Self::finish).
///
/// Start the first session before the first CUDA call of the process: CUPTI reports no API calls if it starts after
/// CUDA. Later sessions may start at any time. Only one can be open at a time, because records do not show which part
/// of the program launched the work: the session includes all launches of the process, from any thread.
///
/// Under `CUDA_INJECTION64_PATH=libprof.so` the session uses the injected collector, which continues with its own
/// trace; the session is an additional trace. Otherwise it uses the collector in this crate, which reads the same
/// environment variables (docs/guide/environment.md), except those about files, reports and captures, and leaves
/// tracing on between sessions.
///
/// ```no_run
/// let session = gpuwhy::Session::start()?;
/// {
///     let _range = session.range("attention");
///     // ... launch kernels ...
/// }
/// let report = session.finish()?;
/// println!("{report}");
/// for kernel in &report.devices[0].kernels {
///     println!("{}: {} ns", kernel.name, kernel.durations.median());
/// }
/// # Ok::<(), gpuwhy::SessionError>(())
/// ```
#[derive(Debug)]
#[must_use = "measuring ends where the session goes out of scope; `finish` gives the report"]
pub struct Session {
    collector: Collector,
    /// The file that the collector writes, opened again for reading with a separate offset.
    trace: File,
    path: Option<PathBuf>,
    steps: Mutex<StepRanges>,
    open: bool,
}

/// Options of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionBuilder {
    trace: Option<PathBuf>,
    wait: Duration,
}

impl SessionBuilder {
    /// Keeps the trace in this file, for `gpuwhy report`, `diff`, `query` and `export`. An existing file is
    /// not overwritten: the new one gets a number, see [`Session::trace`].
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// Waits at most `longest` for the session of another thread to end: tests of one program run in
    /// parallel. Never waits for a session that this thread has started.
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Starts the session.
    ///
    /// # Errors
    /// When no usable libcupti is found, another profiler holds CUPTI, a session is open, or the file cannot
    /// be created.
    pub fn start(self) -> Result<Session, SessionError> {
        fork::own()?;
        let collector = Collector::of_this_process();
        let deadline = Instant::now() + self.wait;
        let (write, trace, path) = files(self.trace)?;
        loop {
            let copy = write.try_clone().map_err(|error| SessionError::of_file(path.as_deref(), &error))?;
            match collector.begin(copy) {
                Ok(()) => break,
                Err(error) if error.kind == SessionErrorKind::Busy && !is_held_here() && Instant::now() < deadline => {
                    thread::sleep(RETRY_PAUSE);
                }
                Err(error) => {
                    // The file is empty.
                    path.as_deref().map(std::fs::remove_file);
                    return Err(error);
                }
            }
        }
        *HOLDER.lock() = Some(thread::current().id());
        Ok(Session { collector, trace, path, steps: Mutex::default(), open: true })
    }
}

/// True if this thread has started the open session.
fn is_held_here() -> bool {
    *HOLDER.lock() == Some(thread::current().id())
}

/// A file to write, the same file to read, and its path, if it has one.
fn files(path: Option<PathBuf>) -> Result<(File, File, Option<PathBuf>), SessionError> {
    let temporary = path.is_none();
    let wanted =
        path.unwrap_or_else(|| std::env::temp_dir().join(format!("gpuwhy-session-{}.gpuwhy", std::process::id())));
    let of_file = |error: io::Error| SessionError::of_file(Some(&wanted), &error);
    let (write, path) = gpuwhy_inject::create_new(wanted.clone()).map_err(of_file)?;
    let trace = File::open(&path).map_err(of_file)?;
    if temporary {
        std::fs::remove_file(&path).map_err(of_file)?;
        return Ok((write, trace, None));
    }
    Ok((write, trace, Some(path)))
}

impl Session {
    /// Starts measuring, with a trace that is deleted with the session.
    ///
    /// # Errors
    /// When no usable libcupti is found, another profiler holds CUPTI, or a session is open in this process.
    pub fn start() -> Result<Self, SessionError> {
        Self::builder().start()
    }

    /// Returns a builder for a session with options.
    #[must_use]
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Starts a range called `name` on this thread, which ends when the result goes out of scope. Ranges
    /// nest. They are NVTX ranges: a tool named by `NVTX_INJECTION64_PATH` sees them too.
    pub fn range(&self, name: &str) -> Range<'_> {
        Range::begin(name)
    }

    /// As [`range`](Self::range), ended by [`pop_range`](Self::pop_range) on this thread: for programs whose
    /// ranges do not follow scopes, and for other languages.
    pub fn push_range(&self, name: &str) {
        range::push(name);
    }

    /// Ends the innermost range of this thread.
    pub fn pop_range(&self) {
        range::pop();
    }

    /// Ends the previous step of the program and starts the next: call it at the start of each iteration.
    /// Without it, steps are still found where launches repeat. The third call is the first that counts.
    pub fn step(&self) {
        if let Some(mut steps) = fork::lock(|| self.steps.try_lock(), || self.steps.lock()) {
            steps.next();
        }
    }

    /// Path of the trace file, if it was given one.
    #[must_use]
    pub fn trace(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// True if the session uses a libprof.so that was injected into this process.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        self.collector.is_injected()
    }

    /// Writes all completed device work to the trace before it returns. Does not wait for device work.
    ///
    /// # Errors
    /// When the collector does not respond.
    pub fn flush(&self) -> Result<(), SessionError> {
        fork::check()?;
        self.collector.flush()
    }

    /// Returns the report up to now. Measuring continues.
    ///
    /// # Errors
    /// When the collector does not respond, or the trace cannot be read.
    pub fn snapshot(&self) -> Result<Report, SessionError> {
        self.flush()?;
        self.report()
    }

    /// Ends the session and returns its report. Waits at most 2 s for device work that is still running; work
    /// that is not complete by then is counted in [`completeness`](Report::completeness).
    ///
    /// # Errors
    /// When the collector does not respond, or the trace cannot be written or read.
    pub fn finish(mut self) -> Result<Report, SessionError> {
        self.end()?;
        self.report()
    }

    fn end(&mut self) -> Result<(), SessionError> {
        self.open = false;
        fork::check()?;
        // Cleared before the next session can start, which sets it.
        *HOLDER.lock() = None;
        self.steps.get_mut().end();
        self.collector.end()
    }

    fn report(&self) -> Result<Report, SessionError> {
        let mut trace = &self.trace;
        trace.rewind().map_err(|error| SessionError::of_file(self.path.as_deref(), &error))?;
        gpuwhy_import::read(BufReader::new(trace))
            .map_err(|error| SessionError::new(SessionErrorKind::Trace, format!("the trace of the session: {error}")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.open {
            // There is no caller to report an error to.
            let _ = self.end();
        }
    }
}

/// Measures the launches of `work`. Waits before that for the session of another thread, at most a minute, since
/// tests run in parallel. Waits afterwards at most 2 s for unfinished device work, so `work` need not synchronize.
/// Launches of other threads in the meantime are measured too: tests that launch without a session belong in another
/// test binary.
///
/// ```no_run
/// # struct Gpu;
/// # impl Gpu { fn new() -> Self { Self } fn softmax(&self) {} }
/// gpuwhy::prepare()?; // before the first CUDA call, here in Gpu::new
/// let gpu = Gpu::new(); // what it allocates and loads is not measured
/// let (_, report) = gpuwhy::measure(|_| gpu.softmax())?;
/// println!("{report}");
/// # Ok::<(), gpuwhy::SessionError>(())
/// ```
///
/// # Errors
/// As [`SessionBuilder::start`] and [`Session::finish`].
pub fn measure<T>(work: impl FnOnce(&Session) -> T) -> Result<(T, Report), SessionError> {
    let session = Session::builder().wait(ACCESS_TIMEOUT).start()?;
    let result = work(&session);
    Ok((result, session.finish()?))
}

/// Starts the collector without measuring, so that CUDA may be used before the first session, for programs and tests
/// that set up a device first. Further calls have no effect.
///
/// ```no_run
/// // In a test that is also run where there is no CUDA.
/// if let Err(error) = gpuwhy::prepare() {
///     assert_eq!(error.kind(), gpuwhy::SessionErrorKind::NoCupti, "{error}");
///     println!("SKIPPED: {error}");
///     return;
/// }
/// ```
///
/// # Errors
/// As [`SessionBuilder::start`].
pub fn prepare() -> Result<(), SessionError> {
    fork::own()?;
    let deadline = Instant::now() + ACCESS_TIMEOUT;
    while let Err(error) = Session::start() {
        if error.kind != SessionErrorKind::Busy {
            return Err(error);
        }
        // A thread with an open session has started the collector; a thread that is about to open one may not
        // have.
        if HOLDER.lock().is_some() || Instant::now() >= deadline {
            break;
        }
        thread::sleep(RETRY_PAUSE);
    }
    Ok(())
}
