//! The one profiler of the process, and the state that it is in. `lifecycle` moves it from state to state.

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
use crate::message::{FlusherCommand, Message, RunOutcome, Shared};
use crate::sys::process;

/// The one profiler. Set once, never taken away: CUPTI may call at any time until the process is gone.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// A [`State`]. `Acquire`/`Release`: whoever sees `Running` sees the profiler behind it complete.
static STATE: AtomicU8 = AtomicU8::new(State::Idle as u8);

/// Where the library is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not started.
    Idle,
    /// About to measure, or to be refused.
    Starting,
    /// Measuring, or waiting for a capture to begin.
    Running,
    /// Fetching the last records.
    Finishing,
    /// Over, or never begun.
    Finished,
    /// In the child of a fork.
    Forked,
}

impl State {
    pub fn now() -> Self {
        let state = STATE.load(Ordering::Acquire);
        let all = [Self::Idle, Self::Starting, Self::Running, Self::Finishing, Self::Finished, Self::Forked];
        all.into_iter().find(|&known| known as u8 == state).unwrap_or(Self::Forked)
    }

    /// Goes from one state to the next. `false`, and nothing changes, when it is not in the first of them.
    pub fn advance(self, next: Self) -> bool {
        STATE.compare_exchange(self as u8, next as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Goes to this state from whatever was before.
    pub fn set(self) {
        STATE.store(self as u8, Ordering::Release);
    }
}

/// What is said when there is no exit handler.
pub const NO_EXIT_HANDLER: &str = "no exit handler can be registered; the end of the trace will be missing";

/// What is left for the callbacks and the exit handler.
#[derive(Debug)]
pub struct Profiler {
    pub cupti: &'static Cupti,
    pub shared: Arc<Shared>,
    pub controller: Arc<CaptureController>,
    /// Measures chosen kernels, where that is wanted.
    pub kernels: Option<Arc<KernelProfiler>>,
    pub commands: Sender<FlusherCommand>,
    pub outcome: Receiver<RunOutcome>,
    /// The process that is measured: a child made without fork handlers has all this in its memory too.
    pub process_id: u32,
    pub exit_timeout: Duration,
    pub report: ReportStyle,
    /// The history that gets a line at the end.
    pub history: Option<PathBuf>,
    /// Whether CUDA had a context before measuring began.
    pub late: bool,
}

impl Profiler {
    /// Makes it the profiler of this process. `false` when there is one.
    pub fn install(self) -> bool {
        PROFILER.set(self).is_ok()
    }

    /// The profiler, in whatever state it is.
    pub fn installed() -> Option<&'static Self> {
        PROFILER.get()
    }

    /// The profiler, while its callbacks have something to do.
    pub fn running() -> Option<&'static Self> {
        let runs = matches!(State::now(), State::Starting | State::Running | State::Finishing);
        runs.then(|| PROFILER.get())?
    }

    /// Whether captures can still begin and end.
    pub fn is_measuring() -> bool {
        State::now() == State::Running
    }

    /// Whether measuring is about to begin, or to be refused.
    pub fn is_starting() -> bool {
        State::now() == State::Starting
    }

    /// The profiler, while it measures or could.
    pub fn measuring() -> Option<&'static Self> {
        Self::is_measuring().then(|| PROFILER.get())?
    }

    /// The library that is listened to.
    pub fn cupti(&self) -> &'static Cupti {
        self.cupti
    }

    /// What the callbacks touch.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Who decides what is measured.
    pub fn controller(&self) -> &CaptureController {
        &self.controller
    }

    /// Much has come since the last flush: the next one is due. On a thread of CUPTI's, and never waits.
    pub fn flush_soon(&self) {
        // Full means that the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// A context exists, so the driver has registered its own exit handler by now: ours, registered once more, runs
    /// while the driver still answers. The second run finds nothing to do.
    pub fn context_created(&self) {
        static DONE: AtomicBool = AtomicBool::new(false);
        Self::close_counters_before_exit();
        if !DONE.swap(true, Ordering::Relaxed)
            && let Err(error) = process::at_exit_again()
        {
            tracing::warn!("{NO_EXIT_HANDLER}: {error}");
        }
    }

    /// If this is the program's main thread, its end waits until counters are closed.
    pub fn close_counters_before_exit() {
        process::before_exit(|| {
            // A child that was made without fork handlers has locks of threads that it does not have.
            if let Some(profiler) = Self::running().filter(|profiler| profiler.process_id == std::process::id()) {
                counters::close_for_exit(&profiler.shared.counters);
            }
        });
    }

    /// Has the collector fetch the program's ranges before its next round. Without one they wait.
    pub fn ranges_wait() {
        if let Some(profiler) = Self::running() {
            // Refused only when the collector is far behind or dead; then the ring fills up and says so.
            let _ = profiler.shared().messages.try_send(Message::Ranges);
        }
    }
}

/// Why nothing is measured in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Measuring was started before.
    AlreadyStarted,
    /// There is no libcupti that can be used: where it was searched, and what to install.
    NoCupti(String),
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
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// How measuring starts when a session is the first to ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As when the driver loads the library: as the environment says.
    Injected,
    /// Sessions alone: no trace, report or capture but theirs.
    Linked,
}

/// Why there is no session, or no trace of it. The discriminants cross into C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// Measuring cannot start in this process.
    Start(StartError),
    /// One is open already.
    Busy,
    /// None is open.
    NotOpen,
    /// Measuring is over in this process: it ends, it is the child of a fork, or a capture ended it.
    Over,
    /// The collector did not answer.
    TimedOut,
    /// The trace could not be written.
    Write(String),
}

impl SessionError {
    /// The number that stands for it in C; 0 is success.
    #[must_use]
    pub const fn code(&self) -> c_int {
        match self {
            Self::Start(StartError::NoCupti(_)) => 1,
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
