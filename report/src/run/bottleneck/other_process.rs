//! Another process that uses the GPU: who it is, and how much.

use profiler_core::attribution::OtherProcess;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::sorting::SortRows as _;

use super::evidence;
use super::ranking::Ranking;
use crate::run::{ApiRow, DeviceReport, HostReport};
use crate::text_format::{bytes, counted, duration, percent};
use crate::words;

/// Minimum part of the time in which the GPU worked while all work of this process waited, for another process to
/// be named by utilization alone. Readings are averages over up to a second.
const CERTAIN: f64 = 0.15;
/// Minimum number of readings of a use, each of a second or less.
const FEWEST_READINGS: u64 = 3;
/// Most power of a GPU by the data sheets (B200: 1000 W; H100 and H200: 700 W), watts.
const MOST_WATTS: f64 = 1_000.0;
/// Most power by which a GPU without work draws more than its least reading, watts: 130 with high clocks and 78 without
/// were read on an H100. Of 31 programs with a GPU of their own, none drew more than 61 % of this bound.
const IDLE_RISE_WATTS: f64 = 100.0;
/// Advice where the power shows another process that nothing names.
pub(super) const PROBABLY: &str = "Probably another process uses this GPU: run nvidia-smi, outside of containers. If so, \
                                   move one of the two to another GPU.";
/// Processes that are named.
const NAMED: usize = 2;

/// Sentences about the processes, and the gain without them.
pub(super) fn sentences(
    ranking: &Ranking,
    devices: &[DeviceReport],
    host: Option<&HostReport>,
    api: &[ApiRow],
) -> Vec<String> {
    let used = |process: &&OtherProcess| process.busy_sum > 0 || process.work_ns > 0;
    let seen = devices.iter().flat_map(|device| device.other_processes.iter().filter(used).take(NAMED));
    let mut sentences: Vec<_> = seen.map(sentence).collect();
    sentences.push(alone(ranking.share(Cause::OtherProcess).high, devices, host, api));
    sentences
}

/// Largest part of the time in calls that wait for the GPU, and least part in which launching threads run on a core,
/// for the CPU to be what limits the program.
const HARDLY: f64 = 0.05;
const RUNNING: f64 = 0.8;

/// Share of the time in which the CPU waits for the GPU, if that is so little that a GPU alone gains hardly anything: a
/// CPU that launches without waiting for the GPU is not faster then.
fn hardly_waits(devices: &[DeviceReport], host: Option<&HostReport>, api: &[ApiRow]) -> Option<f64> {
    let waits = |row: &&ApiRow| ["Synchronize", "Memcpy", "Query"].iter().any(|part| row.name.contains(part));
    let called: u64 = api.iter().filter(waits).map(|row| row.total_ns).sum();
    let held: u64 = devices.iter().map(|device| device.host_lead.held_back_ns()).sum();
    let steady: u64 = devices.iter().flat_map(|device| device.steady_leaves).sum();
    let waited = (called + held) as f64 / steady.max(1) as f64;
    let window = devices.iter().map(|device| device.window_ns).max().unwrap_or(0);
    let runs = host.is_some_and(|host| host.totals.on_cpu_ns as f64 >= RUNNING * window as f64);
    (waited < HARDLY && runs).then_some(waited)
}

/// What limits a program whose bottleneck is another process, but hardly delays it: the largest other cause.
pub(super) fn limited_by(of: Cause, devices: &[DeviceReport], host: Option<&HostReport>, api: &[ApiRow]) -> Cause {
    let steady = evidence::sum(devices.iter().map(|device| &device.steady_leaves));
    let others = Cause::ALL.into_iter().filter(|&cause| cause != Cause::GpuCompute && !is_taken(cause));
    let limits = of == Cause::OtherProcess && hardly_waits(devices, host, api).is_some();
    others.max_by_key(|cause| cause.total(&steady)).filter(|_| limits).unwrap_or(of)
}

/// Sentence about the gain of a GPU alone, while this `share` of the time waits for another process.
pub(super) fn alone(share: f64, devices: &[DeviceReport], host: Option<&HostReport>, api: &[ApiRow]) -> String {
    if let Some(waited) = hardly_waits(devices, host, api) {
        return format!(
            "The CPU hardly waits for the GPU in CUDA calls ({} of the time), so the program would hardly be faster with the GPU alone.",
            percent(waited)
        );
    }
    let alone = words::at_most_without(share);
    format!("With the GPU alone {alone}: the waits subtracted; kernels that shared it would be shorter too.")
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
    let waits = part(device, |leaf| leaf == Leaf::DependencyWait);
    // Two parts of one time overlap by at least this much.
    let both = mean + waits - 1.0;
    let own = percent(part(device, Leaf::is_busy));
    (both >= CERTAIN).then(|| {
        let reason = format!(
            "Another process uses this GPU: it was busy {} of the run (NVML, all processes), {own} with work of this \
             program, whose next work was queued for {} of the run.",
            percent(mean),
            percent(waits)
        );
        (both, reason)
    })
}

/// Reason to suspect another process: the GPU drew more power than the work of this one can have caused.
pub(super) fn by_power(devices: &[DeviceReport]) -> Option<String> {
    // Work may wait for another device.
    let [device] = devices else { return None };
    let gauges = device.gauges.as_ref().filter(|gauges| gauges.readings >= FEWEST_READINGS)?;
    let (mean, least) = (gauges.power_w.mean()?, gauges.power_w.least);
    let own = part(device, Leaf::is_busy);
    let most = least + IDLE_RISE_WATTS + own * (MOST_WATTS - least);
    (mean > most).then(|| {
        let memory = gauges.memory_used_bytes.mean().map(|used| format!(", had {} of its memory in use", bytes(used as u64)));
        format!(
            "Probably another process uses this GPU: over the whole run it drew {mean:.0} W on average{}, and work of this \
             program ran {} of that time.",
            memory.unwrap_or_default(),
            percent(own)
        )
    })
}

const fn is_taken(cause: Cause) -> bool {
    matches!(cause, Cause::OtherProcess | Cause::CannotTell)
}

/// How the time after start-up divides that another process, or an unknown cause, does not take.
pub(super) fn rest(steady: &Leaves) -> Option<String> {
    let causes = Cause::ALL.into_iter().filter(|&cause| !is_taken(cause)).map(|cause| (cause.total(steady), cause));
    let mut causes: Vec<_> = causes.filter(|&(nanos, _)| nanos > 0).collect();
    causes.sort_rows_by_key(|&(nanos, cause)| (std::cmp::Reverse(nanos), cause));
    let all: u64 = causes.iter().map(|&(nanos, _)| nanos).sum();
    let part =
        |&(nanos, cause): &(u64, Cause)| format!("{} {}", words::spent(cause), percent(nanos as f64 / all as f64));
    let parts: Vec<_> = causes.iter().take(3).map(part).collect();
    (!parts.is_empty()).then(|| format!("Of the other {}: {}.", duration(all), parts.join(", ")))
}

/// Part of the whole run, which readings are of, 0 to 1.
fn part(device: &DeviceReport, wanted: fn(Leaf) -> bool) -> f64 {
    let leaves = Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf));
    let nanos: u64 = leaves.map(|leaf| device.leaves[leaf as usize]).sum();
    nanos as f64 / device.leaves.iter().sum::<u64>().max(1) as f64
}
