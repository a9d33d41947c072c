//! Choice of the earlier run to compare a run with, and the change of its step.

use std::collections::BTreeMap;

use profiler_core::leaf::Cause;

use crate::diff::{RankTest, RunTest, SAME_PROGRAM, StepChange, change, in_common, mann_whitney, ranked, same_steps};
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

    /// Result of the rank test alone. Never inconclusive; the earlier runs decide if it is a regression.
    pub fn outcome(&self) -> StepChange {
        if self.test.is_chance() { StepChange::Unchanged } else { StepChange::between(self.before_ns, self.after_ns) }
    }
}

/// A run with its comparison to earlier runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The newest comparable earlier run, and the change since then.
    pub before: Option<(usize, StepTrend)>,
    /// Number of earlier runs it was compared with, at most [`EARLIER_RUNS`].
    pub held_against: usize,
    /// Slower (a regression) or faster, by the test, than each of these runs; compared with a single run, by more than
    /// two runs differ. Otherwise inconclusive, and unchanged if it does not differ from `before`.
    pub outcome: StepChange,
    /// Without a comparable run: why the newest earlier run of the program is not comparable.
    pub unlike: Option<Unlike>,
}

/// Compares runs of one program, oldest first.
pub fn judged(runs: &[Run], like: Like) -> Vec<Judged> {
    (0..runs.len()).map(|at| judge(&runs[at], &runs[..at], like)).collect()
}

/// Judges by the steps of each pair of runs, because a [`RunTest`] of one run gives an interval only from 39 earlier
/// runs on: a check that waits for that many would never fail.
fn judge(run: &Run, earlier: &[Run], like: Like) -> Judged {
    let (mut trends, mut unlike) = (Vec::new(), None);
    for (at, before) in earlier.iter().enumerate().rev() {
        match trend(before, run, like) {
            Ok(trend) => trends.push((at, trend)),
            Err(why) => unlike = unlike.or(Some(why)),
        }
        if trends.len() == EARLIER_RUNS {
            break;
        }
    }
    let since = |(_, trend): &(usize, StepTrend)| trend.outcome();
    let newest = trends.first().map_or(StepChange::Unchanged, since);
    let outcome = match &trends[..] {
        _ if newest == StepChange::Unchanged => newest,
        [(_, only)] => RunTest::of(&[only.before_ns], &[only.after_ns]).map_or(newest, |test| test.outcome()),
        trends if trends.iter().all(|trend| since(trend) == newest) => newest,
        _ => StepChange::Inconclusive,
    };
    let held_against = trends.len();
    let before = trends.into_iter().next();
    Judged { unlike: unlike.filter(|_| before.is_none()), before, held_against, outcome }
}

fn trend(before: &Run, after: &Run, like: Like) -> Result<StepTrend, Unlike> {
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
    // The most executed kernels stand for all.
    let mixture = |run: &Run| run.kernels.iter().copied().collect::<BTreeMap<_, _>>();
    let similarity = in_common(&mixture(before), &mixture(after));
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
    let of = |device: &DeviceRun, cause| {
        device.causes.iter().find(|(known, _)| *known == cause).map_or(0, |&(_, nanos)| nanos)
    };
    let causes = ranked(&Cause::ALL, |cause| change(of(first, cause), of(second, cause)));
    Ok(StepTrend { device, before_ns, after_ns, test, causes })
}
