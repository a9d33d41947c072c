//! One piece of advice per cause, and the condition for it to help.
//!
//! Where possible, the condition is checked against the records: CUDA graphs are recommended only to a
//! program that launches the same kernels with the same grids in every step, and does not already use graphs
//! for it.

use profiler_core::attribution::leaf::{Cause, Leaf, Leaves};
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::whatif::{BestCase, WORTH_DOING};

use super::{builds, other_process};
use crate::text_format::{counted, percent};
use crate::words;

/// Minimum share of launches that must equal those one period before for a captured graph to replace them. A
/// step with two different launches in a hundred would have to be captured again each time.
pub const GRAPH_MATCH: f64 = 0.98;

/// Share of the operations from which all launches are taken for those of graphs.
const NEARLY_ALL: f64 = 0.9;
/// Most operations of a graph that saves few launches.
const SMALL_GRAPH: f64 = 4.0;
/// Least share of the work for a program that uses graphs.
const PARTLY: f64 = 0.1;

/// How well the launches fit CUDA graphs.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphFit {
    /// Lowest match rate of the devices; `None` unless each has a known period.
    match_rate: Option<f64>,
    /// Share of the operations launched by graphs, 0 to 1.
    by_graphs: f64,
    /// Share of the device's busy time due to graphs, 0 to 1: a graph recorded as one unit is one operation.
    time_of_graphs: f64,
    /// Operations for each launch, at most.
    per_launch: f64,
}

impl GraphFit {
    pub(super) fn of(attributor: &Attributor) -> Self {
        let rates: Option<Vec<f64>> = attributor.devices().map(|account| account.match_rate()).collect();
        let sum = |of: fn(&DeviceAccount) -> u64| attributor.devices().map(of).sum::<u64>();
        let busy = |account: &DeviceAccount| {
            Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy()).map(|leaf| account.leaves()[leaf as usize]).sum()
        };
        let launches = attributor.devices().map(|account| account.host_lead().launches()).sum::<u64>();
        Self {
            per_launch: sum(DeviceAccount::operations) as f64 / launches.max(1) as f64,
            time_of_graphs: (sum(DeviceAccount::graph_ns) as f64 / sum(busy).max(1) as f64).min(1.0),
            match_rate: rates.and_then(|rates| rates.into_iter().reduce(f64::min)),
            by_graphs: sum(DeviceAccount::graph_operations) as f64 / sum(DeviceAccount::operations).max(1) as f64,
        }
    }

    /// True if the launches repeat well enough for a graph to replace them.
    fn fits(self) -> bool {
        self.match_rate.is_some_and(|rate| rate >= GRAPH_MATCH)
    }

    /// Short advice about launches.
    pub(super) fn action(self) -> &'static str {
        if self.is_split() {
            "capture the whole step in one CUDA graph"
        } else if self.used() {
            "make the operations within the graphs fewer and larger"
        } else if self.fits() {
            "capture the step in a CUDA graph"
        } else {
            "launch fewer, larger operations (torch.compile)"
        }
    }

    /// True if most of the work already comes from graphs.
    fn used(self) -> bool {
        self.by_graphs.max(self.time_of_graphs) > 0.5
    }

    /// True if nearly all of the work comes from graphs of few operations.
    fn is_split(self) -> bool {
        self.by_graphs >= NEARLY_ALL && self.per_launch <= SMALL_GRAPH
    }

    /// True if the program launches some of its work with graphs.
    pub(super) fn partly_used(self) -> bool {
        self.by_graphs.max(self.time_of_graphs) >= PARTLY
    }
}

/// For computation whose small grids could be batched.
pub(super) const BATCH_GRIDS: &str = "Join equal small kernels into one (stacked tensors, torch.vmap, foreach functions), or run \
     them on several streams. This helps where a kernel does not need the result of the one before it.";

/// For launches that are mostly small copies.
pub(super) const JOIN_COPIES: &str = "Join the small copies into one: one buffer for all of a step, or arguments of a kernel. Each \
     copy costs a launch, whatever its size.";

/// For copies that would not be hidden by overlapping them with computation.
pub(super) const COPY_LESS: &str = "Copy less: reduce on the GPU before copying (argmax or sum there, copy the result, use \
     smaller types), or keep the data there. There is little to run beside these copies.";

/// For large copies to the host that it waits for.
pub(super) const REDUCE_FIRST: &str = "Copy less to the CPU: reduce on the GPU first (argmax, sum or a slice there, then copy \
     the result), or use smaller types. This helps when the CPU does not need all of what is copied.";

/// For large copies within the device.
pub(super) const NO_DEVICE_COPIES: &str = "Remove copies within the GPU that are not needed: .clone(), .contiguous(), .to(), torch.cat. \
     Write results where they are used, or use views. The best case is that none of these copies is needed.";

/// Effect of reads of a few bytes on a CUDA graph.
pub(super) const READS_FIRST: &str = " First remove the reads of single values (.item(), .cpu()) from the \
                                      step: a graph cannot contain them.";

/// The reads that a graph cannot contain, with `{at}` in place of their line, where the plan removes them first.
pub(super) const REPLACE_READS: &str = "Remove the reads of single values (.item(), .cpu()){at} from the step.";
pub(super) const REPLACE_SIZES: &str =
    "Replace boolean indexing and nonzero(){at}: torch.where, or multiply by the mask.";

/// The same if those reads are sizes of selections.
pub(super) const SIZES_FIRST: &str = " First replace boolean indexing and nonzero(): a graph cannot contain reading their size. Use torch.where, or multiply \
     by the mask.";

/// Instead of a gain outside of kernels, where measuring kernels made the steps longer.
pub(super) const STRETCHED: &str = " Gains from changes on the CPU are not predicted, because measuring kernels stretched some \
                                    steps.";

/// Sentence about the largest gain outside of kernels, if it justifies a step of a plan.
pub(super) fn beside_compute(best_case: Option<&BestCase>) -> String {
    match best_case.filter(|best_case| best_case.speedup >= WORTH_DOING) {
        None => " No change on the CPU gains 15 %.".to_owned(),
        Some(best_case) => format!(
            " With the same kernels, the program would be {} if {}.",
            words::faster(best_case.speedup, best_case.interval),
            words::condition(best_case.kind)
        ),
    }
}

/// Sentence about how well the launches fit CUDA graphs.
pub(super) fn graph_sentence(fit: GraphFit) -> String {
    match fit.match_rate {
        _ if fit.by_graphs > 0.5 => {
            let each = match fit.is_split() {
                true => format!(", {} in each graph", counted(fit.per_launch.round() as u64, "operation")),
                false => String::new(),
            };
            format!("CUDA graphs already launch {} of the GPU operations{each}.", percent(fit.by_graphs))
        }
        _ if fit.used() => {
            format!("CUDA graphs already take {} of the time in which the GPU works.", percent(fit.time_of_graphs))
        }
        Some(rate) => {
            let (rate, needed) = (share_of_launches(rate), percent(GRAPH_MATCH));
            if fit.fits() {
                format!("{rate} of the launches are the same in every step, so a CUDA graph fits (it needs {needed}).")
            } else {
                format!("Only {rate} of the launches are the same in every step; a CUDA graph needs {needed}.")
            }
        }
        None => "The launches do not repeat, so it is unknown whether a CUDA graph fits.".to_owned(),
    }
}

/// Rounded down, so that a share below 100 % never shows as all, and a share below the threshold never shows
/// as enough.
fn share_of_launches(rate: f64) -> String {
    format!("{:.0} %", (rate * 100.0 + 1e-9).floor())
}

fn launch_advice(fit: GraphFit) -> &'static str {
    if fit.is_split() {
        "Capture the whole step in one CUDA graph: each graph has few operations."
    } else if fit.used() {
        "Make the operations within the graphs fewer and larger: fused kernels (torch.compile), larger batches. Each \
         node costs the GPU a moment, however it is launched."
    } else if fit.fits() {
        "Capture the step in a CUDA graph: torch.compile(model, mode=\"reduce-overhead\") or torch.cuda.graph(). Tensor \
         addresses must stay the same too, and the CPU must not wait for the GPU within the step (no .item())."
    } else {
        "Launch fewer, larger operations: fused or batched ones (torch.compile, foreach or fused optimizers, larger \
         batches). CUDA graphs need kernels and shapes that stay the same from step to step; here they do not, or it is \
         unknown."
    }
}

pub(super) fn advice(cause: Cause, steady: &Leaves, fit: GraphFit) -> &'static str {
    let of = |leaf: Leaf| steady[leaf as usize];
    match cause {
        Cause::DataLoading => {
            "Prepare batches in worker processes: DataLoader(..., num_workers=4, pin_memory=True). More workers help while \
             CPU cores are free."
        }
        Cause::HostCpu => {
            "Find what the launching thread does in these gaps (gpuwhy run samples it) and move it out of the loop, into \
             another thread or process."
        }
        Cause::Copy if of(Leaf::CopyH2dPageable) + of(Leaf::CopyD2hPageable) > 0 => {
            "Copy from pinned memory: DataLoader(..., pin_memory=True) and tensor.to(device, non_blocking=True), on a stream \
             of its own where other work can run meanwhile. Do not call pin_memory() in the loop: it copies too."
        }
        Cause::Copy => {
            "Run the copies overlapped with the kernels, on a stream of their own, or keep the data on the GPU. This helps when \
             independent work exists. Join many small copies."
        }
        Cause::Launch => launch_advice(fit),
        Cause::GpuCompute => {
            "The GPU is busy: make the kernels above faster (lower precision, fused attention, better shapes)."
        }
        Cause::Sync => {
            "Read results less often: keep losses on the GPU and fetch them every n steps; remove .item(), .cpu() and \
             torch.cuda.synchronize() from the loop. This helps when the next launches do not depend on the value."
        }
        Cause::Communication => {
            "Overlap collectives with computation (bucket size, another stream), and compare the ranks (gpuwhy merge): on one \
             rank, waiting for a slow rank looks the same as a slow transfer."
        }
        Cause::Allocator => {
            "Allocate once and reuse: a caching or stream-ordered allocator (cudaMallocAsync), and fixed shapes so that \
             cached blocks fit. cudaMalloc and cudaFree may wait for the GPU."
        }
        Cause::KernelBuild => builds::SAME_SHAPES,
        Cause::OtherProcess => other_process::ADVICE,
        Cause::NoWork => "Record a part of the run in which the program uses the GPU.",
        Cause::CannotTell => "Record a longer part of the program.",
    }
}

/// True if the device was idle although this process had work queued.
const fn is_queued(leaf: Leaf) -> bool {
    matches!(leaf, Leaf::DependencyWait | Leaf::GraphWait)
}

/// Sentence about known and unknown facts if `largest` is most of the time without a cause, and how to learn
/// more. `reported`: true if events show what work waited for.
pub(super) const fn without_cause(largest: Option<Leaf>, reported: bool) -> &'static str {
    match largest {
        Some(leaf) if is_queued(leaf) && reported => {
            "The GPU was idle for this process while its work was queued behind the events above: have what they wait for \
             ready earlier, or let streams wait for less."
        }
        Some(leaf) if is_queued(leaf) => {
            "The GPU was idle for this process while its work was queued. The trace does not show what that work waited for: \
             an event, a host function (cudaLaunchHostFunc), or other work on the GPU, such as that of another process. \
             GPUWHY_DEPENDENCIES=on records waits for events; NVML reads other processes where it lists this one."
        }
        Some(Leaf::Profiler) => {
            "Tracing itself kept the launching thread busy. Record less: --mode light, or a part of the run (gpuwhy run \
             --delay and --duration)."
        }
        _ => "The launches of that work are missing. Record the program from its start (gpuwhy run).",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::attribution::leaf::LEAF_COUNT;

    #[test]
    fn graphs_of_few_operations_are_to_be_one() {
        let fit = |by_graphs, per_launch| GraphFit { match_rate: None, by_graphs, time_of_graphs: 0.0, per_launch };
        let few = fit(1.0, 1.1);
        assert_eq!(
            graph_sentence(few),
            "CUDA graphs already launch 100 % of the GPU operations, 1 operation in each graph."
        );
        assert!(launch_advice(few).starts_with("Capture the whole step in one CUDA graph"));
        for many in [fit(1.0, 4.1), fit(0.8, 1.1)] {
            assert!(launch_advice(many).starts_with("Make the operations within the graphs fewer"), "{many:?}");
            assert!(!graph_sentence(many).contains("in each graph"));
        }
        assert!(fit(0.1, 1.0).partly_used() && !fit(0.09, 1.0).partly_used());
    }

    #[test]
    fn no_advice_sends_to_another_tool() {
        let fit = GraphFit { match_rate: None, by_graphs: 0.0, time_of_graphs: 0.0, per_launch: 1.0 };
        let causes = Cause::ALL.into_iter().map(|cause| advice(cause, &[0; LEAF_COUNT], fit));
        let leaves = Leaf::ALL.into_iter().map(Some).chain([None]);
        let unknown = leaves.flat_map(|leaf| [without_cause(leaf, false), without_cause(leaf, true)]);
        for text in causes.chain(unknown) {
            for other in ["py-spy", "erfetto", "nsys", "Nsight", "ncu ", "nvidia-smi", "timeline"] {
                assert!(!text.contains(other), "{other}: {text}");
            }
        }
        assert!(without_cause(Some(Leaf::DependencyWait), false).contains("such as that of another process"));
    }
}
