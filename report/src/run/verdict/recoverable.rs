//! How much of a group's time could be had back if its cause were gone.
//!
//! The books say for what the device stood still, not whether it would have worked instead: behind a cause that goes,
//! another one may be waiting. The replay knows that, but it also credits a cause with what only hides another one
//! (a host that launches for free outruns a slow data loader). So a group gets the lesser of the two where the replay
//! is believed, and its time on the books where it is not.
//!
//! Nothing is said of computation: how much faster a kernel could be is not in the records, but for small grids, which
//! have a ceiling of their own.

use profiler_core::attribution::leaf::{Group, Leaf, Leaves};
use profiler_core::steps::{FEWEST_STEADY, Steady, UNUSUAL, WARM_UP_STEPS};
use profiler_core::whatif::ScenarioKind;

use crate::run::DeviceReport;

/// The part of a step that the replay of `device` gains without the cause of `group`, 0 to 1. `None` where it cannot
/// be asked: it was refused, its steps are not those that the shares rest on, or no world goes without the cause.
/// Without `steady` steps the shares are of all steady time, of which the replay covers enough or is refused; then it
/// takes as many steps as there must be of steady ones and of those before them.
///
/// Copies are such a group: the replay moves them to another stream, where they still keep a host waiting that waits
/// for them. It does not make them faster or fewer, which is what page-locked memory and joining them do.
pub(super) fn gain(group: Group, device: &DeviceReport, steady: Option<&Steady>) -> Option<f64> {
    let what_if = device.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
    let replayed = what_if.step_ns()? as f64;
    let alike = match steady {
        Some(steady) => {
            let typical = steady.mean_duration() as f64;
            replayed <= UNUSUAL * typical && typical <= UNUSUAL * replayed
        }
        None => what_if.steps >= FEWEST_STEADY as u64 + WARM_UP_STEPS,
    };
    if !alike {
        return None;
    }
    let kind = ScenarioKind::without(group).filter(|&kind| kind != ScenarioKind::CopiesOverlapped)?;
    let mut gain = what_if.ceiling(kind)?.saved();
    if kind == ScenarioKind::NoSyncs {
        // Where the waits are for values that are read, what remains of the reads without the waits is gone too.
        gain = what_if.ceiling(ScenarioKind::NoReadbacks).map_or(gain, |reads| gain.max(reads.saved()));
    }
    Some(if group == Group::Launch { gain + between_kernels(device, steady) } else { gain })
}

/// The share of the device's own time between two operations, which fewer and larger ones take with them. No world goes
/// without it: where launches cost nothing it becomes shorter at best.
fn between_kernels(device: &DeviceReport, steady: Option<&Steady>) -> f64 {
    let share = |leaves: &Leaves| leaves[Leaf::InterKernel as usize] as f64 / leaves.iter().sum::<u64>().max(1) as f64;
    share(&steady.map_or(device.steady_leaves, Steady::leaves))
}
