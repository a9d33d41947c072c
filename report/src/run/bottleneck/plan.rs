//! Plan of fixes: the order, the gain, and the bottleneck after each fix.
//!
//! The first step addresses the bottleneck; each further one is the fix that gains most in addition to those
//! before it, as simulated without all their costs at once. A fix that gains less than [`WORTH_DOING`] is not
//! a step. A CUDA graph cannot contain a wait, a read of a value or an allocation, so removing these comes
//! before it if worth a step before or after it; and where copies are most of the launches, joining them does.

use gpuwhy_trace::record::CopyKind;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::whatif::{Removed, ScenarioKind, WORTH_DOING, WhatIf};

use super::builds;
use super::evidence::{reads_sizes, small_copies};
use super::graphs::GraphFit;
use super::host::writes_checkpoints;
use super::main_work::{self, MainWork};
use crate::run::copies::pageable_copies;
use crate::run::framework::Framework;
use crate::run::remedies::short;
use crate::run::{DeviceReport, HostReport, PlanStep};
use crate::words::about;

/// Maximum number of steps of a plan; the simulation combines no more.
const MOST_STEPS: usize = 3;
/// The device is the bottleneck if it alone would be less than this many times as fast.
const REACHED: f64 = 1.05;
/// Of two fixes for one cause, the one that names the change is preferred if its gain is at least this
/// fraction of the other's.
const NEARLY: f64 = 0.9;
/// Share of the time of other waits than those of a checkpoint.
const FEW_WAITS: f64 = 0.05;
/// Least share of the time in copies within the device for a change of them.
const SEEN: f64 = 0.02;
/// What a CUDA graph cannot contain.
const OBSTACLES: [ScenarioKind; 3] = [ScenarioKind::NoReadbacks, ScenarioKind::NoAllocations, ScenarioKind::NoSyncs];

/// Returns up to three steps; none if nothing was simulated or no fix is worth a step.
pub(super) fn plan(
    cause: Cause,
    devices: &[DeviceReport],
    graphs: GraphFit,
    host: Option<&HostReport>,
    framework: Framework,
) -> Vec<PlanStep> {
    let longest = devices.iter().max_by_key(|device| device.steady_leaves.iter().sum::<u64>());
    let Some((device, what_if)) = longest.and_then(|device| Some((device, device.what_if.as_ref()?))) else {
        return Vec::new();
    };
    if what_if.refused.is_some() {
        return Vec::new();
    }
    let plan = Plan { what_if, leaves: &device.steady_leaves, copies: small_copies(devices).is_some() };
    let saves = host.is_some_and(writes_checkpoints);
    let reads = Reads { sizes: reads_sizes(devices), saves, framework };
    let kinds = plan.order(cause, reads.saves);
    let mut steps: Vec<PlanStep> = Vec::new();
    let (mut gone, mut least) = (Removed::default(), 1.0_f64);
    for &kind in &kinds {
        let enough = steps.len() == MOST_STEPS || steps.last().is_some_and(is_the_most_shown);
        let Some((mut speedup, mut interval)) = what_if.without(gone.and(kind)).filter(|_| !enough) else { break };
        let comes_first = steps.is_empty() && !fixes(cause, plan.copies).contains(&kind);
        let because = comes_first.then(|| reason(cause, kind)).flatten();
        gone = gone.and(kind);
        // The gain of several fixes has a larger error, but is not less than that of the first one.
        interval.0 = interval.0.max(least);
        least = interval.0;
        let action = match kind {
            ScenarioKind::NoHostWork if builds::are_the_host_work(devices) => "build no kernels in the loop".to_owned(),
            ScenarioKind::NoHostWork if plan.cause_of(kind) == Cause::KernelBuild => {
                "build no kernels and do no other CPU work in the loop".to_owned()
            }
            ScenarioKind::NoHostWork => {
                match host.and_then(|host| MainWork::of(host, devices)).map(|work| reads.worded(work)) {
                    Some(work) if steps.is_empty() && work.is_worth(speedup) => {
                        steps.push(first_part(&work, interval));
                        // The work of a library cannot be moved.
                        if !host.is_some_and(main_work::has_more) {
                            break;
                        }
                        "move the other CPU work between launches out of the loop, too".to_owned()
                    }
                    Some(work) if steps.is_empty() => {
                        // The rest is not worth a step of its own.
                        let part = first_part(&work, interval);
                        (speedup, interval) = (part.speedup.min(speedup), (part.interval.0, interval.1));
                        part.action
                    }
                    Some(work) if work.is_own => work.action,
                    _ if !steps.is_empty() && !host.is_none_or(main_work::has_more) => break,
                    _ => "move the CPU work between launches out of the loop".to_owned(),
                }
            }
            _ => {
                remedy_of(kind, graphs, &reads, devices).map_or_else(String::new, |id| short(id, framework).to_owned())
            }
        };
        let leaves_some = kind == ScenarioKind::LaunchesFree && ["compile", "graph_nodes"].contains(&graphs.remedy());
        let is_bound = leaves_some || steps.last().is_some_and(|before: &PlanStep| before.is_bound);
        steps.push(PlanStep { kind, action, because, speedup, interval, is_bound, then: None });
    }
    join_obstacles(&mut steps);
    for index in 0..steps.len() {
        let next = steps.get(index + 1).map(|next| next.kind);
        // The plan may have ended before the last fix.
        let next = next.or_else(|| kinds.iter().copied().find(|kind| !gone.has(*kind)));
        steps[index].then = next.map(|kind| plan.cause_of(kind)).or_else(|| plan.rest(gone));
    }
    steps
}

/// An obstacle of a graph that is not worth a step of its own becomes part of the step with the graph.
fn join_obstacles(steps: &mut Vec<PlanStep>) {
    let before = |index: usize, steps: &[PlanStep]| if index == 0 { 1.0 } else { steps[index - 1].speedup };
    let small = (0..steps.len().saturating_sub(1)).find(|&index| {
        let is_obstacle = OBSTACLES.contains(&steps[index].kind) && steps[index + 1].kind == ScenarioKind::LaunchesFree;
        is_obstacle && steps[index].speedup < WORTH_DOING * before(index, steps)
    });
    if let Some(index) = small {
        let obstacle = steps.remove(index);
        let graph = &mut steps[index];
        graph.action = format!("{}, and {}", obstacle.action, graph.action);
    }
}

/// True if the report says only a bound of the gain, and would say the same of all further steps.
fn is_the_most_shown(step: &PlanStep) -> bool {
    about(step.speedup, Some(step.interval)) == about(f64::MAX, Some((f64::MAX, f64::MAX)))
}

/// What copies to the host are for.
struct Reads {
    /// Small ones: sizes of selections.
    sizes: bool,
    /// Large ones: a checkpoint.
    saves: bool,
    framework: Framework,
}

impl Reads {
    /// The work in the words of its remedy, if it writes checkpoints.
    fn worded(&self, mut work: MainWork) -> MainWork {
        if self.saves {
            work.action = short("save_less", self.framework).to_owned();
        }
        work
    }
}

struct Plan<'a> {
    what_if: &'a WhatIf,
    leaves: &'a Leaves,
    /// Small copies are most of the launches.
    copies: bool,
}

impl Plan<'_> {
    fn alone(&self, kind: ScenarioKind) -> f64 {
        if self.is_missing(kind) {
            return 1.0;
        }
        self.what_if.best_case(kind).map_or(1.0, |best_case| best_case.speedup).min(f64::MAX)
    }

    /// True for a change of copies within the device where these take no time: without them the CPU also makes fewer
    /// calls, but that needs no such change.
    fn is_missing(&self, kind: ScenarioKind) -> bool {
        let within = Leaf::ALL.into_iter().filter(|leaf| leaf.copy_kind() == Some(CopyKind::DeviceToDevice));
        let time: u64 = within.map(|leaf| self.leaves[leaf as usize]).sum();
        kind == ScenarioKind::DeviceCopiesGone && (time as f64) < SEEN * self.leaves.iter().sum::<u64>() as f64
    }

    /// The cause that a fix addresses: of two, the one with more time.
    fn cause_of(&self, kind: ScenarioKind) -> Cause {
        let built = Cause::KernelBuild.total(self.leaves) > Cause::HostCpu.total(self.leaves);
        if kind == ScenarioKind::NoHostWork && built { Cause::KernelBuild } else { cause_of(kind) }
    }

    /// Recoverable share of a cost: the simulated saving, limited to the time of the causes that contain it.
    fn score(&self, kind: ScenarioKind) -> f64 {
        let total = self.leaves.iter().sum::<u64>().max(1) as f64;
        let share = |causes: &[Cause]| causes.iter().map(|cause| cause.total(self.leaves) as f64 / total).sum::<f64>();
        let limit = match kind {
            ScenarioKind::GridsFilled => 1.0,
            ScenarioKind::NoReadbacks | ScenarioKind::CopiesJoined | ScenarioKind::ReadsReduced => {
                share(&[Cause::Sync, Cause::Launch, Cause::Copy, Cause::HostCpu])
            }
            ScenarioKind::NoHostWork => share(&[Cause::HostCpu, Cause::KernelBuild]),
            _ => share(&[cause_of(kind)]),
        };
        (1.0 - 1.0 / self.alone(kind)).min(limit)
    }

    /// The fix that must come before `kind`, if it is worth a separate step.
    fn obstacle(&self, kind: ScenarioKind, gone: Removed) -> Option<ScenarioKind> {
        let copies = self.copies.then_some(ScenarioKind::CopiesJoined);
        let worth = |other: &ScenarioKind| !gone.has(*other) && self.alone(*other) >= WORTH_DOING;
        if kind != ScenarioKind::LaunchesFree {
            return None;
        }
        // A wait caused by a read disappears with the read.
        let waits_only = |other: &ScenarioKind| *other != ScenarioKind::NoSyncs || !gone.has(ScenarioKind::NoReadbacks);
        copies.into_iter().chain(OBSTACLES).filter(worth).find(waits_only)
    }

    /// The steps in their order. `saves`: the CPU work is writing checkpoints, and so are the large reads.
    fn order(&self, cause: Cause, saves: bool) -> Vec<ScenarioKind> {
        let mut kinds: Vec<ScenarioKind> = Vec::new();
        let (mut gone, mut before) = (Removed::default(), 1.0);
        while kinds.len() < MOST_STEPS
            && let Some(kind) = if kinds.is_empty() { self.first(cause) } else { self.next(gone, before, saves) }
            && let Some((speedup, _)) = self.what_if.without(gone.and(kind))
        {
            (gone, before) = (gone.and(kind), speedup);
            kinds.push(kind);
        }
        let graph = kinds.iter().position(|kind| *kind == ScenarioKind::LaunchesFree);
        let obstacle = kinds.iter().position(|kind| OBSTACLES.contains(kind));
        if let (Some(graph), Some(obstacle)) = (graph, obstacle)
            && graph < obstacle
        {
            let mut moved = kinds.clone();
            moved[graph..=obstacle].rotate_right(1);
            let sets = moved.iter().scan(Removed::default(), |gone, kind| {
                *gone = gone.and(*kind);
                Some(*gone)
            });
            if sets.into_iter().all(|set| self.what_if.without(set).is_some()) {
                return moved;
            }
        }
        kinds
    }

    fn first(&self, cause: Cause) -> Option<ScenarioKind> {
        let worth = |kind: &ScenarioKind| self.alone(*kind) >= WORTH_DOING;
        let of_cause = fixes(cause, self.copies).iter().copied().filter(worth);
        let best = of_cause
            .reduce(|best, kind| if self.alone(kind) - 1.0 > (self.alone(best) - 1.0) / NEARLY { kind } else { best })
            // If the GPU is busy, the fix with the largest gain comes first, regardless of its cause.
            .filter(|_| cause != Cause::GpuCompute);
        let overall = || {
            let kinds = ScenarioKind::FIXES.into_iter().filter(worth);
            kinds.max_by(|&a, &b| self.score(a).total_cmp(&self.score(b)))
        };
        let kind = best.or_else(overall)?;
        Some(self.obstacle(kind, Removed::default()).unwrap_or(kind))
    }

    fn next(&self, gone: Removed, before: f64, saves: bool) -> Option<ScenarioKind> {
        let gain = |kind: ScenarioKind| {
            let (after, _) = self.what_if.without(gone.and(kind))?;
            Some((kind, after / before)).filter(|&(_, gain)| gain >= WORTH_DOING)
        };
        let reads = self.alone(ScenarioKind::ReadsReduced) - 1.0;
        let total: u64 = self.leaves.iter().sum();
        // The copies of a checkpoint go with it.
        let saved = |kind| match kind {
            ScenarioKind::ReadsReduced => true,
            // Where the GPU hardly waits for that, these are the waits for the same copies.
            ScenarioKind::NoSyncs => (Cause::Sync.total(self.leaves) as f64) < FEW_WAITS * total as f64,
            ScenarioKind::CopiesOverlapped => reads >= NEARLY * (self.alone(kind) - 1.0),
            _ => false,
        };
        let same = |kind| saves && gone.has(ScenarioKind::NoHostWork) && saved(kind);
        let kinds = ScenarioKind::FIXES.into_iter().filter(|&kind| !gone.has(kind) && !same(kind));
        let kinds = kinds.filter(|&kind| !self.is_missing(kind));
        let gains: Vec<_> = kinds.filter_map(gain).collect();
        let (kind, _) = *gains.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let obstacle = self.obstacle(kind, gone).filter(|other| gains.iter().any(|(known, _)| known == other));
        Some(obstacle.unwrap_or(kind))
    }

    /// Bottleneck after the last step: computation, if everything else with a cost was simulated.
    fn rest(&self, gone: Removed) -> Option<Cause> {
        let first = gone.kinds().next()?;
        let known = gone.count() == MOST_STEPS as u32
            || self.what_if.combined.iter().any(|set| set.removed.has(first))
            || ScenarioKind::FIXES.into_iter().all(|kind| gone.has(kind) || self.alone(kind) < WORTH_DOING);
        let device = self.what_if.best_case(ScenarioKind::DeviceOnly)?.speedup;
        let (reached, _) = self.what_if.without(gone)?;
        // If the device alone would still be faster, it is not the bottleneck.
        (known && device < reached * REACHED).then_some(Cause::GpuCompute)
    }
}

/// Fixes for a cause; those that name the change come first.
const fn fixes(cause: Cause, copies: bool) -> &'static [ScenarioKind] {
    match cause {
        Cause::DataLoading => &[ScenarioKind::DataReady],
        Cause::HostCpu => &[ScenarioKind::ReadsReduced, ScenarioKind::NoHostWork],
        Cause::KernelBuild => &[ScenarioKind::NoHostWork],
        Cause::Copy => &[
            ScenarioKind::DeviceCopiesGone,
            ScenarioKind::ReadsReduced,
            ScenarioKind::CopiesJoined,
            ScenarioKind::CopiesOverlapped,
        ],
        Cause::Launch if copies => &[ScenarioKind::CopiesJoined, ScenarioKind::LaunchesFree],
        Cause::Launch => &[ScenarioKind::LaunchesFree],
        Cause::GpuCompute => &[ScenarioKind::GridsFilled],
        Cause::Sync => &[ScenarioKind::NoReadbacks, ScenarioKind::NoSyncs],
        Cause::Communication => &[ScenarioKind::CommunicationHidden],
        Cause::Allocator => &[ScenarioKind::NoAllocations],
        Cause::OtherProcess | Cause::NoWork | Cause::CannotTell => &[],
    }
}

/// The cause that a fix addresses.
pub(super) const fn cause_of(kind: ScenarioKind) -> Cause {
    match kind {
        ScenarioKind::DataReady => Cause::DataLoading,
        ScenarioKind::LaunchesFree => Cause::Launch,
        ScenarioKind::NoSyncs | ScenarioKind::NoReadbacks => Cause::Sync,
        ScenarioKind::NoAllocations => Cause::Allocator,
        ScenarioKind::CopiesOverlapped
        | ScenarioKind::CopiesJoined
        | ScenarioKind::ReadsReduced
        | ScenarioKind::DeviceCopiesGone => Cause::Copy,
        ScenarioKind::CommunicationHidden => Cause::Communication,
        ScenarioKind::NoHostWork | ScenarioKind::DeviceOnly => Cause::HostCpu,
        ScenarioKind::GridsFilled | ScenarioKind::KernelsAtRoof | ScenarioKind::Base | ScenarioKind::Untraced => {
            Cause::GpuCompute
        }
    }
}

/// Reason why a first step does not address the bottleneck `cause`.
fn reason(cause: Cause, kind: ScenarioKind) -> Option<&'static str> {
    match (cause, kind) {
        (Cause::Launch, ScenarioKind::NoReadbacks | ScenarioKind::NoSyncs) => {
            Some("first, because a CUDA graph cannot contain a wait")
        }
        (Cause::Launch, ScenarioKind::NoAllocations) => {
            Some("first, because a CUDA graph cannot contain an allocation")
        }
        (Cause::GpuCompute, ScenarioKind::NoSyncs | ScenarioKind::NoReadbacks) => None,
        (Cause::GpuCompute, _) => Some("overlapped with the kernels"),
        _ => Some("first, because removing the bottleneck alone gains less than 15 %"),
    }
}

/// The step that removes only the largest part of the CPU work between launches; `whole` is the interval of
/// the gain without all of it.
fn first_part(work: &MainWork, whole: (f64, f64)) -> PlanStep {
    let (speedup, (low, high)) = work.gain();
    let interval = (low.min(speedup), high.min(whole.1).max(speedup));
    PlanStep {
        kind: ScenarioKind::NoHostWork,
        action: work.action.clone(),
        because: None,
        speedup,
        interval,
        is_bound: false,
        then: None,
    }
}

/// The remedy whose words the plan uses for a scenario.
fn remedy_of(kind: ScenarioKind, graphs: GraphFit, reads: &Reads, devices: &[DeviceReport]) -> Option<&'static str> {
    Some(match kind {
        ScenarioKind::DataReady => "workers",
        ScenarioKind::LaunchesFree => graphs.remedy(),
        ScenarioKind::NoSyncs => "timer_sync",
        ScenarioKind::NoAllocations => "allocate_once",
        ScenarioKind::CommunicationHidden => "overlap",
        ScenarioKind::GridsFilled => "batch_grids",
        ScenarioKind::NoReadbacks if reads.sizes && !reads.framework.is_native() => "mask_index",
        ScenarioKind::NoReadbacks => "read_value",
        ScenarioKind::CopiesJoined => "join_copies",
        ScenarioKind::DeviceCopiesGone => "device_copies",
        ScenarioKind::ReadsReduced if reads.saves => "save_less",
        ScenarioKind::ReadsReduced => "reduce_first",
        ScenarioKind::CopiesOverlapped => overlapped(devices),
        ScenarioKind::Base
        | ScenarioKind::Untraced
        | ScenarioKind::DeviceOnly
        | ScenarioKind::NoHostWork
        | ScenarioKind::KernelsAtRoof => return None,
    })
}

/// The remedy for copies that wait for kernels: by the direction with something to pin, else of most time.
fn overlapped(devices: &[DeviceReport]) -> &'static str {
    let pageable = |kind| devices.iter().any(|device| pageable_copies(device).any(|of| of == kind));
    let time = |kind| -> u64 {
        let leaves = Leaf::ALL.into_iter().filter(|leaf| leaf.copy_kind() == Some(kind));
        leaves.flat_map(|leaf| devices.iter().map(move |device| device.steady_leaves[leaf as usize])).sum()
    };
    let [to, from] = [CopyKind::HostToDevice, CopyKind::DeviceToHost];
    match (pageable(to), pageable(from)) {
        (true, other) if !other || time(to) >= time(from) => "pinned",
        (_, true) => "pinned_results",
        _ if time(from) > time(to) => "overlap_results",
        _ => "overlap_copies",
    }
}
