//! A remedy that a report recommends.

use gpuwhy_trace::named;
use profiler_core::whatif::WORTH_SHOWING;

use crate::words::faster;

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

/// A change that the report recommends.
#[derive(Clone, Debug, PartialEq)]
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
    /// Page of the vendor or the library about it.
    pub link: Option<&'static str>,
    /// True if it can be applied without a change of the program.
    pub outside: bool,
}

impl Remedy {
    /// Sentence about the gain; `None` if nothing predicts it or it is too small to be shown.
    pub fn gain(&self) -> Option<String> {
        let speedup = self.speedup.filter(|&speedup| speedup >= WORTH_SHOWING)?;
        let could = if self.certainty == Certainty::Guess { "may" } else { "could" };
        Some(match self.interval {
            Some((low, high)) if high.is_infinite() => {
                format!("This {could} make the program at least {low:.2}x as fast (an estimate).")
            }
            interval => format!("This {could} make the program {}.", faster(speedup, interval)),
        })
    }
}
