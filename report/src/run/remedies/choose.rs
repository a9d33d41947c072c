//! Which remedies a report names, and in which order.
//!
//! Rules for every entry, after its own condition:
//!
//! * A step that is idle at least half of the time gets no advice on making kernels shorter; one that is busy at least
//!   90 % gets none on launches, the CPU or reads. Kernels that need not run are advice in both.
//! * The low end of the gain (of an estimate, its middle) is above a least one, except for the bottleneck itself and
//!   for what a CUDA graph cannot contain.
//! * A remedy that is part of another one is left out.
//! * What addresses the bottleneck comes first, and of that what a CUDA graph cannot contain before the graph. The
//!   rest is ordered by the certainty times the share of a step that it saves in the middle of its range; of equal ones
//!   those that change no results, then those that need no change of the program.
//! * What gains more beside another remedy follows it.

use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;
use profiler_core::whatif::{Removed, ScenarioKind};

use super::catalog::{OPENED_BY_LINES, by_records};
use super::entry::{BEST_PRACTICES, COMPILE_MODEL, MODEL, OPEN, PASSES, Rank, RemedyEntry, Target, When};
use super::facts::{CodeReader, Facts, Found};
use super::gain::{Gain, WORTH};
use super::lines::fits;
use super::obstacles::{Obstacle, counts_steps};
use super::options::option;
use crate::run::code::Parse;
use crate::run::framework::Framework;
use crate::run::limits::most_limited;
use crate::run::{Certainty, Remedy};
use crate::text_format::names::short_name;
use crate::text_format::percent;
use crate::words::capitalized;

impl CodeReader {
    /// The conditions of all remedies, with this parser.
    pub const fn new(parse: Parse) -> Self {
        Self { parse, entries: OPENED_BY_LINES, fits }
    }
}

/// Busy share of a step below which kernels are not to be made shorter.
const IDLE: f64 = 0.5;
/// Busy share of a step from which launches, the CPU and reads are no subject.
const BUSY: f64 = 0.9;
/// Most remedies of a report.
const MOST: usize = 12;
/// Part of the bottleneck's time that a remedy without a prediction is taken to save, for the order.
const UNPREDICTED: f64 = 0.3;
struct Candidate {
    entry: &'static RemedyEntry,
    text: String,
    found: Found,
    /// It addresses the bottleneck.
    addresses: bool,
    certainty: Certainty,
    score: f64,
}

/// The remedies for a program, the first to try first.
pub(in crate::run) fn choose(facts: &Facts<'_>) -> Vec<Remedy> {
    let by_lines = facts.source.map_or(&[][..], |source| source.reader.entries);
    let mut candidates: Vec<Candidate> =
        by_records().chain(by_lines).filter_map(|entry| candidate(entry, facts)).collect();
    let graph = candidates.iter().any(|candidate| candidate.entry.rank == Rank::Graph && candidate.addresses);
    let captures = graph && candidates.iter().any(|candidate| is_capture(candidate.entry.id, facts));
    candidates.retain(|candidate| {
        let worth = candidate.found.gain.map(Gain::is_worth);
        let before = graph && candidate.entry.rank == Rank::BeforeGraph;
        let of_bottleneck = candidate.addresses && matches!(candidate.entry.target, Target::Time(_) | Target::Reads);
        before || of_bottleneck || worth.unwrap_or(candidate.addresses)
    });
    let included: Vec<&str> = candidates.iter().flat_map(|candidate| candidate.entry.subsumes).copied().collect();
    candidates.retain(|candidate| !included.contains(&candidate.entry.id));
    // Reads that cost little and are in the way of no capture come later.
    let small = |of: &Candidate| {
        let low = of.found.gain.map_or(1.0, Gain::low);
        !captures
            && of.entry.target == Target::Reads
            && facts.is(Cause::Launch)
            && facts.program.first_fix.is_none_or(|fix| !fix_of(fix))
            && low <= WORTH
    };
    let rank = |of: &Candidate| match of.entry.rank {
        Rank::First if of.addresses => 0,
        Rank::Batch if of.addresses && !of.found.doubted => 1,
        Rank::BeforeGraph if graph && !small(of) => 2,
        Rank::Graph if graph => 3,
        Rank::BeforeGraph if graph => 4,
        _ if of.addresses => 5,
        _ => 6,
    };
    let ties = |of: &Candidate| (of.entry.results, !of.entry.is_outside());
    candidates.sort_rows_by(|a, b| {
        rank(a).cmp(&rank(b)).then(b.score.total_cmp(&a.score)).then_with(|| ties(a).cmp(&ties(b)))
    });
    let first = candidates.first().map(|first| first.entry.id);
    candidates.retain(|of| Some(of.entry.id) == first || of.addresses || !of.entry.is_generic);
    // What may gain nothing is said only where nothing is better, or beside what it needs.
    let ids: Vec<&str> = candidates.iter().map(|of| of.entry.id).collect();
    candidates.retain(|of| {
        let needed = of.entry.beside.iter().any(|other| ids.contains(other));
        Some(of.entry.id) == first || needed || of.found.gain.is_none_or(|gain| !gain.is_estimate || gain.low() > WORTH)
    });
    follow(&mut candidates);
    candidates.truncate(MOST);
    add_condition(&mut candidates, facts);
    let first = candidates.first().filter(|first| captures && first.entry.rank == Rank::BeforeGraph);
    let both = first.and_then(|first| with_a_graph(first.entry, facts));
    candidates.into_iter().map(|candidate| finished(candidate, captures, both, facts)).collect()
}

/// At most the gain of this remedy, without which no graph can be captured, and of the graph together.
fn with_a_graph(entry: &RemedyEntry, facts: &Facts<'_>) -> Option<Gain> {
    let kind = match entry.target {
        Target::Reads if facts.program.small_reads => ScenarioKind::NoReadbacks,
        Target::Reads => ScenarioKind::NoSyncs,
        Target::Time(Cause::Allocator) => ScenarioKind::NoAllocations,
        _ => return None,
    };
    facts.at_most_without(Removed::of(kind).and(ScenarioKind::LaunchesFree))
}

/// True if this remedy captures a CUDA graph, which cannot contain everything.
fn is_capture(id: &str, facts: &Facts<'_>) -> bool {
    id == "graph" && !matches!(facts.program.framework, Framework::Jax | Framework::Offload)
}

/// Moves what gains more beside another remedy behind it, and says of alternatives that they are some.
fn follow(candidates: &mut [Candidate]) {
    for index in 0..candidates.len() {
        let beside = candidates[index].entry.beside;
        let first = candidates[..index].iter().position(|of| beside.contains(&of.entry.id));
        if let Some(first) = first {
            candidates[first + 1..=index].rotate_right(1);
        }
    }
    let ids: Vec<&str> = candidates.iter().map(|of| of.entry.id).collect();
    for (index, of) in candidates.iter_mut().enumerate() {
        if of.entry.instead_of.iter().any(|other| ids[..index].contains(other)) {
            of.text = format!("Alternatively, {}", uncapitalized(&of.text));
        } else if of.entry.beside.iter().any(|other| ids[..index].contains(other)) {
            of.text = format!("In addition, {}", uncapitalized(&of.text));
        }
    }
}

fn uncapitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_lowercase).chain(rest).collect()
}

/// Adds what a graph needs to the advice to capture one: the first obstacle, unless another remedy removes it, and what
/// an optimizer needs that counts its steps.
fn add_condition(candidates: &mut [Candidate], facts: &Facts<'_>) {
    let removed = |target| candidates.iter().any(|of| of.entry.target == target && of.entry.rank == Rank::BeforeGraph);
    let stays = |obstacle: &Obstacle| match obstacle {
        // What avoids the reads of sizes leaves those of values.
        Obstacle::Reads if facts.program.reads_sizes && facts.program.reads_values => true,
        Obstacle::Reads | Obstacle::Waits => !removed(Target::Reads),
        Obstacle::Allocations => !removed(Target::Time(Cause::Allocator)),
        Obstacle::PageableCopies => true,
        Obstacle::Optimizer => false,
    };
    let counts = facts.device.is_some_and(counts_steps).then_some(Obstacle::Optimizer);
    let needs = facts.program.graphs.obstacle.filter(stays).into_iter().chain(counts);
    let conditions: String = needs.map(|of| of.condition(facts.program.framework)).collect();
    if let Some(graph) = candidates.iter_mut().find(|of| of.entry.id == "graph") {
        graph.text += &conditions;
    }
}

/// Scenarios that remove what a CUDA graph cannot contain.
const fn fix_of(kind: ScenarioKind) -> bool {
    matches!(kind, ScenarioKind::NoReadbacks | ScenarioKind::NoSyncs | ScenarioKind::NoAllocations)
}

fn candidate(entry: &'static RemedyEntry, facts: &Facts<'_>) -> Option<Candidate> {
    let text = RemedyEntry::spoken(entry.says, facts.program.framework)?;
    if facts.program.stretched && matches!(entry.target, Target::Reads) {
        return None;
    }
    let addresses = addresses(entry, facts);
    let busy = facts.busy();
    let wanted = match entry.target {
        Target::Kernels => busy > IDLE,
        Target::FewerKernels => true,
        // Time of the device itself.
        Target::Time(Cause::Copy | Cause::Communication | Cause::OtherProcess) => true,
        Target::Time(_) | Target::Reads => addresses || busy < BUSY,
    };
    let found = (wanted && !(entry.unless)(facts)).then(|| recognize(entry, facts)).flatten()?;
    let is_shown = facts.fits_line(entry.id, found.at.as_deref());
    let certainty = if is_shown { entry.certainty.min(Certainty::Documented) } else { entry.certainty };
    let saved = match found.usual.or(found.gain) {
        Some(gain) => {
            let middle = gain.interval.map_or(gain.speedup, |(low, high)| (low * high).sqrt());
            1.0 - 1.0 / middle.max(1.0)
        }
        None => UNPREDICTED * facts.program.share,
    };
    let score = certainty.probability() * saved;
    let text = filled(text, &found, facts) + &option(entry.id, facts);
    Some(Candidate { entry, text, found, addresses, certainty, score })
}

/// True if it makes the bottleneck smaller.
fn addresses(entry: &RemedyEntry, facts: &Facts<'_>) -> bool {
    let Some(bottleneck) = facts.program.cause else { return false };
    let of_target = match (entry.target, bottleneck) {
        (Target::Kernels | Target::FewerKernels, Cause::GpuCompute) => true,
        (Target::FewerKernels, Cause::Launch) => true,
        (Target::Reads, Cause::Sync) => true,
        (Target::Reads, Cause::Launch) => facts.program.first_fix.is_some(),
        (Target::Time(cause), _) => cause == bottleneck,
        _ => false,
    };
    of_target || (entry.also)(facts)
}

fn recognize(entry: &RemedyEntry, facts: &Facts<'_>) -> Option<Found> {
    match entry.when {
        When::If(condition) => condition(facts),
        When::Limit(limit, in_cache) => {
            let is_one = facts.program.limit == Some((limit, in_cache)) && facts.is(Cause::GpuCompute);
            is_one.then(|| Found { detail: most_of(facts, limit), ..Found::default() })
        }
        When::Shorter(classes, least, factors) => {
            let share = facts.share(classes);
            (share >= least).then(|| facts.found(classes, share, facts.faster(share, factors)))
        }
        When::Gone(classes, least) => {
            let (share, of_count) = (facts.share(classes), facts.count_share(classes));
            let gain = facts.without(share, of_count);
            (share >= least || facts.busy() < IDLE && of_count >= least)
                .then(|| facts.found(classes, share.max(if facts.busy() < IDLE { of_count } else { 0.0 }), gain))
        }
    }
}

/// The kernel that has most time with this limit, as a part of a sentence.
fn most_of(facts: &Facts<'_>, limit: Limit) -> String {
    let row = most_limited(facts.devices, limit);
    row.map_or_else(String::new, |row| format!(", most of all of kernel {}", short_name(&row.name, 60)))
}

/// The sentence with what was found, and for what this program has: a model, a backward pass.
fn filled(text: &str, found: &Found, facts: &Facts<'_>) -> String {
    // A library's frame may already have its preposition.
    let place = found.at.as_deref().map(|at| if at.starts_with("in ") { at.to_owned() } else { format!("at {at}") });
    let at = place.as_ref().map(|place| format!(" {place}")).unwrap_or_default();
    let (there, share) = (place.unwrap_or_else(|| "there".to_owned()), percent(found.share));
    let (model, compile) = match facts.has_model() {
        true => (MODEL, COMPILE_MODEL),
        false => ("function", "f = torch.compile(f) for the function f that launches them"),
    };
    let passes = if facts.has_backward_pass() { PASSES } else { "" };
    let values = [&found.what, &found.detail, &at, &there, &share, model, compile, passes];
    capitalized(&OPEN.iter().zip(values).fold(text.to_owned(), |text, (name, value)| text.replace(name, value)))
}

fn finished(candidate: Candidate, captures: bool, both: Option<Gain>, facts: &Facts<'_>) -> Remedy {
    let Candidate { entry, text, found, certainty, .. } = candidate;
    let both = both.filter(|_| entry.id == "graph");
    let gain = both.or(found.gain).filter(|gain| gain.speedup.is_finite()).and_then(Gain::said);
    Remedy {
        id: entry.id,
        text,
        at: found.at,
        results: entry.results,
        certainty,
        speedup: gain.map(|gain| gain.speedup),
        interval: gain.and_then(|gain| gain.interval),
        is_bound: gain.is_some_and(|gain| gain.is_bound),
        link: match facts.program.framework {
            // A page about PyTorch says nothing to it.
            Framework::Native | Framework::Offload => {
                entry.link.filter(|link| !link.contains("pytorch")).or(BEST_PRACTICES)
            }
            _ => entry.link,
        },
        outside: entry.is_outside(),
        measured: None,
        gain_of: if both.is_some() { ", with the first change" } else { entry.gain_of },
        before_graph: captures && entry.rank == Rank::BeforeGraph,
    }
}

/// The change of this entry in words that follow a number, for programs of this library.
pub(in crate::run) fn short(id: &str, framework: Framework) -> &'static str {
    by_records()
        .find(|entry| entry.id == id)
        .and_then(|entry| RemedyEntry::spoken(entry.short, framework))
        .unwrap_or_default()
}
