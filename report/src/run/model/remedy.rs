//! A remedy that a report recommends.

use gpuwhy_trace::named;
use profiler_core::whatif::WORTH_SHOWING;

use crate::text_format::date;
use crate::words::{at_least, at_most, capitalized, gain};

named! {
    /// What a remedy changes in the results of the program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Results: name words {
        /// Nothing.
        Same "same" "the results stay the same",
        /// Numbers change in the last digits.
        Rounding "rounding" "numbers are rounded differently",
        /// Something else: later log lines, other memory, another latency.
        Behavior "behavior" "the program behaves differently (when values are read, memory, latency)",
    }
}

named! {
    /// What is known about the effect of a remedy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Certainty: name words {
        /// It was measured with and without the change.
        Measured "measured" "measured with and without the change",
        /// The mechanism is documented, and the simulation or the share of time fits.
        Documented "documented" "documented by the vendor or the library",
        /// It often helps, or was not seen in a recorded program.
        Guess "guess" "a guess: it often helps, try it",
    }
}

impl Certainty {
    /// Assumed probability that the change helps, 0 to 1, for the order of remedies.
    pub const fn probability(self) -> f64 {
        match self {
            Self::Measured => 0.9,
            Self::Documented => 0.6,
            Self::Guess => 0.3,
        }
    }
}

/// Place of a remedy in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Rank {
    /// Turns that the program takes with others, by a lock or for the GPU, come before what each of them does.
    First,
    /// What makes most launches unnecessary, unless the condition for that is in doubt.
    Batch,
    /// What a CUDA graph cannot contain, or what has to be changed before it.
    BeforeGraph,
    /// A CUDA graph, or what is done in place of one.
    Graph,
    /// The others, by their gain.
    Gain,
}

/// A change that the report recommends.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Remedy {
    /// Stable word, known to `gpuwhy report --explain`.
    pub id: &'static str,
    /// The change as code, and the condition for it to help.
    pub text: String,
    /// The line that it concerns: `train.py:42 (main)`; `None` if unknown.
    pub at: Option<String>,
    /// What it changes in the results.
    pub results: Results,
    /// What is known about its effect.
    pub certainty: Certainty,
    /// Speedup of the program, at least 1; `None` if nothing predicts it.
    pub speedup: Option<f64>,
    /// Low and high end of the speedup; `None` with an unknown one.
    pub interval: Option<(f64, f64)>,
    /// True if only a bound is known: anything from nothing to `speedup`.
    pub is_bound: bool,
    /// Page of the vendor or the library about it.
    pub link: Option<&'static str>,
    /// True if it can be applied without a change of the program.
    pub outside: bool,
    /// The gain of this program that `gpuwhy try` measured; `None` if it was not tried, or the history was not asked.
    pub measured: Option<MeasuredGain>,
    /// What its gain is of, to follow the gain; empty if its sentence has one change.
    pub(crate) gain_of: &'static str,
    /// True if a CUDA graph, which is advised too, cannot contain what it removes, or should not.
    pub(crate) before_graph: bool,
}

/// Smallest gain that counts as one.
pub const SMALLEST_GAIN: f64 = 1.03;

/// True if a gain with this lower end of its interval counts as one.
pub fn helps(gain: f64, low: f64) -> bool {
    low > 1.0 && gain >= SMALLEST_GAIN
}

/// A gain that `gpuwhy try` measured.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MeasuredGain {
    /// Time per step without the remedy divided by that with it.
    pub gain: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Time of the measurement, nanoseconds since the Unix epoch.
    pub at_unix_ns: u64,
}

impl MeasuredGain {
    /// True if the program is faster with the remedy.
    pub fn helps(&self) -> bool {
        helps(self.gain, self.low)
    }

    /// `measured 1.79x (1.75x to 1.83x) by gpuwhy try on 2026-11-26`.
    pub fn words(&self) -> String {
        let Self { gain, low, high, at_unix_ns } = self;
        let date = date(*at_unix_ns);
        let day = date.split(' ').next().unwrap_or_default();
        format!("measured {gain:.2}x ({low:.2}x to {high:.2}x) by gpuwhy try on {day}")
    }
}

impl Remedy {
    /// False if it was measured to make no difference.
    pub fn is_advised(&self) -> bool {
        self.measured.is_none_or(|measured| measured.helps())
    }

    /// Sentence about the gain; `None` if nothing predicts it or it is too small to be shown.
    pub fn gain(&self) -> Option<String> {
        if let Some(measured) = self.measured {
            return Some(format!("{}.", capitalized(&measured.words())));
        }
        let speedup = self.speedup.filter(|&speedup| speedup >= WORTH_SHOWING)?;
        let gain = match self.interval {
            Some((_, high)) if self.is_bound => at_most(high),
            Some((low, high)) if high.is_infinite() => at_least(low),
            interval => gain(speedup, interval),
        };
        let if_so = if self.certainty == Certainty::Guess { ", if this is the reason" } else { "" };
        Some(format!("Gain: {gain}{}{if_so}.", self.gain_of))
    }
}
