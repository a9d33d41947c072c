//! Selection of the bottleneck: the cause with the most recoverable time, its evidence, and its remedies.
//!
//! Causes are ranked by the time that removing them would recover; computation is the bottleneck when that is
//! little for all of them. Shares refer to the time of steady steps if steps were found. If the records do
//! not support a conclusion, the report states that and the reason.

mod builds;
mod evidence;
mod graphs;
mod host;
mod live;
mod main_work;
mod other_process;
mod phases;
mod plan;
mod queues;
mod ranking;

use gpuwhy_trace::completeness::Completeness;
use profiler_core::attribution::{Attributor, CallKind};
use profiler_core::leaf::{Cause, Leaf, Leaves};

pub(in crate::run) use self::evidence::{best_case_if_fixed, copies_without_link};
use self::graphs::GraphFit;
pub(crate) use self::live::LiveBottleneck;
use self::main_work::MainWork;
use self::ranking::Ranking;
use super::call_lines;
use super::framework::Framework;
use super::managed;
use super::remedies::{self, CallFacts, Facts, Program};
use super::step_kinds::kinds_sentence;
use super::waits::awaited_sentence;
use super::{Bottleneck, DeviceReport, HostReport, Remedy, StepBasis, limits};
use crate::text_format::{counted, duration, percent};
use crate::words;

/// Maximum share of steady time without a known cause for which a bottleneck is named.
pub const UNKNOWN_SHARE: f64 = 0.20;
/// Maximum share of lost records for which a bottleneck is named.
pub const LOSS_SHARE: f64 = 0.05;
/// Minimum number of device operations.
pub const FEWEST_OPERATIONS: u64 = 20;
/// Minimum window, nanoseconds.
pub const SHORTEST_WINDOW: u64 = 10_000_000;
/// Minimum share of time that tracing cost the launching threads for it to be mentioned.
const TRACING_SHARE: f64 = 0.05;

/// Determines the bottleneck of the steady part of all devices' windows together.
pub fn bottleneck_of(
    attributor: &Attributor,
    devices: &[DeviceReport],
    host: Option<&HostReport>,
    completeness: &Completeness,
) -> Bottleneck {
    bottleneck_with(attributor, devices, host, completeness, CallFacts::default())
}

/// Like [`bottleneck_of`], with the lines that launch kernels, and the calls, for remedies.
pub(in crate::run) fn bottleneck_with(
    attributor: &Attributor,
    devices: &[DeviceReport],
    host: Option<&HostReport>,
    completeness: &Completeness,
    calls: CallFacts<'_>,
) -> Bottleneck {
    let whole = evidence::sum(devices.iter().map(|device| &device.steady_leaves));
    let total: u64 = whole.iter().sum();
    let ranking = Ranking::new(attributor, devices);
    let unknown = Cause::CannotTell.total(&whole) as f64 / total.max(1) as f64;
    let framework = Framework::of(devices, host, calls.command);
    if let Some(withheld) = abstention(attributor, devices, completeness, unknown) {
        return without_ranking(withheld, &|program| Facts::new(program, devices, host, calls));
    }
    let cause = ranking.first();
    let interval = ranking.share(cause);
    let fit = GraphFit::of(attributor);
    let mut evidence = vec![evidence::headline(cause, &ranking, devices, &whole)];
    evidence.extend(devices.iter().filter_map(|device| device.typical?.kinds).take(1).map(kinds_sentence));
    let longest = attributor.devices().max_by_key(|account| account.window_ns());
    let phases = longest.map(|account| phases::phases(&account.phases(), calls.start)).unwrap_or_default();
    evidence.extend(phases::phases_sentence(&phases));
    if cause == Cause::GpuCompute {
        evidence.extend(limits::evidence(devices));
    }
    let seen = host::representative(host, cause, cause.total(&whole));
    match seen {
        Some(seen) => {
            let longest = devices.iter().max_by_key(|device| device.window_ns);
            let what_if = longest.and_then(|device| device.what_if.as_ref());
            evidence.extend(host::sentences(seen, cause, (interval.share, cause.total(&whole)), what_if));
        }
        None => {
            evidence
                .extend(evidence::cause_evidence(cause, devices, &whole, calls.origins, framework).into_iter().take(3));
            // A wait for a read value is too short for a sample to tell its line from the next; the copy is not.
            let reads = evidence::small_reads(devices).is_some();
            let read = (reads && cause == Cause::Launch).then_some(CallKind::Copy);
            let copies = cause == Cause::Launch && evidence::small_copies(devices).is_some();
            let copies = copies || (reads && cause == Cause::Sync);
            let usual = if copies { &[CallKind::Copy] } else { call_lines::kinds(cause) };
            let kinds = usual.iter().copied().chain(read.filter(|_| !copies));
            evidence.extend(kinds.filter_map(|kind| call_lines::sentence(host?, kind)));
        }
    }
    let locked = host.filter(|_| cause == Cause::Launch).and_then(host::locked);
    evidence.splice(1..1, locked.iter().flatten().cloned());
    evidence.splice(1..1, queues::shared(devices, calls).map(queues::sentence));
    if cause == Cause::Launch {
        evidence.push(graphs::graph_sentence(fit));
    }
    evidence.extend(builds::sentences(cause, &ranking, devices));
    if cause == Cause::OtherProcess {
        evidence.extend(other_process::sentences(&ranking, devices));
    } else {
        // Where the advice is about it, a short report must show it.
        let place = if cause == Cause::GpuCompute { evidence.len().min(1) } else { evidence.len() };
        evidence.splice(place..place, other_process::beside(devices).into_iter().chain(managed::sentence(devices)));
    }
    evidence.extend(evidence::compute_gain(cause, &ranking, devices));
    evidence.extend(tracing_sentence(&whole));
    evidence.extend(ranking.changed_by_tracing());
    evidence.extend(evidence::rival_sentence(cause, &ranking).or_else(|| evidence::larger_sentence(cause, &ranking)));
    // Steps in which kernels were measured are longer, and the time between their kernels is not the program's.
    let stretched = completeness.loss.own_kernels > 0;
    let details = evidence::details(cause, &ranking, devices, &whole);
    let basis = ranking.steady.as_ref().map(|devices| StepBasis {
        steps: devices.iter().map(|steady| steady.rows.len() as u64).sum(),
        set_aside: devices.iter().map(|steady| steady.set_aside.len() as u64).sum(),
        share: interval,
    });
    let plan = if stretched { Vec::new() } else { plan::plan(cause, devices, fit, host, framework) };
    let doing = seen.and_then(|seen| host::doing(seen, cause));
    let doing = doing.or_else(|| locked.as_ref().and(host).map(|host| (host::lock_activity(host), None)));
    let program = Program {
        cause: Some(cause),
        framework,
        share: interval.share,
        graphs: fit.facts(),
        small_copies: evidence::small_copies(devices).is_some(),
        small_reads: evidence::small_reads(devices).is_some(),
        reads_sizes: evidence::reads_sizes(devices),
        first_fix: plan.first().map(|step| step.kind),
        best_case: best_case_if_fixed(cause, devices),
        activity: doing.as_ref().map(|(activity, _)| *activity),
        activity_at: doing.as_ref().and_then(|(_, at)| at.as_deref()),
        main_work: seen.filter(|_| cause == Cause::HostCpu).and_then(MainWork::of).map(|work| work.gain()),
        limit: limits::largest(devices),
        shared: other_process::largest(devices).is_some(),
        shared_queue: queues::shared(devices, calls),
        stretched,
        builds_only: builds::are_the_host_work(devices),
    };
    let remedies = remedies::choose(&Facts::new(program, devices, host, calls));
    let recommendation = recommendation(cause, &remedies, devices, stretched);
    let (share, ranking) = (interval.share, ranking.ranked());
    let live = (cause, share);
    Bottleneck { cause, share, ranking, basis, live, evidence, details, recommendation, remedies, phases, plan }
}

/// Sentence about the time that tracing cost the launching threads, if it is a large part.
fn tracing_sentence(whole: &Leaves) -> Option<String> {
    let tracing = whole[Leaf::Profiler as usize] as f64 / whole.iter().sum::<u64>().max(1) as f64;
    (tracing >= TRACING_SHARE)
        .then(|| format!("Tracing itself kept the launching threads busy {} of the time.", percent(tracing)))
}

/// The conclusion where no bottleneck can be ranked: cause, share, reason and advice.
fn without_ranking<'a>(
    (cause, share, reason, advice): (Cause, f64, String, &'static str),
    facts: &dyn Fn(Program<'a>) -> Facts<'a>,
) -> Bottleneck {
    let shared = cause == Cause::OtherProcess;
    let known = shared.then(|| remedies::choose(&facts(Program { cause: Some(cause), share, ..Program::default() })));
    Bottleneck {
        cause,
        share,
        ranking: Vec::new(),
        basis: None,
        live: (cause, share),
        evidence: vec![reason],
        details: Vec::new(),
        recommendation: advice.to_owned(),
        remedies: known.into_iter().flatten().take(1).collect(),
        phases: Vec::new(),
        plan: Vec::new(),
    }
}

/// The conclusion of a session that could not measure: its missing work says nothing about the program.
pub(super) fn not_measured(found: Bottleneck, why: &str) -> Bottleneck {
    Bottleneck {
        cause: Cause::CannotTell,
        live: (Cause::CannotTell, found.share),
        evidence: vec![format!("Nothing was measured: {why}.")],
        recommendation: "Run `gpuwhy doctor`, which shows what is missing.".to_owned(),
        ..found
    }
}

/// For kernels that no remedy fits.
const NO_REMEDY: &str = "The GPU is busy. No remedy is known for the kernels above; `gpuwhy kernels` tells what limits each \
                         of them.";

/// Puts advice from measured kernels in the place of the note that no remedy is known.
pub(crate) fn advise_on_measured(bottleneck: &mut Bottleneck, advice: &str) {
    let advice = format!("{advice} `gpuwhy kernels` shows all measured kernels.");
    bottleneck.recommendation = bottleneck.recommendation.replacen(NO_REMEDY, &advice, 1);
}

/// For programs that no remedy helped.
const ALL_TRIED: &str = "No remedy is left: what gpuwhy try measured makes no difference.";

/// True if it makes one grid of many, which the plan says.
fn joins(remedies: &[Remedy]) -> bool {
    remedies.first().is_some_and(|first| first.id == "batch_grids")
}

/// The first remedy with its gain: the begin of a recommendation.
pub(crate) fn lead(cause: Cause, remedies: &[Remedy]) -> String {
    let advised: Vec<Remedy> = remedies.iter().filter(|remedy| remedy.is_advised()).cloned().collect();
    let Some(text) = remedies::first_sentences(&advised) else {
        return if remedies.is_empty() { NO_REMEDY } else { ALL_TRIED }.to_owned();
    };
    if let Some(first) = advised.first()
        && (cause == Cause::GpuCompute || remedies::is_about_kernels(first) || first.measured.is_some())
        && let Some(gain) = first.gain().filter(|_| first.measured.is_some() || !joins(&advised))
    {
        return text.replacen(&first.text, &format!("{} {gain}", first.text), 1);
    }
    text
}

/// The first remedy, and what a GPU-bound program gains elsewhere.
fn recommendation(cause: Cause, remedies: &[Remedy], devices: &[DeviceReport], stretched: bool) -> String {
    let mut text = match remedies.is_empty() && graphs::are_whole(devices) {
        true => graphs::RECORD_NODES.to_owned(),
        false => lead(cause, remedies),
    };
    if cause == Cause::GpuCompute && !joins(remedies) {
        text += &match stretched {
            true => graphs::STRETCHED.to_owned(),
            false => graphs::beside_compute(evidence::beside_compute(devices)),
        };
    }
    text
}

/// True if a kernel takes most of the time of a device: that is so of few operations as of many.
fn is_one_kernel(devices: &[DeviceReport]) -> bool {
    let most = |device: &DeviceReport| {
        let kernels = device.kernels.iter().filter(|row| !row.communication);
        kernels.map(|row| row.durations.total()).max().is_some_and(|longest| longest > device.window_ns / 2)
    };
    devices.iter().any(most)
}

/// Reason why no bottleneck can be ranked, if there is one, after the cause and its share.
fn abstention(
    attributor: &Attributor,
    devices: &[DeviceReport],
    completeness: &Completeness,
    unknown: f64,
) -> Option<(Cause, f64, String, &'static str)> {
    let received = completeness.kernels
        + completeness.graphs
        + completeness.copies
        + completeness.memsets
        + completeness.api_calls;
    let lost = completeness.loss.dropped();
    let operations: u64 = attributor.devices().map(|account| account.operations()).sum();
    let window = devices.iter().map(|device| device.window_ns).max().unwrap_or(0);
    let longer = "Record a longer part of the program: at least a few steps after its start-up.";
    if operations == 0 && completeness.bad_timestamps == 0 && lost == 0 {
        let calls = counted(completeness.api_calls, "CUDA call");
        let none = "No kernel, copy, memset or CUDA call was recorded.".to_owned();
        let only = format!("No kernel, copy or memset was recorded, only {calls}.");
        return Some((
            Cause::NoWork,
            1.0,
            if completeness.api_calls == 0 { none } else { only },
            "Check that the traced process is the one that uses the GPU, and that it reached its first kernel.",
        ));
    }
    if lost as f64 > LOSS_SHARE * received.saturating_add(lost) as f64 {
        let share = lost as f64 / received.saturating_add(lost) as f64 * 100.0;
        return Some((
            Cause::CannotTell,
            unknown,
            format!("{lost} records ({share:.1} %) were lost, so what looks like idle time may be work."),
            "Give gpuwhy more memory (--buffer-memory) or a free CPU core, and record again.",
        ));
    }
    if completeness.shared_ids as f64 > LOSS_SHARE * completeness.api_calls as f64 {
        let launches = counted(completeness.shared_ids, "launch");
        let reason = format!("CUPTI gave one id to {launches}, so it is not known which call started which operation.");
        return Some((
            Cause::CannotTell,
            unknown,
            reason,
            "CUPTI does so after recording was switched off in the running program: record all of the run, without \
             captures, mode auto or a limit of the overhead.",
        ));
    }
    if window < SHORTEST_WINDOW || operations < FEWEST_OPERATIONS && !is_one_kernel(devices) {
        let millis = window as f64 / 1e6;
        let reason = format!("Too little data: {} in {millis:.1} ms.", counted(operations, "GPU operation"));
        return Some((Cause::CannotTell, unknown, reason, longer));
    }
    if unknown > UNKNOWN_SHARE {
        if let Some((share, reason)) = other_process::by_utilization(devices) {
            return Some((Cause::OtherProcess, share, reason, remedies::sentence_of("other_process")));
        }
        let mut causes = Vec::new();
        for leaf in Leaf::ALL.into_iter().filter(|leaf| leaf.cause() == Cause::CannotTell) {
            let nanos: u64 = devices.iter().map(|device| device.steady_leaves[leaf as usize]).sum();
            if nanos > 0 {
                causes.push((nanos, leaf, format!("{} {}", words::cause(leaf), duration(nanos))));
            }
        }
        causes.sort_by_key(|&(nanos, leaf, _)| (std::cmp::Reverse(nanos), leaf));
        let reported = devices.iter().any(|device| !device.awaited.is_empty());
        let largest = causes.first().map(|&(_, leaf, _)| leaf);
        let probably = other_process::by_power(devices).filter(|_| largest == Some(Leaf::DependencyWait) && !reported);
        let advice = match &probably {
            Some(_) => other_process::PROBABLY,
            None => graphs::without_cause(largest, reported),
        };
        let probably = probably.map(|reason| reason + " ").unwrap_or_default();
        let causes: Vec<_> = causes.into_iter().map(|(.., cause)| cause).collect();
        let events: Vec<_> = devices.iter().flat_map(|device| &device.awaited).map(awaited_sentence).collect();
        let events =
            if events.is_empty() { String::new() } else { format!(" Waits for events: {}.", events.join(", ")) };
        let causes = causes.join(", ");
        return Some((
            Cause::CannotTell,
            unknown,
            format!(
                "{probably}The cause of {:.1} % of the time is not in the records: {causes}.{events}",
                unknown * 100.0
            ),
            advice,
        ));
    }
    None
}
