//! Kernels that are built while the program runs: how many, until when, and for what.

use profiler_core::attribution::KernelBuilds;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::thresholds::WORTH_SHARE;

use super::ranking::Ranking;
use crate::run::{DeviceReport, GapSubject};
use crate::text_format::{counted, duration, percent};

/// Largest other CPU work between launches, as a part of the time of builds, for which a simulation without
/// any of that work is one without builds.
const OTHER_WORK: f64 = 0.1;

/// True if builds are nearly all CPU work between launches, so that the simulation without such work applies.
pub(super) fn are_the_host_work(devices: &[DeviceReport]) -> bool {
    let sum = |cause: Cause| devices.iter().map(|device| cause.total(&device.steady_leaves)).sum::<u64>() as f64;
    let built = sum(Cause::KernelBuild);
    built > 0.0 && sum(Cause::HostCpu) <= OTHER_WORK * built
}

/// Sentences about builds: all of them if they are the bottleneck, else only that they have ended.
pub(super) fn sentences(cause: Cause, ranking: &Ranking, devices: &[DeviceReport]) -> Vec<String> {
    let mut builds = KernelBuilds::default();
    devices.iter().for_each(|device| builds.add(&device.builds));
    let share = ranking.share(Cause::KernelBuild);
    if cause != Cause::KernelBuild {
        let over = !builds.last() && builds.count > 0 && share.share >= WORTH_SHARE;
        let when = if builds.later_count == 0 { "none" } else { "few" };
        return Vec::from_iter(over.then(|| {
            format!(
                "Building kernels took {} of the time, {when} of it in the second half of the launches: a longer run has less of it.",
                percent(share.share)
            )
        }));
    }
    vec![format!(
        "Kernels were built {} while the GPU waited ({} in all): CPU work of over 100 us in a compiler or before {}. {} of these \
         builds are in the second half of the launches after start-up.",
        counted(builds.count, "time"),
        duration(builds.total_ns),
        loading_call(devices),
        builds.later_count,
    )]
}

/// Part of the launches after which a build would be one of the rest of the run.
const NEAR_THE_END: f64 = 0.9;

/// Sentence about the gain in a longer run, if builds end before the run does.
pub(in crate::run) fn gain_ends(devices: &[DeviceReport]) -> Option<String> {
    let mut builds = KernelBuilds::default();
    devices.iter().for_each(|device| builds.add(&device.builds));
    (builds.count > 0 && builds.ends() < NEAR_THE_END).then(|| {
        format!(
            " The last build is after {} of the launches after start-up: a longer run without new shapes gains less.",
            percent(builds.ends())
        )
    })
}

/// The call in which most kernels were loaded.
fn loading_call(devices: &[DeviceReport]) -> &str {
    let rows = devices.iter().flat_map(|device| &device.gaps).filter(|row| row.leaf == Leaf::KernelBuild);
    let calls = rows.filter_map(|row| match &row.subject {
        GapSubject::Call(function) => Some((row.totals.count, function)),
        _ => None,
    });
    calls.max_by_key(|&(count, _)| count).map_or("a call that loads them", |(_, function)| function)
}
