//! Rules about the unit that limits a kernel, its use of the tensor pipes, and its clock.

use super::rule::{Check, Evidence, Rule, percent};
use crate::kernels::{DataType, Roof};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "at_roof",
        threshold: 0.8,
        source: "use of a unit over the elapsed time, or 0.6 where all others are 0.1 below; ncu, SOLBottleneck",
        check: at_roof,
    },
    Rule {
        name: "latency_bound",
        threshold: 0.6,
        source: "use of every unit; ncu, SOLBottleneck",
        check: latency_bound,
    },
    Rule {
        name: "old_tensor_path",
        threshold: 0.85,
        source: "operations by those of fully used pipes; on an H200 wgmma reached 1.00 and mma.sync 0.67",
        check: old_tensor_path,
    },
    Rule {
        name: "fp32_matrix",
        threshold: 0.5,
        source: "FP32 operations by the FP32 peak; a kernel that multiplies matrices lies above it",
        check: fp32_matrix,
    },
    Rule {
        name: "lowered_clock",
        threshold: 0.95,
        source: "measured clock by the highest; the clock of an idle H200 scatters by 1 %",
        check: lowered_clock,
    },
];

/// Highest utilization that libraries reach: cuBLAS reached 0.9 of the tensor pipes of an H200, copies 0.93
/// of its memory.
const BEST_SEEN: f64 = 0.92;

/// Minimum utilization for a unit to be the limit if every other unit is lower by [`LEAD`] (ncu).
const CLEAR_LIMIT: f64 = 0.6;
const LEAD: f64 = 0.1;

const NO_ROOFS: &str = "the use of the units (--set core)";

fn at_roof(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some((roof, used)) = evidence.figures.nearest_roof() else { return Check::CannotTell(NO_ROOFS) };
    let others = Roof::ALL.into_iter().filter(|&other| other != roof);
    let second = others.filter_map(|other| evidence.figures.roof(other)).fold(0.0, f64::max);
    // Tensor cores below the threshold are waiting.
    let is_clear = roof != Roof::Tensor && used >= CLEAR_LIMIT && used - second >= LEAD;
    if used < threshold && !is_clear {
        return Check::Clear;
    }
    let advice = match roof {
        Roof::Dram => return at_memory(evidence, used),
        Roof::Tensor => {
            "it is close to what the tensor cores allow; only fewer or smaller operations (FP8) make it much faster"
        }
        Roof::Issue => "execute fewer instructions: wider loads, less index arithmetic, or tensor cores",
        Roof::L2 => "reuse data in shared memory or registers instead of loading it from L2 again",
        Roof::L1 => "reuse data in registers, use wider accesses, and avoid bank conflicts",
    };
    let left = (1.0 - used / BEST_SEEN).max(0.0);
    Check::Applies {
        says: format!("It uses {} of the {}.", percent(used), roof.words()),
        advice,
        local_gain: Some(left),
    }
}

/// Fused into an adjacent kernel, its bytes need not be moved, and its other arithmetic can overlap that
/// kernel's: only the time in which the tensor cores worked certainly remains.
fn at_memory(evidence: &Evidence<'_>, used: f64) -> Check {
    let left = (1.0 - used / BEST_SEEN).max(0.0);
    let tensor = evidence.figures.roof(Roof::Tensor).unwrap_or(0.0);
    let says = match left {
        left if left < 0.01 => format!("It uses {} of the device memory, as much as copies do.", percent(used)),
        left => format!(
            "It uses {} of the device memory: the same bytes could take {} less time.",
            percent(used),
            percent(left)
        ),
    };
    Check::Applies {
        says,
        advice: "move fewer bytes: fuse it with the kernels before and after it, or use a smaller data type",
        local_gain: Some((1.0 - tensor).clamp(left, 1.0)),
    }
}

fn latency_bound(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some((roof, used)) = evidence.figures.nearest_roof() else { return Check::CannotTell(NO_ROOFS) };
    if used >= threshold {
        return Check::Clear;
    }
    let small = evidence.geometry.is_some_and(|geometry| geometry.waves < 1.0);
    let advice = if small {
        "the grid does not fill the GPU once: give it more blocks, or run it concurrently with other kernels"
    } else {
        "use more warps, more independent work in each, or data that is nearer; the stall reasons show what they wait for"
    };
    let says = format!("No unit is used above {} ({}): warps mostly wait.", percent(used), roof.words());
    Check::Applies { says, advice, local_gain: evidence.latency_limit() }
}

/// Hopper's asynchronous matrix instructions on shared memory (wgmma) reach the rate of the pipes; older ones
/// (mma.sync) keep the pipes busy longer for the same work.
fn old_tensor_path(evidence: &Evidence<'_>, threshold: f64) -> Check {
    if evidence.capability != [9, 0] {
        return Check::Clear;
    }
    let Some(used) = evidence.figures.roof(Roof::Tensor) else { return Check::CannotTell(NO_ROOFS) };
    // Below this, the number of operations is too small for a comparison.
    if used < 0.2 {
        return Check::Clear;
    }
    let tensor = |of: DataType| of != DataType::Fp32;
    let Some(&(of, count)) = evidence.figures.operations.iter().find(|(of, _)| tensor(*of)) else {
        return Check::CannotTell("operations of the tensor pipes by data type (--set full)");
    };
    let peak = evidence.roofline.peaks.iter().find(|(other, _)| *other == of);
    let (Some(&(_, peak)), Some(nanos)) = (peak, evidence.figures.duration_ns) else {
        return Check::CannotTell("the peak of the tensor pipes on this device");
    };
    let reached = count / nanos * 1e9 / (used * peak);
    if reached >= threshold {
        return Check::Clear;
    }
    Check::Applies {
        says: format!(
            "The tensor cores are busy for {} of the time and do {} of the {} operations that they could in it.",
            percent(used),
            percent(reached),
            of.name()
        ),
        advice: "use a kernel with Hopper's own matrix instructions (wgmma): newer cuBLAS, CUTLASS 3, FlashAttention 3",
        local_gain: Some((used * (1.0 - reached)).clamp(0.0, 1.0)),
    }
}

fn fp32_matrix(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let figures = evidence.figures;
    let of = |of: DataType| figures.operations.iter().find(|(other, _)| *other == of).map(|&(_, count)| count);
    let (Some(count), Some(nanos)) = (of(DataType::Fp32), figures.duration_ns) else { return Check::Clear };
    let clock = figures.clock_hz.or(evidence.peaks.map(|peaks| peaks.clock_hz));
    let peaks = evidence.peaks.zip(clock);
    let rate = |of| peaks.and_then(|(peaks, clock)| peaks.operations_per_second(of, clock));
    // BF16 is the fastest recommended type, so it bounds the gain.
    let fastest = rate(DataType::Bf16).or_else(|| rate(DataType::Tf32));
    let (Some(peak), Some(fastest)) = (rate(DataType::Fp32), fastest) else { return Check::Clear };
    let used = count / nanos * 1e9 / peak;
    if used < threshold || figures.roof(Roof::Tensor).is_none_or(|tensor| tensor > 0.01) {
        return Check::Clear;
    }
    Check::Applies {
        says: format!("It does FP32 arithmetic at {} of its peak and does not use the tensor cores.", percent(used)),
        advice: "if it multiplies matrices, use TF32 or BF16 (PyTorch: torch.set_float32_matmul_precision, autocast)",
        local_gain: Some((1.0 - used * peak / fastest).clamp(0.0, 1.0)),
    }
}

fn lowered_clock(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some(clock) = evidence.figures.clock_hz else { return Check::CannotTell("the clock (--set core)") };
    let highest = evidence.peaks.map(|peaks| peaks.clock_hz).filter(|&clock| clock > 0.0);
    let Some(highest) = highest else { return Check::CannotTell("the highest clock of the device") };
    let part = clock / highest;
    let Some((roof, used)) = evidence.figures.nearest_roof() else { return Check::CannotTell(NO_ROOFS) };
    // Device memory has a separate clock.
    if part >= threshold || roof == Roof::Dram {
        return Check::Clear;
    }
    Check::Applies {
        says: format!("It ran at {:.2} of {:.2} GHz.", clock / 1e9, highest / 1e9),
        advice: "look for the reason with `nvidia-smi -q -d PERFORMANCE`: power limit, temperature, or locked clocks",
        local_gain: Some((used * (1.0 - part)).clamp(0.0, 1.0)),
    }
}
