//! Measuring from within: a program measures a part of itself.
//!
//! A session is a trace from its begin to its end, and its report is made from that trace as from any other, so what
//! `gpuwhy report` would say of the file is what [`Session::finish`] says. Without a name the file is one that nobody
//! else can see. This module decides nothing about records: it opens the file, tells the collector, and reads.

mod error;
pub mod fork;
pub(crate) mod functions;

use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gpuwhy_report::run::Report;
use parking_lot::Mutex;

use self::functions::Collector;
use crate::range::{self, Range, Steps};

pub use self::error::{SessionError, SessionErrorKind};

/// Pause between two checks whether the session of another thread is over.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// How long tests of one process wait for each other's sessions.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// The thread that began the open session: it would wait for itself.
static HOLDER: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Measures what the process launches on its devices, from [`start`](Self::start) to [`finish`](Self::finish).
///
/// Start it before the first CUDA call of the process: CUPTI does not tell of API calls if it starts after CUDA. Later
/// sessions may start at any time. There is one at a time, because records do not say which part of the program wanted
/// them: everything that the process launches meanwhile is in it, from whichever thread.
///
/// Under `CUDA_INJECTION64_PATH=libprof.so` the injected collector is joined: it goes on with what it was told to do,
/// and the session is one trace more. Otherwise the collector is the one in this crate, which reads the same
/// environment variables (docs/guide/environment.md) but for those about files, reports and captures; it keeps tracing
/// on between sessions.
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
    /// Reads what the collector writes, from an offset of its own.
    trace: File,
    path: Option<PathBuf>,
    steps: Mutex<Steps>,
    open: bool,
}

/// How a session is to be.
#[derive(Clone, Debug, Default)]
pub struct SessionBuilder {
    trace: Option<PathBuf>,
    wait: Duration,
}

impl SessionBuilder {
    /// Keeps the trace in this file, for `gpuwhy report`, `diff`, `query` and `export`. A file that exists is not
    /// overwritten: the new one gets a number, see [`Session::trace`].
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// Waits so long for the session of another thread to end: tests of one program run side by side. A session that
    /// this thread has begun is not waited for.
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Starts the session.
    ///
    /// # Errors
    /// When no usable libcupti is found, another profiler holds CUPTI, a session is open, or the file cannot be made.
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
                    // Nothing was written into it.
                    path.as_deref().map(std::fs::remove_file);
                    return Err(error);
                }
            }
        }
        *HOLDER.lock() = Some(thread::current().id());
        Ok(Session { collector, trace, path, steps: Mutex::default(), open: true })
    }
}

/// Whether this thread has begun the open session.
fn is_held_here() -> bool {
    *HOLDER.lock() == Some(thread::current().id())
}

/// A file to write, the same file to read, and its name unless it has none.
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
    /// Starts measuring, with a trace that is gone with the session.
    ///
    /// # Errors
    /// When no usable libcupti is found, another profiler holds CUPTI, or a session is open in this process.
    pub fn start() -> Result<Self, SessionError> {
        Self::builder().start()
    }

    /// A session with options.
    #[must_use]
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Begins a range of this name on this thread, which ends where the result goes out of scope. Ranges nest. They are
    /// NVTX ranges: a tool named by `NVTX_INJECTION64_PATH` sees them too.
    pub fn range(&self, name: &str) -> Range<'_> {
        Range::begin(name)
    }

    /// As [`range`](Self::range), ended by [`pop_range`](Self::pop_range) on this thread: for programs whose ranges
    /// follow no scopes, and for other languages.
    pub fn push_range(&self, name: &str) {
        range::push(name);
    }

    /// Ends the innermost range of this thread.
    pub fn pop_range(&self) {
        range::pop();
    }

    /// The next step of the program begins here, and the one before ends: to be called at the begin of each iteration.
    /// Steps are found without it where launches repeat. The third call is the first that counts.
    pub fn step(&self) {
        if let Some(mut steps) = fork::lock(|| self.steps.try_lock(), || self.steps.lock()) {
            steps.next();
        }
    }

    /// The trace file, if it was given a name.
    #[must_use]
    pub fn trace(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether libprof.so was injected into this process and has been joined.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        self.collector.is_injected()
    }

    /// Returns when all device work that was complete is in the trace. Device work is not waited for.
    ///
    /// # Errors
    /// When the collector does not answer.
    pub fn flush(&self) -> Result<(), SessionError> {
        fork::check()?;
        self.collector.flush()
    }

    /// The report so far. Measuring goes on.
    ///
    /// # Errors
    /// When the collector does not answer, or the trace cannot be read.
    pub fn snapshot(&self) -> Result<Report, SessionError> {
        self.flush()?;
        self.report()
    }

    /// Ends the session and gives its report. Device work that is still under way is waited for, 2 s at most; what has
    /// not come by then is counted in [`completeness`](Report::completeness).
    ///
    /// # Errors
    /// When the collector does not answer, or the trace cannot be written or read.
    pub fn finish(mut self) -> Result<Report, SessionError> {
        self.end()?;
        self.report()
    }

    fn end(&mut self) -> Result<(), SessionError> {
        self.open = false;
        fork::check()?;
        // Before the next one can begin, which takes its place.
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
            // Nobody is there to be told.
            let _ = self.end();
        }
    }
}

/// Measures what `work` launches, and waits for the session of another thread before (at most a minute, since tests run
/// side by side). Device work that `work` leaves behind is waited for, 2 s at most, so `work` need not synchronize.
/// What the process launches on other threads meanwhile is measured too: tests that launch without a session belong
/// into another test binary.
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
    let session = Session::builder().wait(TURN_TIMEOUT).start()?;
    let result = work(&session);
    Ok((result, session.finish()?))
}

/// Starts the collector without measuring, so that CUDA may be used before the first session: for programs and tests
/// that set up a device first. Calling it again does nothing.
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
    let deadline = Instant::now() + TURN_TIMEOUT;
    while let Err(error) = Session::start() {
        if error.kind != SessionErrorKind::Busy {
            return Err(error);
        }
        // Whoever has a session open has started the collector; whoever is about to open one may not have.
        if HOLDER.lock().is_some() || Instant::now() >= deadline {
            break;
        }
        thread::sleep(RETRY_PAUSE);
    }
    Ok(())
}
