//! The variable that names the profiler plugin of NCCL.
//!
//! NCCL reads it when it creates the first communicator. Only `gpuwhy run --nccl` sets it, at the user's
//! request; this library never does, because its plugin has been tested mostly in a replayed host
//! program. The value is a bare name: NCCL 2.27.3 rejects paths, later versions truncate them, and the C
//! library finds the loaded object by its name (`build.rs`).

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use crate::config::{CUDA_INJECTION, NCCL_PLUGIN, NCCL_PLUGIN_NAME};

/// Returns a note for the report if another plugin is configured.
pub fn other_plugin() -> Option<String> {
    // Without CUDA_INJECTION64_PATH the collector is linked into the program, so NCCL could not load it anyway.
    env::var_os(CUDA_INJECTION).filter(|path| !path.is_empty())?;
    match env::var_os(NCCL_PLUGIN).filter(|value| !value.is_empty()) {
        None => None,
        Some(value) if is_own(&value) => None,
        Some(other) => Some(format!(
            "sizes and communicators of collectives are unknown: {NCCL_PLUGIN} is set to {}, and NCCL loads one plugin",
            Path::new(&other).display()
        )),
    }
}

/// True if the value names this library.
fn is_own(value: &OsStr) -> bool {
    Path::new(value).file_name() == Some(OsStr::new(NCCL_PLUGIN_NAME))
}
