//! Overhead of tracing, as far as it can be determined from inside the traced process.
//!
//! Three parts are measured: CUPTI's own overhead records, the time in gpuwhy's callbacks on threads of the
//! program, and the CPU time of gpuwhy's own threads. The largest part is not: CUPTI does not report how much
//! a record slows down its launch. That part is estimated as the number of records times the cost of one on
//! an H200 (docs/design/overhead.md), for a program that only launches; a program that keeps the device busy
//! hides most of it. The estimate is therefore an upper bound, not a measurement.

pub mod calibration;
pub mod prices;
mod small_json;

pub use self::prices::{Calibration, PriceSource, Prices};

use crate::named;
use crate::record::Timestamp;

/// Overhead of a launch with its API call and kernel record, nanoseconds: empty kernels took 3,637 instead of
/// 2,716 on a quiet host, and 4,358 instead of 3,344 on a busy one (docs/design/performance.md, floor and
/// none).
pub const LAUNCH_NANOS: u64 = 921;
/// Overhead of a graph node, nanoseconds, in a program that waits for each graph: 1,556 instead of 725, most
/// of it in the launching call (docs/design/overhead.md).
pub const GRAPH_NODE_NANOS: u64 = 831;
/// Highest overhead of a graph node in the launching call that was seen, nanoseconds: means of 1,629 to 2,280 in the
/// recorded graphs of four programs, on busy hosts.
pub const MOST_GRAPH_NODE_NANOS: u64 = 2_500;
/// Time of a call that launches a graph without any tool, nanoseconds: 5 to 7 us with 277 nodes.
pub const GRAPH_LAUNCH_NANOS: u64 = 7_000;
/// Overhead of a copy or memset, nanoseconds: 4-byte copies took 3,072 instead of 2,350, and 3,012 instead of
/// 2,285 (on a quiet and a busy host, as for launches).
pub const COPY_NANOS: u64 = 722;

named! {
    /// Recording mode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mode: name {
        /// A trace of an older version or of another profiler.
        #[default]
        Unknown "unknown",
        /// No device work and no API calls: only ranges of the program and samples of its threads.
        Monitor "monitor",
        /// Short bursts of light when the bottleneck is open, the step time drifts, or a CUDA graph is new. If it
        /// was chosen from the start, the rest is monitored.
        Auto "auto",
        /// Device work, and the API calls that launch, copy, wait, allocate or load.
        Light "light",
        /// Every API call, memory, and dependencies between streams.
        Full "full",
    }
}

impl Mode {
    /// Modes that a user can choose.
    pub const CHOICES: [Self; 4] = [Self::Monitor, Self::Auto, Self::Light, Self::Full];

    /// Mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::CHOICES.into_iter().find(|mode| mode.name() == name)
    }

    /// True if samples determine how the run's time is divided: device work is recorded never or only in
    /// bursts.
    pub const fn monitors(self) -> bool {
        matches!(self, Self::Monitor | Self::Auto)
    }

    /// The next cheaper mode. Mode auto keeps its own budget, and needs captures that can be `bursts`.
    pub const fn below(self, bursts: bool) -> Option<Self> {
        match self {
            Self::Full => Some(Self::Light),
            Self::Light if bursts => Some(Self::Auto),
            Self::Light => Some(Self::Monitor),
            Self::Auto | Self::Monitor | Self::Unknown => None,
        }
    }
}

/// A switch to a cheaper mode because tracing exceeded its allowed overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepDown {
    /// Mode from then on.
    pub to: Mode,
    /// Time of the switch.
    #[cfg_attr(feature = "serde", serde(rename = "at_unix_ns"))]
    pub at: Timestamp,
}

/// Maximum number of recorded switches: each mode is left at most once.
pub const STEPS: usize = 2;

/// Totals since tracing began, in nanoseconds unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Initial mode.
    pub mode: Mode,
    /// True if a CUDA graph was initially one record.
    pub whole_graphs: bool,
    /// Time since which graph nodes are recorded, if graphs were one record before; [`Timestamp::ZERO`] if
    /// they still are.
    pub nodes_since: Timestamp,
    /// Estimated overhead of recording graph nodes while graphs were one record, from the overhead per node;
    /// 0 if the number of nodes is unknown, or if nodes were enabled for another reason: CUPTI was left to
    /// other tools.
    pub unrecorded_nodes_ns: u64,
    /// Time for which tracing has been on.
    pub observed_ns: u64,
    /// Number of records times the estimated overhead of one; see the module.
    pub records_ns: u64,
    /// Time on threads of the program in CUPTI's overhead records.
    pub cupti_ns: u64,
    /// Time in gpuwhy's buffer callbacks on threads of the program or of CUPTI.
    pub callback_ns: u64,
    /// Number of bursts that have ended.
    pub bursts: u32,
    /// Time recorded in the [`bursts`](Self::bursts).
    pub burst_ns: u64,
    /// Slowdown of a step since the first burst (1.02 is 2 %): lowest and highest value by the medians of
    /// named steps. CUPTI does not restore the full speed of launches after a burst. `None` if unknown.
    pub slowed: Option<(f64, f64)>,
    /// CPU time of gpuwhy's own threads; 0 if this system does not report it.
    pub threads_ns: u64,
    /// Switches to a cheaper mode, oldest first; unused entries have the mode [`Mode::Unknown`].
    pub steps: [StepDown; STEPS],
}

impl Cost {
    /// Upper bound of the time for which launching threads were delayed, nanoseconds: the estimate for
    /// records plus the measured times of CUPTI and callbacks.
    pub fn taken_ns(&self) -> u64 {
        self.records_ns.saturating_add(self.cupti_ns).saturating_add(self.callback_ns)
    }

    /// Upper bound of the share of the observed time for which launching threads were delayed, 0 to 1; `None`
    /// if no time has passed.
    pub fn share(&self) -> Option<f64> {
        // Several threads may be delayed at once, and a damaged record may contain any value.
        (self.observed_ns > 0).then(|| (self.taken_ns() as f64 / self.observed_ns as f64).min(1.0))
    }

    /// CPU time of gpuwhy's own threads as a share of one core.
    pub fn core_share(&self) -> Option<f64> {
        (self.observed_ns > 0 && self.threads_ns > 0).then(|| self.threads_ns as f64 / self.observed_ns as f64)
    }

    /// The mode switches that happened.
    pub fn steps_down(&self) -> impl Iterator<Item = &StepDown> {
        self.steps.iter().filter(|step| step.to != Mode::Unknown)
    }

    /// True if the run, or its rest, is recorded in bursts.
    pub fn has_bursts(&self) -> bool {
        self.mode == Mode::Auto || self.steps_down().any(|step| step.to == Mode::Auto)
    }

    /// Records a switch to a cheaper mode.
    pub fn step_down(&mut self, at: Timestamp, to: Mode) {
        if let Some(free) = self.steps.iter_mut().find(|step| step.to == Mode::Unknown) {
            *free = StepDown { at, to };
        }
    }

    /// Difference to `before`, an earlier state of the same run.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            observed_ns: self.observed_ns.saturating_sub(before.observed_ns),
            records_ns: self.records_ns.saturating_sub(before.records_ns),
            cupti_ns: self.cupti_ns.saturating_sub(before.cupti_ns),
            callback_ns: self.callback_ns.saturating_sub(before.callback_ns),
            threads_ns: self.threads_ns.saturating_sub(before.threads_ns),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_modes() {
        for mode in Mode::CHOICES {
            assert_eq!(Mode::named(mode.name()), Some(mode));
        }
        assert_eq!(Mode::named("unknown"), None);
    }

    #[test]
    fn shares_are_of_the_observed_time_and_absent_without_any() {
        let cost = Cost { observed_ns: 1_000, records_ns: 40, cupti_ns: 9, callback_ns: 1, ..Cost::default() };
        assert_eq!((cost.share(), cost.core_share()), (Some(0.05), None));
        assert_eq!(Cost::default().share(), None);
        let damaged = Cost { observed_ns: u64::MAX, records_ns: u64::MAX, callback_ns: 9, ..cost };
        assert_eq!(damaged.share(), Some(1.0), "sums stay within their type");
        assert_eq!(Cost { records_ns: 5_000, ..cost }.share(), Some(1.0), "held up all the time at most");
        let later = Cost { observed_ns: 3_000, records_ns: 60, ..cost };
        assert_eq!(later.since(&cost).share(), Some(0.01));
    }

    #[test]
    fn steps_down_are_kept_in_order() {
        let mut cost = Cost::default();
        for to in [Mode::Light, Mode::Monitor] {
            cost.step_down(Timestamp::from_nanos(5), to);
        }
        assert_eq!(cost.steps_down().map(|step| step.to).collect::<Vec<_>>(), [Mode::Light, Mode::Monitor]);
    }
}
