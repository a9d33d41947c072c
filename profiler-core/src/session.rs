//! Which process a trace is about, and where it stands in its job.

use crate::record::Timestamp;

/// The process that was traced. Written once, at the start of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Process id.
    pub process_id: u32,
    /// Parent process id.
    pub parent_process_id: u32,
    /// The command line, argument by argument.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// When tracing began, on the clock of the trace.
    pub start: Timestamp,
    /// The newest CUDA version that the driver supports, as `1000 * major + 10 * minor`; 0 when unknown.
    pub driver_cuda_version: u32,
    /// Kernel-mode driver version, for example `580.159.04`; empty when unknown.
    pub driver_version: String,
    /// What the tracing library answers for its version; 0 when unknown.
    pub cupti_version: u32,
    /// File of the tracing library.
    pub cupti_path: String,
    /// Version of gpuprof that wrote the trace.
    pub gpuprof_version: String,
    /// `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and their like, as found in the environment: name and value.
    pub rank_variables: Vec<(String, String)>,
    /// What was switched on, what could not be, and why; shown in the report.
    pub notes: Vec<String>,
}

/// How a trace ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// No end was written: the process was killed, crashed or left by `_exit`.
    #[default]
    Abrupt,
    /// The exit handler ran and everything was delivered.
    Clean,
    /// The exit handler ran, but its bounded wait ended first.
    TimedOut,
}
