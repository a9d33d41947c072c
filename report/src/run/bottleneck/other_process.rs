//! Another process that uses the GPU: who it is, and how much.

use profiler_core::attribution::OtherProcess;
use profiler_core::attribution::leaf::Leaf;

use super::ranking::Ranking;
use crate::run::DeviceReport;
use crate::text_format::{bytes, counted, duration, percent};
use crate::words;

/// Minimum part of the time in which the GPU worked while all work of this process waited, for another process to
/// be named by utilization alone. Readings are averages over up to a second.
const CERTAIN: f64 = 0.15;
/// Minimum number of readings of a use, each of a second or less.
const FEWEST_READINGS: u64 = 3;
/// Processes that are named.
const NAMED: usize = 2;

/// Sentences about the processes, and the gain without them.
pub(super) fn sentences(ranking: &Ranking, devices: &[DeviceReport]) -> Vec<String> {
    let used = |process: &&OtherProcess| process.busy_sum > 0 || process.work_ns > 0;
    let seen = devices.iter().flat_map(|device| device.other_processes.iter().filter(used).take(NAMED));
    let mut sentences: Vec<_> = seen.map(sentence).collect();
    let share = ranking.share(profiler_core::attribution::leaf::Cause::OtherProcess);
    let alone = words::at_most_without(share.high);
    sentences.push(format!(
        "With the GPU alone {alone}: the waits subtracted (a rough bound; kernels that shared it would be shorter too)."
    ));
    sentences
}

/// Sentence about the process with most use, if it is not the bottleneck: kernels that share the GPU take longer.
pub(super) fn beside(devices: &[DeviceReport]) -> Option<String> {
    let largest = largest(devices)?;
    Some(format!("{} Kernels of both take longer where they run at the same time.", sentence(largest)))
}

/// The process with most use, if that is much.
pub(super) fn largest(devices: &[DeviceReport]) -> Option<&OtherProcess> {
    let processes = devices.iter().flat_map(|device| &device.other_processes);
    let processes = processes.filter(|process| process.readings >= FEWEST_READINGS);
    let busy = |process: &OtherProcess| process.busy().unwrap_or(0.0);
    processes.max_by(|a, b| busy(a).total_cmp(&busy(b))).filter(|process| busy(process) >= CERTAIN)
}

/// `python3 (pid 812) used the GPU 66 % of the time, and 71.0 GB of its memory (NVML).`
fn sentence(process: &OtherProcess) -> String {
    let name = process.name.as_str();
    let who = match name {
        "" => format!("The process with pid {}", process.pid),
        name => format!("{name} (pid {})", process.pid),
    };
    if process.work_ns > 0 {
        let operations = counted(process.operations, "operation");
        return format!(
            "{who} ran {operations} on this GPU, {} in all, as the file has them.",
            duration(process.work_ns)
        );
    }
    let memory = match process.memory_bytes {
        0 => String::new(),
        memory => format!(", and {} of its memory", bytes(memory)),
    };
    format!("{who} used the GPU {} of the time{memory} (NVML).", percent(process.busy().unwrap_or(0.0)))
}

/// The share of the time in which the GPU certainly worked for another process, and the reason, if readings of
/// the utilization by all processes show that: the GPU worked while all work of this process waited.
pub(super) fn by_utilization(devices: &[DeviceReport]) -> Option<(f64, String)> {
    // Work may wait for another device.
    let [device] = devices else { return None };
    let busy = &device.gauges.as_ref()?.busy;
    let mean = busy.mean().filter(|_| busy.count() >= FEWEST_READINGS as f64)?;
    // Over the whole run, as the readings are.
    let total = device.leaves.iter().sum::<u64>().max(1) as f64;
    let part = |wanted: fn(Leaf) -> bool| {
        Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(|leaf| device.leaves[leaf as usize]).sum::<u64>() as f64
            / total
    };
    let waits = part(|leaf| leaf == Leaf::DependencyWait);
    // Two parts of one time overlap by at least this much.
    let both = mean + waits - 1.0;
    let own = percent(part(Leaf::is_busy));
    (both >= CERTAIN).then(|| {
        let reason = format!(
            "Another process uses this GPU: it was busy {} of the time (NVML, all processes), {own} with work of this \
             program, whose next work was queued for {} of the time.",
            percent(mean),
            percent(waits)
        );
        (both, reason)
    })
}
