//! What is said about the bottleneck: a list of rules, each with its place among the sentences.

use profiler_core::attribution::{Attributor, CallKind};
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::sorting::SortRows as _;

use super::graphs::{GraphFit, STRETCHED, beside_compute, graph_sentence};
use super::ranking::Ranking;
use super::{builds, evidence, host, other_process, phases, queues};
use crate::run::remedies::{CallFacts, Program};
use crate::run::step_kinds::kinds_sentence;
use crate::run::{DeviceReport, HostReport, PhaseRow, call_lines, limits, managed};
use crate::text_format::percent;

/// Minimum share of time that tracing cost the launching threads for it to be mentioned.
const TRACING_SHARE: f64 = 0.05;

/// What the sentences are made of.
pub(super) struct Findings<'a> {
    pub(super) cause: Cause,
    pub(super) program: Program<'a>,
    pub(super) ranking: &'a Ranking,
    pub(super) devices: &'a [DeviceReport],
    /// Time of all devices after start-up, nanoseconds.
    pub(super) whole: Leaves,
    pub(super) host: Option<&'a HostReport>,
    /// The same, if its samples cover most of the time of the cause.
    pub(super) seen: Option<&'a HostReport>,
    pub(super) calls: CallFacts<'a>,
    pub(super) graphs: GraphFit,
    pub(super) phases: &'a [PhaseRow],
}

/// Place of a sentence. A short report leaves out the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// What the GPU does, and for which part of its time.
    Bottleneck,
    /// What limits the bottleneck: how sure it is, and what else took part in it.
    Limit,
    /// How the time divides.
    Division,
    /// What the program does in this time, and where.
    Work,
    /// What surrounds that work.
    Around,
    /// What a change gains.
    Gain,
}

/// A rule: sentences that belong to bottlenecks of some causes. Of one rank, they are in the order of the list.
struct Evidence {
    rank: Rank,
    cause: fn(Cause) -> bool,
    sentences: fn(&Findings<'_>) -> Vec<String>,
}

const fn of(rank: Rank, cause: fn(Cause) -> bool, sentences: fn(&Findings<'_>) -> Vec<String>) -> Evidence {
    Evidence { rank, cause, sentences }
}

const ANY: fn(Cause) -> bool = |_| true;
const COMPUTE: fn(Cause) -> bool = |cause| cause == Cause::GpuCompute;
const LAUNCH: fn(Cause) -> bool = |cause| cause == Cause::Launch;
const OTHER_PROCESS: fn(Cause) -> bool = |cause| cause == Cause::OtherProcess;
const NEITHER: fn(Cause) -> bool = |cause| !matches!(cause, Cause::GpuCompute | Cause::OtherProcess);

const RULES: &[Evidence] = &[
    of(Rank::Bottleneck, ANY, |of| vec![evidence::headline(of.cause, of.ranking, of.devices, &of.whole)]),
    // Where the advice is about it, a short report must show it.
    of(Rank::Limit, COMPUTE, shared),
    of(
        Rank::Limit,
        |cause| cause != Cause::GpuCompute,
        |of| Vec::from_iter(evidence::rival_sentence(of.cause, of.ranking, of.devices)),
    ),
    of(Rank::Limit, ANY, |of| Vec::from_iter(tracing_sentence(&of.whole))),
    of(Rank::Limit, ANY, |of| Vec::from_iter(of.ranking.changed_by_tracing())),
    of(Rank::Limit, ANY, |of| Vec::from_iter(of.program.shared_queue.map(queues::sentence))),
    of(Rank::Limit, LAUNCH, |of| of.host.and_then(host::locked).map(Vec::from).unwrap_or_default()),
    of(Rank::Division, ANY, |of| {
        let kinds = of.devices.iter().find_map(|device| kinds_sentence(&device.step_kinds));
        kinds.into_iter().chain(phases::phases_sentence(of.phases)).collect()
    }),
    of(Rank::Division, COMPUTE, |of| limits::evidence(of.devices)),
    of(Rank::Work, COMPUTE, |of| Vec::from_iter(of.calls.lines.and_then(call_lines::kernel_sentence))),
    of(Rank::Work, ANY, |of| of.seen.map_or_else(|| unsampled(of), |seen| sampled(of, seen))),
    of(Rank::Around, LAUNCH, |of| vec![graph_sentence(of.graphs, of.program.graphs.obstacle)]),
    of(Rank::Around, ANY, |of| builds::sentences(of.cause, of.ranking, of.devices)),
    of(Rank::Around, OTHER_PROCESS, |of| other_process::sentences(of.ranking, of.devices, of.host, of.calls.api)),
    of(Rank::Around, NEITHER, shared),
    of(Rank::Gain, COMPUTE, |of| Vec::from_iter(evidence::compute_gain(of.ranking, of.devices))),
    // A gain of small grids is said already.
    of(Rank::Gain, COMPUTE, |of| match evidence::small_grids(of.devices) {
        None if of.program.stretched => vec![STRETCHED.to_owned()],
        None => vec![beside_compute(evidence::beside_compute(of.devices))],
        Some(_) => Vec::new(),
    }),
    of(
        Rank::Gain,
        |cause| cause != Cause::GpuCompute,
        |of| {
            let is_close = of.ranking.rival(of.cause).is_some();
            Vec::from_iter(evidence::larger_sentence(of.cause, of.ranking).filter(|_| !is_close))
        },
    ),
];

impl Findings<'_> {
    /// Everything that is said, in order.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut rules: Vec<_> = RULES.iter().filter(|rule| (rule.cause)(self.cause)).collect();
        rules.sort_rows_by_key(|rule| rule.rank);
        rules.into_iter().flat_map(|rule| (rule.sentences)(self)).collect()
    }
}

/// Phases of the device with the longest window.
pub(super) fn phases_of(attributor: &Attributor, calls: CallFacts<'_>) -> Vec<PhaseRow> {
    let longest = attributor.devices().max_by_key(|account| account.window_ns());
    longest.map(|account| phases::phases(&account.phases(), calls.start)).unwrap_or_default()
}

/// What takes part in the time of kernels: another process, and pages of managed memory.
fn shared(of: &Findings<'_>) -> Vec<String> {
    other_process::beside(of.devices).into_iter().chain(managed::sentence(of.devices)).collect()
}

fn sampled(of: &Findings<'_>, seen: &HostReport) -> Vec<String> {
    let longest = of.devices.iter().max_by_key(|device| device.window_ns);
    let what_if = longest.and_then(|device| device.what_if.as_ref());
    let of_cause = (of.program.share, of.cause.total(&of.whole));
    host::sentences(seen, of.cause, of_cause, what_if, of.program.framework)
}

/// What is inferred where samples do not cover the cause, and the lines of its calls.
fn unsampled(of: &Findings<'_>) -> Vec<String> {
    let Program { framework, small_copies, small_reads, .. } = of.program;
    let inferred = evidence::cause_evidence(of.cause, of.devices, &of.whole, of.calls.origins, framework);
    // A wait for a read value is too short for a sample to tell its line from the next; the copy is not.
    let read = (small_reads && of.cause == Cause::Launch).then_some(CallKind::Copy);
    let copies = small_copies && of.cause == Cause::Launch || small_reads && of.cause == Cause::Sync;
    let usual = if copies { &[CallKind::Copy] } else { call_lines::kinds(of.cause) };
    let kinds = usual.iter().copied().chain(read.filter(|_| !copies));
    let lines = kinds.filter_map(|kind| call_lines::sentence(of.host?, kind));
    inferred.into_iter().take(3).chain(lines).collect()
}

/// Sentence about the time that tracing cost the launching threads, if it is a large part.
fn tracing_sentence(whole: &Leaves) -> Option<String> {
    let tracing = whole[Leaf::Profiler as usize] as f64 / whole.iter().sum::<u64>().max(1) as f64;
    (tracing >= TRACING_SHARE)
        .then(|| format!("Tracing itself kept the launching threads busy {} of the time.", percent(tracing)))
}
