//! Names of environment variables that are not settings; the others are in `table`.

/// Variables that `gpuwhy run` has warned about, separated by commas: libprof.so does not repeat the
/// warnings.
pub const WARNED: &str = "GPUWHY_WARNED";

/// Socket of the process that tells the user of `gpuwhy run` why there is no report; libprof.so sends its
/// progress there.
pub const WATCHER: &str = "GPUWHY_WATCHER";

/// Library that the CUDA driver loads. Defined by CUDA: it is how libprof.so is loaded.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Library that NVTX loads. Defined by NVTX.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Profiler plugin of NCCL. Defined by NCCL.
pub const NCCL_PLUGIN: &str = "NCCL_PROFILER_PLUGIN";
/// Value of [`NCCL_PLUGIN`] for this library: the name that `build.rs` sets, without a path.
pub const NCCL_PLUGIN_NAME: &str = "libprof.so";
