//! Data kept for each rank while all are compared: some kilobytes.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::counters::roofs::LimitTimes;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::steps::FEWEST_STEADY;

use super::rows::RowGroup;
use gpuwhy_report::run::{DeviceReport, Report};

/// Maximum number of kernels kept per rank, those with the most time.
const KERNELS: usize = 16;
/// Maximum number of source lines kept per rank.
const LINES: usize = 4;
/// Maximum number of intervals of steady time of a rank; adjacent ones are joined, so their number is that of
/// unusual steps.
const STEADY: usize = 4_096;

/// Input from one rank, without its rows.
#[derive(Clone, Debug, Default)]
pub struct RankSummary {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub process_id: u32,
    /// Number of ranks of the job, if recorded in the trace.
    pub world_size: Option<u32>,
    /// Model of the device with the most communication; empty if unknown.
    pub gpu: String,
    /// Start and end of the run on the clock of the trace, nanoseconds; 0 and 0 if unknown.
    pub ran: (u64, u64),
    /// Window of that device, nanoseconds.
    pub window_ns: u64,
    /// That window by leaf.
    pub leaves: Leaves,
    /// Computation of that window by limit.
    pub limits: Option<LimitTimes>,
    /// Its bottleneck without the other ranks, and the share, 0 to 1.
    pub bottleneck: Option<(Cause, f64)>,
    /// Starts and ends of steady time, nanoseconds on the clock of the trace; empty if no steps are known.
    pub steady: Vec<(i64, i64)>,
    /// Number of steps in the steady time.
    pub steps: u64,
    /// Compute kernels, those with the most time.
    pub kernels: Vec<KernelTime>,
    /// Source lines at which the host delayed the device.
    pub lines: Vec<LineTime>,
    /// Communicators and functions of its rows.
    pub groups: Vec<RowGroup>,
    /// Number of communication kernels without a row.
    pub others: u64,
    /// Number of dropped times by leaf.
    pub lost_times: u64,
}

/// Kernels of one name on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTime {
    /// Demangled name.
    pub name: String,
    /// Number of executions.
    pub count: u64,
    /// Their total time, nanoseconds.
    pub total_ns: u64,
}

/// Idle device time while the launching thread was at one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTime {
    /// Activity of the thread.
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
    /// Builds the summary from the report of a rank.
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
            gpu: device.map_or_else(String::new, |device| device.device.name.clone()),
            ran: (report.process.start.nanos(), report.process.start.nanos().saturating_add(report.observed_ns)),
            window_ns: device.map_or(0, |device| device.window_ns),
            leaves: device.map_or_else(|| [0; Leaf::ALL.len()], |device| device.leaves),
            limits: device.and_then(limits),
            bottleneck: Some((report.bottleneck.cause, report.bottleneck.share)),
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

/// Intervals of a device's steady time, and the number of its steps. Unusually long steps are excluded.
fn steady(device: &DeviceReport) -> (Vec<(i64, i64)>, u64) {
    let Some(steps) = &device.steps else { return Default::default() };
    let steady = steps.steady(gpuwhy_trace::record::Timestamp::ZERO);
    if steady.rows.len() < FEWEST_STEADY {
        return Default::default();
    }
    let nanos = |at: gpuwhy_trace::record::Timestamp| i64::try_from(at.nanos()).unwrap_or(i64::MAX);
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for step in &steady.rows {
        match intervals.last_mut() {
            Some((_, end)) if *end == nanos(step.start) => *end = nanos(step.end),
            _ => intervals.push((nanos(step.start), nanos(step.end))),
        }
    }
    intervals.drain(..intervals.len().saturating_sub(STEADY));
    (intervals, steady.rows.len() as u64)
}
