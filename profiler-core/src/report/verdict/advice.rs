//! One piece of advice for a group, and what must hold for it to help.
//!
//! Where the records can tell whether that holds, they are asked: CUDA graphs are recommended only to a program that
//! launches the same kernels with the same grids step after step, and not already by graphs.

use crate::attribution::leaf::{Group, Leaf, Leaves};
use crate::attribution::{Attributor, DeviceAccount};
use crate::whatif::at_most;

/// Least share of launches that must equal the one a period before for a captured graph to stand for them. A step
/// that has two others in a hundred would have to be captured anew each time.
pub const GRAPH_MATCH: f64 = 0.98;

/// From this speed-up on, advice does not say that there is none.
const WORTH_NAMING: f64 = 1.05;

/// What the records say about CUDA graphs.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphFit {
    /// The lowest match rate of the devices; `None` when a period is not known of each.
    match_rate: Option<f64>,
    /// Part of the operations that graphs launched, 0 to 1.
    by_graphs: f64,
    /// Part of the time in which the device worked that graphs took, 0 to 1: a graph that is recorded as a whole is one operation.
    time_of_graphs: f64,
}

impl GraphFit {
    pub(super) fn of(attributor: &Attributor) -> Self {
        let rates: Option<Vec<f64>> = attributor.devices().map(|account| account.match_rate()).collect();
        let sum = |of: fn(&DeviceAccount) -> u64| attributor.devices().map(of).sum::<u64>();
        let busy = |account: &DeviceAccount| {
            Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy()).map(|leaf| account.leaves()[leaf as usize]).sum()
        };
        Self {
            time_of_graphs: (sum(DeviceAccount::graph_ns) as f64 / sum(busy).max(1) as f64).min(1.0),
            match_rate: rates.and_then(|rates| rates.into_iter().reduce(f64::min)),
            by_graphs: sum(DeviceAccount::graph_operations) as f64 / sum(DeviceAccount::operations).max(1) as f64,
        }
    }

    /// Whether most of the work comes from graphs already.
    fn used(self) -> bool {
        self.by_graphs.max(self.time_of_graphs) > 0.5
    }
}

/// For computation whose small grids the replay could batch.
pub(super) const BATCH_GRIDS: &str = "Give the work of equal kernels with small grids to one kernel (stacked tensors, \
     torch.vmap, foreach functions), or run them on several streams: many multiprocessors have no block. Helps as far as \
     none needs what the one before it computed.";

/// For launches that are small copies for the most part.
pub(super) const JOIN_COPIES: &str = "Join the small copies into one (one buffer for all of a step, or arguments of a kernel): \
     each costs a launch, whatever its size.";

/// For copies that would not be hidden if they ran beside computation.
pub(super) const COPY_LESS: &str = "Copy less: reduce on the device before copying (an argmax or a sum in place of all values, \
     smaller types), or keep the data there. There is little to run beside these copies.";

/// What reads of a few bytes mean for a CUDA graph.
pub(super) const READS_FIRST: &str =
    " Remove the reads of single values (.item(), .cpu()) from the step first: a graph cannot hold them.";

/// What is left beside computation, by the largest ceiling that is not about kernels.
pub(super) fn beside_compute(speedup: f64) -> String {
    if speedup < WORTH_NAMING {
        return " Nothing on the host will make this faster.".to_owned();
    }
    format!(" Outside of the kernels {} can be gained: see the ceilings.", at_most(speedup, 2))
}

/// What the launches say about CUDA graphs.
pub(super) fn graph_sentence(fit: GraphFit) -> String {
    match fit.match_rate {
        _ if fit.by_graphs > 0.5 => {
            format!("CUDA graphs launched {:.1} % of the operations already.", fit.by_graphs * 100.0)
        }
        _ if fit.used() => {
            format!(
                "CUDA graphs took {:.1} % of the time in which the device worked already.",
                fit.time_of_graphs * 100.0
            )
        }
        Some(rate) => format!(
            "{:.1} % of launches had the kernel and grid of the one a period before (a CUDA graph needs {:.0} %).",
            rate * 100.0,
            GRAPH_MATCH * 100.0,
        ),
        None => "No period was found in the launches, so a CUDA graph cannot be said to fit.".to_owned(),
    }
}

fn launch_advice(fit: GraphFit) -> &'static str {
    if fit.used() {
        "Make the operations within the graphs fewer and larger: fused kernels (torch.compile), larger batches. Each \
         node costs the device a moment, however it was launched."
    } else if fit.match_rate.is_some_and(|rate| rate >= GRAPH_MATCH) {
        "Capture the step in a CUDA graph (torch.compile(mode=\"reduce-overhead\") or torch.cuda.graph): its kernels \
         and grids repeat. Pointers must stay the same too, and nothing in it may wait for the host."
    } else {
        "Launch fewer, larger operations: fused or batched ones (torch.compile, foreach or fused optimizers, larger \
         batches). CUDA graphs need kernels and shapes that stay the same from step to step; here they do not, or it is \
         not known."
    }
}

pub(super) fn advice(group: Group, steady: &Leaves, fit: GraphFit) -> &'static str {
    let of = |leaf: Leaf| steady[leaf as usize];
    match group {
        Group::DataLoading => {
            "Prepare batches in other processes (DataLoader num_workers > 0, pin_memory=True) and fetch the next one \
             during the step; helps while free cores remain."
        }
        Group::HostCpu => {
            "Find what the launching thread does in these gaps (a CPU sampler such as py-spy on the same run) and move \
             it off the path between launches."
        }
        Group::Copy if of(Leaf::CopyH2dPageable) + of(Leaf::CopyD2hPageable) > 0 => {
            "Copy from page-locked memory (DataLoader pin_memory=True, non_blocking=True) on a stream of its own; \
             helps when there is other work to overlap with. Do not call pin_memory() on the fly: it copies too."
        }
        Group::Copy => {
            "Overlap copies with computation on a stream of its own, or keep the data on the device; helps when \
             independent work exists. For many small copies, join them."
        }
        Group::Launch => launch_advice(fit),
        Group::GpuCompute => {
            "The device is busy: look at the kernels above (lower precision, fused attention, better shapes)."
        }
        Group::Sync => {
            "Read results less often: collect losses on the device and fetch them every n steps, remove .item(), \
             .cpu() and synchronize() from the loop; helps when the next launches do not depend on the value."
        }
        Group::Communication => {
            "Overlap collectives with computation (larger or smaller buckets, another stream) and compare ranks: \
             waiting for a slow rank looks the same as slow transfer on one rank."
        }
        Group::Allocator => {
            "Allocate once and reuse: a caching or stream-ordered allocator (cudaMallocAsync), fixed shapes so that \
             cached blocks fit; cudaMalloc and cudaFree may wait for the device."
        }
        Group::NoWork => "Trace a part of the run in which the program works.",
        Group::CannotTell => "Trace a longer part of the program.",
    }
}
