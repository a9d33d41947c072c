//! The one profiler of the process, and its state. `lifecycle` moves it from state to state.

use std::ffi::c_int;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{Cupti, CuptiResult};

use crate::capture::controller::CaptureController;
use crate::config::{self, ReportStyle};
use crate::counters;
use crate::kernels::KernelProfiler;
use crate::shared::{FlusherCommand, Message, RunOutcome, Shared};
use crate::sys::process;

/// The one profiler. Set once and never removed: CUPTI may call at any time until the process ends.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// A [`LibraryState`]. `Acquire`/`Release`: a thread that sees `Running` sees the complete profiler.
static STATE: AtomicU8 = AtomicU8::new(LibraryState::Idle as u8);

/// State of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LibraryState {
    /// Not started.
    Idle,
    /// About to measure, or to fail.
    Starting,
    /// Measuring, or waiting for a capture to start.
    Running,
    /// Fetching the last records.
    Finishing,
    /// Over, or never started.
    Finished,
    /// In the child of a fork.
    Forked,
}

impl LibraryState {
    pub fn now() -> Self {
        let state = STATE.load(Ordering::Acquire);
        let all = [Self::Idle, Self::Starting, Self::Running, Self::Finishing, Self::Finished, Self::Forked];
        all.into_iter().find(|&known| known as u8 == state).unwrap_or(Self::Forked)
    }

    /// Changes the state from `self` to `next`. `false`, without any change, if the state is not `self`.
    pub fn advance(self, next: Self) -> bool {
        STATE.compare_exchange(self as u8, next as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Changes to this state from any other.
    pub fn set(self) {
        STATE.store(self as u8, Ordering::Release);
    }
}

/// Warning if no exit handler can be registered.
pub const NO_EXIT_HANDLER: &str = "no exit handler can be registered; the end of the trace will be missing";

/// State for the callbacks and the exit handler.
#[derive(Debug)]
pub struct Profiler {
    pub cupti: &'static Cupti,
    pub shared: Arc<Shared>,
    pub controller: Arc<CaptureController>,
    /// Measures selected kernels, if configured.
    pub kernels: Option<Arc<KernelProfiler>>,
    pub commands: Sender<FlusherCommand>,
    pub outcome: Receiver<RunOutcome>,
    /// Id of the measured process: a child made without fork handlers has this struct in its memory too.
    pub process_id: u32,
    pub exit_timeout: Duration,
    pub report: ReportStyle,
    /// History file that gets a line at the end.
    pub history: Option<PathBuf>,
    /// True if CUDA had a context before measuring began.
    pub late: bool,
}

impl Profiler {
    /// Makes it the profiler of this process. `false` if there is one.
    pub fn install(self) -> bool {
        PROFILER.set(self).is_ok()
    }

    /// The profiler, in any state.
    pub fn installed() -> Option<&'static Self> {
        PROFILER.get()
    }

    /// The profiler, while its callbacks are active.
    pub fn running() -> Option<&'static Self> {
        let runs =
            matches!(LibraryState::now(), LibraryState::Starting | LibraryState::Running | LibraryState::Finishing);
        runs.then(|| PROFILER.get())?
    }

    /// True if captures can still start and end.
    pub fn is_measuring() -> bool {
        LibraryState::now() == LibraryState::Running
    }

    /// True if measuring is about to start, or to fail.
    pub fn is_starting() -> bool {
        LibraryState::now() == LibraryState::Starting
    }

    /// The profiler, while it measures or could.
    pub fn measuring() -> Option<&'static Self> {
        Self::is_measuring().then(|| PROFILER.get())?
    }

    /// The loaded CUPTI.
    pub fn cupti(&self) -> &'static Cupti {
        self.cupti
    }

    /// State shared with the callbacks.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Controller that decides what is recorded.
    pub fn controller(&self) -> &CaptureController {
        &self.controller
    }

    /// Requests a flush because many records have arrived since the last one. On a CUPTI thread; never waits.
    pub fn flush_soon(&self) {
        // If the channel is full, the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// A context exists, so the driver has registered its own exit handler by now: ours, registered once
    /// more, runs while the driver still responds. When it runs a second time, it has no effect.
    pub fn context_created(&self) {
        static DONE: AtomicBool = AtomicBool::new(false);
        Self::close_counters_before_exit();
        if !DONE.swap(true, Ordering::Relaxed)
            && let Err(error) = process::at_exit_again()
        {
            tracing::warn!("{NO_EXIT_HANDLER}: {error}");
        }
    }

    /// If this is the program's main thread, makes its end wait until counters are closed.
    pub fn close_counters_before_exit() {
        process::before_exit(Self::close_counters);
    }

    /// Closes the counters, and waits for what other threads of this library do with them.
    pub fn close_counters() {
        // A child made without fork handlers has locks of threads that do not exist in it.
        if let Some(profiler) = Self::running().filter(|profiler| profiler.process_id == std::process::id()) {
            counters::close_for_exit(&profiler.shared.counters);
        }
    }

    /// Makes the collector fetch the program's ranges before its next round. Without a collector they wait.
    pub fn ranges_wait() {
        if let Some(profiler) = Self::running() {
            // Fails only if the collector has a large backlog or is dead; then the ring fills up, and the
            // loss is counted.
            let _ = profiler.shared().messages.try_send(Message::Ranges);
        }
    }
}

/// The reason why this process is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Measuring was started before.
    AlreadyStarted,
    /// There is no usable libcupti: the searched locations, and what to install.
    NoCupti(String),
    /// There is no driver, without which CUPTI must not be called.
    NoDriver(String),
    /// Another tool holds CUPTI.
    Taken,
    /// CUPTI or the system refused.
    Refused(String),
}

impl From<cupti_sys::Error> for StartError {
    fn from(error: cupti_sys::Error) -> Self {
        if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
            return Self::Taken;
        }
        Self::Refused(format!("{error}; `gpuwhy doctor` shows what is missing"))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("gpuwhy is already running in this process"),
            Self::Taken => f.write_str(
                "another profiler already holds CUPTI in this process (nsys, ncu, torch.profiler, a debugger); run the \
                 program without it",
            ),
            Self::NoCupti(why) => write!(f, "{why}\n{} names one that lies elsewhere", config::CUPTI_PATH),
            Self::NoDriver(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// Way in which measuring starts if a session is the first to need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As when the driver loads the library: with the settings of the environment.
    Injected,
    /// Only sessions: no other trace, report or capture.
    Linked,
}

/// The reason why there is no session, or no trace of a session. The discriminants are part of the C
/// interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// Measuring cannot start in this process.
    Start(StartError),
    /// A session is open already.
    Busy,
    /// No session is open.
    NotOpen,
    /// Measuring is over in this process: it is ending, it is the child of a fork, or a capture ended
    /// measuring.
    Over,
    /// The collector did not respond.
    TimedOut,
    /// The trace could not be written.
    Write(String),
}

impl SessionError {
    /// Error code in C; 0 is success.
    pub const fn code(&self) -> c_int {
        match self {
            Self::Start(StartError::NoCupti(_) | StartError::NoDriver(_)) => 1,
            Self::Start(StartError::Taken) => 2,
            Self::Start(StartError::AlreadyStarted | StartError::Refused(_)) => 3,
            Self::Busy => 4,
            Self::NotOpen => 5,
            Self::Over => 6,
            Self::TimedOut => 7,
            Self::Write(_) => 8,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Busy => f.write_str("a session is open in this process already; finish it first"),
            Self::NotOpen => f.write_str("no session is open in this process"),
            Self::Over => f.write_str(
                "measuring is over in this process: it is about to end, was forked, or a capture has ended it \
                 (GPUWHY_CAPTURE_RANGE_END)",
            ),
            Self::TimedOut => f.write_str("the last records were not processed in time; the trace ends abruptly"),
            Self::Write(error) => write!(f, "the trace of the session cannot be written: {error}"),
        }
    }
}

impl std::error::Error for SessionError {}
