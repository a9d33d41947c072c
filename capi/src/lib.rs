//! Sessions for C: `capi/include/gpuwhy.h`, which a test keeps in sync with this file.
//!
//! There is one session at a time, so there are no handles. Functions return a status and copy texts into the
//! caller's memory as `snprintf` does. Reports cross as text or JSON, because a newer version could not
//! change a struct. No panic crosses into C.
#![expect(unsafe_code, reason = "implements C functions")]
#![allow(non_camel_case_types, reason = "names as C programs write them")]

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;

use gpuwhy::fork::{self, Forked};
use gpuwhy::{Report, Session, SessionError, SessionErrorKind};
use parking_lot::{Mutex, RwLock};

/// Return value of a function. More values may be added: anything but GPUWHY_OK is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum gpuwhy_status {
    /// Success.
    GPUWHY_OK = 0,
    /// There is no usable libcupti, as on a host without CUDA.
    GPUWHY_NO_CUPTI = 1,
    /// Another profiler holds CUPTI in this process.
    GPUWHY_OTHER_PROFILER = 2,
    /// CUPTI or the operating system refused.
    GPUWHY_REFUSED = 3,
    /// A session is already open.
    GPUWHY_BUSY = 4,
    /// No session is open, measuring has ended in this process, or the process is the child of a fork.
    GPUWHY_NOT_OPEN = 5,
    /// The last records did not arrive in time.
    GPUWHY_TIMED_OUT = 6,
    /// The trace cannot be written or read.
    GPUWHY_TRACE = 7,
    /// An internal error of gpuwhy.
    GPUWHY_INTERNAL = 8,
}
use gpuwhy_status::{
    GPUWHY_BUSY, GPUWHY_INTERNAL, GPUWHY_NO_CUPTI, GPUWHY_NOT_OPEN, GPUWHY_OK, GPUWHY_OTHER_PROFILER, GPUWHY_REFUSED,
    GPUWHY_TIMED_OUT, GPUWHY_TRACE,
};

static SESSION: RwLock<Option<Session>> = RwLock::new(None);
static REPORT: Mutex<Option<Report>> = Mutex::new(None);
static ERROR: Mutex<String> = Mutex::new(String::new());

/// Starts the collector without measuring. Call it before the first CUDA call of the process if the first
/// session starts later.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_prepare() -> gpuwhy_status {
    measure(|| Ok(gpuwhy::prepare()?))
}

/// Starts measuring the launches of this process. Call it before the first CUDA call of the process, or after
/// gpuwhy_prepare. `trace` is the path of the trace file, or NULL.
///
/// # Safety
/// `trace` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_start(trace: *const c_char) -> gpuwhy_status {
    measure(|| {
        let mut session = SESSION.write();
        if session.is_some() {
            return Err(Failure(GPUWHY_BUSY, "a session is open in this process already; stop it first".to_owned()));
        }
        let mut builder = Session::builder();
        if !trace.is_null() {
            // SAFETY: not NULL, so a text as guaranteed by the caller.
            builder = builder.trace(OsStr::from_bytes(unsafe { CStr::from_ptr(trace) }.to_bytes()));
        }
        *session = Some(builder.start()?);
        Ok(())
    })
}

/// Stops measuring and creates the report. Waits up to 2 s for device work in progress.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_stop() -> gpuwhy_status {
    answer(|| {
        fork::check()?;
        if !fork::is_owned() {
            return Err(not_open());
        }
        let session = SESSION.write().take().ok_or_else(not_open)?;
        *REPORT.lock() = None;
        *REPORT.lock() = Some(session.finish()?);
        Ok(())
    })
}

/// Returns once all device work that was complete is in the trace.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_flush() -> gpuwhy_status {
    with_session(Session::flush)
}

/// Pushes a range with this name on this thread; ranges nest. It is an NVTX range.
///
/// # Safety
/// `name` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_range_push(name: *const c_char) -> gpuwhy_status {
    with_session(|session| {
        // SAFETY: guaranteed by the caller.
        session.push_range(&unsafe { text(name) });
        Ok(())
    })
}

/// Ends the innermost range of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_range_pop() -> gpuwhy_status {
    with_session(|session| {
        session.pop_range();
        Ok(())
    })
}

/// Starts the next step of the program and ends the previous one.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_step() -> gpuwhy_status {
    with_session(|session| {
        session.step();
        Ok(())
    })
}

/// Writes the report of the last stopped session, as JSON (docs/reference/report.md), to `text`: at most
/// `capacity` bytes including the NUL at the end. Returns the length of the complete report without the NUL;
/// 0 if there is no report.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_report_json(text: *mut c_char, capacity: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { copy(|| last_report(|report| serde_json::to_string(report).ok()), text, capacity) }
}

/// Like `gpuwhy_report_json`, but writes the report as text for a reader.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_report_text(text: *mut c_char, capacity: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { copy(|| last_report(|report| Some(report.to_string())), text, capacity) }
}

/// Like `gpuwhy_report_json`, but writes why the last failed call failed, and what to do.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_last_error(text: *mut c_char, capacity: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { copy(|| Some(last_error()), text, capacity) }
}

struct Failure(gpuwhy_status, String);

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let status = match error.kind() {
            SessionErrorKind::NoCupti => GPUWHY_NO_CUPTI,
            SessionErrorKind::OtherProfiler => GPUWHY_OTHER_PROFILER,
            SessionErrorKind::Busy => GPUWHY_BUSY,
            SessionErrorKind::Over => GPUWHY_NOT_OPEN,
            SessionErrorKind::TimedOut => GPUWHY_TIMED_OUT,
            SessionErrorKind::Trace => GPUWHY_TRACE,
            _ => GPUWHY_REFUSED,
        };
        Self(status, error.to_string())
    }
}

impl From<Forked> for Failure {
    fn from(forked: Forked) -> Self {
        SessionError::from(forked).into()
    }
}

fn not_open() -> Failure {
    Failure(GPUWHY_NOT_OPEN, "no session is open; gpuwhy_start opens one".to_owned())
}

fn with_session(work: impl FnOnce(&Session) -> Result<(), SessionError>) -> gpuwhy_status {
    answer(|| {
        // Takes no lock if this process has never measured: a forked child may still measure itself.
        if !fork::is_owned() {
            return Err(not_open());
        }
        // Without a session the call fails with the fork's error only in the child of a fork.
        let session = fork::lock(|| SESSION.try_read(), || SESSION.read());
        let session = session.ok_or_else(|| fork::check().err().map_or_else(not_open, Failure::from))?;
        Ok(work(session.as_ref().ok_or_else(not_open)?)?)
    })
}

/// Runs `work`, which may start the collector.
fn measure(work: impl FnOnce() -> Result<(), Failure>) -> gpuwhy_status {
    answer(|| {
        fork::own()?;
        work()
    })
}

fn answer(work: impl FnOnce() -> Result<(), Failure>) -> gpuwhy_status {
    let done = catch_unwind(std::panic::AssertUnwindSafe(work));
    let Failure(status, text) = match done {
        Ok(Ok(())) => return GPUWHY_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(GPUWHY_INTERNAL, "internal error".to_owned()),
    };
    if let Some(mut error) = fork::lock(|| ERROR.try_lock(), || ERROR.lock()) {
        *error = text;
    }
    status
}

fn last_error() -> String {
    let error = fork::lock(|| ERROR.try_lock(), || ERROR.lock()).map(|error| error.clone());
    error.unwrap_or_else(|| fork::check().err().map_or_else(String::new, |forked| Failure::from(forked).1))
}

/// The report of the last session; `None` in the child of a fork if a thread of the parent held the lock.
fn last_report(text: impl FnOnce(&Report) -> Option<String>) -> Option<String> {
    fork::lock(|| REPORT.try_lock(), || REPORT.lock())?.as_ref().and_then(text)
}

/// The text at `from`, empty if `from` is NULL.
///
/// # Safety
/// `from` is NULL or a text that ends with NUL, for as long as the result is used.
unsafe fn text<'a>(from: *const c_char) -> Cow<'a, str> {
    if from.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: not NULL, so a text as guaranteed by the caller.
    unsafe { CStr::from_ptr(from) }.to_string_lossy()
}

/// # Safety
/// `capacity` bytes at `to` are writable.
unsafe fn copy(text: impl FnOnce() -> Option<String>, to: *mut c_char, capacity: usize) -> usize {
    let made = catch_unwind(std::panic::AssertUnwindSafe(text)).ok().flatten();
    let text = made.unwrap_or_default();
    if let Some(most) = capacity.checked_sub(1).filter(|_| !to.is_null()) {
        let length = text.len().min(most);
        // SAFETY: the text and its NUL take at most `capacity` bytes, which the caller guarantees to be
        // writable.
        unsafe {
            to.copy_from_nonoverlapping(text.as_ptr().cast(), length);
            to.add(length).write(0);
        }
    }
    text.len()
}
