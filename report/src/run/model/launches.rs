//! Kernel time by library and by the line that launched it.

use profiler_core::attribution::LaunchSampleCounts;

use crate::launch_site::LaunchSite;
use crate::library::Library;

/// Kernels of one library on all devices.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LibraryRow {
    /// The library, or the loaded file that samples saw launch the kernels; `None` if neither is known: the
    /// program's own kernels, or those of a library without a rule.
    pub library: Option<String>,
    /// Number of distinct kernels.
    #[cfg_attr(feature = "serde", serde(rename = "kernels"))]
    pub names: u64,
    /// Number of executions.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
    /// The part whose library is derived from native frames of samples; the rest is derived from names.
    pub by_samples_ns: u64,
    /// Share of the time of all kernels, 0 to 1.
    pub share: f64,
    /// The kernel with the most time.
    #[cfg_attr(feature = "serde", serde(rename = "largest_kernel"))]
    pub largest: String,
}

/// Kernel time by launching line, estimated from samples that fell into launches of at least 100 us: shorter
/// ones may have returned before the stack was read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelLines {
    /// Classification of the samples.
    pub counts: LaunchSampleCounts,
    /// Samples certainly within a launch, on which the rows rest.
    pub samples: u64,
    /// Sum of the durations of all kernels on all devices, nanoseconds.
    pub kernel_ns: u64,
    /// The part in kernels and graphs without such a sample.
    pub not_sampled_ns: u64,
    /// The part in launches of at least 100 us whose line is known. If it is less than half of `kernel_ns`,
    /// there are no rows.
    pub placed_ns: u64,
    /// By line, the largest time first; at most 256.
    pub lines: Vec<LaunchLineRow>,
    /// Number of distinct lines, including those not in `lines`.
    pub distinct_lines: u64,
    /// By kernel and line, the largest time first; at most 1,024.
    pub rows: Vec<KernelLineRow>,
    /// Number of kernel and line pairs, including those not in `rows`.
    pub distinct_rows: u64,
    /// All samples in launches by kernel and place, most samples first; at most 1,024. Those of short launches
    /// may show a later line: evidence for remedies, no times.
    pub launches: Vec<SampledLaunches>,
}

/// Samples in launches of one kernel at one place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampledLaunches {
    /// Demangled name of the kernel, or `CUDA graph` with its number.
    pub kernel: String,
    /// Where the stack was.
    pub place: LaunchSite,
    /// Number of samples.
    pub samples: u64,
    /// The same part of the kernel's time, nanoseconds.
    pub estimated_ns: f64,
}

/// Part of kernel time, estimated from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SampledTime {
    /// Number of samples.
    pub samples: u64,
    /// Estimated kernel time, nanoseconds.
    pub total_ns: f64,
    /// Lower end of its 95 % interval, nanoseconds.
    pub low_ns: f64,
    /// Upper end.
    pub high_ns: f64,
}

/// Kernels that one line launched.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LaunchLineRow {
    /// The line, with the details that all its sampled launches share.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: LaunchSite,
    /// Time of its kernels.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub time: SampledTime,
    /// Share of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Number of distinct kernels and graphs.
    pub kernels: u64,
    /// The kernel or graph with the most time.
    #[cfg_attr(feature = "serde", serde(rename = "largest_kernel"))]
    pub largest: String,
}

/// One kernel, or one CUDA graph, launched from one place.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelLineRow {
    /// Demangled name of the kernel, or `CUDA graph` with its number.
    pub kernel: String,
    /// CUPTI's id of the graph; `None` for a kernel launched outside graphs.
    pub graph: Option<u32>,
    /// Library derived from the kernel's name.
    pub library: Option<Library>,
    /// The launch site.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: LaunchSite,
    /// The part of `kernel_ns` attributed to this place.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub time: SampledTime,
    /// Samples in launches of this kernel from any place.
    pub kernel_samples: u64,
    /// Time of all launches of this kernel outside graphs, or of all kernels of the graph, nanoseconds; exact.
    pub kernel_ns: u64,
}
