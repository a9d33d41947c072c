//! The bottleneck and its evidence.

use gpuwhy_trace::named;
use profiler_core::leaf::Cause;
use profiler_core::steps::TimeShare;
use profiler_core::whatif::ScenarioKind;

use super::Remedy;
use crate::words::{self, at_most, gain};

/// Conclusion of the report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bottleneck {
    /// The cause that matters most.
    pub cause: Cause,
    /// Its share of steady time over all devices, 0 to 1; of the time of the typical steps if it is based on
    /// them.
    pub share: f64,
    /// Recoverable time of each cause, the largest first; computation has no entry. Empty if no bottleneck
    /// was found.
    pub ranking: Vec<Ranked>,
    /// The steps that the shares are based on; `None` when they are based on the complete steady time.
    pub basis: Option<StepBasis>,
    /// Bottleneck for a live display, and its current share. In a report built while the run continues, it
    /// changes only when another cause has led for five seconds.
    pub live: (Cause, f64),
    /// Reasons, in sentences with numbers: the first states what the device does and for what share, or why
    /// no bottleneck was found.
    pub evidence: Vec<String>,
    /// Derivation of the numbers, in sentences, for verification.
    pub details: Vec<String>,
    /// Recommended change, and the condition for it to help.
    pub recommendation: String,
    /// Remedies, the first to try first; empty if none is known. `recommendation` begins with the first.
    pub remedies: Vec<Remedy>,
    /// Phases with different largest causes, in order; empty if one phase is nearly all of the time.
    pub phases: Vec<PhaseRow>,
    /// Up to three fixes in the recommended order; empty if no fix could be simulated or none is worth it.
    pub plan: Vec<PlanStep>,
}

/// Most remedies that a short report shows.
const REMEDIES_SHOWN: usize = 3;

impl Bottleneck {
    /// A conclusion of which nothing but this is known.
    pub(in crate::run) fn unranked(cause: Cause, share: f64, evidence: Vec<String>, recommendation: String) -> Self {
        Self {
            cause,
            share,
            ranking: Vec::new(),
            basis: None,
            live: (cause, share),
            evidence,
            details: Vec::new(),
            recommendation,
            remedies: Vec::new(),
            phases: Vec::new(),
            plan: Vec::new(),
        }
    }

    /// The CUDA graph that the first remedy makes possible.
    pub(crate) fn made_possible(&self) -> Option<&Remedy> {
        let mut advised = self.remedies.iter().filter(|remedy| remedy.is_advised());
        advised.next().filter(|first| first.before_graph)?;
        advised.find(|remedy| remedy.id == "graph")
    }

    /// Place in the plan of the step that captures this graph.
    fn captured_in(&self) -> Option<usize> {
        self.made_possible()?;
        self.plan.iter().position(|step| step.kind == ScenarioKind::LaunchesFree)
    }

    /// Remedies that a short report shows in addition to `recommendation`, with their gains.
    pub fn further_remedies(&self) -> Vec<String> {
        let planned = self.captured_in().is_some();
        let needs = |remedy: &Remedy| remedy.id == "graph" && self.made_possible().is_some();
        let further = self.remedies.iter().filter(|remedy| remedy.is_advised()).take(REMEDIES_SHOWN).skip(1);
        let further = further.filter(|remedy| !(planned && remedy.id == "graph"));
        // The plan has gains after other fixes.
        let sentence = |remedy: &Remedy| {
            let (lead, of) = if needs(remedy) { ("After that: ", "Gain") } else { ("", "Gain alone") };
            // Of the graph, only the gain of both is known to be possible.
            let gain = remedy.gain().filter(|_| lead.is_empty() || !remedy.gain_of.is_empty());
            let gain = gain.map(|gain| format!(" {}", gain.replacen("Gain", of, 1)));
            format!("{lead}{}{}", remedy.text, gain.unwrap_or_default())
        };
        further.map(sentence).collect()
    }

    /// The fixes of the plan after the first, which `recommendation` is for: each with the bottleneck before it and the
    /// gain of all so far. A graph that the first remedy makes possible is one of them.
    pub fn next_fixes(&self) -> Vec<String> {
        let graph = self.captured_in();
        let sentence = |index: usize| {
            let before = index.checked_sub(1).and_then(|before| self.plan[before].then);
            let before = before.map(|cause| format!("The bottleneck is then {}. ", words::bottleneck(cause)));
            let step = &self.plan[index];
            let text = match self.made_possible().filter(|_| graph == Some(index)) {
                Some(graph) => format!("{} Gain", graph.text),
                None => words::capitalized(&step.action),
            };
            format!("{}{text}: {}.", before.unwrap_or_default(), step.gain(false))
        };
        (usize::from(graph != Some(0))..self.plan.len()).map(sentence).collect()
    }

    /// Sentence about remedies that were tried and make no difference; `None` if there are none.
    pub fn without_gain(&self) -> Option<String> {
        let tried = self.remedies.iter().filter(|remedy| !remedy.is_advised());
        let tried: Vec<_> = tried.filter_map(|of| Some(format!("{} {}", of.id, of.measured?.words()))).collect();
        (!tried.is_empty()).then(|| format!("Not advised, as they make no difference: {}.", tried.join("; ")))
    }
}

/// A phase of the time after start-up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PhaseRow {
    /// Its start after that of tracing, nanoseconds.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// Its largest cause.
    pub cause: Cause,
    /// Share of that cause in its time, 0 to 1.
    pub share: f64,
}

/// One fix of a plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanStep {
    /// The scenario without the cost that the fix removes.
    pub kind: ScenarioKind,
    /// Recommended change.
    pub action: String,
    /// Reason why it comes first if it does not address the bottleneck.
    pub because: Option<&'static str>,
    /// Speedup over the current program with this fix and those before it.
    pub speedup: f64,
    /// Range that contains the true factor in nine of ten programs.
    pub interval: (f64, f64),
    /// True if the fix leaves a part of what is simulated without: the gain is at most the upper end of `interval`.
    pub(crate) is_bound: bool,
    /// Bottleneck after this fix; `None` if that was not simulated.
    pub then: Option<Cause>,
}

impl PlanStep {
    /// The gain in words: `about 4.1x (3.7x to 4.5x)`, or `more than 10x`; fixes after the first one add `in all`.
    pub fn gain(&self, is_first: bool) -> String {
        let gain = match self.is_bound {
            true => at_most(self.interval.1.max(self.speedup)),
            false => gain(self.speedup, Some(self.interval)),
        };
        if is_first { gain } else { gain.replacen('x', "x in all", 1) }
    }
}

/// Steps from which the bottleneck was determined.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepBasis {
    /// Number of steady steps of all devices.
    pub steps: u64,
    /// Number of excluded steps, which took over 1.5 times the median (of the longer kind, if there are two).
    pub set_aside: u64,
    /// Share of the bottleneck with its 95 % confidence interval.
    pub share: TimeShare,
}

named! {
    /// Basis of a recoverable time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecoverableBy: name {
        /// The simulation without this cause, limited to the time of the cause.
        Simulation "simulation",
        /// The time of the cause: the additive bound.
        Additive "additive",
    }
}

/// A cause with its time and its recoverable time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Ranked {
    /// The cause.
    pub cause: Cause,
    /// Its share of steady time, 0 to 1.
    pub share: f64,
    /// Maximum share of steady time that removing the cause would recover, 0 to `share`.
    pub recoverable: f64,
    /// Basis of `recoverable`.
    pub by: RecoverableBy,
}
