//! Contents of a report: plain data, and values derived from it without other sources.
//!
//! How it is built is in `build` and the neighboring files; how it is written is in `text`, `tables` and
//! `json`.

mod bottleneck;
mod captures;
mod compute;
mod copies;
mod device;
mod gaps;
mod graph_origins;
mod host;
mod launches;
mod limits;
mod memory;
mod ranges;
mod remedy;
mod sequence;
mod sources;

pub use bottleneck::{Bottleneck, PhaseRow, PlanStep, Ranked, RecoverableBy, StepBasis};
pub use captures::{BurstRow, BurstTable, CaptureRow, CaptureTable};
pub use compute::{ComputeSplit, GridClass, KernelGeometry};
pub use copies::{CopyClass, CopyFit, CopyOverlap, CopyRow};
pub use device::{DeviceReport, KernelRow, TypicalSteps, Untraced};
pub use gaps::{Awaited, GapRow, GapSubject};
pub use graph_origins::{
    GraphModuleRow, GraphOriginRow, GraphOrigins, GraphPartRow, GraphRangeRow, GraphRangeTable, GraphThreadRow,
    ModuleTime, WholeGraphRow,
};
pub use host::{
    BetweenIterations, CallLineRow, CauseRow, HostReport, InnerLineRow, LineRow, LockHolderRow, MeaningRow,
};
pub use launches::{KernelLineRow, KernelLines, LaunchLineRow, LibraryRow, SampledLaunches, SampledTime};
pub(crate) use limits::loss_sentence;
pub use limits::{ComputeLimits, NamedLimits};
pub use memory::{
    GrowthPerStep, JumpOfMemory, LineNear, LongestCall, ManagedPages, MemoryCallRow, MemoryOfDevice, MemoryReport,
    MemoryRow, OwnerRow, PeakBy,
};
pub use ranges::{RangeRow, RangesReport};
pub(in crate::run) use remedy::Rank;
pub use remedy::{Certainty, MeasuredGain, Remedy, Results, SMALLEST_GAIN, helps};
pub use sequence::{Sequence, StepMeaning};
pub use sources::{SourceLines, SourceRow};

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::counters::CounterLoss;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::utilization::Utilization;
use profiler_core::collective::CollectivesReport;
use profiler_core::monitoring::{MonitoredIterations, MonitoredTime};

use crate::kernels::KernelsReport;
use crate::run::operators::Operators;

/// Complete report about one process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The traced process.
    pub process: ProcessInfo,
    /// Time from the first record of any kind to the last, nanoseconds.
    pub observed_ns: u64,
    /// Missing or doubtful data.
    pub completeness: Completeness,
    /// Devices on which anything ran, by ordinal.
    pub devices: Vec<DeviceReport>,
    /// API functions by total time, the largest first.
    pub api: Vec<ApiRow>,
    /// Activity of the launching threads; `None` without host sampling.
    pub host: Option<HostReport>,
    /// Kernels by library, the one with the most time first.
    pub kernel_libraries: Vec<LibraryRow>,
    /// Kernels by launching line; `None` when no host sample was taken.
    pub kernel_lines: Option<KernelLines>,
    /// Work of CUDA graphs by the place that captured it; `None` without graphs, or if their nodes were not reported.
    pub graph_origins: Option<GraphOrigins>,
    /// Ranges that the program named; `None` without ranges.
    pub ranges: Option<RangesReport>,
    /// Operators of the framework; `None` unless they were asked for.
    pub operators: Option<Operators>,
    /// Allocated memory; `None` when it was not recorded.
    pub memory: Option<MemoryReport>,
    /// The bottleneck, with evidence and advice.
    pub bottleneck: Bottleneck,
    /// Overhead of tracing; `None` when the trace lacks it.
    pub cost: Option<Cost>,
    /// Utilization of the devices; empty when it was not read.
    pub utilization: Utilization,
    /// Division of the time of a run without records of device work; `None` without hardware samples.
    pub monitored: Option<MonitoredTime>,
    /// Iterations of a server in such a run, on the host; `None` if there are none.
    pub monitored_iterations: Option<MonitoredIterations>,
    /// Bursts and bottleneck changes of a run in mode auto.
    pub bursts: Option<BurstTable>,
    /// Lost hardware counter samples by device.
    pub counter_losses: Vec<CounterLoss>,
    /// Collectives by communicator; `None` without communication.
    pub collectives: Option<CollectivesReport>,
    /// Kernels by launch configuration, and the results of measuring some of them.
    pub kernels: KernelsReport,
    /// The part of the run that the report covers; `None` for the complete run. Filled in by the reader of
    /// the part.
    pub part: Option<RunPart>,
    /// The other processes of a file with several, which the report leaves out: a sentence without a period. Filled in
    /// by the reader of the file.
    pub other_processes: Option<String>,
    /// The captures of the run; empty when it was not split.
    pub captures: CaptureTable,
    /// Lines of source code; empty if the trace has none.
    pub sources: SourceLines,
}

/// Part of a run, in nanoseconds after the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Start.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Length of the run in the trace.
    pub of_ns: u64,
}

/// Calls of one API function by any thread.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ApiRow {
    /// Name without version suffix.
    pub name: String,
    /// Number of calls, without those made by another API call.
    pub calls: u64,
    /// Number of these after start-up.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub steady_calls: u64,
    /// Number of calls that did not return success.
    pub failed: u64,
    /// Total time, nanoseconds.
    pub total_ns: u64,
    /// Longest call, nanoseconds.
    pub max_ns: u64,
}
