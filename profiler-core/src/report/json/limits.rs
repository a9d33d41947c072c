//! What limits computation, and what gauges add up to, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attribution::leaf::Group;
use crate::counters::power::{CountedTotal, GaugeMean, GaugeSums};
use crate::counters::roofs::{Division, KernelLimits, Limit, LimitTimes};
use crate::counters::{CounterLoss, Metric, Throttle};
use crate::kernels::StepGain;
use crate::report::{ComputeLimits, NamedLimits, loss_sentence};

/// Nanoseconds by limit.
pub(super) type LimitsJson = BTreeMap<&'static str, u64>;

#[derive(Debug, Serialize)]
pub(super) struct ComputeLimitsJson {
    chip: String,
    interval_ns: u64,
    samples: SamplesJson,
    steady_ns: LimitsJson,
    step_ns: Option<LimitsJson>,
    tail_ns: u64,
    small_grids_ns: u64,
    means: BTreeMap<&'static str, f64>,
    tensor_of_peak: Option<f64>,
    tensor_of_peak_error: Option<f64>,
    step_bytes_read: Option<u64>,
    step_bytes_written: Option<u64>,
    step_bytes_read_error: Option<u64>,
    step_bytes_written_error: Option<u64>,
    kernel_clock_hz: Option<f64>,
    highest_clock_hz: Option<u64>,
    busy_while_idle: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SamplesJson {
    used: u64,
    unusable: u64,
    unplaced: u64,
    used_ns: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelLimitsJson {
    roof: Option<&'static str>,
    used: Option<f64>,
    standard_error: Option<f64>,
    sm_active: Option<f64>,
    clock_hz: Option<f64>,
    own: bool,
    parts: BTreeMap<&'static str, f64>,
    step_speedup_at_80: Option<f64>,
    step_speedup_at_80_low: Option<f64>,
    step_speedup_at_80_high: Option<f64>,
    step_speedup_at_90: Option<f64>,
    step_speedup_at_90_low: Option<f64>,
    step_speedup_at_90_high: Option<f64>,
    bottleneck_at_90: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(super) struct GaugeSumsJson {
    readings: u64,
    covered_ns: u64,
    watts: Option<f64>,
    step_joules: Option<f64>,
    power_w: Option<RangeOfValues>,
    temperature_c: Option<RangeOfValues>,
    sm_clock_mhz: Option<RangeOfValues>,
    memory_clock_mhz: Option<RangeOfValues>,
    memory_used_bytes: Option<RangeOfValues>,
    lowered_ns: u64,
    lowered_over_ns: u64,
    lowered_by_ns: BTreeMap<&'static str, u64>,
    bytes_per_second: BTreeMap<&'static str, Option<f64>>,
}

#[derive(Debug, Serialize)]
struct RangeOfValues {
    mean: f64,
    min: f64,
    max: f64,
}

/// What was lost of a device's samples.
#[derive(Debug, Serialize)]
pub(super) struct CounterLossJson {
    device: u32,
    lost: u64,
    incomplete: u64,
    first_left_out: u64,
    slowed: u64,
    sentence: Option<String>,
}

pub(super) fn times(times: &LimitTimes) -> LimitsJson {
    Limit::ALL.into_iter().map(|limit| (limit.name(), times[limit as usize])).collect()
}

pub(super) fn compute_limits(from: &ComputeLimits) -> ComputeLimitsJson {
    let Division { tail_ns, small_grids_ns, .. } = *from.division();
    ComputeLimitsJson {
        chip: from.set.chip.as_str().to_owned(),
        interval_ns: from.set.interval_ns,
        samples: SamplesJson {
            used: from.samples.used,
            unusable: from.samples.unusable,
            unplaced: from.samples.unplaced,
            used_ns: from.samples.used_ns,
        },
        steady_ns: times(&from.steady.times),
        step_ns: from.step.as_ref().map(|step| times(&step.times)),
        tail_ns,
        small_grids_ns,
        means: from.means.iter().map(|&(metric, mean)| (Metric::name(metric), mean)).collect(),
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
}

pub(super) fn kernel_limits(from: &NamedLimits) -> KernelLimitsJson {
    let KernelLimits { parts, roof, active, clock_hz, own } = from.limits;
    let (at_80, at_90) = (from.gains.map(|gains| gains.at_80), from.gains.map(|gains| gains.at_90));
    let end = |gain: Option<StepGain>, of: fn((f64, f64)) -> f64| gain.and_then(|gain| gain.interval).map(of);
    KernelLimitsJson {
        roof: roof.map(|(roof, ..)| roof.name()),
        used: roof.map(|(_, used, _)| used),
        standard_error: roof.map(|(.., error)| error),
        sm_active: active,
        clock_hz,
        own,
        parts: Limit::ALL.into_iter().map(|limit| (limit.name(), parts[limit as usize])).collect(),
        step_speedup_at_80: at_80.map(|gain| gain.speedup),
        step_speedup_at_80_low: end(at_80, |(low, _)| low),
        step_speedup_at_80_high: end(at_80, |(_, high)| high),
        step_speedup_at_90: at_90.map(|gain| gain.speedup),
        step_speedup_at_90_low: end(at_90, |(low, _)| low),
        step_speedup_at_90_high: end(at_90, |(_, high)| high),
        bottleneck_at_90: from.gains.and_then(|gains| gains.then).map(Group::name),
    }
}

/// `step_ns`: the mean typical step.
pub(super) fn gauge_sums(from: &GaugeSums, step_ns: Option<u64>) -> GaugeSumsJson {
    let of = |gauge: &GaugeMean| gauge.mean().map(|mean| RangeOfValues { mean, min: gauge.least, max: gauge.most });
    let rate = |total: &CountedTotal| total.per_second();
    let watts = from.watts();
    GaugeSumsJson {
        readings: from.readings,
        covered_ns: from.covered_ns,
        watts,
        step_joules: watts.zip(step_ns).map(|(watts, nanos)| watts * nanos as f64 / 1e9),
        power_w: of(&from.power_w),
        temperature_c: of(&from.temperature_c),
        sm_clock_mhz: of(&from.sm_clock_mhz),
        memory_clock_mhz: of(&from.memory_clock_mhz),
        memory_used_bytes: of(&from.memory_used_bytes),
        lowered_ns: from.limited_ns,
        lowered_over_ns: from.reasons_over_ns,
        lowered_by_ns: Throttle::ALL.into_iter().map(Throttle::name).zip(from.throttled_ns).collect(),
        bytes_per_second: BTreeMap::from([
            ("pcie_received", rate(&from.pcie_received)),
            ("pcie_sent", rate(&from.pcie_sent)),
            ("nvlink_received", rate(&from.nvlink_received)),
            ("nvlink_sent", rate(&from.nvlink_sent)),
        ]),
    }
}

pub(super) fn counter_loss(from: &CounterLoss) -> CounterLossJson {
    CounterLossJson {
        device: from.device.0,
        lost: from.lost,
        incomplete: from.incomplete,
        first_left_out: from.first_dropped,
        slowed: from.slowed,
        sentence: loss_sentence(from),
    }
}
