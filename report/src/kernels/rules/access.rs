//! Rules about memory access, divergence and stalls.

use gpuwhy_trace::geometry::WARP_THREADS;

use super::rule::{Check, Evidence, Rule, percent};
use crate::kernels::Roof;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "uncoalesced_loads",
        threshold: 16.0,
        source: "sectors for each request: 32 threads that load 16 bytes each in a row need 16, shorter ones fewer",
        check: |evidence, threshold| uncoalesced(evidence, threshold, evidence.figures.memory.sectors_per_load, "load"),
    },
    Rule {
        name: "uncoalesced_stores",
        threshold: 16.0,
        source: "as for loads",
        check: |evidence, threshold| {
            uncoalesced(evidence, threshold, evidence.figures.memory.sectors_per_store, "store")
        },
    },
    Rule {
        name: "bank_conflicts",
        threshold: 0.1,
        source: "conflicts by wavefronts of shared memory; ncu, SharedMemoryConflicts",
        check: bank_conflicts,
    },
    Rule {
        name: "layout_conversion",
        threshold: 0.0,
        source: "names of cuDNN's kernels that convert between NCHW and NHWC",
        check: layout_conversion,
    },
    Rule { name: "spills", threshold: 0.0, source: "local memory of a thread, bytes", check: spills },
    Rule {
        name: "divergence",
        threshold: 24.0,
        source: "threads of 32 in an instruction; ncu, ThreadDivergence",
        check: divergence,
    },
    Rule {
        name: "stalls",
        threshold: 0.3,
        source: "share of one reason, while less than 0.8 instructions are issued in a cycle; ncu, CPIStall",
        check: stalls,
    },
];

/// Issued instructions per cycle from which stalls do not matter (ncu).
const ISSUED_ENOUGH: f64 = 0.8;

fn uncoalesced(evidence: &Evidence<'_>, threshold: f64, sectors: Option<f64>, what: &str) -> Check {
    let Some(sectors) = sectors else {
        // The requests were counted, and there were none of this kind.
        let counted =
            evidence.figures.memory.sectors_per_load.is_some() || evidence.figures.memory.sectors_per_store.is_some();
        return if counted { Check::Clear } else { Check::CannotTell("sectors for each request (--set memory)") };
    };
    if sectors <= threshold {
        return Check::Clear;
    }
    let excess = 1.0 - threshold / sectors;
    let used = [Roof::Dram, Roof::L2, Roof::L1].into_iter().filter_map(|roof| evidence.figures.roof(roof));
    let used = used.fold(0.0, f64::max);
    Check::Applies {
        says: format!(
            "Each {what} of a warp touches {sectors:.1} sectors of 32 bytes; neighboring threads would touch 4 to {threshold:.0}."
        ),
        advice: "let neighboring threads access neighboring addresses: change the layout or the loop order, or go \
                 through shared memory",
        local_gain: Some((excess * used.min(1.0)).clamp(0.0, 1.0)),
    }
}

/// cuDNN kernels that only convert the layout, by name.
const CONVERSIONS: [&str; 2] = ["nchwtonhwc", "nhwctonchw"];

fn layout_conversion(evidence: &Evidence<'_>, _: f64) -> Check {
    let name = evidence.name.to_ascii_lowercase();
    if !CONVERSIONS.iter().any(|conversion| name.contains(conversion)) {
        return Check::Clear;
    }
    Check::Applies {
        says:
            "It only converts images between the memory layouts NCHW and NHWC, for a convolution that needs the other."
                .to_owned(),
        advice: "keep the model and its input in NHWC, so that nothing is converted (PyTorch: \
                 .to(memory_format=torch.channels_last) on both)",
        local_gain: Some(1.0),
    }
}

fn bank_conflicts(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let memory = &evidence.figures.memory;
    let worst = [memory.load_conflicts, memory.store_conflicts].into_iter().flatten().reduce(f64::max);
    let Some(worst) = worst else {
        return if evidence.launch.static_shared_bytes == 0 && evidence.launch.dynamic_shared_bytes == 0 {
            Check::Clear
        } else {
            Check::CannotTell("bank conflicts (--set memory)")
        };
    };
    if worst < threshold {
        return Check::Clear;
    }
    let used = evidence.figures.roof(Roof::L1).unwrap_or(1.0).min(1.0);
    // Without conflicts the other units have the same work as before.
    let others = [Roof::Tensor, Roof::Dram, Roof::L2, Roof::Issue];
    let next = others.into_iter().filter_map(|roof| evidence.figures.roof(roof)).fold(0.0, f64::max);
    Check::Applies {
        says: format!("Bank conflicts cause {} of the passes over shared memory (wavefronts).", percent(worst)),
        advice: "pad the rows of the array in shared memory by one element, or swizzle the index",
        local_gain: Some((worst * used).min(1.0 - next).clamp(0.0, 1.0)),
    }
}

fn spills(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let bytes = evidence.launch.local_bytes_per_thread;
    if f64::from(bytes) <= threshold {
        return Check::Clear;
    }
    let says = match evidence.figures.memory.local_instructions {
        Some(0.0) => return Check::Clear,
        Some(count) => format!(
            "It has {bytes} bytes of local memory for each thread and accesses it by {count:.0} instructions of warps."
        ),
        None => format!(
            "It has {bytes} bytes of local memory for each thread: spilled registers, or arrays without registers."
        ),
    };
    Check::Applies {
        says,
        advice: "allow it more registers (__launch_bounds__, maxrregcount), or index its arrays by constants",
        local_gain: None,
    }
}

fn divergence(evidence: &Evidence<'_>, threshold: f64) -> Check {
    let Some(threads) = evidence.figures.threads_per_instruction else {
        return Check::CannotTell("threads in an instruction (--set full)");
    };
    if threads >= threshold {
        return Check::Clear;
    }
    let idle = 1.0 - threads / f64::from(WARP_THREADS);
    let busy = evidence.figures.compute_throughput.or(evidence.figures.roof(Roof::Issue)).unwrap_or(1.0).min(1.0);
    Check::Applies {
        says: format!("An instruction is executed by {threads:.1} of 32 threads on average."),
        advice: "threads of a warp take different branches: group work of one kind into the same warp",
        local_gain: Some((idle * busy).clamp(0.0, 1.0)),
    }
}

fn stalls(evidence: &Evidence<'_>, threshold: f64) -> Check {
    // A warp that is ready and not selected is not stalled.
    let worst = evidence.figures.stalls.iter().find(|stall| stall.reason != "not_selected");
    let (Some(worst), Some(issued)) = (worst, evidence.figures.issued_per_cycle) else {
        return Check::CannotTell("what warps wait for (--set stalls)");
    };
    if worst.share < threshold || issued >= ISSUED_ENOUGH {
        return Check::Clear;
    }
    let advice = match worst.reason {
        "long_scoreboard" => {
            "load earlier (prefetch, cp.async, unroll), reuse data in shared memory, or have more warps"
        }
        "barrier" => "give warps of a block equal work between barriers, or use smaller blocks",
        "mio_throttle" | "short_scoreboard" => "use shared memory with fewer, wider accesses, and avoid bank conflicts",
        "lg_throttle" => "use fewer, wider loads and stores, and avoid local memory",
        "math_pipe_throttle" => "the arithmetic pipe is full: use a smaller data type or tensor cores",
        "gmma" => "matrix instructions are waited for: more stages of the pipeline, or larger tiles",
        "wait" => "instructions depend on each other: more independent work in a thread, or more warps",
        "imc_miss" => "access constants by the same address in all threads",
        "drain" => "write less at the end, or coalesced",
        "membar" => "use fewer or narrower memory fences",
        "sleeping" => "the program puts its warps to sleep (__nanosleep)",
        _ => "look for the source line with these stalls (ncu)",
    };
    let limit = evidence.latency_limit().unwrap_or(1.0);
    Check::Applies {
        says: format!(
            "For {} of the time between two instructions, a warp is {}.",
            percent(worst.share),
            worst.words()
        ),
        advice,
        local_gain: Some(worst.share.min(limit).clamp(0.0, 1.0)),
    }
}
