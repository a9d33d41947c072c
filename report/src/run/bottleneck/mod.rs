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
mod rules;
mod withheld;

use gpuwhy_trace::completeness::Completeness;
use profiler_core::attribution::Attributor;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

pub(in crate::run) use self::builds::gain_ends;
pub(in crate::run) use self::evidence::{best_case_if_fixed, compared, copies_without_link};
use self::graphs::GraphFit;
pub(crate) use self::live::LiveBottleneck;
use self::main_work::MainWork;
use self::ranking::Ranking;
use self::rules::Findings;
use self::withheld::Withheld;
use super::framework::Framework;
use super::remedies::{self, Activity, CallFacts, Facts, GraphFacts, Obstacle, Program};
use super::{Bottleneck, DeviceReport, HostReport, LineRow, PhaseRow, Remedy, StepBasis, limits};
use crate::words;

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
    if let Some(withheld) = Withheld::of(attributor, devices, completeness) {
        return withheld.concluded(devices, host, calls, GraphFit::of(attributor).facts());
    }
    let whole = evidence::sum(devices.iter().map(|device| &device.steady_leaves));
    let ranking = Ranking::new(attributor, devices);
    let framework = Framework::of(devices, host, calls.command);
    let cause = ranking.first();
    let interval = ranking.share(cause);
    let graphs = GraphFit::of(attributor);
    let phases = rules::phases_of(attributor, calls);
    let seen = host::representative(host, cause, cause.total(&whole));
    // Steps in which kernels were measured are longer, and the time between their kernels is not the program's.
    let stretched = completeness.loss.own_kernels > 0;
    let mut plan = if stretched { Vec::new() } else { plan::plan(cause, devices, graphs, host, framework) };
    let serves = devices.iter().any(DeviceReport::serves);
    let nobody_asks = serves && cause == Cause::NoWork;
    // A server cannot do without its tokens.
    plan.retain(|step| !serves || !nobody_asks && step.kind != ScenarioKind::NoReadbacks);
    let locked = host.filter(|host| cause == Cause::Launch && host::locked(host).is_some());
    let doing = seen.and_then(|seen| host::doing(seen, cause));
    let doing = doing.or_else(|| locked.map(|host| (host::lock_activity(host), None)));
    let reads = evidence::SmallReads::of(devices);
    let program = Program {
        cause: Some(cause),
        framework,
        share: interval.share,
        graphs: GraphFacts { obstacle: Obstacle::first(devices, reads.is_some()), ..graphs.facts() },
        small_copies: evidence::small_copies(devices).is_some(),
        small_reads: reads.is_some(),
        reads_sizes: reads.is_some_and(evidence::SmallReads::are_sizes),
        reads_values: reads.is_some_and(|reads| reads.others().is_some()),
        first_fix: plan.first().map(|step| step.kind),
        best_case: best_case_if_fixed(cause, devices),
        activity: doing.as_ref().map(|(activity, _)| *activity),
        activity_at: doing.as_ref().and_then(|(_, at)| at.as_deref()),
        main_work: seen
            .filter(|_| cause == Cause::HostCpu)
            .and_then(|host| MainWork::of(host, devices))
            .map(|work| work.gain()),
        limit: limits::largest(devices),
        shared: other_process::largest(devices).is_some(),
        shared_queue: queues::shared(devices, calls),
        stretched,
        builds_only: builds::are_the_host_work(devices),
    };
    let advised = Program { cause: Some(other_process::limited_by(cause, devices, host, calls.api)), ..program };
    let mut remedies = remedies::choose(&Facts::new(advised, devices, host, calls));
    // Arguments that are on the GPU are not copied for each call.
    if framework == Framework::Jax && remedies.first().is_some_and(|first| first.id == "framework_work") {
        let copies = (1..plan.len()).find(|&at| plan::cause_of(plan[at].kind) == Cause::Copy);
        plan.truncate(copies.unwrap_or(plan.len()));
    }
    if let Some(other) = phases.iter().find(|row| row.cause != cause) {
        let more = remedies::choose(&Facts::new(of_phase(program, other), devices, host, calls));
        let new = more.into_iter().find(|of| remedies.iter().all(|known| known.id != of.id));
        if let Some(remedy) = new {
            let text = format!("In the phase of {}: {}", words::bottleneck(other.cause), remedy.text);
            let index = remedies.len().min(1);
            remedies.insert(index, Remedy { text, speedup: None, interval: None, ..remedy });
        }
    }
    if nobody_asks {
        remedies.clear();
    }
    let findings =
        Findings { cause, program, ranking: &ranking, devices, whole, host, seen, calls, graphs, phases: &phases };
    Bottleneck {
        cause,
        share: interval.share,
        evidence: findings.evidence(),
        details: evidence::details(cause, &ranking, devices, &whole),
        recommendation: if nobody_asks { NOBODY_ASKS.to_owned() } else { recommendation(&remedies, devices) },
        ranking: ranking.ranked(),
        basis: ranking.steady.as_ref().map(|devices| StepBasis {
            steps: devices.iter().map(|steady| steady.rows.len() as u64).sum(),
            set_aside: devices.iter().map(|steady| steady.set_aside.len() as u64).sum(),
            share: interval,
        }),
        live: (cause, interval.share),
        remedies,
        phases,
        plan,
    }
}

/// Remedies by the line of most samples of this cause, for a program whose GPU work was not recorded.
pub(in crate::run) fn advice_on_lines(cause: Cause, host: &HostReport, command: &[String]) -> Vec<Remedy> {
    let wanted = |row: &&LineRow| row.is_evident() && row.line > 0 && row.cause.leaf().cause() == cause;
    let Some(row) = host.lines.iter().find(wanted) else { return Vec::new() };
    let (place, framework) = (row.at_place(), Framework::of(&[], Some(host), command));
    let (cause, activity, activity_at) = (Some(cause), Some(Activity::Does(row.cause)), Some(place.as_str()));
    let program = Program { cause, framework, activity, activity_at, ..Program::default() };
    remedies::choose(&Facts::new(program, &[], Some(host), CallFacts::default()))
}

/// The program in a phase with another cause. No simulation and no sum of samples is of it alone.
fn of_phase<'a>(program: Program<'a>, phase: &PhaseRow) -> Program<'a> {
    let (cause, share) = (Some(phase.cause), phase.share);
    let (first_fix, best_case, activity, activity_at, main_work) = (None, None, None, None, None);
    Program { cause, share, first_fix, best_case, activity, activity_at, main_work, ..program }
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
const NO_REMEDY: &str = "The GPU is busy. No remedy is known for these kernels; `gpuwhy kernels` tells what limits each \
                         of them.";

/// Puts advice from measured kernels in the place of the note that no remedy is known.
pub(crate) fn advise_on_measured(bottleneck: &mut Bottleneck, advice: &str) {
    let advice = format!("{advice} `gpuwhy kernels` shows all measured kernels.");
    bottleneck.recommendation = bottleneck.recommendation.replacen(NO_REMEDY, &advice, 1);
}

/// For a server that waits for requests most of the time.
const NOBODY_ASKS: &str = "The server has time for more requests: it waits for them most of the time. What limits it with \
                           more of them is said below, at Server.";

/// For programs that no remedy helped.
const ALL_TRIED: &str = "No remedy is left: what gpuwhy try measured makes no difference.";

/// The first remedy: the begin of a recommendation.
pub(crate) fn lead(remedies: &[Remedy]) -> String {
    let first = remedies.iter().find(|remedy| remedy.is_advised()).map(|remedy| remedy.text.clone());
    first.unwrap_or_else(|| if remedies.is_empty() { NO_REMEDY } else { ALL_TRIED }.to_owned())
}

/// The first remedy, or what is missing for one.
fn recommendation(remedies: &[Remedy], devices: &[DeviceReport]) -> String {
    match remedies.is_empty() && graphs::are_whole(devices) {
        true => graphs::RECORD_NODES.to_owned(),
        false => lead(remedies),
    }
}
