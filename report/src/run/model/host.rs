//! Activity of the launching threads.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::servers::Meaning;
use profiler_core::attribution::{CallKind, SampleTotals};

/// Results from samples of the launching threads; absent without samples.
#[derive(Clone, Debug, PartialEq)]
pub struct HostReport {
    /// Sums over the samples of launching threads.
    pub totals: SampleTotals,
    /// Host samples of any thread that failed.
    pub failed: u64,
    /// Steady idle time in which the host was late and spent long outside CUDA: `host_cpu`, `host_blocked`,
    /// `data_loading`.
    pub outside_cuda_ns: u64,
    /// The part covered by a sample.
    pub sampled_ns: u64,
    /// The total by sampled cause, the largest first; only the sampled part if there are too few samples.
    pub causes: Vec<CauseRow>,
    /// The same by source line, the largest first; at most 32.
    pub lines: Vec<LineRow>,
    /// The same by what a server of language models did between iterations; empty without functions of one.
    pub between: BetweenIterations,
    /// Lines of calls that launch, copy, wait or allocate, after start-up; at most four of each kind, most samples
    /// first.
    pub calls: Vec<CallLineRow>,
    /// Samples of threads that call CUDA in which they waited for the interpreter's lock (GIL).
    pub lock_waits: u64,
    /// Of these, the samples in which nobody held it: it was on its way between threads that call CUDA.
    pub lock_handovers: u64,
    /// Who held it in these samples, most first; nobody if only threads that were not sampled did.
    pub lock_holders: Vec<LockHolderRow>,
}

/// A line that makes calls of one kind.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CallLineRow {
    /// Kind of call.
    pub calls: CallKind,
    /// File of the program's innermost frame.
    pub file: String,
    /// Line number, from 1; 0 when unknown.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
    /// Samples of launching threads in these calls, or in the short time before a launch or a copy.
    pub samples: u64,
    /// Their share of all samples in calls of this kind, 0 to 1.
    pub share: f64,
    /// Interval of the share with 95 % confidence.
    pub share_low: f64,
    /// Its upper end.
    pub share_high: f64,
    /// If the line holds nearly all of these samples: the lines inside it that divide them, the largest share first.
    pub inner: Vec<InnerLineRow>,
    /// File and function of the innermost frames of Python inside the line, with their samples. Not in the JSON.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) innermost: Vec<(String, String, u64)>,
}

/// A line inside another one, with its share of the samples there.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct InnerLineRow {
    /// File of the library or of the program.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
    /// Share of the samples of the outer line, 0 to 1.
    pub share: f64,
}

/// A thread that held the interpreter's lock, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockHolderRow {
    /// Name of the thread, or its number.
    pub thread: String,
    /// File; empty if the line is unknown.
    pub file: String,
    /// Line number, from 1; 0 when unknown.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
    /// True if it calls CUDA, too.
    pub calls_cuda: bool,
    /// Samples of waiting threads at which it held the lock.
    pub samples: u64,
}

/// Idle device time in functions of a server of language models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BetweenIterations {
    /// Name of the server with the most of it; `None` without functions that the table knows.
    pub server: Option<&'static str>,
    /// By meaning, the largest total first. The sampled part of [`Meaning::NoRequests`] is part of `no_work`.
    pub rows: Vec<MeaningRow>,
}

/// Idle device time with one meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeaningRow {
    /// Purpose of what the launching thread did.
    pub meaning: Meaning,
    /// Steady idle time of all devices that samples explain, nanoseconds.
    pub sampled_ns: u64,
    /// The same plus its share of the time without a sample: an estimate, nanoseconds.
    pub total_ns: u64,
}

/// Idle device time with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseRow {
    /// Sampled activity of the launching thread.
    pub cause: HostCause,
    /// Steady idle time of all devices, nanoseconds. With enough samples, an estimate that includes this
    /// cause's share of the time without a sample.
    pub total_ns: u64,
}

/// Idle device time while the launching thread was at one line.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LineRow {
    /// Activity there; a line with several has several rows.
    pub cause: HostCause,
    /// File; empty for a thread without lines, which `function` then names.
    pub file: String,
    /// Line number, from 1; 0 when unknown.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
    /// Function and file of the callee: the innermost frame, or the innermost native one outside the C
    /// library and the interpreter. Of several native functions of one library, the one with the most time.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::document::within"))]
    pub within: Option<(String, String)>,
    /// The part of [`total_ns`](Self::total_ns) in the function named there, nanoseconds; otherwise the
    /// total.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub within_ns: u64,
    /// Number of samples of the thread there in gaps of the device.
    pub samples: u64,
    /// Steady idle time of all devices that these samples represent, nanoseconds.
    pub sampled_ns: u64,
    /// The same plus this line's share of the idle time without a sample: an estimate, nanoseconds.
    pub total_ns: u64,
    /// Share of the time that the bottleneck's share is of, 0 to 1: of typical steps without the overhead of tracing,
    /// or of the steady time of all devices.
    pub share: f64,
    /// Interval of the share with 95 % confidence, as far as the number of samples determines it.
    pub share_low: f64,
    /// Its upper end.
    pub share_high: f64,
    /// Share of the median step without the overhead of tracing, nanoseconds; `None` without steps that represent
    /// the steady time.
    pub step_ns: Option<u64>,
}
