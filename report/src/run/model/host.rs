//! What the launching threads were doing.

use profiler_core::attribution::SampleTotals;
use profiler_core::attribution::host_cause::HostCause;

/// What samples of the launching threads say. There is none without samples.
#[derive(Clone, Debug, PartialEq)]
pub struct HostReport {
    /// Sums over the samples of launching threads.
    pub totals: SampleTotals,
    /// Host samples at any thread that gave nothing.
    pub failed: u64,
    /// Steady idle time in which the host was late outside CUDA for long: `host_cpu`, `host_blocked`, `data_loading`.
    pub outside_cuda_ns: u64,
    /// The part of it for which a sample speaks.
    pub sampled_ns: u64,
    /// All of it by what was seen, the largest first; only that part where there are too few samples.
    pub causes: Vec<CauseRow>,
    /// The same by line of code, the largest first; at most 32.
    pub lines: Vec<LineRow>,
}

/// Idle device time with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseRow {
    /// What the launching thread was seen to do.
    pub cause: HostCause,
    /// Steady idle time of all devices, nanoseconds. Where there are enough samples, an estimate with this cause's part
    /// of the time without one.
    pub total_ns: u64,
}

/// Idle device time while the launching thread was at one line.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LineRow {
    /// The cause that most of the time had.
    pub cause: HostCause,
    /// File.
    pub file: String,
    /// Line number, from 1; 0 when unknown.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
    /// Function and file of what it called: the innermost frame, or the innermost native one outside of the C library
    /// and the interpreter. Of several native functions of one library the one that took most.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::document::within"))]
    pub within: Option<(String, String)>,
    /// The part of [`total_ns`](Self::total_ns) in the function that is named there, nanoseconds; otherwise all of it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub within_ns: u64,
    /// Gaps in which a sample saw the thread there.
    pub samples: u64,
    /// Steady idle time of all devices for which these samples speak, nanoseconds.
    pub sampled_ns: u64,
    /// The same with this line's part of the idle time without a sample: an estimate, nanoseconds.
    pub total_ns: u64,
    /// Part of the steady time of all devices, 0 to 1.
    pub share: f64,
    /// That part of the median step, nanoseconds; `None` without steps.
    pub step_ns: Option<u64>,
}
