//! One device of a report.

use gpuwhy_trace::cost::PriceSource;
use gpuwhy_trace::record::{Device, PcieLink};
use profiler_core::attribution::HostLead;
use profiler_core::attribution::leaf::{Leaves, Overlap};
use profiler_core::attribution::statistics::Durations;
use profiler_core::counters::power::GaugeSums;
use profiler_core::steps::{Steady, Step, StepKinds, Steps};
use profiler_core::whatif::WhatIf;

use super::{
    Awaited, ComputeLimits, ComputeSplit, CopyOverlap, CopyRow, GapRow, KernelGeometry, NamedLimits, Sequence,
    StepMeaning,
};
use crate::run::library::Library;

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// What it is; only the ordinal is known when the device record is missing.
    pub device: Device,
    /// Its link to the host, if that was described.
    pub pcie: Option<PcieLink>,
    /// From the begin of its first operation to the end of its last, nanoseconds.
    pub window_ns: u64,
    /// The window by cause. Sums to `window_ns` exactly.
    pub leaves: Leaves,
    /// The window without start-up, by cause; the verdict rests on it.
    pub steady_leaves: Leaves,
    /// Its newest stretches of at least a second, oldest first; at most [`WINDOWS_KEPT`](crate::run::WINDOWS_KEPT).
    pub windows: Vec<Step>,
    /// Its steps, when any are complete.
    pub steps: Option<Steps>,
    /// What its steps are.
    pub step_meaning: StepMeaning,
    /// Its typical steps, when they speak for the steady time.
    pub typical: Option<TypicalSteps>,
    /// What one step launches, in order; `None` without steps.
    pub sequence: Option<Sequence>,
    /// What could be gained at most.
    pub what_if: Option<WhatIf>,
    /// Its steps without gpuwhy; `None` where no simulation is believed or no cost of tracing is known.
    pub untraced: Option<Untraced>,
    /// How far the launching threads ran ahead of it after start-up.
    pub host_lead: HostLead,
    /// Idle time after start-up by call, kernel, copy or what the host did, the longest first.
    pub gaps: Vec<GapRow>,
    /// What idle time waited for where events tell, after start-up, the longest first.
    pub awaited: Vec<Awaited>,
    /// Operations that CUDA graphs launched; a graph that is recorded as a whole is one.
    pub graph_operations: u64,
    /// How long those ran, nanoseconds, each for itself.
    pub graph_ns: u64,
    /// What ran beneath what.
    pub overlap: Overlap,
    /// Kernels by total time, the largest first.
    pub kernels: Vec<KernelRow>,
    /// Copies by direction and memory, the largest total time first.
    pub copies: Vec<CopyRow>,
    /// Computation by how its grids fill the device.
    pub compute: ComputeSplit,
    /// Computation by what limits it; `None` where hardware counters were not sampled.
    pub limits: Option<ComputeLimits>,
    /// What its gauges add up to; `None` where they were not read.
    pub gauges: Option<GaugeSums>,
    /// Copies beside and beneath computation.
    pub copy_overlap: CopyOverlap,
}

/// What the typical steps of a device are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypicalSteps {
    /// How many.
    pub steps: u64,
    /// Their mean duration, nanoseconds.
    pub mean_ns: u64,
    /// Their time by cause, nanoseconds.
    pub leaves: Leaves,
    /// What they are, where they are of two kinds.
    pub kinds: Option<StepKinds>,
}

impl TypicalSteps {
    /// Of these steps.
    pub(in crate::run) fn of(steady: &Steady) -> Self {
        let (mean_ns, leaves) = (steady.mean_duration(), steady.leaves());
        Self { steps: steady.rows.len() as u64, mean_ns, leaves, kinds: steady.kinds }
    }
}

/// A step of a device without gpuwhy, predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Untraced {
    /// How long a step takes, nanoseconds.
    pub step_ns: u64,
    /// How long it took with gpuwhy (median), nanoseconds.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub measured_step_ns: u64,
    /// The part of a step with gpuwhy that goes without it, 0 to 1.
    pub share_of_tracing: f64,
    /// Where the prices are from.
    pub source: PriceSource,
}

/// Kernels of one name on one device.
#[derive(Clone, Debug)]
pub struct KernelRow {
    /// Demangled name.
    pub name: String,
    /// The library that its name tells; `None` for the program's own, or one without a rule.
    pub library: Option<Library>,
    /// Whether it is counted as communication.
    pub communication: bool,
    /// Their durations.
    pub durations: Durations,
    /// How their grids fill the device; `None` when the records do not say.
    pub geometry: Option<KernelGeometry>,
    /// What limits them; `None` where hardware counters were not sampled.
    pub limits: Option<NamedLimits>,
}
