//! Kernel time by library and by the line that launched it.

use profiler_core::attribution::LaunchSampleCounts;

use crate::run::library::Library;

/// Kernels of one library, on all devices.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LibraryRow {
    /// The library, or the loaded file that samples saw launch the kernels; `None` for kernels of which neither is
    /// known: the program's own, or those of a library that no rule knows.
    pub library: Option<String>,
    /// Distinct kernels.
    #[cfg_attr(feature = "serde", serde(rename = "kernels"))]
    pub names: u64,
    /// How often they ran.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
    /// The part of it for which native frames of samples told the library; names told the rest.
    pub by_samples_ns: u64,
    /// Part of the time of all kernels, 0 to 1.
    pub share: f64,
    /// The kernel with the most time.
    #[cfg_attr(feature = "serde", serde(rename = "largest_kernel"))]
    pub largest: String,
}

/// Kernel time by the line that launched it, estimated from samples that fell into launches.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelLines {
    /// Where the samples went.
    pub counts: LaunchSampleCounts,
    /// Samples that a row rests on.
    pub samples: u64,
    /// Sum of the durations of all kernels on all devices, nanoseconds.
    pub kernel_ns: u64,
    /// The part of it in kernels and graphs of which no launch was sampled.
    pub not_sampled_ns: u64,
    /// By line, the largest time first; at most 256.
    pub lines: Vec<LaunchLineRow>,
    /// Distinct lines, those beyond `lines` too.
    pub distinct_lines: u64,
    /// By kernel and line, the largest time first; at most 1,024.
    pub rows: Vec<KernelLineRow>,
    /// Kernels at places, those beyond `rows` too.
    pub distinct_rows: u64,
}

/// A part of kernel time as samples tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledTime {
    /// Samples.
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
pub struct LaunchLineRow {
    /// The line; of what differs between its launches, what most samples saw.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: LaunchSite,
    /// Time of its kernels.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub time: SampledTime,
    /// Part of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Distinct kernels and graphs.
    pub kernels: u64,
    /// The one with the most time.
    #[cfg_attr(feature = "serde", serde(rename = "largest_kernel"))]
    pub largest: String,
}

/// One kernel, or one CUDA graph, as one place launched it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KernelLineRow {
    /// Demangled name of the kernel, or `CUDA graph` with its number.
    pub kernel: String,
    /// The graph, by CUPTI's id; `None` for a kernel launched by itself.
    pub graph: Option<u32>,
    /// The library that the kernel's name tells.
    pub library: Option<Library>,
    /// The place.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: LaunchSite,
    /// The part of `kernel_ns` that belongs to this place.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub time: SampledTime,
    /// Samples in launches of this kernel at any place.
    pub kernel_samples: u64,
    /// Time of all launches of this kernel outside graphs, or of all kernels of the graph, nanoseconds; exact.
    pub kernel_ns: u64,
}

/// Where something was launched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LaunchSite {
    /// File of the program's innermost frame.
    pub file: String,
    /// Its line, from 1; 0 when unknown, as for native code.
    pub line: u32,
    /// Its function.
    pub function: String,
    /// Function and file of the innermost Python frame, when that is another one.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::document::within"))]
    pub within: Option<(String, String)>,
    /// Class of the innermost module whose `forward` was running.
    pub module: Option<String>,
    /// PyTorch's operator, where native frames tell it.
    pub operator: Option<String>,
    /// The loaded file that called CUDA, where native frames tell it.
    pub binary: Option<String>,
}
