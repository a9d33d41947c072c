//! The names of all environment variables.

/// How much is recorded.
pub const MODE: &str = "GPUWHY_MODE";
/// Whether a CUDA graph is one record.
pub const CUDA_GRAPH_TRACE: &str = "GPUWHY_CUDA_GRAPH_TRACE";
/// How much tracing may take.
pub const MAX_OVERHEAD: &str = "GPUWHY_MAX_OVERHEAD";
/// Where the trace is written.
pub const OUTPUT: &str = "GPUWHY_OUTPUT";
/// How much is printed at the end.
pub const REPORT: &str = "GPUWHY_REPORT";
/// How often a verdict is printed while the program runs.
pub const LIVE: &str = "GPUWHY_LIVE";
/// How much is logged.
pub const LOG: &str = "GPUWHY_LOG";
/// Which libcupti to load.
pub const CUPTI_PATH: &str = "GPUWHY_CUPTI_PATH";
/// Raw recording for the replay library.
pub const RAW_RECORDING: &str = "GPUWHY_RAW_RECORDING";
/// Longest wait at exit.
pub const EXIT_TIMEOUT: &str = "GPUWHY_EXIT_TIMEOUT";
/// Whether stream dependencies are recorded.
pub const DEPENDENCIES: &str = "GPUWHY_DEPENDENCIES";
/// Whether allocations are recorded.
pub const MEMORY_USAGE: &str = "GPUWHY_CUDA_MEMORY_USAGE";
/// Time between flushes.
pub const FLUSH: &str = "GPUWHY_FLUSH";
/// Whether other tools get CUPTI.
pub const CUPTI_SHARING: &str = "GPUWHY_CUPTI_SHARING";
/// Memory for activity buffers.
pub const BUFFER_MEMORY: &str = "GPUWHY_BUFFER_MEMORY";
/// Whether host threads are sampled.
pub const SAMPLING: &str = "GPUWHY_SAMPLING";
/// Whether stacks of host threads have native functions.
pub const NATIVE_STACKS: &str = "GPUWHY_NATIVE_STACKS";
/// How many kernels are measured with hardware counters, and which.
pub const KERNELS: &str = "GPUWHY_KERNELS";
/// Whether program counters are sampled before.
pub const KERNEL_SOURCE: &str = "GPUWHY_KERNEL_SOURCE";
/// Whether hardware counters and gauges of devices are read.
pub const GPU_METRICS: &str = "GPUWHY_GPU_METRICS";

/// How much of the command line is kept.
pub const COMMAND_LINE: &str = "GPUWHY_COMMAND_LINE";

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
/// What begins and ends a capture.
pub const CAPTURE_RANGE: &str = "GPUWHY_CAPTURE_RANGE";
/// Which range of the program.
pub const NVTX_CAPTURE: &str = "GPUWHY_NVTX_CAPTURE";
/// What follows the end of a capture.
pub const CAPTURE_RANGE_END: &str = "GPUWHY_CAPTURE_RANGE_END";
/// Which steps are captured.
pub const STEPS: &str = "GPUWHY_STEPS";
/// Time before the first capture.
pub const DELAY: &str = "GPUWHY_DELAY";
/// Longest capture.
pub const DURATION: &str = "GPUWHY_DURATION";
/// What the run is called.
pub const RUN: &str = "GPUWHY_RUN";
/// Whether there is a control socket.
pub const CONTROL: &str = "GPUWHY_CONTROL";
/// The history of runs.
pub const HISTORY: &str = "GPUWHY_HISTORY";
