//! Predicted and got: the ceiling that A's simulation gave for what was then removed, beside what B really reached.
//!
//! What was removed is judged by the result: the group of causes that shrank most from a step of A to one of B. The
//! steps are those of the detector even where the runs are compared by operations, because a ceiling is about steps.
//!
//! It does not know what was changed between the runs. A group that shrank in part is held against the ceiling of its
//! whole removal, which B then stays below; where B goes beyond the ceiling, the leaves that shrank besides are named.

use profiler_core::attribution::leaf::{Group, Leaf};
use profiler_core::steps::StepSource;
use profiler_core::whatif::{Ceiling, FEWEST_STEPS, ScenarioKind};

use super::compared::{self, SAME_STEP};
use super::unit::{self, Representative};
use crate::run::DeviceReport;

/// Part of a step of A that a group must lose for its ceiling to be worth a line; the same 1 % from which a ceiling is
/// shown in a report.
const WORTH_A_LINE: f64 = 0.01;

/// What was foretold of B by the simulation of A, and what came.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// What the simulation left out.
    pub kind: ScenarioKind,
    /// The group that shrank most.
    pub group: Group,
    /// A typical step of A, the mean of those between the quartiles, nanoseconds; like the others without tracing
    /// where that is known of both runs.
    pub step_ns: u64,
    /// How short it could become by the simulation, nanoseconds.
    pub predicted_step_ns: u64,
    /// The first divided by the second: a ceiling.
    pub predicted_speedup: f64,
    /// A typical step of B, the same mean, nanoseconds.
    pub actual_step_ns: u64,
    /// `step_ns` divided by it; below 1 when B is slower.
    pub actual_speedup: f64,
    /// Median error of the base simulation of A, 0 to 1.
    pub base_error: f64,
    /// Leaves that the scenario left as they were and that changed, of the mean step, nanoseconds; the largest change
    /// first.
    pub others: Vec<(Leaf, i64)>,
}

impl Prediction {
    /// `None` without a simulation of A that is believed, without steps of the same kind in both, or when what shrank
    /// most is no matter of simulation (computation) or hardly shrank.
    pub(super) fn of(a: &DeviceReport, b: &DeviceReport) -> Option<Self> {
        let what_if = a.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
        let (before, after) = (steps(a)?, steps(b)?);
        let (simulated_ns, a_median) = (what_if.step_ns()?, before.median_ns?);
        // A ceiling is relative to steps without tracing: B's are taken without it too, or else A's with it.
        let untraced_b = b.what_if.as_ref().and_then(|what_if| what_if.untraced);
        let parts = what_if.untraced.zip(untraced_b);
        let (part_a, part_b) = parts.unwrap_or((1.0, 1.0));
        let scaled = |nanos: u64, part: f64| (nanos as f64 * part).round() as u64;
        let (step_ns, actual_step_ns) = (scaled(before.unit_ns, part_a), scaled(after.unit_ns, part_b));
        let same_steps = alike(before.operations, after.operations) && alike(simulated_ns, a_median);
        let (group, lost) = Group::ALL
            .into_iter()
            .map(|group| (group, group.total(&before.leaves).saturating_sub(group.total(&after.leaves))))
            .max_by_key(|&(group, lost)| (lost, std::cmp::Reverse(group)))?;
        let ceiling = what_if.ceiling(ScenarioKind::without(group)?).filter(|ceiling| ceiling.step_ns > 0)?;
        if !same_steps || actual_step_ns == 0 || (lost as f64) < before.unit_ns as f64 * WORTH_A_LINE {
            return None;
        }
        Some(Self {
            kind: ceiling.kind,
            group,
            step_ns,
            predicted_step_ns: (step_ns as f64 / ceiling.speedup).round() as u64,
            predicted_speedup: ceiling.speedup,
            actual_step_ns,
            actual_speedup: step_ns as f64 / actual_step_ns as f64,
            base_error: what_if.base_error?,
            others: others(ceiling, group, &before, &after),
        })
    }

    /// By how much the steps of B are shorter than the ceiling allows, nanoseconds; 0 when they are not.
    pub fn over_ceiling_ns(&self) -> u64 {
        self.predicted_step_ns.saturating_sub(self.actual_step_ns)
    }
}

/// The warm steps, else all that were found by what repeats. As many as a simulation needs.
fn steps(device: &DeviceReport) -> Option<Representative> {
    let steps = device.steps.as_ref().filter(|steps| steps.source != StepSource::Window)?;
    let (source, rows) = unit::comparable(Some(steps)).unwrap_or((steps.source, &steps.rows));
    (rows.len() >= FEWEST_STEPS).then(|| unit::representative(source, rows))
}

/// Whether two counts or times can be of the same kind of step.
fn alike(first: u64, second: u64) -> bool {
    first.min(second) > 0 && (first.max(second) as f64) < SAME_STEP * first.min(second) as f64
}

fn others(ceiling: &Ceiling, group: Group, a: &Representative, b: &Representative) -> Vec<(Leaf, i64)> {
    // With the host gone nothing idle is left to change.
    let is_gone = |leaf: Leaf| leaf.group() == group || (ceiling.kind == ScenarioKind::DeviceOnly && !leaf.is_busy());
    let kept: Vec<Leaf> = Leaf::ALL.into_iter().filter(|&leaf| !is_gone(leaf)).collect();
    compared::ranked(&kept, |leaf| compared::change(a.leaves[leaf as usize], b.leaves[leaf as usize]))
}
