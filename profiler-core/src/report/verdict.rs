//! The answer: which group costs the most that could be had back, the evidence, and one piece of advice.
//!
//! Idle and transfer groups are ranked by the time that removing them would give back, computation by what is left
//! when none of them is worth the effort. When the records do not support an answer, the answer is that, with the
//! reason.

use super::{Completeness, DeviceReport, names};
use crate::attribution::leaf::{Group, LEAF_COUNT, Leaf, Leaves};
use crate::attribution::{Attributor, Subject};
use crate::dictionary::Dictionary;

/// A group other than computation is the verdict from this share of steady time on: removing it entirely would make
/// the program at least 1.18 times as fast.
pub const WORTH_SHARE: f64 = 0.15;
/// Beyond this share of steady time without a known cause there is no verdict.
pub const UNKNOWN_SHARE: f64 = 0.20;
/// Beyond this share of lost records there is no verdict.
pub const LOSS_SHARE: f64 = 0.05;
/// Fewer device operations than this are too few to judge.
pub const FEWEST_OPERATIONS: u64 = 20;
/// A shorter window is too short to judge, nanoseconds.
pub const SHORTEST_WINDOW: u64 = 10_000_000;
/// From this share on, the time that tracing cost the launching threads is mentioned.
const TRACING_SHARE: f64 = 0.05;

/// What the report concludes.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The group that matters most.
    pub group: Group,
    /// Its share of steady time over all devices, 0 to 1.
    pub share: f64,
    /// Why, in sentences with numbers.
    pub evidence: Vec<String>,
    /// What to do, and what must hold for it to help.
    pub recommendation: String,
}

/// Judges the steady part of the windows of all devices together.
#[must_use]
pub fn verdict_of(
    attributor: &Attributor,
    dictionary: &Dictionary,
    devices: &[DeviceReport],
    completeness: &Completeness,
) -> Verdict {
    let steady = sum(devices.iter().map(|device| &device.steady_leaves));
    let total: u64 = steady.iter().sum();
    let share_of = |group: Group| if total == 0 { 0.0 } else { group.total(&steady) as f64 / total as f64 };
    if let Some((group, reason, advice)) = abstention(attributor, devices, completeness, share_of(Group::CannotTell)) {
        let share = if group == Group::NoWork { 1.0 } else { share_of(Group::CannotTell) };
        return Verdict { group, share, evidence: vec![reason], recommendation: advice.to_owned() };
    }
    let candidates = Group::ALL
        .into_iter()
        .filter(|group| !matches!(group, Group::GpuCompute | Group::CannotTell))
        .max_by(|&a, &b| share_of(a).total_cmp(&share_of(b)))
        .unwrap_or(Group::CannotTell);
    let group = if share_of(candidates) >= WORTH_SHARE || share_of(candidates) > share_of(Group::GpuCompute) {
        candidates
    } else {
        Group::GpuCompute
    };
    let mut evidence = vec![leaf_sentence(group, &steady, total)];
    let from = evidence.len();
    evidence.extend(group_evidence(group, attributor, dictionary, devices));
    evidence.truncate(from + 3);
    if group != Group::GpuCompute {
        let second = share_of(Group::GpuCompute);
        evidence.push(format!("The device computed {:.1} % of the time.", second * 100.0));
    }
    let tracing = steady[Leaf::Profiler as usize] as f64 / total as f64;
    if tracing >= TRACING_SHARE {
        evidence.push(format!("Tracing itself kept the launching threads busy {:.1} % of the time.", tracing * 100.0));
    }
    Verdict { group, share: share_of(group), evidence, recommendation: advice(group, &steady).to_owned() }
}

fn sum<'a>(rows: impl Iterator<Item = &'a Leaves>) -> Leaves {
    let mut total = [0; LEAF_COUNT];
    for row in rows {
        for (sum, nanos) in total.iter_mut().zip(row) {
            *sum += nanos;
        }
    }
    total
}

/// Why there is no verdict, if there is none.
fn abstention(
    attributor: &Attributor,
    devices: &[DeviceReport],
    completeness: &Completeness,
    unknown: f64,
) -> Option<(Group, String, &'static str)> {
    let received = completeness.kernels + completeness.copies + completeness.memsets + completeness.api_calls;
    let lost = completeness.loss.dropped_by_cupti + completeness.loss.dropped_by_gpuprof;
    let operations: u64 = attributor.devices().map(|account| account.operations()).sum();
    let window = devices.iter().map(|device| device.window_ns).max().unwrap_or(0);
    let longer = "Trace a longer part of the program, at least a few steps after its start-up.";
    if operations == 0 && completeness.bad_timestamps == 0 && lost == 0 {
        let calls = completeness.api_calls;
        return Some((
            Group::NoWork,
            format!("No kernel, copy or memset was recorded; {calls} CUDA calls were."),
            "Check that the traced process is the one that uses the GPU, and that it got as far as its first kernel.",
        ));
    }
    if received + lost > 0 && lost as f64 > LOSS_SHARE * (received + lost) as f64 {
        let share = lost as f64 / (received + lost) as f64 * 100.0;
        return Some((
            Group::CannotTell,
            format!("{lost} records ({share:.1} %) were dropped, so idle time may be missing work."),
            "Give the collector more memory or a free core, and trace again.",
        ));
    }
    if operations < FEWEST_OPERATIONS || window < SHORTEST_WINDOW {
        let millis = window as f64 / 1e6;
        let reason = format!("Too little data: {operations} device operations in {millis:.1} ms.");
        return Some((Group::CannotTell, reason, longer));
    }
    if unknown > UNKNOWN_SHARE {
        let mut causes = Vec::new();
        for leaf in Leaf::ALL.into_iter().filter(|leaf| leaf.group() == Group::CannotTell) {
            let nanos: u64 = devices.iter().map(|device| device.steady_leaves[leaf as usize]).sum();
            if nanos > 0 {
                causes.push(format!("{} {}", leaf.name(), millis(nanos)));
            }
        }
        return Some((
            Group::CannotTell,
            format!("The cause of {:.1} % of the time is not in the records: {}.", unknown * 100.0, causes.join(", ")),
            "Look at the gaps on a timeline; waits between streams and inside graphs need event tracing.",
        ));
    }
    None
}

fn leaf_sentence(group: Group, steady: &Leaves, total: u64) -> String {
    let mut leaves: Vec<_> = Leaf::ALL
        .into_iter()
        .filter(|leaf| leaf.group() == group && steady[*leaf as usize] > 0)
        .map(|leaf| (steady[leaf as usize], leaf))
        .collect();
    leaves.sort_by(|a, b| b.cmp(a));
    let parts: Vec<_> = leaves
        .iter()
        .take(4)
        .map(|&(nanos, leaf)| format!("{} {:.1} %", leaf.name(), nanos as f64 / total.max(1) as f64 * 100.0))
        .collect();
    format!("Of {} of steady device time: {}.", millis(total), parts.join(", "))
}

fn group_evidence(
    group: Group,
    attributor: &Attributor,
    dictionary: &Dictionary,
    devices: &[DeviceReport],
) -> Vec<String> {
    let mut evidence = Vec::new();
    match group {
        Group::GpuCompute | Group::Communication => {
            let mut rows: Vec<_> = devices.iter().flat_map(|device| &device.kernels).collect();
            rows.retain(|row| row.communication == (group == Group::Communication));
            rows.sort_by_key(|row| std::cmp::Reverse(row.durations.total()));
            for row in rows.iter().take(3) {
                evidence.push(format!(
                    "Kernel {} ran {} times, {} in all, median {}.",
                    names::shortened(&row.name, 44),
                    row.durations.count(),
                    millis(row.durations.total()),
                    micros(row.durations.median()),
                ));
            }
        }
        Group::Copy => {
            let mut rows: Vec<_> = devices.iter().flat_map(|device| &device.copies).collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.durations.total()));
            for row in rows.iter().take(3) {
                evidence.push(format!(
                    "{} copies {}: {:.1} MB in {}, {:.1} GB/s, {:.1} kB each.",
                    row.durations.count(),
                    super::text::path_name(row.path),
                    row.bytes as f64 / 1e6,
                    millis(row.durations.total()),
                    row.gigabytes_per_second(),
                    row.bytes as f64 / 1e3 / row.durations.count().max(1) as f64,
                ));
            }
        }
        Group::Launch => {
            let kernels = || devices.iter().flat_map(|device| &device.kernels);
            let count: u64 = kernels().map(|row| row.durations.count()).sum();
            let total = kernels().map(|row| row.durations.total()).fold(0, u64::saturating_add);
            let waited = devices.iter().map(|device| group.total(&device.leaves)).fold(0, u64::saturating_add);
            evidence.push(format!(
                "{count} kernels ran for {} on average; for each, the device waited {} for its launch (whole window).",
                micros(total / count.max(1)),
                micros(waited / count.max(1)),
            ));
        }
        _ => {
            if group == Group::DataLoading {
                evidence.push(
                    "Inferred from a pattern, not from the program's stack: the launching thread repeatedly left \
                     CUDA for over 1 ms and came back with a copy from the host."
                        .to_owned(),
                );
            }
            evidence.extend(cause_sentences(group, attributor, dictionary));
        }
    }
    evidence
}

/// The largest causes of a group.
fn cause_sentences(group: Group, attributor: &Attributor, dictionary: &Dictionary) -> Vec<String> {
    let mut rows = Vec::new();
    for account in attributor.devices() {
        for leaf in Leaf::ALL.into_iter().filter(|leaf| leaf.group() == group) {
            rows.extend(account.causes(leaf).into_iter().take(3).map(|(subject, tally)| (tally, subject)));
        }
    }
    rows.sort_by(|a, b| b.0.total_ns.cmp(&a.0.total_ns).then_with(|| a.1.cmp(&b.1)));
    rows.iter()
        .take(3)
        .map(|(tally, subject)| {
            let what = match subject {
                Subject::None => "Gaps".to_owned(),
                Subject::Call(function) => format!("Gaps in or after {}", names::function(dictionary, *function)),
                Subject::Kernel(name) => {
                    format!("Gaps before kernel {}", names::shortened(&names::demangled(dictionary.name(*name)), 40))
                }
                Subject::HostToDevice => "Gaps before a copy from the host".to_owned(),
                Subject::OtherTransfer => "Gaps before a copy or memset".to_owned(),
            };
            format!(
                "{what}: {}, {} in all, the longest {}.",
                tally.count,
                millis(tally.total_ns),
                millis(tally.longest_ns),
            )
        })
        .collect()
}

fn advice(group: Group, steady: &Leaves) -> &'static str {
    let of = |leaf: Leaf| steady[leaf as usize];
    match group {
        Group::DataLoading => {
            "Prepare batches in other processes (DataLoader num_workers > 0, pin_memory=True) and fetch the next one \
             during the step; helps while free cores remain."
        }
        Group::HostCpu => {
            "Find what the launching thread does in these gaps (a CPU sampler such as py-spy on the same run) and move \
             it off the path between launches."
        }
        Group::Copy if of(Leaf::CopyH2dPageable) + of(Leaf::CopyD2hPageable) > 0 => {
            "Copy from page-locked memory (DataLoader pin_memory=True, non_blocking=True) on a stream of its own; \
             helps when there is other work to overlap with. Do not call pin_memory() on the fly: it copies too."
        }
        Group::Copy => {
            "Overlap copies with computation on a stream of its own, or keep the data on the device; helps when \
             independent work exists. For many small copies, join them."
        }
        Group::Launch => {
            "Launch fewer, larger operations: CUDA graphs or torch.compile(mode=\"reduce-overhead\"), fused \
             optimizers, larger batches. Graphs need shapes and pointers that stay the same from step to step."
        }
        Group::GpuCompute => {
            "The device is busy: look at the kernels above (lower precision, fused attention, better shapes). Nothing \
             on the host will make this faster."
        }
        Group::Sync => {
            "Read results less often: collect losses on the device and fetch them every n steps, remove .item(), \
             .cpu() and synchronize() from the loop; helps when the next launches do not depend on the value."
        }
        Group::Communication => {
            "Overlap collectives with computation (larger or smaller buckets, another stream) and compare ranks: \
             waiting for a slow rank looks the same as slow transfer on one rank."
        }
        Group::Allocator => {
            "Allocate once and reuse: a caching or stream-ordered allocator (cudaMallocAsync), fixed shapes so that \
             cached blocks fit; cudaMalloc and cudaFree may wait for the device."
        }
        Group::NoWork => "Trace a part of the run in which the program works.",
        Group::CannotTell => "Trace a longer part of the program.",
    }
}

fn millis(nanos: u64) -> String {
    super::text::duration(nanos)
}

fn micros(nanos: u64) -> String {
    super::text::duration(nanos)
}
