//! What a run of the program gives: a time, or why there is none.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::recorded::Kind;
use crate::trial::change::Change;

/// One run that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Time per step, seconds; of the whole run for a program without steps.
    pub seconds: f64,
    /// Number of steps in it.
    pub steps: usize,
    /// Number of steps of the whole run.
    pub made: usize,
    /// True if it has too few steps for a time of one, and its times are those of the whole run.
    pub is_whole: bool,
    /// Time of all of the work, seconds, if the run ended by itself.
    pub all: Option<f64>,
    /// Times at which steps ended that Python counted, seconds, and the number of the first one behind the start-up.
    pub times: Vec<f64>,
    pub from: usize,
    /// Time per step from the first one to the end of the program, by which the GPU has done everything; and true if
    /// it worked long after the last step.
    pub to_end: Option<f64>,
    pub is_behind: bool,
    /// What is to be known of its time.
    pub note: Option<&'static str>,
    /// How the engine found them, in a recorded run.
    pub kind: Option<Kind>,
    /// Largest share of the times that recording the work of the GPU may have taken, 0 to 1.
    pub cost: Option<f64>,
    /// Remedies that found something to change.
    pub applied: Vec<String>,
    /// What keeps each of them in the user's code, as the Python side has it.
    pub edits: Value,
    /// Standard output.
    pub output: String,
    /// Time from start to end.
    pub wall: Duration,
    /// Why its time says nothing about a remedy.
    pub doubt: Option<&'static str>,
}

impl Measured {
    /// Time per step, seconds, also where only the end of the program says it.
    pub fn per_step(&self) -> f64 {
        self.to_end.filter(|_| self.is_behind).unwrap_or(self.seconds)
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// With a time per step.
    Measured(Measured),
    /// It failed, with this exit code and these last lines on stderr.
    Failed(u8, String),
    /// It made too few steps, this many, or others than before.
    TooFewSteps(usize),
    /// Time was up after this many steps.
    OutOfTime(usize),
    /// The change had no effect, for this reason.
    NotApplicable(String),
}

/// The program that is tried.
pub trait Program {
    /// Runs it with these changes.
    ///
    /// # Errors
    /// When a run cannot be started, or a signal came.
    fn run(&mut self, changes: &[Change]) -> Result<Ended>;

    /// False if `change` can find nothing to change, as far as is known without a run.
    fn can_apply(&self, change: &Change) -> bool;

    /// Time since the first run started.
    fn elapsed(&self) -> Duration;
}
