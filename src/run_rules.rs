//! Rules about a run as a whole: its verdict, the share of a cause, the time of a step.

use std::time::Duration;

use profiler_core::attribution::leaf::Group;
use profiler_core::report::{DeviceReport, Report};

use crate::baseline::Baseline;
use crate::time_text::time;

/// What a baseline calls the step.
const STEP: &str = "step";

/// The names of causes.
pub(crate) fn names(groups: &[Group], between: &str) -> String {
    groups.iter().map(|group| group.name()).collect::<Vec<_>>().join(between)
}

/// Whether the verdict is among `groups`, as it must be or must not.
pub(crate) fn verdict(report: &Report, groups: &[Group], must: bool) -> Result<(), String> {
    let verdict = &report.verdict;
    if groups.contains(&verdict.group) == must {
        return Ok(());
    }
    let expected = if must { "expected" } else { "which is excluded; excluded are" };
    let why = verdict.evidence.first().map_or(String::new(), |evidence| format!(": {evidence}"));
    Err(format!(
        "the verdict is {} ({:.1} %), {expected} {}{why}",
        verdict.group.name(),
        verdict.share * 1e2,
        names(groups, ", ")
    ))
}

pub(crate) fn share(report: &Report, group: Group, at_most: f64) -> Result<(), String> {
    measured(report)?.iter().try_for_each(|device| {
        let share = report.share_of(device, group);
        if share <= at_most {
            return Ok(());
        }
        Err(format!(
            "{} takes {:.1} % of the time of device {}, at most {:.1} % expected",
            group.name(),
            share * 1e2,
            device.device.id.0,
            at_most * 1e2
        ))
    })
}

pub(crate) fn step(report: &Report, at_most: Duration) -> Result<(), String> {
    let limit = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
    steps(report)?.into_iter().try_for_each(|(device, median, seen)| longer(device, median, seen, limit, ""))
}

pub(crate) fn step_within(report: &Report, ratio: f64, baseline: &Baseline) -> Result<(), String> {
    let mut steps = steps(report)?;
    // The last one is what a renewed baseline keeps.
    steps.sort_by_key(|&(_, median, _)| median);
    for (device, median, seen) in steps {
        if let Some((limit, basis)) = baseline.limit(STEP, &device.device.name, median, seen, ratio)? {
            longer(device, median, seen, limit, &basis)?;
        }
    }
    Ok(())
}

/// Each device with its median step, nanoseconds, and the number of steps.
fn steps(report: &Report) -> Result<Vec<(&DeviceReport, u64, u64)>, String> {
    let of = |device: &DeviceReport| {
        let known = device.steps.as_ref().filter(|steps| !steps.rows.is_empty());
        known.map(|steps| (steps.duration_percentile(50), steps.seen))
    };
    let none = |device: &DeviceReport| format!("no steps were found on device {}, so none is judged", device.device.id.0);
    measured(report)?
        .iter()
        .map(|device| of(device).map(|(median, seen)| (device, median, seen)).ok_or_else(|| none(device)))
        .collect()
}

fn measured(report: &Report) -> Result<&[DeviceReport], String> {
    if report.devices.is_empty() { Err("no device did anything".to_owned()) } else { Ok(&report.devices) }
}

fn longer(device: &DeviceReport, median: u64, seen: u64, limit: u64, basis: &str) -> Result<(), String> {
    if median <= limit {
        return Ok(());
    }
    let (median, limit, device) = (time(median), time(limit), device.device.id.0);
    Err(format!("device {device}: median step {median} of {seen}, at most {limit}{basis} expected"))
}
