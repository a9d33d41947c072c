//! Makes NVTX load this library if only the CUDA driver was configured to.
//!
//! NVTX reads the environment at its first call. `gpuwhy run` sets the variable before the program starts;
//! with `CUDA_INJECTION64_PATH` alone it is set here, unless another thread could be reading the environment
//! at the same time, which the C library does not allow. Calls from before the first use of CUDA are then
//! lost: NVTX reads it only once.

use std::env;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::config::{CUDA_INJECTION, NVTX_INJECTION};
use crate::nvtx::ATTACHED;
use crate::sys::process;

/// Sets the variable if that is needed and possible. Returns a note for the report if ranges cannot be
/// received.
pub fn invite() -> Option<String> {
    // Without it, the program itself has linked the collector, and NVTX could not load it as a library.
    let own = env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    if ATTACHED.load(Ordering::Relaxed) {
        return None;
    }
    match env::var_os(NVTX_INJECTION).filter(|path| !path.is_empty()) {
        Some(path) if is_same_file(Path::new(&path), Path::new(&own)) => None,
        Some(other) => Some(format!(
            "no NVTX ranges: {NVTX_INJECTION} is set to {}, which receives them instead",
            Path::new(&other).display()
        )),
        None if process::set_variable_if_alone(NVTX_INJECTION, &own) => None,
        None => Some(format!(
            "no NVTX ranges: {NVTX_INJECTION} was not set when the program started (`gpuwhy run` sets it)"
        )),
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}
