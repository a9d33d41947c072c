//! Sessions: a program that contains this library measures a part of itself.
//!
//! A session is a separate trace, written in addition to any other measurement, into a file that the program
//! provides. It starts and ends where the program requests it, one session after another, and at most one at
//! a time: CUPTI's records do not show which part of a program requested them. Two kinds of program use
//! sessions: one that has linked this crate, which is limited to sessions, and one into which the driver has
//! injected libprof.so, which has sessions in addition. Both use [`SessionFunctions`], so there is one interface.
//!
//! This file does not write the trace: `collect::session_trace` does, on the collector's thread. Waits are
//! bounded.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use gpuwhy_trace::process_info::NOT_MEASURED;
use gpuwhy_trace::record::Timestamp;
use nvtx_sys::GetExportTable;

use crate::routing::session_trace::{self, SessionTrace};
use crate::runtime::{Profiler, SessionError, Start, StartError};
use crate::shared::{Message, SessionCommand};
use crate::sys::clock;
use crate::{lifecycle, process_info};

/// True if a session is open. `AcqRel`: set by the thread that starts one.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Maximum wait for the collector beyond the wait for the last device work: it is late only if it has a large
/// backlog or is dead.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum wait of a session for recording to resume after another tool, which counts as done when it has
/// recorded nothing for half a second (`OtherToolDetector`).
const OTHER_TOOL_TIMEOUT: Duration = Duration::from_secs(2);
const OTHER_TOOL_PERIOD: Duration = Duration::from_millis(5);

/// Functions for a program that finds this library in its process. `size` shows which functions exist: later
/// versions only add some at the end.
///
/// Names of ranges and domains are NULL or texts that end with NUL; they are copied during the call.
///
/// Functions that can fail return a code of `SessionError::code` and write its text, truncated to fit and
/// without a terminating zero, to `capacity` bytes at `text`; `length` is set to the full length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SessionFunctions {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Starts a session whose trace goes into the file of the descriptor, which this library closes. The
    /// first argument is not 0 if the program has linked the collector (`Start::Linked`).
    pub begin: unsafe extern "C" fn(linked: c_int, file: c_int, text: Text) -> c_int,
    /// Returns once everything that was complete is in the file.
    pub flush: unsafe extern "C" fn(text: Text) -> c_int,
    /// Ends the session and completes its file.
    pub end: unsafe extern "C" fn(text: Text) -> c_int,
    /// Returns the time on the clock of the records, nanoseconds.
    pub now: extern "C" fn() -> u64,
    /// Attaches a copy of NVTX, which calls it to have its ranges recorded here.
    pub nvtx: unsafe extern "C" fn(Option<GetExportTable>) -> c_int,
    /// Returns the number of the domain with this name, for the functions below; 0 is the domain without a
    /// name.
    pub domain: unsafe extern "C" fn(name: *const c_char) -> u32,
    /// Starts a range on this thread. Ranges of a thread and domain nest.
    pub range_push: unsafe extern "C" fn(domain: u32, name: *const c_char),
    /// Ends the innermost range of this thread and domain.
    pub range_pop: extern "C" fn(domain: u32),
    /// Starts a range that any thread may end; returns 0 if it is not recorded.
    pub range_start: unsafe extern "C" fn(domain: u32, name: *const c_char) -> u64,
    /// Ends a range by the return value of its start.
    pub range_end: extern "C" fn(range: u64),
    /// Records a mark at the current time.
    pub mark: unsafe extern "C" fn(domain: u32, name: *const c_char),
    /// Returns the version of this library, a static text that ends with NUL.
    pub version: extern "C" fn() -> *const c_char,
}

/// Buffer for a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    /// `capacity` writable bytes.
    pub text: *mut u8,
    /// Size of the buffer, bytes.
    pub capacity: usize,
    /// Set to the full length of the text.
    pub length: *mut usize,
}

/// Starts a session that writes to `file`. Fails if one is open, if measuring cannot start or is over, or if the file
/// cannot be written. If measuring cannot start, the file is a trace without records, with the reason.
pub fn begin(start: Start, file: File) -> Result<(), SessionError> {
    if OPEN.swap(true, Ordering::AcqRel) {
        return Err(SessionError::Busy);
    }
    let begun = begin_alone(start, file);
    if begun.is_err() {
        OPEN.store(false, Ordering::Release);
    }
    begun
}

fn begin_alone(start: Start, file: File) -> Result<(), SessionError> {
    if let Err(error) = lifecycle::start_for_sessions(start) {
        let at = clock::wall_clock();
        let notes = vec![format!("{NOT_MEASURED}{error}")];
        // For a program that goes on with an empty report. The reason is returned anyway.
        let _ = session_trace::write_empty(file, &process_info::describe(None, at, None, notes), at);
        return Err(SessionError::Start(error));
    }
    let profiler = Profiler::measuring().ok_or(SessionError::Over)?;
    let controller = profiler.controller();
    sees_device_work(profiler)?;
    controller.hold();
    if let Err(error) = has_cupti(profiler) {
        controller.release();
        return Err(error);
    }
    let at = clock::now(profiler.cupti());
    let notes = vec!["measured: a session of the program".to_owned()];
    let (done, answer) = bounded(1);
    let begun =
        SessionTrace::new(file, &process_info::describe(Some(profiler.cupti()), at, None, notes), at, profiler.late)
            .map_err(|error| SessionError::Write(error.to_string()))
            .and_then(|trace| tell(profiler, SessionCommand::Begin(Box::new(trace), done)))
            .and_then(|()| wait(&answer));
    if begun.is_err() {
        controller.release();
    }
    begun
}

/// Returns once everything that was complete at the time of the call is in the file. Fails if no session is open, or if
/// the collector does not respond.
pub fn flush() -> Result<(), SessionError> {
    let profiler = open()?;
    let (done, answer) = bounded(1);
    tell(profiler, SessionCommand::Flush(clock::now(profiler.cupti()), done))?;
    wait_for_marks(profiler, &answer)
}

/// Ends the session. Waits for device work that is still running. Fails if no session is open, if the collector does
/// not respond, or if the file could not be written.
pub fn end() -> Result<(), SessionError> {
    let profiler = open()?;
    let at = clock::now(profiler.cupti());
    let (done, answer) = bounded(1);
    let ended = tell(profiler, SessionCommand::End(at, done))
        .and_then(|()| wait_for_marks(profiler, &answer)?.map_err(SessionError::Write))
        // The overhead budget may have been exceeded meanwhile.
        .and_then(|()| sees_device_work(profiler));
    profiler.controller().release();
    OPEN.store(false, Ordering::Release);
    ended
}

/// Time on the clock of the records; the wall clock while measuring is off.
pub fn now() -> Timestamp {
    Profiler::measuring().map_or_else(clock::wall_clock, |profiler| clock::now(profiler.cupti()))
}

/// An injected collector may be configured to record less, and an empty session must not look like an idle
/// device.
fn sees_device_work(profiler: &Profiler) -> Result<(), SessionError> {
    if !profiler.controller().is_monitor() {
        return Ok(());
    }
    let why = "no device work is recorded (GPUWHY_MODE=monitor, or GPUWHY_MAX_OVERHEAD is spent): a session needs more";
    Err(SessionError::Start(StartError::Refused(why.to_owned())))
}

/// Another tool may have CUPTI, or have left its clock there, and an empty session must not look like an idle
/// device. Waits for a tool that has just finished.
fn has_cupti(profiler: &Profiler) -> Result<(), SessionError> {
    let deadline = Instant::now() + OTHER_TOOL_TIMEOUT;
    let foreign_clock = || clock::is_on_foreign_clock(profiler.cupti());
    while !foreign_clock() && !profiler.controller().is_recording() && Instant::now() < deadline {
        thread::sleep(OTHER_TOOL_PERIOD);
    }
    let why = if foreign_clock() {
        "another tool has left its own clock in CUPTI, as torch.profiler does: nothing more can be recorded in this \
         process; measure before that tool is used, or in a process without it"
    } else if profiler.controller().is_recording() {
        return Ok(());
    } else {
        "another tool (such as torch.profiler) is recording with CUPTI: begin the session when it has finished"
    };
    Err(SessionError::Start(StartError::Refused(why.to_owned())))
}

fn open() -> Result<&'static Profiler, SessionError> {
    if !OPEN.load(Ordering::Acquire) {
        return Err(SessionError::NotOpen);
    }
    let measuring = Profiler::measuring();
    if measuring.is_none() {
        // The trace was completed when measuring ended.
        OPEN.store(false, Ordering::Release);
    }
    measuring.ok_or(SessionError::Over)
}

fn tell(profiler: &Profiler, command: SessionCommand) -> Result<(), SessionError> {
    let sent = profiler.shared().messages.try_send(Message::Session(command));
    // Fails only if the collector is dead or thousands of buffers late.
    sent.map_err(|_| SessionError::TimedOut)
}

fn wait<T>(answer: &Receiver<T>) -> Result<T, SessionError> {
    answer.recv_timeout(session_trace::DRAIN + COLLECTOR_TIMEOUT).map_err(|_| SessionError::TimedOut)
}

/// As [`wait`], for a response that takes flush marks.
fn wait_for_marks<T>(profiler: &Profiler, answer: &Receiver<T>) -> Result<T, SessionError> {
    profiler.controller().hurry(true);
    let answer = wait(answer);
    profiler.controller().hurry(false);
    answer
}
