//! One device of a report.

use gpuwhy_trace::cost::PriceSource;
use gpuwhy_trace::record::{Device, PcieLink};
use profiler_core::attribution::queue_waits::QueueWaits;
use profiler_core::attribution::statistics::Durations;
use profiler_core::attribution::{HostLead, KernelBuilds, OtherProcess, Work};
use profiler_core::counters::power::GaugeSums;
use profiler_core::leaf::{Leaves, Overlap};
use profiler_core::steps::{Steady, Step, StepKind, Steps};
use profiler_core::whatif::WhatIf;

use super::{
    Awaited, ComputeLimits, ComputeSplit, CopyOverlap, CopyRow, GapRow, KernelGeometry, ManagedPages, NamedLimits,
    Sequence, StepMeaning,
};
use crate::library::Library;

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The device; only the ordinal is known when the device record is missing.
    pub device: Device,
    /// Its link to the host, if known.
    pub pcie: Option<PcieLink>,
    /// Time from the start of its first operation to the end of its last, nanoseconds.
    pub window_ns: u64,
    /// The window by leaf cause. Sums to `window_ns` exactly.
    pub leaves: Leaves,
    /// The window without start-up, by leaf cause; the bottleneck is chosen from it.
    pub steady_leaves: Leaves,
    /// True if the recording began while the program ran, so that it has no start-up.
    pub begun_midway: bool,
    /// Operations that started after start-up.
    pub steady_work: Work,
    /// Its newest intervals of at least a second, oldest first; at most
    /// [`WINDOWS_KEPT`](crate::run::WINDOWS_KEPT).
    pub windows: Vec<Step>,
    /// Its steps, if any are complete.
    pub steps: Option<Steps>,
    /// Meaning of a step on this device.
    pub step_meaning: StepMeaning,
    /// Its typical steps, if they represent the steady time.
    pub typical: Option<TypicalSteps>,
    /// Kinds of its typical steps, or of all iterations of a server; empty if there is one kind.
    pub step_kinds: Vec<StepKind>,
    /// Launch sequence of one step; `None` without steps.
    pub sequence: Option<Sequence>,
    /// Best cases by simulation.
    pub what_if: Option<WhatIf>,
    /// Its predicted steps without gpuwhy; `None` if no simulation is validated or no tracing overhead is
    /// known.
    pub untraced: Option<Untraced>,
    /// Lead of the launching threads over the device after start-up.
    pub host_lead: HostLead,
    /// Idle time after start-up by call, kernel, copy or host activity, the longest first.
    pub gaps: Vec<GapRow>,
    /// Kernels built or loaded after start-up while it waited.
    pub builds: KernelBuilds,
    /// Kernels that waited in a queue behind another stream, or for an event.
    pub queue_waits: QueueWaits,
    /// Other processes on it, the one with the most use first.
    pub other_processes: Vec<OtherProcess>,
    /// Idle time after start-up that waited for a recorded event, by producer, the longest first.
    pub awaited: Vec<Awaited>,
    /// Operations launched by CUDA graphs; a graph recorded as one unit counts as one.
    pub graph_operations: u64,
    /// Sum of their individual durations, nanoseconds.
    pub graph_ns: u64,
    /// Overlap between kinds of work.
    pub overlap: Overlap,
    /// Kernels by time after start-up, the largest first, and then by time in the whole run.
    pub kernels: Vec<KernelRow>,
    /// Copies by direction and memory, the largest total time first.
    pub copies: Vec<CopyRow>,
    /// Computation, classified by how its grids fill the device.
    pub compute: ComputeSplit,
    /// Computation by limit; `None` if hardware counters were not sampled.
    pub limits: Option<ComputeLimits>,
    /// Sums of its utilization readings; `None` if they were not read.
    pub gauges: Option<GaugeSums>,
    /// Its managed memory; `None` without migrations and faults.
    pub managed: Option<ManagedPages>,
    /// Exposed and hidden copies.
    pub copy_overlap: CopyOverlap,
}

/// Totals of a device's typical steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypicalSteps {
    /// Number of steps.
    pub steps: u64,
    /// Their mean duration, nanoseconds.
    pub mean_ns: u64,
    /// Their time by leaf cause, nanoseconds.
    pub leaves: Leaves,
    /// Time of earlier steps, of which only the sum is kept, nanoseconds.
    pub forgotten_ns: u64,
}

impl TypicalSteps {
    /// Builds the totals from these steps.
    pub(in crate::run) fn of(steady: &Steady, forgotten_ns: u64) -> Self {
        let (mean_ns, leaves) = (steady.mean_duration(), steady.leaves());
        Self { steps: steady.rows.len() as u64, mean_ns, leaves, forgotten_ns }
    }
}

/// Predicted step of a device without gpuwhy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Untraced {
    /// Duration of a step, nanoseconds.
    pub step_ns: u64,
    /// Shortest and longest duration that measured errors of the overhead table allow, nanoseconds.
    pub step_range_ns: (u64, u64),
    /// Median duration with gpuwhy, nanoseconds; the mean of two kinds of steps.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub measured_step_ns: u64,
    /// Share of a step with gpuwhy that is tracing overhead, 0 to 1.
    pub share_of_tracing: f64,
    /// Source of the overhead table.
    pub source: PriceSource,
}

impl KernelRow {
    /// True for the name of a CUDA graph that was recorded as a whole: `[CUDA graph 8, nodes not recorded]`.
    pub fn is_whole_graph_name(name: &str) -> bool {
        name.starts_with("[CUDA graph ")
    }
}

/// Kernels of one name on one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelRow {
    /// Demangled name.
    pub name: String,
    /// Library derived from its name; `None` for the program's own kernels and for libraries without a rule.
    pub library: Option<Library>,
    /// True if it counts as communication.
    pub communication: bool,
    /// Their durations in the whole run.
    pub durations: Durations,
    /// Number of them after start-up, and their time, nanoseconds.
    pub steady: (u64, u64),
    /// How their grids fill the device; `None` when the records lack the information.
    pub geometry: Option<KernelGeometry>,
    /// Their limits; `None` if hardware counters were not sampled.
    pub limits: Option<NamedLimits>,
}
