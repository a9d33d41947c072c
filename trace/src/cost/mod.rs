//! What tracing itself took, as far as it can be known from inside the traced process.
//!
//! Three things are measured: what CUPTI says of itself (overhead records), the time in gpuwhy's callbacks on threads
//! of the program, and the processor time of gpuwhy's own threads. The largest is not: CUPTI does not say what a record
//! costs the launch that it is about. That part is the number of records times what one cost on an H200
//! (docs/design/overhead.md), for a program that only launches; one that keeps the device busy hides most of it. So the
//! estimate is an upper bound of its kind, and no measurement.

pub mod calibration;
pub mod prices;
mod small_json;

pub use self::prices::{Calibration, PriceSource, Prices};

use crate::named;
use crate::record::Timestamp;

/// A launch with its API call and kernel record, nanoseconds: empty kernels took 3,637 instead of 2,716 on a quiet
/// host, and 4,358 instead of 3,344 on a busy one (docs/design/performance.md, floor and none).
pub const LAUNCH_NANOS: u64 = 921;
/// A node of a graph, nanoseconds, for a program that waits for each graph: 1,556 instead of 725, most of it in the
/// launching call (docs/design/overhead.md).
pub const GRAPH_NODE_NANOS: u64 = 831;
/// A copy or memset, nanoseconds: 4-byte copies took 3,072 instead of 2,350, and 3,012 instead of 2,285 (as for
/// launches).
pub const COPY_NANOS: u64 = 722;

named! {
    /// How much is recorded.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mode: name {
        /// A trace of an older version, or of another profiler.
        #[default]
        Unknown "unknown",
        /// No device work and no API call: what the program says (ranges) and what its threads do.
        Monitor "monitor",
        /// As monitor, and for moments as light: bursts where samples leave the bottleneck open or the step time
        /// drifts.
        Auto "auto",
        /// Device work, and the API calls that launch, copy, wait, allocate or load.
        Light "light",
        /// Every API call, memory, and which stream waited for which.
        Full "full",
    }
}

impl Mode {
    /// The names of the modes that can be chosen.
    pub const CHOICES: [Self; 4] = [Self::Monitor, Self::Auto, Self::Light, Self::Full];

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::CHOICES.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether samples divide the time of the run: device work is recorded never, or in bursts.
    pub const fn monitors(self) -> bool {
        matches!(self, Self::Monitor | Self::Auto)
    }

    /// The next cheaper one.
    pub const fn below(self) -> Option<Self> {
        match self {
            Self::Full => Some(Self::Light),
            Self::Light | Self::Auto => Some(Self::Monitor),
            Self::Monitor | Self::Unknown => None,
        }
    }
}

/// Less was recorded from here on, because tracing took more than was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StepDown {
    /// What is recorded since then.
    pub to: Mode,
    /// When.
    #[cfg_attr(feature = "serde", serde(rename = "at_unix_ns"))]
    pub at: Timestamp,
}

/// Steps that are remembered: a mode is left once at most.
pub const STEPS: usize = 2;

/// Totals since tracing began, nanoseconds where not said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// What was recorded at first.
    pub mode: Mode,
    /// Whether a CUDA graph was one record at first.
    pub whole_graphs: bool,
    /// Since when its nodes are records, where it was; [`Timestamp::ZERO`] when it still is.
    pub nodes_since: Timestamp,
    /// What recording their nodes would have cost while graphs were one record, by the price of a node; 0 when how many
    /// they have is not known, and when that was no reason to record them: CUPTI was left to other tools.
    pub unrecorded_nodes_ns: u64,
    /// How long tracing has been on.
    pub observed_ns: u64,
    /// Records times what one costs the program; see the module.
    pub records_ns: u64,
    /// What CUPTI says it took on threads of the program.
    pub cupti_ns: u64,
    /// Time in gpuwhy's callbacks for buffers on threads of the program or of CUPTI.
    pub callback_ns: u64,
    /// Bursts that have ended (mode auto), and the time that was recorded in them.
    pub bursts: u32,
    /// See [`bursts`](Self::bursts).
    pub burst_ns: u64,
    /// How much longer a step takes since the first burst (1.02 is 2 %): lowest and highest by the medians of named
    /// steps. CUPTI does not give launches their full speed back. `None` where that is not known.
    pub slowed: Option<(f64, f64)>,
    /// Processor time of gpuwhy's own threads; 0 when this system does not show it.
    pub threads_ns: u64,
    /// Steps down, oldest first; those not taken have the mode [`Mode::Unknown`].
    pub steps: [StepDown; STEPS],
}

impl Cost {
    /// What launching threads were held up at most, nanoseconds: the estimate for records, and what was measured of
    /// CUPTI and of callbacks.
    pub fn taken_ns(&self) -> u64 {
        self.records_ns.saturating_add(self.cupti_ns).saturating_add(self.callback_ns)
    }

    /// The share of the observed time by which launching threads were held up at most, 0 to 1; `None` when no time has
    /// passed.
    pub fn share(&self) -> Option<f64> {
        // Several threads may be held up at once, and a damaged record may say anything.
        (self.observed_ns > 0).then(|| (self.taken_ns() as f64 / self.observed_ns as f64).min(1.0))
    }

    /// Processor time of gpuwhy's own threads as a share of one core.
    pub fn core_share(&self) -> Option<f64> {
        (self.observed_ns > 0 && self.threads_ns > 0).then(|| self.threads_ns as f64 / self.observed_ns as f64)
    }

    /// The steps down that were taken.
    pub fn steps_down(&self) -> impl Iterator<Item = &StepDown> {
        self.steps.iter().filter(|step| step.to != Mode::Unknown)
    }

    /// Remembers a step down.
    pub fn step_down(&mut self, at: Timestamp, to: Mode) {
        if let Some(free) = self.steps.iter_mut().find(|step| step.to == Mode::Unknown) {
            *free = StepDown { at, to };
        }
    }

    /// What was taken since `before`, which is an earlier state of the same run.
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
