//! The verdict and what it rests on.

use gpuwhy_trace::named;
use profiler_core::attribution::leaf::Group;
use profiler_core::steps::TimeShare;
use profiler_core::whatif::ScenarioKind;

use crate::words::faster;

/// What the report concludes.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The group that matters most.
    pub group: Group,
    /// Its share of steady time over all devices, 0 to 1; of the time of the typical steps when it rests on these.
    pub share: f64,
    /// What could be had back of each group, the most first; computation has no entry. Empty without a verdict.
    pub ranking: Vec<Ranked>,
    /// The steps it rests on; `None` when it rests on the steady time as a whole.
    pub basis: Option<StepBasis>,
    /// What a display that is followed live should name, and its share now: in a report that is made while the run goes
    /// on it changes only when another group has led for five seconds.
    pub live: (Group, f64),
    /// Why, in sentences with numbers: the first says what the device does and how much, or why there is no verdict.
    pub evidence: Vec<String>,
    /// How the numbers came about, in sentences for who wants to check them.
    pub details: Vec<String>,
    /// What to do, and what must hold for it to help.
    pub recommendation: String,
    /// Fixes in the order in which to make them, up to three; empty where no fix could be simulated or none is worth
    /// it.
    pub plan: Vec<PlanStep>,
}

/// One fix of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The scenario that is without the cost that the fix takes away.
    pub kind: ScenarioKind,
    /// What to do.
    pub action: &'static str,
    /// Why it comes first, where it is not about the verdict's group.
    pub because: Option<&'static str>,
    /// How many times as fast as now the program is with this fix and those before it.
    pub speedup: f64,
    /// Between which factors that will come out in nine of ten programs.
    pub interval: (f64, f64),
    /// The bottleneck then; `None` where that was not simulated.
    pub then: Option<Group>,
}

impl PlanStep {
    /// The gain in words: `about 4.1x faster (3.7x to 4.5x)`, or `more than 10x faster`; of later fixes than the first
    /// one `faster in all`.
    pub fn gain(&self, is_first: bool) -> String {
        let gain = faster(self.speedup, Some(self.interval));
        if is_first { gain } else { gain.replacen(" faster", " faster in all", 1) }
    }
}

/// Steps that a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepBasis {
    /// Steady steps of all devices.
    pub steps: u64,
    /// Steps that were set aside because they took over 1.5 times the median (of the longer kind, where there are two).
    pub set_aside: u64,
    /// The share of the verdict's group with its 95 % confidence interval.
    pub share: TimeShare,
}

named! {
    /// What a recoverable time rests on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecoverableBy: name {
        /// The simulation without the group's cause, but never more than the group takes.
        Simulation "simulation",
        /// The group's time: the additive bound.
        Additive "additive",
    }
}

/// A group with the time it has and the time that could be had back.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ranked {
    /// The group.
    pub group: Group,
    /// Its share of steady time, 0 to 1.
    pub share: f64,
    /// The part of steady time that could be had back at most if its cause were gone, 0 to `share`.
    pub recoverable: f64,
    /// What that rests on.
    pub by: RecoverableBy,
}
