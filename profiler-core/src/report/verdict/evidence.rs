//! Why a group is the verdict: sentences with numbers.
//!
//! Causes, kernels and copies are those of the whole steady time; what is said of steps rests on the steady ones.

use super::ranking::Ranking;
use crate::attribution::leaf::{Group, Leaf, Leaves};
use crate::record::CopyKind;
use crate::report::compute::compute_evidence;
use crate::report::copies::copy_evidence;
use crate::report::{CopyClass, DeviceReport, GapRow, Ranked, RecoverableBy};
use crate::steps::Step;
use crate::text_format::{bytes, counted, duration, path_name, short_names};
use crate::thresholds::WORTH_SHARE;
use crate::whatif::{Ceiling, ScenarioKind, WhatIf, at_most};

/// The longest name of a kernel in a sentence.
const NAME_WIDTH: usize = 72;
/// A ceiling and a share that differ by less than this are not compared in words.
const NOTABLE: f64 = 0.02;
/// A copy to the host of at most so many bytes is a value that it reads.
const FEW_BYTES: u64 = 64;
/// Reads of values are named from one in so many kernels on: training steps have some hundred, so it is in every few steps.
const KERNELS_A_READ: u64 = 1_000;
/// A ceiling that takes away more of the step than this may be too low (docs/design/attribution.md, "When it is shown").
const MOST_OF_IT: f64 = 0.9;

/// How the share of `group` was measured: over which steps, how sure it is, and what was left out.
pub(super) fn step_sentences(group: Group, ranking: &Ranking, devices: &[DeviceReport]) -> Vec<String> {
    let Some(steady) = &ranking.steady else { return Vec::new() };
    let share = ranking.share(group);
    let mut sentences = Vec::new();
    if let [only] = &steady[..] {
        let median = only.median_duration();
        sentences.push(format!(
            "In the median of {} steady steps ({} each): {:.1} % (95 % confidence {:.1} to {:.1} %), {} a step.",
            only.rows.len(),
            duration(median),
            share.median * 100.0,
            share.low * 100.0,
            share.high * 100.0,
            duration((share.median * median as f64) as u64),
        ));
    } else {
        let count: usize = steady.iter().map(|steady| steady.rows.len()).sum();
        sentences.push(format!(
            "In the median of {count} steady steps on {} devices: {:.1} % (95 % confidence {:.1} to {:.1} %).",
            devices.len(),
            share.median * 100.0,
            share.low * 100.0,
            share.high * 100.0,
        ));
    }
    let mut unusual: Vec<&Step> = steady.iter().flat_map(|steady| &steady.set_aside).collect();
    if !unusual.is_empty() {
        unusual.sort_by_key(|step| (std::cmp::Reverse(step.duration()), step.start));
        let list: Vec<_> = unusual.iter().take(3).map(|step| unusual_step(step)).collect();
        let (count, s) = (unusual.len(), if unusual.len() == 1 { "" } else { "s" });
        sentences.push(format!("Set aside: {count} step{s} of over 1.5 times the median: {}.", list.join(", ")));
    }
    if let Some((rival, interval)) = ranking.rival(group).filter(|_| group != Group::GpuCompute) {
        let percent = interval.median * 100.0;
        sentences.push(format!("Not to be told from {} in size ({percent:.1} %) with these steps.", rival.name()));
    }
    sentences
}

/// What could be gained, in the words and numbers of the ceilings; for computation whose grids cannot be filled, why no group
/// with a large share is the verdict instead.
pub(super) fn gain_sentence(group: Group, ranking: &Ranking, devices: &[DeviceReport]) -> Option<String> {
    if group != Group::GpuCompute {
        return ceiling_sentence(group, ranking.share(group).median, devices);
    }
    if let Some((what_if, ceiling)) = small_grids(devices) {
        return Some(format!(
            "{} if {}: {}. Less where kernels are bound by memory, which all blocks share.",
            first_words(ceiling),
            ceiling.kind.condition(),
            saved_in_replay(what_if, ceiling),
        ));
    }
    let ranked = ranking.ranked();
    let large = |row: &&Ranked| row.share >= WORTH_SHARE && row.by == RecoverableBy::Simulation;
    let row = ranked.iter().filter(large).max_by(|a, b| a.share.total_cmp(&b.share))?;
    Some(format!(
        "{} has {:.1} % of the time, but by the replay only {:.1} % could be had back: something else is as late.",
        row.group.name(),
        row.share * 100.0,
        row.recoverable * 100.0,
    ))
}

/// The speed-up at the beginning of a sentence.
fn first_words(ceiling: &Ceiling) -> String {
    let words = at_most(ceiling.speedup, 2);
    words[..1].to_uppercase() + &words[1..]
}

/// The ceiling of `group`, what it rests on, and why it is not what follows from its `share`.
fn ceiling_sentence(group: Group, share: f64, devices: &[DeviceReport]) -> Option<String> {
    let (what_if, ceiling) = tightest_ceiling(group, devices)?;
    let (gain, condition) = (first_words(ceiling), ceiling.kind.condition());
    if let Some(reason) = what_if.refused {
        let books = match group {
            Group::Copy => "its time taken off the books, down to what a known link needs for the bytes",
            _ => "its time taken off the books, and nothing else changed",
        };
        return Some(format!("{gain} if {condition}: {books} (no replay: {reason})."));
    }
    if group == Group::Copy && devices.iter().any(copies_without_link) {
        return Some(format!(
            "{gain} if copies ran beside compute as fast as they did. From page-locked memory they are faster; \
             how much is not known without the link."
        ));
    }
    let saved = ceiling.saved();
    let own = share * 100.0;
    let compared = if saved > share + NOTABLE {
        format!("; more than its own {own:.1} %, as a host that is further ahead hides other delays too")
    } else if saved < share - NOTABLE {
        let stays = match group {
            Group::Copy => "the bytes must still be moved",
            Group::Launch => "the device takes a moment between operations, however they are launched",
            _ => "something else is late as well",
        };
        format!("; less than its {own:.1} %, as {stays}")
    } else {
        String::new()
    };
    // What remains was measured with cold caches, beside what would be gone.
    let more = if saved > MOST_OF_IT { "; may be more, as what remains would run faster" } else { "" };
    let rest = saved_in_replay(what_if, ceiling);
    Some(format!("{gain} if {condition}: {rest}{compared}{more}."))
}

/// What `ceiling` takes away of the steps that were replayed.
fn saved_in_replay(what_if: &WhatIf, ceiling: &Ceiling) -> String {
    let of = if what_if.represented_steps > what_if.steps {
        format!(" of {}", what_if.represented_steps)
    } else {
        String::new()
    };
    format!("{:.1} % less time in a replay of {}{of} steps", ceiling.saved() * 100.0, what_if.steps)
}

/// The ceiling of small grids that become large ones, if the replay gives it and it is worth a verdict.
pub(super) fn small_grids(devices: &[DeviceReport]) -> Option<(&WhatIf, &Ceiling)> {
    let ceiling = tightest_of(ScenarioKind::GridsFilled, devices);
    ceiling.filter(|(what_if, ceiling)| what_if.refused.is_none() && ceiling.saved() >= WORTH_SHARE)
}

/// Whether copies of ordinary memory ran over a link of which nothing is known: no ceiling can say what page-locked ones gain.
fn copies_without_link(device: &DeviceReport) -> bool {
    device.pcie.is_none()
        && Leaf::ALL.into_iter().any(|leaf| leaf.is_pageable() && device.steady_leaves[leaf as usize] > 0)
}

/// The smallest ceiling of `group` that the advice on it could reach; `None` where that is not known.
pub(in crate::report) fn ceiling_if_fixed(group: Group, devices: &[DeviceReport]) -> Option<f64> {
    let known = group != Group::Copy || !devices.iter().any(copies_without_link);
    tightest_ceiling(group, devices).filter(|_| known).map(|(_, ceiling)| ceiling.speedup)
}

/// The smallest ceiling of `group` over the devices, since all must get there, and what it is from.
fn tightest_ceiling(group: Group, devices: &[DeviceReport]) -> Option<(&WhatIf, &Ceiling)> {
    match group {
        Group::GpuCompute => small_grids(devices),
        _ => tightest_of(ScenarioKind::without(group)?, devices),
    }
}

/// The largest of the ceilings that are not about kernels, 1 without any.
pub(super) fn beside_compute(devices: &[DeviceReport]) -> f64 {
    let kinds = ScenarioKind::ALL.into_iter().filter(|kind| *kind != ScenarioKind::GridsFilled);
    let speedups = kinds.filter_map(|kind| tightest_of(kind, devices)).map(|(_, ceiling)| ceiling.speedup);
    speedups.fold(1.0, f64::max)
}

/// Copies of small size, if they are most of what is launched: how many, of how many operations, and their mean size, bytes.
pub(super) fn small_copies(devices: &[DeviceReport]) -> Option<(u64, u64, u64)> {
    let copies = || devices.iter().flat_map(|device| &device.copies);
    let small = copies().filter(|row| row.class == CopyClass::Latency);
    let (count, bytes) = small.fold((0u64, 0u64), |(count, bytes), row| {
        (count.saturating_add(row.durations.count()), bytes.saturating_add(row.bytes))
    });
    let kernels = devices.iter().flat_map(|device| &device.kernels).map(|row| row.durations.count());
    let all = kernels.chain(copies().map(|row| row.durations.count())).fold(0, u64::saturating_add);
    (count > all / 2).then(|| (count, all, bytes / count.max(1)))
}

/// Reads of a few bytes by the host, if there is one for every [`KERNELS_A_READ`] or more: how many, and their mean size, bytes.
pub(super) fn small_reads(devices: &[DeviceReport]) -> Option<(u64, u64)> {
    let reads = devices.iter().flat_map(|device| &device.copies).filter(|row| {
        row.path.kind == CopyKind::DeviceToHost && row.bytes <= FEW_BYTES.saturating_mul(row.durations.count())
    });
    let (count, bytes) = reads.fold((0u64, 0u64), |(count, bytes), row| {
        (count.saturating_add(row.durations.count()), bytes.saturating_add(row.bytes))
    });
    let kernels = devices.iter().flat_map(|device| &device.kernels).map(|row| row.durations.count());
    (count > 0 && count >= kernels.fold(0, u64::saturating_add) / KERNELS_A_READ).then(|| (count, bytes / count))
}

fn tightest_of(kind: ScenarioKind, devices: &[DeviceReport]) -> Option<(&WhatIf, &Ceiling)> {
    let ceilings = devices.iter().filter_map(|device| {
        let what_if = device.what_if.as_ref()?;
        Some((what_if, what_if.ceiling(kind).filter(|ceiling| ceiling.speedup.is_finite())?))
    });
    ceilings.min_by(|a, b| a.1.speedup.total_cmp(&b.1.speedup))
}

/// Duration and largest leaf of a step.
fn unusual_step(step: &Step) -> String {
    let largest = Leaf::ALL.into_iter().max_by_key(|&leaf| step.leaves[leaf as usize]).unwrap_or(Leaf::Compute);
    let nanos = step.leaves[largest as usize];
    format!("{} ({} {})", duration(step.duration()), largest.name(), duration(nanos))
}

pub(super) fn leaf_sentence(group: Group, steady: &Leaves, total: u64) -> String {
    let mut leaves: Vec<_> = Leaf::ALL
        .into_iter()
        .filter(|leaf| leaf.group() == group && steady[*leaf as usize] > 0)
        .map(|leaf| (steady[leaf as usize], leaf))
        .collect();
    leaves.sort_by(|a, b| b.cmp(a));
    let notable = |nanos: u64| nanos as f64 >= 0.0005 * total as f64;
    let count = leaves.iter().filter(|(nanos, _)| notable(*nanos)).count().clamp(1, 4);
    let parts: Vec<_> = leaves
        .iter()
        .take(count)
        .map(|&(nanos, leaf)| format!("{} {:.1} %", leaf.name(), nanos as f64 / total.max(1) as f64 * 100.0))
        .collect();
    format!("Of {} of steady device time: {}.", duration(total), parts.join(", "))
}

pub(super) fn group_evidence(group: Group, devices: &[DeviceReport]) -> Vec<String> {
    let mut evidence = Vec::new();
    match group {
        Group::GpuCompute | Group::Communication => {
            if group == Group::GpuCompute
                && let Some(device) = devices.iter().max_by_key(|device| device.compute.total())
            {
                evidence.extend(compute_evidence(&device.compute).into_iter().take(1));
            }
            let mut rows: Vec<_> = devices.iter().flat_map(|device| &device.kernels).collect();
            rows.retain(|row| row.communication == (group == Group::Communication));
            rows.sort_by_key(|row| std::cmp::Reverse(row.durations.total()));
            rows.truncate(3);
            let names = short_names(rows.iter().map(|row| row.name.as_str()), NAME_WIDTH);
            for (row, name) in rows.iter().zip(names) {
                let of = &row.durations;
                let (times, total, median) = (counted(of.count(), "time"), duration(of.total()), duration(of.median()));
                evidence.push(format!("Kernel {name} ran {times}, {total} in all, median {median}."));
            }
        }
        Group::Copy => {
            if let Some(device) = devices.iter().max_by_key(|device| device.copy_overlap.exposed_ns) {
                evidence.extend(copy_evidence(device).into_iter().take(2));
            }
            let mut rows: Vec<_> = devices.iter().flat_map(|device| &device.copies).collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.durations.total()));
            for row in rows.iter().take(3) {
                let (count, time) = (row.durations.count(), duration(row.durations.total()));
                evidence.push(format!(
                    "{count} copies {}: {} in {time}, {:.1} GB/s, {} each.",
                    path_name(row.path),
                    bytes(row.bytes),
                    row.gigabytes_per_second(),
                    bytes(row.bytes / count.max(1)),
                ));
            }
        }
        Group::Launch => {
            if let Some((small, all, each)) = small_copies(devices) {
                let each = bytes(each);
                evidence.push(format!("{small} of {all} operations are small copies, {each} each on average."));
            }
            let kernels = || devices.iter().flat_map(|device| &device.kernels);
            let count: u64 = kernels().map(|row| row.durations.count()).sum();
            let total = kernels().map(|row| row.durations.total()).fold(0, u64::saturating_add);
            let waited = devices.iter().map(|device| group.total(&device.leaves)).fold(0, u64::saturating_add);
            evidence.push(format!(
                "{count} kernels ran for {} on average; for each, the device waited {} for its launch (whole window).",
                duration(total / count.max(1)),
                duration(waited / count.max(1)),
            ));
            let launches = devices.iter().map(|device| device.host_lead.launches()).sum::<u64>().max(1);
            let late = devices.iter().map(|device| device.host_lead.late()).sum::<u64>() as f64 / launches as f64;
            evidence.push(format!("{:.1} % of launches came when the device had run dry.", late * 100.0));
            if let Some((count, each)) = small_reads(devices) {
                let (times, each) = (counted(count, "time"), bytes(each));
                evidence.insert(
                    0,
                    format!("The host read a value from the device {times} ({each} each), as .item() does."),
                );
            }
        }
        _ => {
            if group == Group::DataLoading {
                evidence.push(
                    "Inferred from a pattern, not from the program's stack: the launching thread repeatedly left \
                     CUDA for over 1 ms and came back with a copy from the host."
                        .to_owned(),
                );
            }
            evidence.extend(cause_sentences(group, devices));
        }
    }
    evidence
}

/// The largest causes of a group.
fn cause_sentences(group: Group, devices: &[DeviceReport]) -> Vec<String> {
    let mut rows: Vec<_> =
        devices.iter().flat_map(|device| &device.gaps).filter(|row| row.leaf.group() == group).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.tally.total_ns));
    rows.into_iter().take(3).map(GapRow::sentence).collect()
}
