//! Rules about a complete run: its bottleneck, the share of a cause, the time of a step.

use std::time::Duration;

use gpuwhy_report::diff::{RUNS_DIFFER, within_runs};
use gpuwhy_report::run::{DeviceReport, Report};
use gpuwhy_report::text_format::duration;
use profiler_core::attribution::leaf::{Cause, Leaf};

use crate::baseline::Baseline;

/// Name of the step in a baseline.
const STEP: &str = "step";
/// Maximum number of table rows in a failure.
const SHOWN: usize = 5;

pub(crate) fn names(causes: &[Cause], between: &str) -> String {
    causes.iter().map(|cause| cause.name()).collect::<Vec<_>>().join(between)
}

/// Checks that the bottleneck is among `causes` or, without `must`, that it is not.
pub(crate) fn bottleneck(report: &Report, causes: &[Cause], must: bool) -> Result<(), String> {
    let bottleneck = &report.bottleneck;
    if causes.contains(&bottleneck.cause) == must {
        return Ok(());
    }
    let expected = if must { "expected" } else { "which is excluded; excluded are" };
    let why = bottleneck.evidence.first().map_or(String::new(), |evidence| format!(": {evidence}"));
    Err(format!(
        "the bottleneck is {} ({:.1} %), {expected} {}{why}",
        bottleneck.cause.name(),
        bottleneck.share * 1e2,
        names(causes, ", ")
    ))
}

pub(crate) fn share(report: &Report, cause: Cause, at_most: f64) -> Result<(), String> {
    measured(report)?.iter().try_for_each(|device| {
        let share = report.share_of(device, cause);
        if share <= at_most {
            return Ok(());
        }
        Err(format!(
            "{} takes {:.1} % of the time of device {}, at most {:.1} % expected",
            cause.name(),
            share * 1e2,
            device.device.id.0,
            at_most * 1e2
        ))
    })
}

pub(crate) fn busy(report: &Report, least: f64) -> Result<(), String> {
    measured(report)?.iter().try_for_each(|device| {
        let leaves = report.judged_leaves(device);
        let window: u64 = leaves.iter().sum();
        let part = |nanos: u64| nanos as f64 / window.max(1) as f64;
        let mut idle: Vec<_> = Leaf::ALL.into_iter().filter(|leaf| !leaf.is_busy()).collect();
        idle.sort_by_key(|&leaf| std::cmp::Reverse(leaves[leaf as usize]));
        let share = 1.0 - part(idle.iter().map(|&leaf| leaves[leaf as usize]).sum());
        if share >= least {
            return Ok(());
        }
        let waits = idle.iter().map(|&leaf| (leaf, leaves[leaf as usize])).filter(|&(_, nanos)| nanos > 0);
        let waits = list(waits.map(|(leaf, nanos)| format!("{} {:.1} %", leaf.name(), part(nanos) * 1e2)));
        Err(format!(
            "device {} was busy {:.1} % of {}, at least {:.1} % expected; idle: {waits}",
            device.device.id.0,
            share * 1e2,
            duration(window),
            least * 1e2,
        ))
    })
}

pub(crate) fn step(report: &Report, at_most: Duration) -> Result<(), String> {
    let limit = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
    steps(report)?.into_iter().try_for_each(|(device, median, seen)| longer(device, median, seen, limit, ""))
}

/// Compares the step with a baseline. A step that is too long by less than the variation between runs is
/// inconclusive: the baseline and the report are one run each.
pub(crate) fn step_within(report: &Report, ratio: f64, baseline: &Baseline) -> Result<Option<String>, String> {
    let mut steps = steps(report)?;
    // An updated baseline keeps the last one.
    steps.sort_by_key(|&(_, median, _)| median);
    let mut inconclusive = None;
    for (device, median, seen) in steps {
        if let Some(limit) = baseline.limit(STEP, &device.device.name, median, seen, ratio)? {
            match longer(device, median, seen, limit.nanos, &limit.basis) {
                Err(why) if within_runs(limit.stored, median) => {
                    inconclusive.get_or_insert(format!(
                        "{why}; one run each, and runs of one program differ by up to {:.0} % of the longer step",
                        RUNS_DIFFER * 1e2
                    ));
                }
                judged => judged?,
            }
        }
    }
    Ok(inconclusive)
}

/// Each device with its median step, nanoseconds, and the number of steps.
fn steps(report: &Report) -> Result<Vec<(&DeviceReport, u64, u64)>, String> {
    let of = |device: &DeviceReport| {
        let known = device.steps.as_ref().filter(|steps| !steps.rows.is_empty());
        known.map(|steps| (steps.duration_percentile(50), steps.seen))
    };
    let none =
        |device: &DeviceReport| format!("no steps were found on device {}, so none is judged", device.device.id.0);
    measured(report)?
        .iter()
        .map(|device| of(device).map(|(median, seen)| (device, median, seen)).ok_or_else(|| none(device)))
        .collect()
}

fn measured(report: &Report) -> Result<&[DeviceReport], String> {
    if !report.devices.is_empty() {
        return Ok(&report.devices);
    }
    Err(if report.is_watched() {
        "device work was not recorded, as in mode monitor; measure in mode light".to_owned()
    } else {
        "no device did anything".to_owned()
    })
}

fn longer(device: &DeviceReport, median: u64, seen: u64, limit: u64, basis: &str) -> Result<(), String> {
    if median <= limit {
        return Ok(());
    }
    let (median, limit, device) = (duration(median), duration(limit), device.device.id.0);
    Err(format!("device {device}: median step {median} of {seen}, at most {limit}{basis} expected"))
}

pub(crate) fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    match texts.len() {
        0 => "none".to_owned(),
        count if count <= SHOWN => texts.join("; "),
        count => format!("{}; and {} more", texts[..SHOWN].join("; "), count - SHOWN),
    }
}
