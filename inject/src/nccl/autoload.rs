//! Has NCCL take this library as its profiler plugin, when only the CUDA driver was told to load it.
//!
//! NCCL asks the environment at its first communicator, which is after the start of CUDA. `gpuwhy run` sets the
//! variable before the program starts; with `CUDA_INJECTION64_PATH` alone it is set here, unless another thread could
//! be reading the environment at the same time. The value is a bare name: NCCL 2.27.3 refuses paths, later ones cut
//! them, and the C library finds the loaded object by its name (`build.rs`).

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use crate::config::{CUDA_INJECTION, NCCL_PLUGIN, NCCL_PLUGIN_NAME};
use crate::sys::process;

/// Sets the variable if that is needed and possible. A note for the report when another plugin has the place.
pub fn invite() -> Option<String> {
    // Without it the program itself has linked the collector, and this is no library that NCCL could load.
    env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    match env::var_os(NCCL_PLUGIN).filter(|value| !value.is_empty()) {
        None => {
            // Where that is not possible, the report says that NCCL told nothing, if there were collectives.
            let _ = process::set_variable_if_alone(NCCL_PLUGIN, OsStr::new(NCCL_PLUGIN_NAME));
            None
        }
        Some(value) if is_own(&value) => None,
        Some(other) => Some(format!(
            "sizes and communicators of collectives are not known: {NCCL_PLUGIN} is set to {}, and NCCL takes one plugin",
            Path::new(&other).display()
        )),
    }
}

/// Whether the value names this library.
fn is_own(value: &OsStr) -> bool {
    Path::new(value).file_name() == Some(OsStr::new(NCCL_PLUGIN_NAME))
}
