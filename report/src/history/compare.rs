//! Which earlier run a run is compared with, and what became of its step.

use profiler_core::attribution::leaf::Group;

use super::{DeviceRun, Run};
use crate::diff::{Outcome, RankTest, SAME_PROGRAM, SIGNIFICANCE, mann_whitney, same_steps, within_runs};

/// A run is a regression when it is slower than each of this many runs before it (or of those that there are): two runs
/// of one program differ by more than their steps do, and one run before says nothing of that.
pub const EARLIER_RUNS: usize = 5;

/// Which runs count as alike beyond program, device, mode and kernels.
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

/// Why two runs are not compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unlike {
    /// They ran on different hosts.
    Host,
    /// Their arguments differ.
    Arguments,
    /// Their devices, or the number of processes of the job, differ.
    Devices,
    /// Different amounts were recorded, which costs differently.
    Mode,
    /// They execute different kernels. Carries the similarity, 0 to 1.
    Program(f64),
    /// One of them has no comparable steps.
    NoSteps,
    /// Their steps hold different numbers of operations.
    Steps,
}

/// What became of the step from one run to a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The device whose steps are compared: the slowest of the later run.
    pub device: usize,
    /// The step of the earlier run, nanoseconds.
    pub before_ns: u64,
    /// The step of the later run, nanoseconds.
    pub after_ns: u64,
    /// The rank test of the durations of steps: whether these two runs differ, not whether the programs do.
    pub test: RankTest,
    /// Causes that changed, the largest change first, nanoseconds in a step.
    pub causes: Vec<(Group, i64)>,
}

impl Change {
    /// The change in per cent of the earlier step; positive when the later run is slower.
    pub fn percent(&self) -> f64 {
        (self.after_ns as f64 - self.before_ns as f64) / self.before_ns.max(1) as f64 * 100.0
    }

    /// Result of the rank test alone: a change that chance gives more often than in one of a hundred cases is none.
    /// Never inconclusive; whether it is a regression depends on the runs before.
    pub fn outcome(&self) -> Outcome {
        match self.after_ns.cmp(&self.before_ns) {
            _ if self.test.p >= SIGNIFICANCE => Outcome::Unchanged,
            std::cmp::Ordering::Less => Outcome::Faster,
            std::cmp::Ordering::Equal => Outcome::Unchanged,
            std::cmp::Ordering::Greater => Outcome::Slower,
        }
    }
}

/// A run, and what there is to compare it with.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Its place in what was given.
    pub run: usize,
    /// The newest earlier run that is like it, and what changed since.
    pub before: Option<(usize, Change)>,
    /// Earlier runs that it was held against, [`EARLIER_RUNS`] at most.
    pub held_against: usize,
    /// Whether it is slower, by the test, than each of them; than a single one, by more than two runs differ by.
    pub regression: bool,
    /// Without a run like it: why the newest earlier run of the program is not.
    pub unlike: Option<Unlike>,
}

/// Judges runs of one program, oldest first.
pub fn judged(runs: &[Run], like: Like) -> Vec<Judged> {
    let judge = |at: usize| {
        let run = &runs[at];
        let mut found = Judged { run: at, before: None, held_against: 0, regression: false, unlike: None };
        let mut slower = 0;
        for earlier in (0..at).rev() {
            match change(&runs[earlier], run, like) {
                Ok(change) => {
                    found.held_against += 1;
                    slower += usize::from(change.outcome() == Outcome::Slower);
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
        let is_alone = |(_, change): &(usize, Change)| within_runs(change.before_ns, change.after_ns);
        let is_within = found.held_against == 1 && found.before.as_ref().is_some_and(is_alone);
        found.regression = found.held_against > 0 && slower == found.held_against && !is_within;
        if found.before.is_some() {
            found.unlike = None;
        }
        found
    };
    (0..runs.len()).map(judge).collect()
}

fn change(before: &Run, after: &Run, like: Like) -> Result<Change, Unlike> {
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
    Ok(Change { device, before_ns, after_ns, test, causes: causes(first, second) })
}

fn causes(before: &DeviceRun, after: &DeviceRun) -> Vec<(Group, i64)> {
    let of = |device: &DeviceRun, group| {
        device.causes.iter().find(|(known, _)| *known == group).map_or(0, |&(_, ns)| ns.cast_signed())
    };
    let all = Group::ALL.into_iter().map(|group| (group, of(after, group).wrapping_sub(of(before, group))));
    let mut changed: Vec<_> = all.filter(|&(_, ns)| ns != 0).collect();
    changed.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns.unsigned_abs()));
    changed
}

/// The part of kernel executions, by name, that two runs have in common when both are counted as one, as
/// [`crate::diff`] has it; of the kernels that both lines hold, so at least that of the most executed ones.
fn similarity(a: &Run, b: &Run) -> f64 {
    let part = |run: &Run, count: u64| count as f64 / run.executions.max(1) as f64;
    let other = |hash| b.kernels.iter().find(|(known, _)| *known == hash).map(|&(_, count)| count);
    let common = a.kernels.iter().filter_map(|&(hash, count)| Some((count, other(hash)?)));
    let shared: f64 = common.map(|(first, second)| part(a, first).min(part(b, second))).sum();
    // What neither line names is taken to be shared in the same way as what they name.
    let named = |run: &Run| part(run, run.kernels.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count)));
    let named = named(a).min(named(b));
    if named > 0.0 { (shared / named).min(1.0) } else { 0.0 }
}
