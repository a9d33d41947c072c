//! How well the launches of a program fit CUDA graphs, and sentences of the conclusion that are no advice.
//!
//! CUDA graphs are recommended only to a program that launches the same kernels with the same grids in every
//! step, and does not already use graphs for it.

use gpuwhy_trace::dictionary::is_whole_graph;
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::leaf::Leaf;
use profiler_core::whatif::{BestCase, WORTH_DOING};

use crate::run::DeviceReport;
use crate::run::remedies::{GraphFacts, Obstacle};
use crate::text_format::{counted, percent};
use crate::words;

/// Minimum share of launches that must equal those one period before for a captured graph to replace them. A
/// step with two different launches in a hundred would have to be captured again each time.
pub const GRAPH_MATCH: f64 = 0.98;

/// Share of the operations from which all launches are taken for those of graphs.
const NEARLY_ALL: f64 = 0.9;
/// Most operations of a graph that saves few launches.
const SMALL_GRAPH: f64 = 4.0;

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

    /// The remedy about launches that fits.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            _ if self.is_split() => "graph_whole",
            _ if self.used() => "graph_nodes",
            _ if self.fits() => "graph",
            _ => "compile",
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

    /// What the conditions of remedies need.
    pub(super) fn facts(self) -> GraphFacts {
        let [fits, used] = [self.fits(), self.used()];
        GraphFacts { fits, used, is_split: self.is_split(), obstacle: None }
    }
}

/// For a program most of whose computation is in graphs that were recorded as a whole.
pub(super) const RECORD_NODES: &str = "The GPU is busy, mostly with CUDA graphs that were recorded as a whole: which of their \
                                       kernels take the time is unknown. Record their nodes: GPUWHY_CUDA_GRAPH_TRACE=node \
                                       gpuwhy run, or nsys profile --cuda-graph-trace=node.";

/// True if most of the time of kernels is in graphs that were recorded as a whole.
pub(super) fn are_whole(devices: &[DeviceReport]) -> bool {
    let rows = || devices.iter().flat_map(|device| &device.kernels).filter(|row| !row.communication);
    let time = |wanted: fn(&str) -> bool| -> f64 {
        rows().filter(|row| wanted(&row.name)).map(|row| row.durations.total() as f64).sum()
    };
    2.0 * time(is_whole_graph) > time(|_| true)
}

/// Instead of a gain outside of kernels, where measuring kernels made the steps longer.
pub(super) const STRETCHED: &str = "Gains from changes on the CPU are not predicted, because measuring kernels stretched some \
                                    steps.";

/// Sentence about the largest gain outside of kernels, if it justifies a step of a plan.
pub(super) fn beside_compute(best_case: Option<&BestCase>) -> String {
    match best_case.filter(|best_case| best_case.speedup >= WORTH_DOING) {
        None => "No change on the CPU gains 15 %.".to_owned(),
        Some(best_case) => format!(
            "With the same kernels, the program would be {} if {}.",
            words::faster(best_case.speedup, best_case.interval),
            words::condition(best_case.kind)
        ),
    }
}

/// Sentence about how well the launches fit CUDA graphs, and the first thing that a graph cannot contain.
pub(super) fn graph_sentence(fit: GraphFit, obstacle: Option<Obstacle>) -> String {
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
            let same = format!("{rate} of the launches are the same in every step");
            match obstacle.and_then(Obstacle::words) {
                _ if !fit.fits() => format!("Only {same}; a CUDA graph needs {needed}."),
                Some(obstacle) => {
                    format!("{same} (a CUDA graph needs {needed}), but a graph cannot contain {obstacle}.")
                }
                None => format!("{same}, so a CUDA graph fits (it needs {needed})."),
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

    #[test]
    fn graphs_of_few_operations_are_to_be_one() {
        let fit = |by_graphs, per_launch| GraphFit { match_rate: None, by_graphs, time_of_graphs: 0.0, per_launch };
        let few = fit(1.0, 1.1);
        assert_eq!(
            graph_sentence(few, None),
            "CUDA graphs already launch 100 % of the GPU operations, 1 operation in each graph."
        );
        assert!(few.facts().is_split);
        for many in [fit(1.0, 4.1), fit(0.8, 1.1)] {
            assert!(!many.facts().is_split && many.facts().used, "{many:?}");
            assert!(!graph_sentence(many, None).contains("in each graph"));
        }
    }

    #[test]
    fn no_advice_sends_to_another_tool() {
        let leaves = Leaf::ALL.into_iter().map(Some).chain([None]);
        let unknown = leaves.flat_map(|leaf| [without_cause(leaf, false), without_cause(leaf, true)]);
        for text in unknown {
            for other in ["py-spy", "erfetto", "nsys", "Nsight", "ncu ", "nvidia-smi", "timeline"] {
                assert!(!text.contains(other), "{other}: {text}");
            }
        }
        assert!(without_cause(Some(Leaf::DependencyWait), false).contains("such as that of another process"));
    }
}
