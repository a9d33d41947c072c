//! Rules about how blocks and warps fill the device.

use gpuwhy_trace::geometry::WARP_THREADS;

use super::rule::{Check, Evidence, Rule, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "small_grid",
        threshold: 1.0,
        source: "blocks by multiprocessors; ncu, LaunchConfiguration",
        check: small_grid,
    },
    Rule {
        name: "tail",
        threshold: 0.1,
        source: "empty part of the last wave by all waves; ncu takes 0.2 waves",
        check: tail,
    },
    Rule {
        name: "block_size",
        threshold: 1.0,
        source: "threads of the last warp by 32; ncu, LaunchConfiguration",
        check: block_size,
    },
    Rule {
        name: "theoretical_occupancy",
        threshold: 0.8,
        source: "warps that fit by those that a multiprocessor can hold; ncu, TheoreticalOccupancy",
        check: theoretical_occupancy,
    },
    Rule {
        name: "achieved_occupancy",
        threshold: 0.1,
        source: "warps missing from those that fit; ncu, AchievedOccupancy",
        check: achieved_occupancy,
    },
    Rule {
        name: "imbalance",
        threshold: 0.1,
        source: "active time missing on the mean multiprocessor; ncu, WorkloadImbalance takes 0.05",
        check: imbalance,
    },
];

const NO_SHAPE: &str = "the resources of the device, or the shape of the launch";

fn small_grid(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let (Some(geometry), Some(room)) = (evidence.geometry, evidence.room) else { return Check::CannotTell(NO_SHAPE) };
    if geometry.blocks as f64 >= threshold * f64::from(room.count) {
        return Check::Clear;
    }
    Check::Applies {
        says: format!(
            "Its {} blocks leave {} of the {} multiprocessors without work.",
            geometry.blocks,
            percent(geometry.empty_multiprocessors()),
            room.count
        ),
        advice: "split the work into more blocks, use a larger batch, or run it concurrently with other kernels",
        local_gain: Some(geometry.empty_multiprocessors()),
    }
}

fn tail(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some(geometry) = evidence.geometry else { return Check::CannotTell(NO_SHAPE) };
    if geometry.waves <= 1.0 || geometry.tail_loss < threshold {
        return Check::Clear;
    }
    Check::Applies {
        says: format!(
            "Its blocks make {:.2} waves; the last one leaves {} of the whole empty.",
            geometry.waves,
            percent(geometry.tail_loss)
        ),
        advice: "choose a grid that is a multiple of the blocks that fit at once, smaller blocks, or a persistent kernel",
        local_gain: Some(geometry.tail_loss),
    }
}

fn block_size(evidence: &Evidence<'_>, _: f64) -> Check {
    let Some(geometry) = evidence.geometry else { return Check::CannotTell(NO_SHAPE) };
    let rest = geometry.block_threads % WARP_THREADS;
    if rest == 0 {
        return Check::Clear;
    }
    let lanes = geometry.block_threads.next_multiple_of(WARP_THREADS);
    let idle = 1.0 - f64::from(geometry.block_threads) / f64::from(lanes);
    Check::Applies {
        says: format!("Its blocks have {} threads, so the last warp of each has {rest} of 32.", geometry.block_threads),
        advice: "use blocks of a multiple of 32 threads",
        local_gain: Some(idle),
    }
}

fn theoretical_occupancy(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some(geometry) = evidence.geometry else { return Check::CannotTell(NO_SHAPE) };
    if geometry.theoretical_occupancy >= threshold {
        return Check::Clear;
    }
    let Some(limit) = evidence.latency_limit() else { return Check::CannotTell("the use of the units (--set core)") };
    // A kernel near its roofline needs no more warps.
    if evidence.figures.nearest_roof().is_some_and(|(_, used)| used >= 0.8) {
        return Check::Clear;
    }
    let limiter = match geometry.limiter {
        gpuwhy_trace::geometry::Limiter::Threads => "the number of warps",
        gpuwhy_trace::geometry::Limiter::Blocks => "the number of blocks",
        gpuwhy_trace::geometry::Limiter::Registers => "registers",
        gpuwhy_trace::geometry::Limiter::SharedMemory => "shared memory",
    };
    Check::Applies {
        says: format!(
            "{} of the warps that a multiprocessor can hold fit, limited by {limiter}.",
            percent(geometry.theoretical_occupancy)
        ),
        advice: "if warps wait for memory, use less of the limiting resource: the occupancy line lists the reductions that help",
        local_gain: Some((1.0 - geometry.theoretical_occupancy).min(limit)),
    }
}

fn achieved_occupancy(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let (Some(geometry), Some(achieved)) = (evidence.geometry, evidence.figures.achieved_occupancy) else {
        return Check::CannotTell("the achieved occupancy (--set core)");
    };
    // The maximum for a grid of less than a wave.
    let possible = geometry.theoretical_occupancy * geometry.waves.min(1.0);
    let missing = 1.0 - achieved / possible.max(f64::MIN_POSITIVE);
    if missing < threshold || evidence.figures.nearest_roof().is_some_and(|(_, used)| used >= 0.8) {
        return Check::Clear;
    }
    let Some(limit) = evidence.latency_limit() else { return Check::CannotTell("the use of the units (--set core)") };
    Check::Applies {
        says: format!("{} of the warps were resident although {} fit.", percent(achieved), percent(possible)),
        advice: "blocks or warps differ in length, or blocks are too short to be replaced in time: balance the work",
        local_gain: Some(missing.clamp(0.0, 1.0).min(limit)),
    }
}

fn imbalance(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let (Some(balance), Some(active)) = (evidence.figures.balance, evidence.figures.sm_active) else {
        return Check::CannotTell("the active time of the multiprocessors (--set core)");
    };
    // Another rule reports an under-filled grid.
    if 1.0 - balance < threshold || evidence.geometry.is_some_and(|geometry| geometry.sm_efficiency < 1.0) {
        return Check::Clear;
    }
    Check::Applies {
        says: format!("The mean multiprocessor is active for {} of the time of the busiest one.", percent(balance)),
        advice: "blocks differ in length: sort the longest first, split them, or fetch work from a queue",
        local_gain: Some(((1.0 - balance) * active.min(1.0)).clamp(0.0, 1.0)),
    }
}
