//! Which profiler plugin NCCL takes.
//!
//! NCCL reads the variable at its first communicator. It is set by whoever asks for it (`gpuwhy run --nccl`), never
//! here: what NCCL does with a plugin has been seen with a replay host only. The value is a bare name: NCCL 2.27.3
//! refuses paths, later ones cut them, and the C library finds the loaded object by its name (`build.rs`).

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use crate::config::{CUDA_INJECTION, NCCL_PLUGIN, NCCL_PLUGIN_NAME};

/// A note for the report when another plugin has the place.
pub fn other_plugin() -> Option<String> {
    // Without it the program itself has linked the collector, and this is no library that NCCL could load.
    env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    match env::var_os(NCCL_PLUGIN).filter(|value| !value.is_empty()) {
        None => None,
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
