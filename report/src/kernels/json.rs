//! JSON form of kernel profiles. Shares are 0 to 1, times are in nanoseconds, rates per second.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;
use gpuwhy_trace::geometry::Geometry;
use gpuwhy_trace::record::LaunchConfig;

use super::rules::{Check, Finding};
use super::source::{LineSource, SourceReport};
use super::{DataType, KernelView, KernelsReport, Point, Roof, Roofline, StepGain, Unmeasured};
use crate::words::not_measured;

const SCHEMA_VERSION: u32 = 1;

/// All kernels of a run, and the PC samples if requested.
#[derive(Debug)]
pub struct KernelsJson<'a>(pub &'a KernelsReport, pub Option<&'a SourceReport>);

impl<'a> KernelsJson<'a> {
    fn with_lines<T>(&self, kernel: &'a T, symbol: &'a str) -> WithLines<'a, T> {
        WithLines(kernel, self.1.map(|source| source.of_symbol(symbol).flat_map(|function| &function.lines).collect()))
    }
}

/// A kernel with its lines, most samples first.
struct WithLines<'a, T>(&'a T, Option<Vec<&'a LineSource>>);

struct Shape<'a>(&'a LaunchConfig);

struct OccupancyOf<'a>(&'a KernelView, Geometry);

struct PointOf<'a>(&'a Point, &'a Roofline);

struct FindingOf<'a>(&'a Finding, Option<StepGain>, &'a KernelView);

fn peaks(of: &[(DataType, f64)]) -> BTreeMap<&'static str, f64> {
    of.iter().map(|&(of, peak)| (of.name(), peak)).collect()
}

document! {
    from: KernelsJson<'_> {
        schema_version: SCHEMA_VERSION,
        stall_ns: from.0.stall_ns,
        measured: from.0.measured.iter().map(|view| from.with_lines(view, &view.symbol)).collect::<Vec<_>>(),
        unmeasured: from.0.unmeasured.iter().map(|row| from.with_lines(row, &row.kernel.name)).collect::<Vec<_>>(),
        source?: from.1,
    }
    from: WithLines<'_, Unmeasured> {
        name: from.0.kernel.demangled,
        symbol: from.0.kernel.name,
        device: from.0.kernel.device,
        ..Shape(&from.0.kernel.launch),
        launches: from.0.kernel.launches,
        total_ns: from.0.kernel.total_ns,
        share: from.0.share,
        in_graphs?: from.0.in_graphs,
        lines?: from.1,
        excluded: from.0.excluded,
    }
    from: WithLines<'_, KernelView> {
        name: from.0.name,
        symbol: from.0.symbol,
        device: from.0.device.id,
        ..Shape(&from.0.launch),
        launches: from.0.launches,
        total_ns: from.0.total_ns,
        share: from.0.share,
        in_graphs?: from.0.in_graphs,
        lines?: from.1,
        outcome: from.0.profile.outcome,
        reason: not_measured(from.0.profile.outcome),
        passes: from.0.profile.passes,
        measured_launches: from.0.profile.launches,
        discarded_launches: from.0.profile.discarded,
        stall_ns: from.0.profile.stall_ns,
        begin_unix_ns: from.0.profile.begin,
        end_unix_ns: from.0.profile.end,
        metrics: from
            .0
            .profile
            .values
            .iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(metric, value)| (metric, value))
            .collect::<BTreeMap<_, _>>(),
        missing_metrics: from.0.profile.missing,
        duration_ns: from.0.figures.duration_ns,
        clock_hz: from.0.figures.clock_hz,
        roofs: Roof::ALL
            .iter()
            .zip(from.0.figures.roofs)
            .filter_map(|(roof, share)| Some((roof.name(), share?)))
            .collect::<BTreeMap<_, _>>(),
        nearest_roof: from.0.figures.nearest_roof().map(|(roof, _)| roof.name()),
        step_at_80: from.0.gains.map(|gains| gains.at_80),
        step_at_90: from.0.gains.map(|gains| gains.at_90),
        bottleneck_at_90: from.0.gains.and_then(|gains| gains.then),
        occupancy: from.0.geometry.map(|geometry| OccupancyOf(from.0, geometry)),
        roofline: from.0.roofline,
        instructions: from.0.figures.instructions,
        pipes: from.0.figures.pipes.iter().map(|&(pipe, share)| (pipe.name(), share)).collect::<BTreeMap<_, _>>(),
        stalls: from.0.figures.stalls.iter().map(|stall| (stall.reason, stall.share)).collect::<BTreeMap<_, _>>(),
        findings: from
            .0
            .findings
            .iter()
            .zip(&from.0.finding_gains)
            .map(|(finding, simulated)| FindingOf(finding, *simulated, from.0))
            .collect::<Vec<_>>(),
    }
    from: Shape<'_> {
        grid: from.0.grid,
        block: from.0.block,
        registers_per_thread: from.0.registers_per_thread,
        static_shared_bytes: from.0.static_shared_bytes,
        dynamic_shared_bytes: from.0.dynamic_shared_bytes,
        local_bytes_per_thread: from.0.local_bytes_per_thread,
    }
    from: OccupancyOf<'_> {
        theoretical: from.1.theoretical_occupancy,
        achieved: from.0.figures.achieved_occupancy,
        limiter: from.1.limiter,
        waves: from.1.waves,
        tail_loss: from.1.tail_loss,
        reductions: from.0.reductions,
    }
    from: Roofline {
        points: from.points.iter().map(|point| PointOf(point, from)).collect::<Vec<_>>(),
        bytes_per_second: from.bandwidths.iter().map(|&(level, rate)| (level.name(), rate)).collect::<BTreeMap<_, _>>(),
        operations_per_second: peaks(&from.peaks),
        operations_per_second_at_highest_clock: peaks(&from.highest_peaks),
    }
    from: PointOf<'_> {
        data_type: from.0.of,
        level: from.0.level,
        operations_per_byte: from.0.intensity,
        operations_per_second: from.0.performance,
        roof: from.1.roof_over(from.0),
    }
    from: FindingOf<'_> {
        rule: from.0.rule,
        applies: matches!(from.0.check, Check::Applies { .. }),
        says: if let Check::Applies { says, .. } = &from.0.check { Some(says) } else { None },
        advice: if let Check::Applies { advice, .. } = from.0.check { Some(advice) } else { None },
        missing: if let Check::CannotTell(missing) = from.0.check { Some(missing) } else { None },
        local_gain: if let Check::Applies { local_gain, .. } = from.0.check { local_gain } else { None },
        step_gain: from.2.step_gain(from.0),
        step: from.1,
    }
    from: StepGain {
        speedup: from.speedup,
        low: from.interval.map(|(low, _)| low),
        high: from.interval.map(|(_, high)| high),
    }
}
