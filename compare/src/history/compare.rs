//! Choice of the earlier run to compare a run with, and the change of its step.

use profiler_core::leaf::Cause;

use crate::diff::{RankTest, SAME_PROGRAM, SIGNIFICANCE, StepChange, mann_whitney, same_steps, within_runs};
use gpuwhy_report::history::{DeviceRun, Run};

/// Number of earlier runs (fewer if there are fewer) that a regression must be slower than: two runs of one
/// program differ by more than their steps do, and a single earlier run does not show that variation.
pub const EARLIER_RUNS: usize = 5;

/// Further conditions for two runs to be comparable, in addition to program, device, mode and kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Like {
    /// Only runs on the same host.
    pub same_host: bool,
    /// Only runs with the same arguments.
    pub same_arguments: bool,
}

impl Default for Like {
    fn default() -> Self {
        Self { same_host: true, same_arguments: true }
    }
}

/// Reason not to compare two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unlike {
    /// They ran on different hosts.
    Host,
    /// Their arguments differ.
    Arguments,
    /// Their devices, or the job's numbers of processes, differ.
    Devices,
    /// They recorded different amounts of data, with different overhead.
    Mode,
    /// They execute different kernels. Contains the similarity, 0 to 1.
    Program(f64),
    /// At least one has no comparable steps.
    NoSteps,
    /// Their steps hold different numbers of operations.
    Steps,
}

/// Change of the step from one run to a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTrend {
    /// The device whose steps are compared: the slowest of the later run.
    pub device: usize,
    /// The step of the earlier run, nanoseconds.
    pub before_ns: u64,
    /// The step of the later run, nanoseconds.
    pub after_ns: u64,
    /// Rank test of the step durations: shows that these two runs differ, not that the programs do.
    pub test: RankTest,
    /// Causes that changed, the largest change first, nanoseconds per step.
    pub causes: Vec<(Cause, i64)>,
}

impl StepTrend {
    /// Change in percent of the earlier step; positive when the later run is slower.
    pub fn percent(&self) -> f64 {
        (self.after_ns as f64 - self.before_ns as f64) / self.before_ns.max(1) as f64 * 100.0
    }

    /// Result of the rank test alone: a change with a probability by chance above one in a hundred counts as
    /// unchanged. Never inconclusive; the earlier runs decide if it is a regression.
    pub fn outcome(&self) -> StepChange {
        match self.after_ns.cmp(&self.before_ns) {
            _ if self.test.p >= SIGNIFICANCE => StepChange::Unchanged,
            std::cmp::Ordering::Less => StepChange::Faster,
            std::cmp::Ordering::Equal => StepChange::Unchanged,
            std::cmp::Ordering::Greater => StepChange::Slower,
        }
    }
}

/// A run with its comparison to earlier runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Index in the input.
    pub run: usize,
    /// The newest comparable earlier run, and the change since then.
    pub before: Option<(usize, StepTrend)>,
    /// Number of earlier runs it was compared with, at most [`EARLIER_RUNS`].
    pub held_against: usize,
    /// True if it is slower, by the test, than each of these; compared with a single run, by more than two
    /// runs differ.
    pub regression: bool,
    /// True if it is faster in the same sense.
    pub improvement: bool,
    /// Without a comparable run: why the newest earlier run of the program is not comparable.
    pub unlike: Option<Unlike>,
}

/// Compares runs of one program, oldest first.
pub fn judged(runs: &[Run], like: Like) -> Vec<Judged> {
    let judge = |at: usize| {
        let run = &runs[at];
        let mut found =
            Judged { run: at, before: None, held_against: 0, regression: false, improvement: false, unlike: None };
        let (mut slower, mut faster) = (0, 0);
        for earlier in (0..at).rev() {
            match change(&runs[earlier], run, like) {
                Ok(change) => {
                    found.held_against += 1;
                    slower += usize::from(change.outcome() == StepChange::Slower);
                    faster += usize::from(change.outcome() == StepChange::Faster);
                    found.before.get_or_insert((earlier, change));
                }
                Err(why) => {
                    found.unlike.get_or_insert(why);
                }
            }
            if found.held_against == EARLIER_RUNS {
                break;
            }
        }
        let is_alone = |(_, change): &(usize, StepTrend)| within_runs(change.before_ns, change.after_ns);
        let is_within = found.held_against == 1 && found.before.as_ref().is_some_and(is_alone);
        let holds = |count: usize| found.held_against > 0 && count == found.held_against && !is_within;
        (found.regression, found.improvement) = (holds(slower), holds(faster));
        if found.before.is_some() {
            found.unlike = None;
        }
        found
    };
    (0..runs.len()).map(judge).collect()
}

fn change(before: &Run, after: &Run, like: Like) -> Result<StepTrend, Unlike> {
    if like.same_host && before.host != after.host {
        return Err(Unlike::Host);
    }
    if like.same_arguments && before.command.get(1..) != after.command.get(1..) {
        return Err(Unlike::Arguments);
    }
    let devices = |run: &Run| run.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>();
    if before.world_size != after.world_size || devices(before) != devices(after) {
        return Err(Unlike::Devices);
    }
    if before.mode != after.mode {
        return Err(Unlike::Mode);
    }
    let similarity = similarity(before, after);
    if similarity < SAME_PROGRAM {
        return Err(Unlike::Program(similarity));
    }
    let (device, second) = after.slowest().ok_or(Unlike::NoSteps)?;
    let first = before.devices.get(device).ok_or(Unlike::Devices)?;
    let (Some(before_ns), Some(after_ns)) = (first.step_ns, second.step_ns) else { return Err(Unlike::NoSteps) };
    if !same_steps(first.operations, second.operations, similarity) {
        return Err(Unlike::Steps);
    }
    let test = mann_whitney(&first.durations_ns, &second.durations_ns).ok_or(Unlike::NoSteps)?;
    Ok(StepTrend { device, before_ns, after_ns, test, causes: causes(first, second) })
}

fn causes(before: &DeviceRun, after: &DeviceRun) -> Vec<(Cause, i64)> {
    let of = |device: &DeviceRun, cause| {
        device.causes.iter().find(|(known, _)| *known == cause).map_or(0, |&(_, ns)| ns.cast_signed())
    };
    let all = Cause::ALL.into_iter().map(|cause| (cause, of(after, cause).wrapping_sub(of(before, cause))));
    let mut changed: Vec<_> = all.filter(|&(_, ns)| ns != 0).collect();
    changed.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns.unsigned_abs()));
    changed
}

/// Share of kernel executions, by name, that two runs have in common when each is normalized to 1, as in
/// [`crate::diff`]. Uses the kernels in both lines, so at least the most executed ones.
fn similarity(a: &Run, b: &Run) -> f64 {
    let part = |run: &Run, count: u64| count as f64 / run.executions.max(1) as f64;
    let other = |hash| b.kernels.iter().find(|(known, _)| *known == hash).map(|&(_, count)| count);
    let common = a.kernels.iter().filter_map(|&(hash, count)| Some((count, other(hash)?)));
    let shared: f64 = common.map(|(first, second)| part(a, first).min(part(b, second))).sum();
    // Unlisted kernels are assumed to be shared in the same proportion as the listed ones.
    let named = |run: &Run| part(run, run.kernels.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count)));
    let named = named(a).min(named(b));
    if named > 0.0 { (shared / named).min(1.0) } else { 0.0 }
}
