//! Prediction and result: the best case in A's simulation for the removed cost, compared with the step of B.
//!
//! The removed cost is inferred from the result: the cause that shrank most from a step of A to one of B. The
//! steps are those of the detector even if the runs are compared by operations, because a best case refers to
//! steps.
//!
//! The actual change between the runs is unknown. A cause that shrank partly is compared with the best case
//! of removing it completely, which B then does not reach; if B exceeds the best case, the other leaves that
//! shrank are named.

use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::StepSource;
use profiler_core::whatif::{FEWEST_STEPS, ScenarioKind};

use super::compared::{self, same_steps};
use gpuwhy_report::run::DeviceReport;
use gpuwhy_report::run::unit::{self, Representative};

/// Minimum share of a step of A that a cause must lose for its best case to be mentioned; the same 1 % from
/// which a report shows a best case.
const WORTH_A_LINE: f64 = 0.01;

/// Predicted step of B by the simulation of A, and the measured one.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The cost removed in the simulation.
    pub kind: ScenarioKind,
    /// The cause that shrank most.
    pub cause: Cause,
    /// A typical step of A, nanoseconds: the mean of the steps between the quartiles. Like the others,
    /// without tracing if that is known for both runs.
    pub step_ns: u64,
    /// Shortest possible step by the simulation, nanoseconds.
    pub predicted_step_ns: u64,
    /// The first divided by the second: a best case.
    pub predicted_speedup: f64,
    /// A typical step of B, nanoseconds, as the same mean.
    pub actual_step_ns: u64,
    /// `step_ns` divided by `actual_step_ns`; below 1 when B is slower.
    pub actual_speedup: f64,
    /// Median error of A's base simulation, 0 to 1.
    pub base_error: f64,
    /// Leaves of the mean step that the scenario did not remove and that changed, nanoseconds; the largest
    /// change first.
    pub others: Vec<(Leaf, i64)>,
}

impl Prediction {
    /// `None` without a validated simulation of A, without steps of the same kind in both, or if the cause
    /// that shrank most is not simulated (computation) or hardly shrank.
    pub(super) fn of(a: &DeviceReport, b: &DeviceReport) -> Option<Self> {
        let what_if = a.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
        let (before, after) = (steps(a)?, steps(b)?);
        let (simulated_ns, a_median) = (what_if.step_ns()?, before.median_ns?);
        // A best case is relative to steps without tracing: use B's steps without tracing too, or else A's
        // with it.
        let untraced_b = b.what_if.as_ref().and_then(|what_if| what_if.untraced);
        let parts = what_if.untraced.zip(untraced_b);
        let (part_a, part_b) = parts.unwrap_or((1.0, 1.0));
        let scaled = |nanos: u64, part: f64| (nanos as f64 * part).round() as u64;
        let (step_ns, actual_step_ns) = (scaled(before.unit_ns, part_a), scaled(after.unit_ns, part_b));
        let are_alike = same_steps(before.operations, after.operations, 1.0) && same_steps(simulated_ns, a_median, 1.0);
        let (cause, lost) = Cause::ALL
            .into_iter()
            .map(|cause| (cause, cause.total(&before.leaves).saturating_sub(cause.total(&after.leaves))))
            .max_by_key(|&(cause, lost)| (lost, std::cmp::Reverse(cause)))?;
        let best_case = what_if.best_case(ScenarioKind::without(cause)?).filter(|best_case| best_case.step_ns > 0)?;
        // Where the step is not shorter, the difference is not the removal of a cost.
        if !are_alike
            || actual_step_ns == 0
            || actual_step_ns >= step_ns
            || (lost as f64) < before.unit_ns as f64 * WORTH_A_LINE
        {
            return None;
        }
        Some(Self {
            kind: best_case.kind,
            cause,
            step_ns,
            predicted_step_ns: (step_ns as f64 / best_case.speedup).round() as u64,
            predicted_speedup: best_case.speedup,
            actual_step_ns,
            actual_speedup: step_ns as f64 / actual_step_ns as f64,
            base_error: what_if.base_error?,
            others: others(cause, &before, &after),
        })
    }

    /// Time by which the steps of B are shorter than the best case, nanoseconds; 0 when they are not.
    pub fn over_best_case_ns(&self) -> u64 {
        self.predicted_step_ns.saturating_sub(self.actual_step_ns)
    }
}

/// The steady steps, else all steps found by repetition. As many as a simulation needs.
fn steps(device: &DeviceReport) -> Option<Representative> {
    let steps = device.steps.as_ref().filter(|steps| steps.source != StepSource::Window)?;
    let (source, rows) = unit::comparable(Some(steps)).unwrap_or((steps.source, &steps.rows));
    (rows.len() >= FEWEST_STEPS).then(|| unit::representative(source, rows))
}

fn others(cause: Cause, a: &Representative, b: &Representative) -> Vec<(Leaf, i64)> {
    let kept: Vec<Leaf> = Leaf::ALL.into_iter().filter(|leaf| leaf.cause() != cause).collect();
    compared::ranked(&kept, |leaf| compared::change(a.leaves[leaf as usize], b.leaves[leaf as usize]))
}
