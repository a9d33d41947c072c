//! What is kept of each rank while all are compared: some kilobytes.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::leaf::{Group, Leaf, Leaves};
use profiler_core::counters::roofs::LimitTimes;
use profiler_core::steps::FEWEST_STEADY;

use super::rows::RowGroup;
use crate::run::{DeviceReport, Report};

/// Kernels of a rank that are kept, those with the most time.
const KERNELS: usize = 16;
/// Lines of code of a rank that are kept.
const LINES: usize = 4;
/// Stretches of steady time of a rank; those that touch are joined, so there are as many as unusual steps.
const STEADY: usize = 4_096;

/// What one rank brings, without its rows.
#[derive(Clone, Debug, Default)]
pub struct RankSummary {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub process_id: u32,
    /// Ranks of the job, if the trace says so.
    pub world_size: Option<u32>,
    /// Window of the device that communicates most, nanoseconds.
    pub window_ns: u64,
    /// That window by cause.
    pub leaves: Leaves,
    /// The computation of that window by what limits it.
    pub limits: Option<LimitTimes>,
    /// Its verdict by itself, and the share, 0 to 1.
    pub verdict: Option<(Group, f64)>,
    /// Begins and ends of steady time, nanoseconds on the clock of the trace; empty where no steps are known.
    pub steady: Vec<(i64, i64)>,
    /// Steps in it.
    pub steps: u64,
    /// Kernels that compute, those with the most time.
    pub kernels: Vec<KernelTime>,
    /// Lines at which the host kept the device waiting.
    pub lines: Vec<LineTime>,
    /// Communicators and functions of its rows.
    pub groups: Vec<RowGroup>,
    /// Kernels that communicate and are no rows.
    pub others: u64,
    /// Times by cause that had no room.
    pub lost_times: u64,
}

/// Kernels of one name on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTime {
    /// Demangled name.
    pub name: String,
    /// How many ran.
    pub count: u64,
    /// Their time, nanoseconds.
    pub total_ns: u64,
}

/// Idle device time while the launching thread was at one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTime {
    /// What the thread did.
    pub cause: HostCause,
    /// File.
    pub file: String,
    /// Line number, from 1; 0 when unknown.
    pub line: u32,
    /// Function.
    pub function: String,
    /// Idle device time, nanoseconds.
    pub total_ns: u64,
}

impl RankSummary {
    /// Of the report of a rank.
    pub fn new(rank: u32, report: &Report) -> Self {
        let devices = report.devices.iter();
        let device = devices.max_by_key(|device| device.leaves[Leaf::Communication as usize]);
        let (steady, steps) = device.map_or_else(Default::default, steady);
        let lines = report.host.iter().flat_map(|host| host.lines.iter().take(LINES));
        let limits = |device: &DeviceReport| {
            Some(device.limits.as_ref()?.division().of(device.leaves[Leaf::Compute as usize]).times)
        };
        Self {
            rank,
            host: report.process.host.clone(),
            process_id: report.process.process_id,
            world_size: report.process.world_size(),
            window_ns: device.map_or(0, |device| device.window_ns),
            leaves: device.map_or_else(|| [0; Leaf::ALL.len()], |device| device.leaves),
            limits: device.and_then(limits),
            verdict: Some((report.verdict.group, report.verdict.share)),
            steady,
            steps,
            kernels: device.map_or_else(Vec::new, kernels),
            lines: lines
                .map(|row| LineTime {
                    cause: row.cause,
                    file: row.file.clone(),
                    line: row.line,
                    function: row.function.clone(),
                    total_ns: row.total_ns,
                })
                .collect(),
            ..Self::default()
        }
    }
}

fn kernels(device: &DeviceReport) -> Vec<KernelTime> {
    let computing = device.kernels.iter().filter(|row| !row.communication).take(KERNELS);
    let row = computing.map(|row| KernelTime {
        name: row.name.clone(),
        count: row.durations.count(),
        total_ns: row.durations.total(),
    });
    row.collect()
}

/// Steady time of a device in stretches, and its steps. A step that took unusually long is left out.
fn steady(device: &DeviceReport) -> (Vec<(i64, i64)>, u64) {
    let Some(steps) = &device.steps else { return Default::default() };
    let steady = steps.steady(gpuwhy_trace::record::Timestamp::ZERO);
    if steady.rows.len() < FEWEST_STEADY {
        return Default::default();
    }
    let nanos = |at: gpuwhy_trace::record::Timestamp| i64::try_from(at.nanos()).unwrap_or(i64::MAX);
    let mut stretches: Vec<(i64, i64)> = Vec::new();
    for step in &steady.rows {
        match stretches.last_mut() {
            Some((_, end)) if *end == nanos(step.start) => *end = nanos(step.end),
            _ => stretches.push((nanos(step.start), nanos(step.end))),
        }
    }
    stretches.drain(..stretches.len().saturating_sub(STEADY));
    (stretches, steady.rows.len() as u64)
}
