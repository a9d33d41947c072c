//! The collector of this process: the one that the driver has injected, or else the one that is linked into
//! it.
//!
//! CUPTI serves one tool per process, so a program that runs under libprof.so must not start a second
//! collector. Both have the same functions, exported by libprof.so or found in the linked crate. This module
//! keeps no other state and unloads nothing.
#![expect(unsafe_code, reason = "calls C functions of a library in this process")]

use std::env;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;

use gpuwhy_inject::session::{SessionFunctions, Text};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::error::{SessionError, SessionErrorKind};

/// Variable that names the library for the driver to load.
const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Maximum length of an error text.
const TEXT_BYTES: usize = 8192;

/// Interface to the collector.
#[derive(Clone, Copy, Debug)]
pub struct Collector {
    functions: &'static SessionFunctions,
    linked: bool,
}

impl Collector {
    /// The collector of this process. It stays the same for the lifetime of the process.
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

    /// True if libprof.so is injected, and so measures for others too.
    pub fn is_injected(self) -> bool {
        !self.linked
    }

    /// Starts a session whose trace goes into `file`.
    pub fn begin(self, file: File) -> Result<(), SessionError> {
        // SAFETY: ownership of the descriptor is passed on, and `call` passes a writable text buffer.
        call(|text| unsafe { (self.functions.begin)(c_int::from(self.linked), file.into_raw_fd(), text) })
    }

    /// Writes all completed work to the file before it returns.
    pub fn flush(self) -> Result<(), SessionError> {
        // SAFETY: `call` passes a writable text buffer.
        call(|text| unsafe { (self.functions.flush)(text) })
    }

    /// Ends the session and completes its file.
    pub fn end(self) -> Result<(), SessionError> {
        // SAFETY: `call` passes a writable text buffer.
        call(|text| unsafe { (self.functions.end)(text) })
    }

    /// Function that an NVTX instance calls to have its ranges recorded.
    pub fn nvtx(self) -> nvtx_sys::program::Initialize {
        self.functions.nvtx
    }
}

/// Functions of the library that the driver injects, if it is ours. Loads the library, as the driver does, if
/// the driver has not done so yet.
fn injected() -> Option<&'static SessionFunctions> {
    let path = env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    // SAFETY: the user requested that this library's initializers run in this process.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "{CUDA_INJECTION} cannot be loaded"))
        .ok()?;
    // The driver never unloads it either.
    let library = Box::leak(Box::new(library));
    // SAFETY: a function with this name has this type in every version of the library.
    let functions =
        unsafe { library.get::<extern "C" fn() -> *const SessionFunctions>("gpuwhy_session_functions") }.ok()?;
    // SAFETY: points to a static of a library that stays loaded. The static starts with its size.
    let functions = unsafe { functions().as_ref() };
    let usable = functions.filter(|functions| functions.size >= size_of::<SessionFunctions>());
    if usable.is_none() {
        tracing::warn!(path = %path.display(), "this libprof.so is older than the program and is not used");
    }
    usable
}

/// Calls a function that returns a code and fills a text buffer.
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
