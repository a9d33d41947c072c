//! Evidence for the bottleneck, in sentences with numbers.
//!
//! Causes, kernels and copies cover the complete steady time; statements about steps cover the steady ones.

use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::is_selection;
use profiler_core::attribution::statistics::{CopyPath, OctaveTotals};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{Steady, Step};
use profiler_core::thresholds::WORTH_SHARE;
use profiler_core::whatif::{BestCase, ScenarioKind, WORTH_DOING, WORTH_SHOWING, WhatIf};

use super::builds;
use super::ranking::Ranking;
use crate::run::compute::compute_evidence;
use crate::run::copies::{SMALL_BYTES, copy_evidence, of_at_most, pageable_copies};
use crate::run::framework::Framework;
use crate::run::{DeviceReport, GapRow, GraphOrigins, KernelRow, Ranked, RecoverableBy};
use crate::text_format::names::short_names;
use crate::text_format::{bytes, counted, duration, part_of, percent, rate};
use crate::words::{self, capitalized};

/// Maximum length of a kernel name in a sentence.
const NAME_WIDTH: usize = 72;
/// Minimum difference between a best case and a share for a comparison in words.
pub(super) const NOTABLE: f64 = 0.02;
/// Maximum number of bytes of a copy to the host that counts as reading a value.
const FEW_BYTES: u64 = 64;
/// Reads of another kind that are at least this part (as a divisor) of all are not few.
const FEW_PART: u64 = 10;
/// Maximum number of kernels per read of a value for reads to be mentioned. Training steps have some hundred
/// kernels, so this is one read every few steps.
const KERNELS_A_READ: u64 = 1_000;
/// A best case that removes more of the step than this may be too low (docs/design/attribution.md, "When it
/// is shown").
const MOST_OF_IT: f64 = 0.9;

/// Sentence about what the GPU does because of `cause`, and for which share of its time.
pub(super) fn headline(cause: Cause, ranking: &Ranking, devices: &[DeviceReport], whole: &Leaves) -> String {
    let share = ranking.share(cause).share;
    let (does, percent) = (words::what_the_gpu_does(cause), percent(share));
    // The share is of the time without tracing, and so is the time beside it. That of a step is said on the first
    // screen.
    let untraced = ranking.untraced.first().copied().unwrap_or(1.0);
    let part = |of: u64| {
        let of = (of as f64 * untraced).round();
        part_of((share * of) as u64, of as u64)
    };
    let note = if untraced < 1.0 { ", without gpuwhy" } else { "" };
    let of = match ranking.steady.as_deref() {
        Some([only]) if only.are_of_kinds() => {
            let noun = devices.first().map_or("step", |device| device.step_meaning.noun());
            format!("the time of all {noun}s ({} on average)", part(only.mean_duration()))
        }
        Some([only]) => {
            let meaning = devices.first().map(|device| device.step_meaning).unwrap_or_default();
            match meaning.contains {
                Some(steps) => format!("every step ({} on average)", part(only.median_duration() / u64::from(steps))),
                None => format!("every {} ({})", meaning.noun(), part(only.median_duration())),
            }
        }
        Some(_) => format!("every step (mean of {} GPUs)", devices.len()),
        None => {
            let time = part(whole.iter().sum());
            let over = if devices.len() > 1 { format!(", {} GPUs together", devices.len()) } else { String::new() };
            let of = if devices.first().is_some_and(|device| device.begun_midway) {
                "recorded time"
            } else {
                "time after start-up"
            };
            format!("the {of} ({time}{over}{note})")
        }
    };
    format!("The GPU {does} {percent} of {of}.")
}

/// Derivation of the numbers for `cause`.
pub(super) fn details(cause: Cause, ranking: &Ranking, devices: &[DeviceReport], whole: &Leaves) -> Vec<String> {
    let mut sentences = step_sentences(cause, ranking, devices);
    sentences.extend(best_case_sentence(cause, ranking.share(cause).share, devices));
    sentences.extend(leaf_sentence(cause, ranking, devices, whole));
    if ranking.untraced.iter().any(|part| *part < 1.0) {
        sentences.push(
            "Shares and gains are of steps without gpuwhy: the overhead of tracing is subtracted, first from waits for launches. \
             Durations of steps and causes in these details are as recorded."
                .to_owned(),
        );
    }
    sentences
}

/// How the share of `cause` was measured: the steps, the confidence, and the excluded parts.
fn step_sentences(cause: Cause, ranking: &Ranking, devices: &[DeviceReport]) -> Vec<String> {
    let Some(steady) = &ranking.steady else { return Vec::new() };
    let share = ranking.share(cause);
    let count: usize = steady.iter().map(|steady| steady.rows.len()).sum();
    let typical = format!("typical {}", noun(devices));
    let over = match &steady[..] {
        [only] if only.are_of_kinds() => match only.kinds.len() {
            1 => counted(count as u64, &typical),
            kinds => format!("{} of {kinds} kinds", counted(count as u64, &typical)),
        },
        [only] => format!("{} of {}", counted(count as u64, &typical), duration(only.median_duration())),
        _ => format!("{} on {} GPUs", counted(count as u64, &typical), devices.len()),
    };
    let mut sentences = vec![format!(
        "Over {over}: {:.1} % of their time, 95 % confidence {:.1} to {:.1} %.",
        share.share * 100.0,
        share.low * 100.0,
        share.high * 100.0,
    )];
    let mut unusual: Vec<&Step> = steady.iter().flat_map(|steady| &steady.set_aside).collect();
    if !unusual.is_empty() {
        unusual.sort_rows_by_key(|step| (std::cmp::Reverse(step.duration()), step.start));
        let list: Vec<_> = unusual.iter().take(3).map(|step| unusual_step(step)).collect();
        let count = counted(unusual.len() as u64, "step");
        let median =
            if steady.iter().any(Steady::are_of_kinds) { "the median of the longer kind" } else { "the median" };
        sentences.push(format!("Not counted: {count} of over 1.5 times {median}: {}.", list.join(", ")));
    }
    sentences
}

/// Sentence about a cause that may be as large as `cause`.
pub(super) fn rival_sentence(cause: Cause, ranking: &Ranking, devices: &[DeviceReport]) -> Option<String> {
    let (rival, interval) = ranking.rival(cause)?;
    let (rival, share) = (words::bottleneck(rival), percent(interval.share));
    let noun = noun(devices);
    Some(format!("The {noun}s vary so much that this cannot be ranked safely against {rival} ({share})."))
}

/// What a step is called.
fn noun(devices: &[DeviceReport]) -> &'static str {
    if devices.iter().any(DeviceReport::serves) { "iteration" } else { "step" }
}

/// Sentence about a cause with more time than `cause` that is not the bottleneck.
pub(super) fn larger_sentence(cause: Cause, ranking: &Ranking) -> Option<String> {
    let (larger, share, recoverable) = ranking.larger(cause)?;
    let (larger, share, saved) = (capitalized(words::bottleneck(larger)), percent(share), percent(recoverable));
    Some(format!("{larger} takes more ({share}), but without it alone {saved} would be saved (simulated)."))
}

/// Sentence about the possible gain of computation, or why no cause with a large share is the bottleneck
/// instead.
pub(super) fn compute_gain(ranking: &Ranking, devices: &[DeviceReport]) -> Option<String> {
    if let Some((_, best_case)) = small_grids(devices) {
        return Some(format!(
            "Many kernels are too small to fill the GPU: {} if {}. Less where memory is the limit.",
            words::faster(best_case.speedup, best_case.interval),
            words::condition(best_case.kind),
        ));
    }
    let ranked = ranking.ranked();
    let large = |row: &&Ranked| row.share >= WORTH_SHARE && row.by == RecoverableBy::Simulation;
    let row = ranked.iter().filter(large).max_by(|a, b| a.share.total_cmp(&b.share))?;
    Some(format!(
        "{} takes {} of the time, but without it only {} would be saved (simulated): something else is as late.",
        capitalized(words::bottleneck(row.cause)),
        percent(row.share),
        percent(row.recoverable),
    ))
}

/// Sentence about the best case of `cause`, its basis, and why it differs from its `share`.
fn best_case_sentence(cause: Cause, share: f64, devices: &[DeviceReport]) -> Option<String> {
    let (what_if, best_case) = tightest_best_case(cause, devices)?;
    let (gain, condition) =
        (capitalized(&words::faster(best_case.speedup, best_case.interval)), words::condition(best_case.kind));
    if let Some(reason) = what_if.refused {
        let bound = match cause {
            Cause::Copy => "its time subtracted, down to what a known link needs for the bytes",
            _ => "its time subtracted",
        };
        let why = words::not_simulated(reason);
        return Some(format!("{gain} if {condition}: {bound} (a rough bound, not simulated: {why})."));
    }
    if best_case.kind == ScenarioKind::CopiesOverlapped && devices.iter().any(copies_without_link) {
        return Some(format!(
            "{gain} if copies ran overlapped with the kernels at the same speed. With pinned memory they are faster; \
             by how much is unknown without a description of the link."
        ));
    }
    let saved = best_case.saved();
    let compared = compared(best_case, cause, share).map(|compared| format!("; {compared}")).unwrap_or_default();
    // The remaining work was measured with cold caches, because it ran along with the removed work.
    let more = if saved > MOST_OF_IT { "; may be more, because what remains would run faster" } else { "" };
    let rest = simulated(what_if, best_case);
    Some(format!("{gain} if {condition}: {rest}{compared}{more}."))
}

/// Why a simulation saves another part of the time than the share of the cause; `None` if they agree.
pub(in crate::run) fn compared(best_case: &BestCase, cause: Cause, share: f64) -> Option<String> {
    let (own, saved) = (percent(share), best_case.saved());
    if cause == Cause::GpuCompute {
        None
    } else if saved > share + NOTABLE {
        let also = match best_case.kind {
            ScenarioKind::ReadsReduced => "the copies to the CPU, and the waits for them, go with it",
            ScenarioKind::DeviceCopiesGone | ScenarioKind::CopiesJoined => "the launches of these copies go with them",
            ScenarioKind::NoReadbacks => "the copies and launches of these reads go with them",
            ScenarioKind::NoHostWork if cause == Cause::KernelBuild => "the CPU work around the builds goes with them",
            _ => "a CPU that is further ahead also hides other delays",
        };
        Some(format!("more than the {own} of this cause, because {also}"))
    } else if saved < share - NOTABLE {
        let stays = match cause {
            Cause::Copy => "the bytes must still be moved",
            Cause::Launch => "the GPU takes a moment between operations, however they are launched",
            _ => "something else is late as well",
        };
        Some(format!("less than the {own} of this cause, because {stays}"))
    } else {
        None
    }
}

/// Description of what `best_case` removes from the simulated steps.
fn simulated(what_if: &WhatIf, best_case: &BestCase) -> String {
    let of = if what_if.represented_steps > what_if.steps {
        format!(" of {}", what_if.represented_steps)
    } else {
        String::new()
    };
    format!("{} less time in a simulation of {}{of} steps", percent(best_case.saved()), what_if.steps)
}

/// Best case with small grids made large, if it was simulated and is worth a bottleneck.
pub(super) fn small_grids(devices: &[DeviceReport]) -> Option<(&WhatIf, &BestCase)> {
    let best_case = tightest_of(ScenarioKind::GridsFilled, devices);
    best_case.filter(|(what_if, best_case)| what_if.refused.is_none() && best_case.saved() >= WORTH_SHARE)
}

/// True if copies of pageable memory over an unknown link matter: no best case can predict the gain of pinned
/// memory.
pub(in crate::run) fn copies_without_link(device: &DeviceReport) -> bool {
    device.pcie.is_none() && pageable_copies(device).next().is_some()
}

/// Best case without the cost that the advice on `cause` removes; `None` if unknown.
pub(in crate::run) fn best_case_if_fixed(cause: Cause, devices: &[DeviceReport]) -> Option<BestCase> {
    let (_, best_case) = tightest_best_case(cause, devices)?;
    let unknown = best_case.kind == ScenarioKind::CopiesOverlapped && devices.iter().any(copies_without_link);
    (!unknown).then_some(*best_case)
}

/// The smallest best case of `cause` over the devices, since all must reach it, with its simulation: from the
/// scenario of the cause itself, or from a more specific one that removes more of the cost.
pub(super) fn tightest_best_case(cause: Cause, devices: &[DeviceReport]) -> Option<(&WhatIf, &BestCase)> {
    let usual = match cause {
        Cause::GpuCompute => small_grids(devices),
        Cause::KernelBuild if !builds::are_the_host_work(devices) => None,
        _ => tightest_of(ScenarioKind::without(cause)?, devices),
    };
    let named: &[ScenarioKind] = match cause {
        Cause::Copy => &[ScenarioKind::DeviceCopiesGone, ScenarioKind::ReadsReduced, ScenarioKind::CopiesJoined],
        Cause::Sync => &[ScenarioKind::NoReadbacks],
        Cause::HostCpu => &[ScenarioKind::ReadsReduced],
        Cause::Launch if small_copies(devices).is_some() => &[ScenarioKind::CopiesJoined],
        Cause::GpuCompute => &[ScenarioKind::KernelsAtRoof],
        _ => &[],
    };
    let simulated = |found: &(&WhatIf, &BestCase)| found.0.refused.is_none();
    named.iter().filter_map(|&kind| tightest_of(kind, devices)).filter(simulated).fold(usual, |best, found| {
        let better = best.is_none_or(|best| found.1.speedup > best.1.speedup.max(WORTH_SHOWING));
        if better { Some(found) } else { best }
    })
}

/// The largest best case outside of kernels. The one for the device alone gives less specific advice than the
/// others, so it is used only if no other is worth it.
pub(super) fn beside_compute(devices: &[DeviceReport]) -> Option<&BestCase> {
    let largest = |kinds: &[ScenarioKind]| {
        let of = kinds.iter().filter_map(|&kind| tightest_of(kind, devices)).map(|(_, best_case)| best_case);
        of.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
    };
    let kinds =
        ScenarioKind::FIXES.map(|kind| if kind == ScenarioKind::GridsFilled { ScenarioKind::Base } else { kind });
    let named = largest(&kinds).filter(|best_case| best_case.speedup >= WORTH_DOING);
    named.or_else(|| largest(&[ScenarioKind::DeviceOnly]))
}

/// Small copies after start-up, if they are most of the launches: their number, the number of all operations, and their
/// mean size in bytes.
pub(super) fn small_copies(devices: &[DeviceReport]) -> Option<(u64, u64, u64)> {
    let copies = devices.iter().map(|device| of_at_most(&device.steady_work.copies(Leaf::is_busy), SMALL_BYTES));
    let (count, bytes) = copies.fold((0u64, 0u64), |sum, of| (sum.0.saturating_add(of.0), sum.1.saturating_add(of.1)));
    let counted = Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy() && *leaf != Leaf::Memset);
    let all = counted.flat_map(|leaf| devices.iter().map(move |device| device.steady_work.operations(leaf)));
    let all = all.fold(0, u64::saturating_add);
    (count > all / 2).then(|| (count, all, bytes / count.max(1)))
}

/// Reads of a few bytes by the host after start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SmallReads {
    pub(super) count: u64,
    /// Of these, the sizes of selections: boolean indexing or `nonzero`.
    pub(super) sizes: u64,
    /// Smallest and largest mean of a class of sizes, bytes.
    bytes: (u64, u64),
}

impl SmallReads {
    /// Those of these devices, if there is at least one per [`KERNELS_A_READ`] kernels.
    pub(super) fn of(devices: &[DeviceReport]) -> Option<Self> {
        let reads = |leaf: Leaf| leaf.copy_kind() == Some(CopyKind::DeviceToHost);
        let octaves = devices.iter().flat_map(|device| device.steady_work.copies(reads));
        let few: Vec<_> = octaves.filter(|of| of.count > 0 && of.bytes <= FEW_BYTES * of.count).collect();
        let (count, sizes): (u64, _) = (few.iter().map(|of| of.count).sum(), few.iter().map(|of| of.bytes / of.count));
        // A server cannot do without the tokens of its iterations.
        let count = count.saturating_sub(devices.iter().map(tokens_read).sum());
        let kernels: u64 = devices.iter().map(|device| device.steady_work.operations(Leaf::Compute)).sum();
        let selecting = devices.iter().flat_map(|device| &device.kernels).filter(|row| is_selection(&row.name));
        // Two kernels for each selection.
        let selections = selecting.map(|row| row.steady.0).fold(0, u64::saturating_add) / 2;
        let bytes = (sizes.clone().min()?, sizes.max()?);
        (count > 0 && count >= kernels / KERNELS_A_READ).then(|| Self { count, sizes: selections.min(count), bytes })
    }

    /// True if they are mostly sizes of selections.
    pub(super) fn are_sizes(self) -> bool {
        2 * self.sizes > self.count
    }

    /// Other reads than those of sizes, if they are not few.
    pub(super) fn others(self) -> Option<u64> {
        Some(self.count - self.sizes).filter(|&others| FEW_PART * others >= self.count)
    }
}

/// Number of small copies of sampled tokens: an iteration of a server has one.
fn tokens_read(device: &DeviceReport) -> u64 {
    let kinds = device.serving_kinds().into_iter().map(|of| of.kind);
    kinds
        .filter(|kind| kind.sequences.is_some_and(|count| u64::from(count) * 4 <= FEW_BYTES))
        .map(|kind| kind.count)
        .sum()
}

/// True if reads of a few bytes are mostly sizes of selections.
pub(super) fn reads_sizes(devices: &[DeviceReport]) -> bool {
    SmallReads::of(devices).is_some_and(SmallReads::are_sizes)
}

fn tightest_of(kind: ScenarioKind, devices: &[DeviceReport]) -> Option<(&WhatIf, &BestCase)> {
    let best_cases = devices.iter().filter_map(|device| {
        let what_if = device.what_if.as_ref()?;
        Some((what_if, what_if.best_case(kind).filter(|best_case| best_case.speedup.is_finite())?))
    });
    best_cases.min_by(|a, b| a.1.speedup.total_cmp(&b.1.speedup))
}

/// Duration and largest cause of a step.
fn unusual_step(step: &Step) -> String {
    let largest = Leaf::ALL.into_iter().max_by_key(|&leaf| step.leaves[leaf as usize]).unwrap_or(Leaf::Compute);
    let nanos = step.leaves[largest as usize];
    format!("{} ({} {})", duration(step.duration()), words::cause(largest), duration(nanos))
}

/// The four largest leaves of the cause, without those of less than 1 in 2,000: parts of its share.
fn leaf_sentence(cause: Cause, ranking: &Ranking, devices: &[DeviceReport], steady: &Leaves) -> Option<String> {
    let steps = sum(devices.iter().filter_map(|device| device.typical.as_ref()).map(|typical| &typical.leaves));
    let (of, time) = match ranking.steady {
        Some(_) => (&steps, "these steps".to_owned()),
        None => (steady, format!("the {} after start-up", duration(steady.iter().sum()))),
    };
    let whole = cause.total(of).max(1) as f64 / ranking.share(cause).share;
    let share = |nanos: u64| nanos as f64 / whole;
    let leaves = Leaf::ALL.into_iter().filter(|leaf| leaf.cause() == cause);
    let mut leaves: Vec<_> = leaves.map(|leaf| (of[leaf as usize], leaf)).collect();
    leaves.retain(|&(nanos, _)| share(nanos) >= 0.0005);
    leaves.sort_rows_by(|a, b| b.cmp(a));
    let part = |&(nanos, leaf): &(u64, Leaf)| {
        format!("{} ({}) {:.1} %", words::cause(leaf), leaf.name(), share(nanos) * 100.0)
    };
    let parts: Vec<_> = leaves.iter().take(4).map(part).collect();
    (!parts.is_empty()).then(|| format!("Of {time}: {}.", parts.join(", ")))
}

/// Sum of times by leaf.
pub(super) fn sum<'a>(rows: impl Iterator<Item = &'a Leaves>) -> Leaves {
    let mut total = [0; LEAF_COUNT];
    for row in rows {
        for (sum, nanos) in total.iter_mut().zip(row) {
            *sum += nanos;
        }
    }
    total
}

/// Evidence for `cause` in addition to its share, the strongest first.
pub(super) fn cause_evidence(
    cause: Cause,
    devices: &[DeviceReport],
    whole: &Leaves,
    origins: Option<&GraphOrigins>,
    framework: Framework,
) -> Vec<String> {
    let mut evidence = Vec::new();
    match cause {
        Cause::GpuCompute | Cause::Communication => {
            if cause == Cause::GpuCompute
                && let Some(device) = devices.iter().max_by_key(|device| device.compute.total())
            {
                let time = |own: bool| -> u64 {
                    let rows = device.kernels.iter().filter(|row| row.library.is_none() == own);
                    rows.map(|row| row.durations.total()).sum()
                };
                evidence.extend(compute_evidence(&device.compute, time(true) >= time(false)).into_iter().take(1));
            }
            evidence.extend(kernel_sentences(cause, devices, origins));
        }
        Cause::Copy => {
            if let Some(device) = devices.iter().max_by_key(|device| device.copy_overlap.exposed_ns) {
                evidence.extend(copy_evidence(device).into_iter().take(2));
            }
            let mut rows: Vec<_> = devices.iter().flat_map(copied).filter(|(_, sum)| sum.count > 0).collect();
            rows.sort_rows_by_key(|(_, sum)| std::cmp::Reverse(sum.total_ns));
            for (path, OctaveTotals { count, bytes: sum, total_ns }) in rows.into_iter().take(3) {
                evidence.push(format!(
                    "{count} {}: {} in {}, {}{}.",
                    words::copies(path, count),
                    bytes(sum),
                    duration(total_ns),
                    rate(sum as f64 / total_ns.max(1) as f64),
                    if count == 1 { String::new() } else { format!(", {} each", bytes(sum / count)) },
                ));
            }
        }
        Cause::Launch => evidence.extend(launch_sentences(devices, whole, framework)),
        _ => {
            if cause == Cause::DataLoading {
                evidence.push(
                    "Inferred from a pattern, not from the program's stack: the launching thread repeatedly left \
                     CUDA for over 1 ms and came back with a copy from the host."
                        .to_owned(),
                );
            }
            if cause == Cause::Sync {
                evidence.extend(read_sentence(devices, framework));
            }
            evidence.extend(cause_sentences(cause, devices));
        }
    }
    evidence
}

/// Copies of each path after start-up; of the whole run where several paths have the same leaf.
fn copied(device: &DeviceReport) -> impl Iterator<Item = (CopyPath, OctaveTotals)> {
    device.copies.iter().map(|row| {
        let leaf = row.path.leaf();
        if device.copies.iter().filter(|other| other.path.leaf() == leaf).count() > 1 {
            let (count, total_ns) = (row.durations.count(), row.durations.total());
            return (row.path, OctaveTotals { count, bytes: row.bytes, total_ns });
        }
        let mut sum = OctaveTotals::default();
        device.steady_work.copies(|of| of == leaf).iter().for_each(|of| sum.add(of));
        (row.path, sum)
    })
}

/// The three kernels of the cause with the most time. Of those in CUDA graphs, the line that captured most of it.
fn kernel_sentences(cause: Cause, devices: &[DeviceReport], origins: Option<&GraphOrigins>) -> Vec<String> {
    let mut rows: Vec<_> = devices.iter().flat_map(|device| &device.kernels).collect();
    rows.retain(|row| row.communication == (cause == Cause::Communication));
    rows.sort_rows_by_key(|row| std::cmp::Reverse((row.steady.1, row.durations.total())));
    rows.truncate(3);
    let names = short_names(rows.iter().map(|row| row.name.as_str()), NAME_WIDTH);
    let sentence = |(row, name): (&&KernelRow, &String)| {
        // After start-up, where that is known of each name.
        let whole = (row.durations.count(), row.durations.total());
        let (count, nanos) = if row.steady.0 > 0 { row.steady } else { whole };
        let (times, total, median) = (counted(count, "time"), duration(nanos), duration(row.durations.median()));
        let median = if count == 1 { String::new() } else { format!(", median {median}") };
        let line = origins.and_then(|origins| origins.main_line(&row.name, devices));
        format!("Kernel {name} ran {times}: {total}{median}{}.", line.unwrap_or_default())
    };
    rows.iter().zip(&names).map(sentence).collect()
}

/// Sentence about how often the host read a value back, if it did so repeatedly.
fn read_sentence(devices: &[DeviceReport], framework: Framework) -> Option<String> {
    let reads = SmallReads::of(devices)?;
    let (least, most) = reads.bytes;
    let each = if least == most { bytes(least) } else { format!("{} to {}", bytes(least), bytes(most)) };
    let times = counted(reads.count, "time");
    if framework.is_native() {
        return Some(format!("The CPU copied a value from the GPU {times} ({each} each) and waited for it."));
    }
    if reads.are_sizes() {
        let times = counted(reads.sizes, "time");
        let others = reads.others().map(|others| format!(" It read another value {}.", counted(others, "time")));
        return Some(format!(
            "The CPU read the size of a selection from the GPU {times} and waited for it: boolean indexing and nonzero() \
             need it.{}",
            others.unwrap_or_default()
        ));
    }
    Some(format!("The CPU read a value from the GPU {times} ({each} each), as .item() does, and waited for it."))
}

/// Sentences about the launches, and how long the GPU waits for them.
fn launch_sentences(devices: &[DeviceReport], whole: &Leaves, framework: Framework) -> Vec<String> {
    let mut evidence = Vec::new();
    evidence.extend(read_sentence(devices, framework));
    let small_copies = small_copies(devices);
    if let Some((small, all, each)) = small_copies {
        let each = bytes(each);
        evidence.push(format!("{small} of {all} operations are small copies, {each} each on average."));
    }
    // Only the most frequent kind of launch is mentioned.
    let of = |counts: &mut dyn Iterator<Item = (u64, u64)>| {
        counts.fold((0, 0_u64), |sum, (count, nanos)| (sum.0 + count, sum.1.saturating_add(nanos)))
    };
    let kernels = of(&mut devices.iter().flat_map(|device| &device.kernels).map(|row| row.steady));
    let copies = devices.iter().flat_map(|device| device.steady_work.copies(Leaf::is_busy));
    let copies = of(&mut copies.map(|of| (of.count, of.total_ns)));
    let (what, (count, total)) = if copies.0 > kernels.0 { ("copy", copies) } else { ("kernel", kernels) };
    // Launches are counted after start-up, like the waits.
    let launched = devices.iter().map(|device| device.host_lead.launches()).sum::<u64>();
    let waited = Cause::Launch.total(whole);
    if launched > 0 && count > 0 && small_copies.is_none() {
        evidence.push(format!(
            "A {what} runs for {} on average, and the GPU waits {} for each launch.",
            duration(total / count.max(1)),
            duration(waited / launched),
        ));
    }
    let late = devices.iter().map(|device| device.host_lead.late()).sum::<u64>() as f64 / launched.max(1) as f64;
    evidence.push(format!("{} of the launches found the GPU idle.", percent(late.min(1.0))));
    evidence
}

fn cause_sentences(cause: Cause, devices: &[DeviceReport]) -> Vec<String> {
    let mut rows: Vec<_> =
        devices.iter().flat_map(|device| &device.gaps).filter(|row| row.leaf.cause() == cause).collect();
    rows.sort_rows_by_key(|row| std::cmp::Reverse(row.totals.total_ns));
    rows.truncate(3);
    GapRow::sentences(&rows)
}
