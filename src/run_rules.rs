//! Rules about a complete run: its bottleneck, the share of a cause, the time of a step.

use std::time::Duration;

use gpuwhy_compare::diff::{RUNS_DIFFER, RunTest, StepChange, fewest_runs};
use gpuwhy_report::run::{DeviceReport, MemoryOfDevice, Report};
use gpuwhy_report::text_format::{bytes, duration};
use gpuwhy_report::words;
use profiler_core::attribution::step_sequence::StepCalls;
use profiler_core::leaf::{Cause, Leaf};

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
        let share = report.busy_of(device);
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

/// The devices with readings of their memory.
fn read_memory(report: &Report) -> Result<Vec<&MemoryOfDevice>, String> {
    let devices = report.memory.iter().flat_map(|memory| &memory.devices).filter(|of| of.readings > 0);
    let devices: Vec<_> = devices.collect();
    if devices.is_empty() { Err("no reading of the memory in use".to_owned()) } else { Ok(devices) }
}

pub(crate) fn memory_at_most(report: &Report, most: u64) -> Result<(), String> {
    read_memory(report)?.into_iter().try_for_each(|of| match of.peak_used_bytes {
        Some(peak) if peak > most => {
            let others = of.other_processes_bytes.filter(|&bytes| bytes > 0);
            let others = others.map(|others| format!(" ({} by other processes)", bytes(others))).unwrap_or_default();
            let (id, peak, most) = (of.device, bytes(peak), bytes(most));
            Err(format!("{peak} of device {id} were in use{others}, at most {most} expected"))
        }
        _ => Ok(()),
    })
}

pub(crate) fn no_memory_growth(report: &Report) -> Result<(), String> {
    read_memory(report)?.into_iter().try_for_each(|of| match of.growth_per_step {
        Some(growth) => {
            let [each, low, high] = [growth.bytes, growth.low, growth.high].map(|each| bytes(each as u64));
            Err(format!("memory of device {} grows by {each} a step ({low} to {high}), none expected", of.device))
        }
        None if of.growth_judged => Ok(()),
        None => Err(format!(
            "cannot tell whether memory of device {} grows: too few steps, readings or increases, or another process's \
             memory changed",
            of.device
        )),
    })
}

/// True for a whole run whose steps repeat on every device, so that its start-up is known.
pub(crate) fn has_steps(report: &Report) -> bool {
    let repeats = |device: &DeviceReport| device.typical.is_some() && device.sequence.is_some();
    report.captures.rows.is_empty() && !report.devices.is_empty() && report.devices.iter().all(repeats)
}

/// Number of these calls in the steps that repeat, and in how many steps.
pub(crate) fn calls(report: &Report, count: fn(&StepCalls) -> u64) -> (u64, String) {
    let steps = report.devices.iter().filter_map(|device| device.sequence.as_ref().map(|steps| (device, steps)));
    let rows: Vec<_> = steps.map(|(device, steps)| (device.device.id.0, count(&steps.calls), steps.steps)).collect();
    let rows = || rows.iter().filter(|(_, calls, _)| *calls > 0);
    let found = list(rows().map(|(id, calls, steps)| format!("{calls} in {steps} steps of device {id}")));
    (rows().map(|(_, calls, _)| calls).sum(), found)
}

/// Number of copies of pageable memory that started after start-up, by direction.
pub(crate) fn pageable_copies(report: &Report) -> (u64, String) {
    let rows = report.devices.iter().flat_map(|device| {
        let leaves = Leaf::ALL.into_iter().filter(|leaf| leaf.is_pageable());
        leaves.map(|leaf| (device.steady_work.operations(leaf), words::cause(leaf)))
    });
    let rows: Vec<_> = rows.filter(|(count, _)| *count > 0).collect();
    let found = list(rows.iter().map(|(count, what)| format!("after start-up {count} x {what}")));
    (rows.iter().map(|(count, _)| count).sum(), found)
}

/// A time that rules limit, in one run.
pub(crate) struct Timed {
    /// Identifies the same time in several runs.
    pub(crate) place: usize,
    /// Name of the device, as in a baseline.
    pub(crate) device: String,
    /// What takes the time, in front of a comparison of runs.
    pub(crate) what: String,
    /// The median, or the mean, nanoseconds.
    pub(crate) nanos: u64,
    /// Number of values.
    pub(crate) count: u64,
    /// The measurement in words.
    pub(crate) found: String,
}

impl Timed {
    /// `basis` is the derivation of the limit, as text that starts with a space.
    fn at_most(&self, limit: u64, basis: &str) -> Result<(), String> {
        if self.nanos <= limit {
            return Ok(());
        }
        Err(format!("{}, at most {}{basis} expected", self.found, duration(limit)))
    }
}

/// Checks that all times are at most this long.
pub(crate) fn at_most(times: &[Timed], at_most: Duration) -> Result<(), String> {
    let limit = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
    times.iter().try_for_each(|time| time.at_most(limit, ""))
}

/// Compares times of one or more runs with what a baseline has for `key`, or updates it. `Some` is the reason why the
/// runs cannot decide it.
pub(crate) fn within(
    runs: &[&Report],
    times: impl Fn(&Report) -> Result<Vec<Timed>, String>,
    key: &str,
    ratio: f64,
    baseline: &Baseline,
) -> Result<Option<String>, String> {
    let mut places: Vec<(Timed, Vec<u64>)> = Vec::new();
    for run in runs {
        for time in times(run)? {
            let nanos = time.nanos;
            match places.iter_mut().find(|(first, _)| first.place == time.place) {
                Some((_, all)) => all.push(nanos),
                None => places.push((time, vec![nanos])),
            }
        }
    }
    // An updated baseline keeps the last one.
    places.sort_by_key(|(_, all)| median(all));
    let mut inconclusive = None;
    for (time, all) in places {
        let Some(limit) = baseline.limit(key, &time.device, &all, time.count, ratio)? else { continue };
        let judged = match (&limit.stored[..], &all[..]) {
            ([_], [_]) => match time.at_most(limit.nanos, &limit.basis) {
                // A step also takes the host's time, which differs from run to run.
                Err(why) if key == STEP && !differ(&limit.stored, &all) => Ok(Some(format!(
                    "{why}; one run each, and runs of one program differ by up to {:.0} % of the longer step",
                    RUNS_DIFFER * 1e2
                ))),
                judged => judged.map(|()| None),
            },
            (stored, all) => several(stored, all, ratio).map_err(|why| format!("{}{why}", time.what)),
        };
        inconclusive = inconclusive.or(judged?);
    }
    Ok(inconclusive)
}

/// True if the runs differ by more than runs of one program.
fn differ(stored: &[u64], runs: &[u64]) -> bool {
    let outcome = RunTest::of(stored, runs).map(|test| test.outcome());
    !matches!(outcome, Some(StepChange::Unchanged | StepChange::Inconclusive))
}

/// Compares the medians of runs with those of a baseline: above `ratio` if the interval of their ratio is, within it
/// if the interval is. `Some` is the reason why neither is known.
fn several(stored: &[u64], medians: &[u64], ratio: f64) -> Result<Option<String>, String> {
    let test = RunTest::of(stored, medians)
        .ok_or_else(|| format!("{} and {} runs cannot be compared", stored.len(), medians.len()))?;
    let (low, high) = test.bounds();
    let times = format!("{} -> {}", duration(median(stored)), duration(median(medians)));
    let found = format!(
        "{times}, {:.3} times the baseline ({low:.3} to {high:.3}; {} and {} runs), at most {ratio} expected",
        test.ratio,
        stored.len(),
        medians.len()
    );
    match test.interval {
        _ if low > ratio => Err(found),
        _ if high <= ratio => Ok(None),
        Some(_) => Ok(Some(found)),
        None => {
            Ok(Some(format!("{found}; an interval below {:.0} % takes {} of each", RUNS_DIFFER * 1e2, fewest_runs())))
        }
    }
}

/// The median; of two in the middle, the lower one.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The median step of each device.
pub(crate) fn steps(report: &Report) -> Result<Vec<Timed>, String> {
    let of = |(place, device): (usize, &DeviceReport)| {
        let (id, name) = (device.device.id.0, device.device.name.clone());
        let steps = device.steps.as_ref().filter(|steps| !steps.rows.is_empty());
        let steps = steps.ok_or_else(|| format!("no steps were found on device {id}, so none is judged"))?;
        let (nanos, count) = (steps.duration_percentile(50), steps.seen);
        let found = format!("device {id}: median step {} of {count}", duration(nanos));
        Ok(Timed { place, device: name, what: format!("device {id}: step "), nanos, count, found })
    };
    measured(report)?.iter().enumerate().map(of).collect()
}

/// The median step of this kind on each device.
pub(crate) fn kinds(report: &Report, name: &str) -> Result<Vec<Timed>, String> {
    let of = |(place, device): (usize, &DeviceReport)| {
        let (id, kinds) = (device.device.id.0, &device.step_kinds);
        let kind = kinds.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known = list(kinds.iter().map(|kind| kind.name.to_owned()));
            format!("device {id} has no steps of the kind {name}; its kinds: {known}")
        })?;
        let (nanos, count) = (kind.median_ns, kind.count);
        let found = format!("device {id}: median {name} {} of {count}", duration(nanos));
        let what = format!("device {id}: {name} ");
        Ok(Timed { place, device: device.device.name.clone(), what, nanos, count, found })
    };
    measured(report)?.iter().enumerate().map(of).collect()
}

/// Compares the step of one or more runs with a baseline.
pub(crate) fn step_within(runs: &[&Report], ratio: f64, baseline: &Baseline) -> Result<Option<String>, String> {
    within(runs, steps, STEP, ratio, baseline)
}

pub(crate) fn measured(report: &Report) -> Result<&[DeviceReport], String> {
    if !report.devices.is_empty() {
        return Ok(&report.devices);
    }
    Err(if report.is_watched() {
        "device work was not recorded, as in mode monitor; measure in mode light".to_owned()
    } else {
        "no device did anything".to_owned()
    })
}

pub(crate) fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    match texts.len() {
        0 => "none".to_owned(),
        count if count <= SHOWN => texts.join("; "),
        count => format!("{}; and {} more", texts[..SHOWN].join("; "), count - SHOWN),
    }
}
