//! Profiles of kernels for programs. Shares are 0 to 1, times nanoseconds, rates per second.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rules::Check;
use super::source::SourceReport;
use super::source::json::{LineJson, SourceJson};
use super::{KernelView, KernelsReport, Roof, StepGain};
use crate::attribution::leaf::Group;

/// All kernels of a run.
#[derive(Debug, Serialize)]
pub struct KernelsJson {
    schema_version: u32,
    stall_ns: u64,
    measured: Vec<MeasuredJson>,
    unmeasured: Vec<UnmeasuredJson>,
    /// Where warps wait; absent where it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceJson>,
}

/// Version of the schema.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct ShapeJson {
    name: String,
    symbol: String,
    device: u32,
    grid: [u32; 3],
    block: [u32; 3],
    registers_per_thread: u16,
    static_shared_bytes: u32,
    dynamic_shared_bytes: u32,
    local_bytes_per_thread: u32,
    launches: u64,
    total_ns: u64,
    share: Option<f64>,
    /// Lines of the kernel, most samples first; absent where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<LineJson>>,
}

#[derive(Debug, Serialize)]
struct UnmeasuredJson {
    #[serde(flatten)]
    shape: ShapeJson,
    excluded: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct MeasuredJson {
    #[serde(flatten)]
    shape: ShapeJson,
    outcome: &'static str,
    reason: Option<String>,
    passes: u32,
    measured_launches: u32,
    discarded_launches: u32,
    stall_ns: u64,
    begin_unix_ns: u64,
    end_unix_ns: u64,
    metrics: BTreeMap<String, f64>,
    missing_metrics: Vec<String>,
    duration_ns: Option<f64>,
    clock_hz: Option<f64>,
    roofs: BTreeMap<&'static str, f64>,
    nearest_roof: Option<&'static str>,
    step_at_80: Option<StepGainJson>,
    step_at_90: Option<StepGainJson>,
    bottleneck_at_90: Option<&'static str>,
    occupancy: Option<OccupancyJson>,
    roofline: RooflineJson,
    instructions: Option<f64>,
    pipes: BTreeMap<&'static str, f64>,
    stalls: BTreeMap<&'static str, f64>,
    findings: Vec<FindingJson>,
}

#[derive(Debug, Serialize)]
struct OccupancyJson {
    theoretical: f64,
    achieved: Option<f64>,
    limiter: &'static str,
    waves: f64,
    tail_loss: f64,
    reductions: Vec<ReductionJson>,
}

#[derive(Debug, Serialize)]
struct ReductionJson {
    resource: &'static str,
    from: u32,
    to: u32,
    occupancy: f64,
}

#[derive(Debug, Serialize)]
struct RooflineJson {
    points: Vec<PointJson>,
    bytes_per_second: BTreeMap<&'static str, f64>,
    operations_per_second: BTreeMap<&'static str, f64>,
    operations_per_second_at_highest_clock: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
struct PointJson {
    data_type: &'static str,
    level: &'static str,
    operations_per_byte: f64,
    operations_per_second: f64,
    roof: Option<f64>,
}

#[derive(Debug, Serialize)]
struct FindingJson {
    rule: &'static str,
    applies: bool,
    says: Option<String>,
    advice: Option<&'static str>,
    missing: Option<&'static str>,
    local_gain: Option<f64>,
    step_gain: Option<f64>,
    step: Option<StepGainJson>,
}

/// How many times as fast a step is, simulated, with the interval in which nine of ten programs come out.
#[derive(Debug, Serialize)]
struct StepGainJson {
    speedup: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl From<StepGain> for StepGainJson {
    fn from(gain: StepGain) -> Self {
        let StepGain { speedup, interval } = gain;
        Self { speedup, low: interval.map(|(low, _)| low), high: interval.map(|(_, high)| high) }
    }
}

impl KernelsJson {
    /// Of `report`, and where warps wait, if that is asked for.
    #[must_use]
    pub fn new(report: &KernelsReport, source: Option<&SourceReport>) -> Self {
        let lines = |symbol: &str| source.map(|source| LineJson::of_symbol(source, symbol));
        let unmeasured = report.unmeasured.iter().map(|row| UnmeasuredJson {
            shape: ShapeJson {
                name: row.kernel.demangled.clone(),
                symbol: row.kernel.name.clone(),
                device: row.kernel.device.0,
                grid: row.kernel.launch.grid,
                block: row.kernel.launch.block,
                registers_per_thread: row.kernel.launch.registers_per_thread,
                static_shared_bytes: row.kernel.launch.static_shared_bytes,
                dynamic_shared_bytes: row.kernel.launch.dynamic_shared_bytes,
                local_bytes_per_thread: row.kernel.launch.local_bytes_per_thread,
                launches: row.kernel.launches,
                total_ns: row.kernel.total_ns,
                share: row.share,
                lines: lines(&row.kernel.name),
            },
            excluded: row.excluded.map(super::Excluded::name),
        });
        Self {
            schema_version: SCHEMA_VERSION,
            stall_ns: report.stall_ns,
            measured: report.measured.iter().map(|view| measured(view, lines(&view.symbol))).collect(),
            unmeasured: unmeasured.collect(),
            source: source.map(SourceJson::new),
        }
    }
}

fn measured(view: &KernelView, lines: Option<Vec<LineJson>>) -> MeasuredJson {
    let figures = &view.figures;
    let profile = &view.profile;
    MeasuredJson {
        shape: ShapeJson {
            name: view.name.clone(),
            symbol: view.symbol.clone(),
            device: view.device.id.0,
            grid: view.launch.grid,
            block: view.launch.block,
            registers_per_thread: view.launch.registers_per_thread,
            static_shared_bytes: view.launch.static_shared_bytes,
            dynamic_shared_bytes: view.launch.dynamic_shared_bytes,
            local_bytes_per_thread: view.launch.local_bytes_per_thread,
            launches: view.launches,
            total_ns: view.total_ns,
            share: view.share,
            lines,
        },
        outcome: profile.outcome.name(),
        reason: profile.outcome.sentence(),
        passes: profile.passes,
        measured_launches: profile.launches,
        discarded_launches: profile.discarded,
        stall_ns: profile.stall_ns,
        begin_unix_ns: profile.begin.nanos(),
        end_unix_ns: profile.end.nanos(),
        metrics: profile.values.iter().filter(|(_, value)| value.is_finite()).cloned().collect(),
        missing_metrics: profile.missing.clone(),
        duration_ns: figures.duration_ns,
        clock_hz: figures.clock_hz,
        roofs: Roof::ALL.iter().zip(figures.roofs).filter_map(|(roof, share)| Some((roof.name(), share?))).collect(),
        nearest_roof: figures.nearest_roof().map(|(roof, _)| roof.name()),
        step_at_80: view.gains.map(|gains| gains.at_80.into()),
        step_at_90: view.gains.map(|gains| gains.at_90.into()),
        bottleneck_at_90: view.gains.and_then(|gains| gains.then).map(Group::name),
        occupancy: view.geometry.map(|geometry| OccupancyJson {
            theoretical: geometry.theoretical_occupancy,
            achieved: figures.achieved_occupancy,
            limiter: geometry.limiter.name(),
            waves: geometry.waves,
            tail_loss: geometry.tail_loss,
            reductions: view
                .reductions
                .iter()
                .map(|reduction| ReductionJson {
                    resource: reduction.of.name(),
                    from: reduction.from,
                    to: reduction.to,
                    occupancy: reduction.occupancy,
                })
                .collect(),
        }),
        roofline: roofline(view),
        instructions: figures.instructions,
        pipes: figures.pipes.iter().map(|&(pipe, share)| (pipe.name(), share)).collect(),
        stalls: figures.stalls.iter().map(|stall| (stall.reason, stall.share)).collect(),
        findings: view
            .findings
            .iter()
            .zip(&view.finding_gains)
            .map(|(finding, simulated)| {
                let (says, advice, missing, local_gain) = match &finding.check {
                    Check::Applies { says, advice, local_gain } => {
                        (Some(says.clone()), Some(*advice), None, *local_gain)
                    }
                    Check::CannotTell(missing) => (None, None, Some(*missing), None),
                    Check::Clear => (None, None, None, None),
                };
                let applies = says.is_some();
                FindingJson {
                    rule: finding.rule,
                    applies,
                    says,
                    advice,
                    missing,
                    local_gain,
                    step_gain: view.step_gain(finding),
                    step: simulated.map(StepGainJson::from),
                }
            })
            .collect(),
    }
}

fn roofline(view: &KernelView) -> RooflineJson {
    let roofline = &view.roofline;
    let peaks = |of: &[(super::DataType, f64)]| of.iter().map(|&(of, peak)| (of.name(), peak)).collect();
    RooflineJson {
        points: roofline
            .points
            .iter()
            .map(|point| PointJson {
                data_type: point.of.name(),
                level: point.level.name(),
                operations_per_byte: point.intensity,
                operations_per_second: point.performance,
                roof: roofline.roof_over(point),
            })
            .collect(),
        bytes_per_second: roofline.bandwidths.iter().map(|&(level, rate)| (level.name(), rate)).collect(),
        operations_per_second: peaks(&roofline.peaks),
        operations_per_second_at_highest_clock: peaks(&roofline.highest_peaks),
    }
}
