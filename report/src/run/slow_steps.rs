//! Steps that took longer than the typical ones, and the causes of their excess.

use std::cmp::Reverse;

use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{Step, UNUSUAL};

use super::DeviceReport;

/// Causes listed for a slow step.
const CAUSES: usize = 3;

/// A step that took over [`UNUSUAL`] times the median.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowStep {
    /// The step.
    pub step: Step,
    /// The causes that took longer than in a typical step, with the excess in nanoseconds, the largest first.
    pub excess: Vec<(Cause, u64)>,
}

impl DeviceReport {
    /// Time of a typical step by cause, nanoseconds, the largest first: the mean of the typical steps, else the
    /// remembered step with the median duration. Empty without steps.
    pub fn typical_causes(&self) -> Vec<(Cause, u64)> {
        let (leaves, steps) = match (self.typical, &self.steps) {
            (Some(typical), _) => (typical.leaves, typical.steps.max(1)),
            (None, Some(steps)) => {
                let median = steps.duration_percentile(50);
                match steps.rows.iter().find(|row| row.duration() == median) {
                    Some(row) => (row.leaves, 1),
                    None => return Vec::new(),
                }
            }
            (None, None) => return Vec::new(),
        };
        by_size(|cause| cause.total(&leaves) / steps)
    }

    /// Remembered steps that took over [`UNUSUAL`] times the median (of the longer kind, if there are two), the
    /// longest first.
    pub fn slow_steps(&self) -> Vec<SlowStep> {
        let Some(steps) = &self.steps else { return Vec::new() };
        let of_long = self.step_kinds.iter().find(|kind| kind.name == "long").map(|kind| kind.median_ns);
        let median = of_long.unwrap_or_else(|| steps.duration_percentile(50));
        // An iteration of a server is compared with those of its kind.
        let of_kind = |step: &Step| {
            let kind = step.iteration.map(|of| of.kind.name())?;
            self.step_kinds.iter().find(|of| of.name == kind).map(|of| of.median_ns)
        };
        let longest = |step: &Step| UNUSUAL * of_kind(step).unwrap_or(median) as f64;
        let typical = self.typical_causes();
        let usual = |cause| typical.iter().find(|(of, _)| *of == cause).map_or(0, |&(_, nanos)| nanos);
        let mut slow: Vec<&Step> = steps.rows.iter().filter(|row| row.duration() as f64 > longest(row)).collect();
        slow.sort_rows_by_key(|row| (Reverse(row.duration()), row.start));
        slow.into_iter()
            .map(|step| {
                let mut excess = by_size(|cause| cause.total(&step.leaves).saturating_sub(usual(cause)));
                excess.truncate(CAUSES);
                SlowStep { step: *step, excess }
            })
            .collect()
    }
}

/// The causes with a time, the largest first.
fn by_size(time: impl Fn(Cause) -> u64) -> Vec<(Cause, u64)> {
    let mut causes: Vec<_> = Cause::ALL.into_iter().map(|cause| (cause, time(cause))).collect();
    causes.retain(|&(_, nanos)| nanos > 0);
    causes.sort_rows_by_key(|&(_, nanos)| Reverse(nanos));
    causes
}
