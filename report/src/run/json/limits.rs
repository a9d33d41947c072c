//! JSON form of compute limits and of the utilization readings.

use std::collections::BTreeMap;

use gpuwhy_trace::counters::{CounterLoss, Metric, Throttle};
use gpuwhy_trace::document::document;
use profiler_core::counters::power::{GaugeMean, GaugeSums};
use profiler_core::counters::roofs::Limit;

use crate::document::limits;
use crate::run::{ComputeLimits, NamedLimits, loss_sentence};

/// Utilization readings, and the mean duration of the typical steps in nanoseconds.
pub(super) struct GaugesOf<'a>(pub(super) &'a GaugeSums, pub(super) Option<u64>);

/// Lost counter samples of a device, with the sentence about them.
pub(super) struct LossOf<'a>(pub(super) &'a CounterLoss);

/// A value range with its mean.
struct RangeOfValues<'a>(f64, &'a GaugeMean);

fn range(gauge: &GaugeMean) -> Option<RangeOfValues<'_>> {
    gauge.mean().map(|mean| RangeOfValues(mean, gauge))
}

document! {
    from: ComputeLimits {
        chip: from.set.chip.as_str(),
        interval_ns: from.set.interval_ns,
        samples: from.samples,
        steady_ns: limits(&from.steady.times),
        step_ns: from.step.as_ref().map(|step| limits(&step.times)),
        tail_ns: from.division().tail_ns,
        small_grids_ns: from.division().small_grids_ns,
        means: from.means.iter().map(|&(metric, mean)| (Metric::name(metric), mean)).collect::<BTreeMap<_, _>>(),
        tensor_of_peak: from.tensor_of_peak,
        tensor_of_peak_error: from.tensor_of_peak_error,
        step_bytes_read: from.step_bytes.map(|(read, _)| read),
        step_bytes_written: from.step_bytes.map(|(_, written)| written),
        step_bytes_read_error: from.step_bytes_error.map(|(read, _)| read),
        step_bytes_written_error: from.step_bytes_error.map(|(_, written)| written),
        kernel_clock_hz: from.kernel_clock_hz,
        highest_clock_hz: Some(from.set.highest_clock_hz).filter(|&clock| clock > 0),
        busy_while_idle: from.busy_while_idle,
    }
    from: NamedLimits {
        roof: from.limits.roof.map(|(roof, ..)| roof.name()),
        used: from.limits.roof.map(|(_, used, _)| used),
        standard_error: from.limits.roof.map(|(.., error)| error),
        sm_active: from.limits.active,
        clock_hz: from.limits.clock_hz,
        own: from.limits.own,
        parts: BTreeMap::from(Limit::ALL.map(|limit| (limit.name(), from.limits.parts[limit as usize]))),
        step_speedup_at_80: from.gains.map(|gains| gains.at_80.speedup),
        step_speedup_at_80_low: from.gains.and_then(|gains| gains.at_80.interval).map(|(low, _)| low),
        step_speedup_at_80_high: from.gains.and_then(|gains| gains.at_80.interval).map(|(_, high)| high),
        step_speedup_at_90: from.gains.map(|gains| gains.at_90.speedup),
        step_speedup_at_90_low: from.gains.and_then(|gains| gains.at_90.interval).map(|(low, _)| low),
        step_speedup_at_90_high: from.gains.and_then(|gains| gains.at_90.interval).map(|(_, high)| high),
        bottleneck_at_90: from.gains.and_then(|gains| gains.then),
    }
    from: GaugesOf<'_> {
        readings: from.0.readings,
        covered_ns: from.0.covered_ns,
        watts: from.0.watts(),
        step_joules: from.0.watts().zip(from.1).map(|(watts, nanos)| watts * nanos as f64 / 1e9),
        power_w: range(&from.0.power_w),
        temperature_c: range(&from.0.temperature_c),
        sm_clock_mhz: range(&from.0.sm_clock_mhz),
        memory_clock_mhz: range(&from.0.memory_clock_mhz),
        memory_used_bytes: range(&from.0.memory_used_bytes),
        lowered_ns: from.0.limited_ns,
        lowered_over_ns: from.0.reasons_over_ns,
        lowered_by_ns: BTreeMap::from_iter(Throttle::ALL.map(Throttle::name).into_iter().zip(from.0.throttled_ns)),
        bytes_per_second: BTreeMap::from([
            ("pcie_received", from.0.pcie_received.per_second()),
            ("pcie_sent", from.0.pcie_sent.per_second()),
            ("nvlink_received", from.0.nvlink_received.per_second()),
            ("nvlink_sent", from.0.nvlink_sent.per_second()),
        ]),
    }
    from: RangeOfValues<'_> {
        mean: from.0,
        min: from.1.least,
        max: from.1.most,
    }
    from: LossOf<'_> {
        device: from.0.device,
        lost: from.0.lost,
        incomplete: from.0.incomplete,
        first_left_out: from.0.first_dropped,
        slowed: from.0.slowed,
        sentence: loss_sentence(from.0),
    }
}
