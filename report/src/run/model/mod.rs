//! What a report holds: data, and what can be read off it without asking anybody.
//!
//! Not here: how it is made (`build` and the files beside it) and how it is written (`text`, `tables`, `json`).

mod bursts;
mod captures;
mod compute;
mod copies;
mod device;
mod gaps;
mod host;
mod launches;
mod limits;
mod memory;
mod ranges;
mod sequence;
mod verdict;

pub use bursts::{BurstRow, BurstTable};
pub use captures::{CaptureRow, CaptureTable};
pub use compute::{ComputeSplit, GridClass, KernelGeometry};
pub use copies::{CopyClass, CopyFit, CopyOverlap, CopyRow};
pub use device::{DeviceReport, KernelRow, TypicalSteps, Untraced};
pub use gaps::{Awaited, GapRow, GapSubject};
pub use host::{CauseRow, HostReport, LineRow};
pub use launches::{KernelLineRow, KernelLines, LaunchLineRow, LaunchSite, LibraryRow, SampledTime};
pub(crate) use limits::loss_sentence;
pub use limits::{ComputeLimits, NamedLimits};
pub use memory::{MemoryReport, MemoryRow, PeakBy};
pub use ranges::{RangeRow, RangesReport};
pub use sequence::{Sequence, StepMeaning};
pub use verdict::{PlanStep, Ranked, RecoverableBy, StepBasis, Verdict};

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::counters::CounterLoss;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::utilization::Utilization;
use profiler_core::collective::CollectivesReport;
use profiler_core::monitoring::MonitoredTime;

use crate::kernels::KernelsReport;

/// Everything that is reported about one process.
#[derive(Clone, Debug)]
pub struct Report {
    /// The traced process.
    pub process: ProcessInfo,
    /// From the first record of any kind to the last, nanoseconds.
    pub observed_ns: u64,
    /// What is missing or doubtful.
    pub completeness: Completeness,
    /// Devices on which anything ran, by ordinal.
    pub devices: Vec<DeviceReport>,
    /// API functions by total time, the largest first.
    pub api: Vec<ApiRow>,
    /// What the launching threads were doing; `None` when nobody looked.
    pub host: Option<HostReport>,
    /// Kernels by library, the one with the most time first.
    pub kernel_libraries: Vec<LibraryRow>,
    /// Kernels by the line that launched them; `None` when no host sample was taken.
    pub kernel_lines: Option<KernelLines>,
    /// Ranges that the program named; `None` without any.
    pub ranges: Option<RangesReport>,
    /// Memory that was allocated; `None` when that was not recorded.
    pub memory: Option<MemoryReport>,
    /// The answer.
    pub verdict: Verdict,
    /// What tracing itself took; `None` when the trace does not say. Filled in by [`crate::capture`].
    pub cost: Option<Cost>,
    /// How busy devices were; empty when nobody read it. Filled in by [`crate::capture`].
    pub utilization: Utilization,
    /// How the time of a run without records of device work divides; `None` without hardware samples. Filled in by
    /// [`crate::capture`].
    pub monitored: Option<MonitoredTime>,
    /// Bursts and changes of the bottleneck, of a run in mode auto. Filled in by [`crate::capture`].
    pub bursts: Option<BurstTable>,
    /// What of the samples of hardware counters was lost, by device. Filled in by [`crate::capture`].
    pub counter_losses: Vec<CounterLoss>,
    /// Collectives by communicator; `None` when nothing communicated. Filled in by [`crate::capture`].
    pub collectives: Option<CollectivesReport>,
    /// Kernels by launch configuration, and what measuring some of them came to. Filled in by [`crate::capture`].
    pub kernels: KernelsReport,
    /// The part of the run that it is about; `None` when it is about all of it. Filled in by whoever read a part.
    pub part: Option<Part>,
    /// The captures of the run; empty when it was measured as a whole. Filled in by [`crate::capture`].
    pub captures: CaptureTable,
}

/// A part of a run, nanoseconds after the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How long the run is in the trace.
    pub of_ns: u64,
}

/// Calls of one API function, by whichever thread.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ApiRow {
    /// Name without version suffix.
    pub name: String,
    /// Calls that were not made by another API call.
    pub calls: u64,
    /// Calls that did not return success.
    pub failed: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

impl Report {
    /// Whether no device work was recorded on purpose: the verdict then rests on gauges and samples, and has no share.
    pub fn is_watched(&self) -> bool {
        self.devices.is_empty() && self.cost.is_some_and(|cost| cost.mode.monitors())
    }

    /// How long the run was observed, nanoseconds: without records, for as long as tracing was on.
    pub(crate) fn shown_ns(&self) -> u64 {
        let watched = self.cost.filter(|_| self.is_watched());
        watched.map_or(self.observed_ns, |cost| cost.observed_ns.max(self.observed_ns))
    }
}
