//! Entry points for C: of the driver, of NVTX, of NCCL, and of a program that measures itself.
//!
//! Control leaves them only by plain returns: no panic, no `exit`, no signal handler.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use gpuwhy_trace::record::Timestamp;
use nvtx_sys::{Attributes, Domain, Handler as _, MAX_TEXT, Message, Text as Name};

use crate::runtime::{SessionError, Start, StartError};
use crate::session::{self, SessionFunctions, Text};
use crate::{lifecycle, log, nccl, nvtx};

/// The driver calls this during `cuInit`, on the thread that called it, if `CUDA_INJECTION64_PATH` names this
/// library. Always returns 1: an error in this library must not become a CUDA error of the program.
// SAFETY: the name is the one that the driver looks up; no other code of this library calls it.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        match lifecycle::start_from_env() {
            // A session of the program started it first.
            Ok(()) | Err(StartError::AlreadyStarted) => {}
            Err(error) => {
                tracing::error!("nothing is measured in this process: {error}");
                // There is no thread of this library to write it.
                log::write_waiting();
            }
        }
    });
    1
}

/// NVTX calls this at its first use in every library that contains it, if `NVTX_INJECTION64_PATH` names this
/// library: on any thread, before CUDA is used or without it. Always returns 1: after 0, NVTX would unload
/// the library.
///
/// # Safety
/// For NVTX only: the argument is valid until this returns.
// SAFETY: the name is the one that NVTX looks up; no other code of this library calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: Option<nvtx_sys::GetExportTable>) -> c_int {
    let _ = catch_unwind(|| {
        lifecycle::watch_forks();
        let Some(get_export_table) = get_export_table else { return };
        // SAFETY: NVTX passes its own function and waits for this call to return; this library is never unloaded.
        if unsafe { nvtx_sys::attach::<nvtx::Ranges>(get_export_table) }.is_ok() {
            nvtx::attached();
        }
    });
    1
}

/// Profiler plugin for NCCL 2.27.
// SAFETY: the name is the one that NCCL looks up in the library; no other code of this library reads it.
#[unsafe(no_mangle)]
pub static ncclProfiler_v4: nccl_sys::PluginV4 = nccl_sys::plugin_v4::<nccl::Plugin>();
/// Profiler plugin for NCCL 2.28.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub static ncclProfiler_v5: nccl_sys::PluginV5 = nccl_sys::plugin_v5::<nccl::Plugin>();
/// Profiler plugin for NCCL 2.29 and later.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub static ncclProfiler_v6: nccl_sys::PluginV5 = nccl_sys::plugin_v6::<nccl::Plugin>();

/// Functions for a program that finds this library in its process.
static SESSION_FUNCTIONS: SessionFunctions = SessionFunctions {
    size: size_of::<SessionFunctions>(),
    begin: session_begin,
    flush: session_flush,
    end: session_end,
    now: session_now,
    nvtx: InitializeInjectionNvtx2,
    domain: range_domain,
    range_push,
    range_pop,
    range_start,
    range_end,
    mark: range_mark,
    version: library_version,
};

/// Version of this library, with a terminating NUL.
const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();

/// The version in a separate section: the command reads it from the file, without loading the library.
// SAFETY: the section name is unique to gpuwhy, and the section holds no other data.
#[used]
#[unsafe(link_section = ".gpuwhy_version")]
static VERSION_SECTION: [u8; VERSION.len()] = match VERSION.first_chunk() {
    Some(bytes) => *bytes,
    None => panic!("a slice is as long as itself"),
};

/// Returns the functions for sessions; they stay valid until the process ends.
// SAFETY: the name has our prefix and the same meaning in every version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_session_functions() -> *const SessionFunctions {
    &raw const SESSION_FUNCTIONS
}

/// Functions for sessions of a program that has linked this library.
pub fn session_functions() -> &'static SessionFunctions {
    &SESSION_FUNCTIONS
}

unsafe extern "C" fn session_begin(linked: c_int, file: c_int, text: Text) -> c_int {
    let start = if linked == 0 { Start::Injected } else { Start::Linked };
    let begin = || {
        // SAFETY: the caller transfers the descriptor. -1, which is no descriptor, panics, and `answer`
        // catches that.
        let file = unsafe { File::from_raw_fd(file) };
        session::begin(start, file)
    };
    // SAFETY: the caller guarantees that `text` is valid.
    unsafe { answer(text, begin) }
}

unsafe extern "C" fn session_flush(text: Text) -> c_int {
    // SAFETY: the caller guarantees that `text` is valid.
    unsafe { answer(text, session::flush) }
}

unsafe extern "C" fn session_end(text: Text) -> c_int {
    // SAFETY: the caller guarantees that `text` is valid.
    unsafe { answer(text, session::end) }
}

extern "C" fn session_now() -> u64 {
    catch_unwind(session::now).map_or(0, Timestamp::nanos)
}

unsafe extern "C" fn range_domain(name: *const c_char) -> u32 {
    // SAFETY: the caller guarantees that the text is valid.
    let name = unsafe { name_of(&name) };
    match name {
        Name::Narrow([]) => 0,
        _ => with_ranges(|| nvtx::Ranges::create_domain(name).0).unwrap_or(0),
    }
}

unsafe extern "C" fn range_push(domain: u32, name: *const c_char) {
    // SAFETY: the caller guarantees that the text is valid.
    let event = event(unsafe { name_of(&name) });
    let _ = with_ranges(|| nvtx::Ranges::push(Domain(domain), &event));
}

extern "C" fn range_pop(domain: u32) {
    let _ = with_ranges(|| nvtx::Ranges::pop(Domain(domain)));
}

unsafe extern "C" fn range_start(domain: u32, name: *const c_char) -> u64 {
    // SAFETY: the caller guarantees that the text is valid.
    let event = event(unsafe { name_of(&name) });
    with_ranges(|| nvtx::Ranges::start(Domain(domain), &event)).unwrap_or(0)
}

extern "C" fn range_end(range: u64) {
    let _ = with_ranges(|| nvtx::Ranges::end(range));
}

unsafe extern "C" fn range_mark(domain: u32, name: *const c_char) {
    // SAFETY: the caller guarantees that the text is valid.
    let event = event(unsafe { name_of(&name) });
    let _ = with_ranges(|| nvtx::Ranges::mark(Domain(domain), &event));
}

extern "C" fn library_version() -> *const c_char {
    VERSION_SECTION.as_ptr().cast()
}

/// Passes an event of a program without NVTX to the receivers of ranges.
fn with_ranges<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HEARD: Once = Once::new();
    catch_unwind(AssertUnwindSafe(|| {
        HEARD.call_once(|| {
            lifecycle::watch_forks();
            nvtx::attached();
        });
        work()
    }))
    .ok()
}

fn event(name: Name<'_>) -> Attributes<'_> {
    Attributes { message: Message::Text(name), ..Attributes::default() }
}

/// Returns the text at `name`, truncated like NVTX's texts; empty if it is NULL.
///
/// # Safety
/// `name` is NULL or a text that ends with NUL and does not change during `'a`.
unsafe fn name_of<'a>(name: &'a *const c_char) -> Name<'a> {
    if name.is_null() {
        return Name::Narrow(&[]);
    }
    // SAFETY: not NULL, and then a text as guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(*name) }.to_bytes();
    Name::Narrow(&bytes[..bytes.len().min(MAX_TEXT)])
}

/// Carries out a request of a program for its session, and returns the error as text.
///
/// # Safety
/// `text` is as [`Text`] requires.
unsafe fn answer(text: Text, work: impl FnOnce() -> Result<(), SessionError>) -> c_int {
    let panicked = || Err(SessionError::Start(StartError::Refused("internal error".to_owned())));
    let Err(error) = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| panicked()) else { return 0 };
    let words = error.to_string();
    // SAFETY: the caller guarantees that `capacity` bytes are writable; they do not overlap `words`.
    unsafe { text.text.copy_from_nonoverlapping(words.as_ptr(), words.len().min(text.capacity)) };
    // SAFETY: the caller guarantees that it is writable.
    unsafe { text.length.write(words.len()) };
    error.code()
}
