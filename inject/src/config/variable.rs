//! The names of environment variables that are no settings; those of settings are in `table`.

/// Variables about which `gpuwhy run` has printed a warning, separated by commas: libprof.so does not repeat it.
pub const WARNED: &str = "GPUWHY_WARNED";

/// What the CUDA driver loads. Not ours: it is how libprof.so got here.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// What NVTX loads. Not ours.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// What NCCL takes as its profiler plugin. Not ours.
pub const NCCL_PLUGIN: &str = "NCCL_PROFILER_PLUGIN";
/// Its value for this library: the name that `build.rs` gives it, without a path.
pub const NCCL_PLUGIN_NAME: &str = "libprof.so";
