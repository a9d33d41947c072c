//! The collector of this process: the one that the driver has injected, or else the one that is linked into it.
//!
//! CUPTI serves one tool in a process, so a program that is run under libprof.so must not start a second collector.
//! Both are reached through the same functions, which libprof.so exports and the linked crate has; what differs is
//! where they are found. No state is kept here, and nothing is unloaded.
#![expect(unsafe_code, reason = "calls C functions of a library in this process")]

use std::env;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;

use gpuwhy_inject::session::{Functions, Text};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::error::{SessionError, SessionErrorKind};

/// What the driver loads.
const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Longest text of an error.
const TEXT_BYTES: usize = 8192;

/// The way to the collector.
#[derive(Clone, Copy, Debug)]
pub struct Collector {
    functions: &'static Functions,
    linked: bool,
}

impl Collector {
    /// The collector of this process, which is the same one for as long as the process lives.
    pub fn of_this_process() -> Self {
        static FOUND: OnceLock<Collector> = OnceLock::new();
        *FOUND.get_or_init(|| match injected() {
            Some(functions) => {
                tracing::info!("sessions use the libprof.so that the CUDA driver injects");
                Self { functions, linked: false }
            }
            None => {
                tracing::info!("sessions use the collector that is linked into this program");
                Self { functions: gpuwhy_inject::session_functions(), linked: true }
            }
        })
    }

    /// Whether libprof.so is injected and measures for others too.
    pub fn is_injected(self) -> bool {
        !self.linked
    }

    /// Begins a session whose trace goes into `file`.
    pub fn begin(self, file: File) -> Result<(), SessionError> {
        // SAFETY: the descriptor is handed over, and `call` passes a text that can be written.
        call(|text| unsafe { (self.functions.begin)(c_int::from(self.linked), file.into_raw_fd(), text) })
    }

    /// Returns when everything that was complete is in the file.
    pub fn flush(self) -> Result<(), SessionError> {
        // SAFETY: `call` passes a text that can be written.
        call(|text| unsafe { (self.functions.flush)(text) })
    }

    /// Ends the session and completes its file.
    pub fn end(self) -> Result<(), SessionError> {
        // SAFETY: `call` passes a text that can be written.
        call(|text| unsafe { (self.functions.end)(text) })
    }

    /// What a copy of NVTX calls to have its ranges recorded.
    pub fn nvtx(self) -> nvtx_sys::program::Initialize {
        self.functions.nvtx
    }
}

/// The functions of the library that the driver injects, if that is ours. It is loaded here when the driver has not
/// done so yet, as the driver will.
fn injected() -> Option<&'static Functions> {
    let path = env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    // SAFETY: the user asks for this library's initialisers to run in this process.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "{CUDA_INJECTION} cannot be loaded"))
        .ok()?;
    // The driver never unloads it either.
    let library = Box::leak(Box::new(library));
    // SAFETY: the name stands for a function of this type in every version of the library.
    let functions = unsafe { library.get::<extern "C" fn() -> *const Functions>("gpuwhy_session_functions") }.ok()?;
    // SAFETY: a static of a library that stays, which begins with its size.
    let functions = unsafe { functions().as_ref() };
    let usable = functions.filter(|functions| functions.size >= size_of::<Functions>());
    if usable.is_none() {
        tracing::warn!(path = %path.display(), "this libprof.so is older than the program and is not used");
    }
    usable
}

/// Calls a function that answers a code and a text.
fn call(function: impl FnOnce(Text) -> c_int) -> Result<(), SessionError> {
    let mut bytes = vec![0; TEXT_BYTES];
    let mut length = 0;
    let text = Text { text: bytes.as_mut_ptr(), capacity: bytes.len(), length: &raw mut length };
    match function(text) {
        0 => Ok(()),
        code => {
            bytes.truncate(length);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Err(SessionError::new(SessionErrorKind::from_code(code), text))
        }
    }
}
