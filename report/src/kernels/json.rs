//! JSON form of kernel profiles. Shares are 0 to 1, times are in nanoseconds, rates per second.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;
use gpuwhy_trace::geometry::Geometry;
use gpuwhy_trace::record::LaunchConfig;

use super::rules::{Check, Finding};
use super::{DataType, KernelView, KernelsReport, Point, Roof, Roofline, StepGain, Unmeasured};
use crate::words::not_measured;

const SCHEMA_VERSION: u32 = 1;

struct Shape<'a>(&'a LaunchConfig);

struct OccupancyOf<'a>(&'a KernelView, Geometry);

struct PointOf<'a>(&'a Point, &'a Roofline);

struct FindingOf<'a>(&'a Finding, Option<StepGain>, &'a KernelView);

fn peaks(of: &[(DataType, f64)]) -> BTreeMap<&'static str, f64> {
    of.iter().map(|&(of, peak)| (of.name(), peak)).collect()
}

document! {
    from: KernelsReport {
        schema_version: SCHEMA_VERSION,
        stall_ns, measured, unmeasured,
    }
    from: Unmeasured {
        name: from.kernel.demangled,
        symbol: from.kernel.name,
        device: from.kernel.device,
        ..Shape(&from.kernel.launch),
        launches: from.kernel.launches,
        total_ns: from.kernel.total_ns,
        share,
        in_graphs?: from.in_graphs,
        excluded,
    }
    from: KernelView {
        name, symbol,
        device: from.device.id,
        ..Shape(&from.launch),
        launches, total_ns, share,
        in_graphs?: from.in_graphs,
        outcome: from.profile.outcome,
        reason: not_measured(from.profile.outcome),
        passes: from.profile.passes,
        measured_launches: from.profile.launches,
        discarded_launches: from.profile.discarded,
        stall_ns: from.profile.stall_ns,
        begin_unix_ns: from.profile.begin,
        end_unix_ns: from.profile.end,
        metrics: from
            .profile
            .values
            .iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(metric, value)| (metric, value))
            .collect::<BTreeMap<_, _>>(),
        missing_metrics: from.profile.missing,
        duration_ns: from.figures.duration_ns,
        clock_hz: from.figures.clock_hz,
        roofs: Roof::ALL
            .iter()
            .zip(from.figures.roofs)
            .filter_map(|(roof, share)| Some((roof.name(), share?)))
            .collect::<BTreeMap<_, _>>(),
        nearest_roof: from.figures.nearest_roof().map(|(roof, _)| roof.name()),
        step_at_80: from.gains.map(|gains| gains.at_80),
        step_at_90: from.gains.map(|gains| gains.at_90),
        bottleneck_at_90: from.gains.and_then(|gains| gains.then),
        occupancy: from.geometry.map(|geometry| OccupancyOf(from, geometry)),
        roofline,
        instructions: from.figures.instructions,
        pipes: from.figures.pipes.iter().map(|&(pipe, share)| (pipe.name(), share)).collect::<BTreeMap<_, _>>(),
        stalls: from.figures.stalls.iter().map(|stall| (stall.reason, stall.share)).collect::<BTreeMap<_, _>>(),
        findings: from
            .findings
            .iter()
            .zip(&from.finding_gains)
            .map(|(finding, simulated)| FindingOf(finding, *simulated, from))
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
        speedup,
        low: from.interval.map(|(low, _)| low),
        high: from.interval.map(|(_, high)| high),
    }
}
