//! What a run of the program gives: a time, or why there is none.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::recorded::Kind;
use super::unit::Unit;
use crate::trial::change::Change;
use crate::trial::place::tree::Copies;
use crate::trial::refused::{NOTHING, Refused};

/// Number of last lines of a failed program's stderr to show.
const LAST_LINES: usize = 10;

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
    Measured(Box<Measured>),
    /// It failed, with this exit code and these last lines on stderr.
    Failed(u8, String),
    /// It made too few steps, this many, or others than before; the names of other ranges.
    TooFewSteps(usize, Vec<String>),
    /// Time was up after this many steps.
    OutOfTime(usize),
    /// The change had no effect, for this reason.
    NotApplicable(String),
}

impl Ended {
    /// Why the unchanged program gave no time, with the exit code.
    pub fn refused(self, copies: Option<&Copies>, unit: Option<&Unit>, is_cost: bool) -> Refused {
        let mut code = NOTHING;
        let words = match self {
            Self::Measured(_) => {
                "the command recorded nothing: it did not use CUDA; name remedies with --remedy".to_owned()
            }
            Self::NotApplicable(why) => why,
            Self::Failed(its, errors) => {
                code = its;
                let lines: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
                let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
                let last = if last.is_empty() { "it prints nothing on stderr" } else { &last };
                let place = if copies.is_some() { " in a copy of the tree" } else { "" };
                let hint = copies.map(|copies| copies.hint(&errors)).unwrap_or_default();
                format!(
                    "the unchanged command fails{place}, with exit code {code} (its standard input is empty):\n{last}{hint}"
                )
            }
            Self::TooFewSteps(steps, ranges) => {
                let what = match unit {
                    Some(unit) if unit.step.is_some() => format!("a step is {}", unit.words()),
                    Some(unit) if unit.is_recorded() => "a step is what repeats in the recorded work of the GPU; --step \
                                                         RANGE names one of the program's NVTX ranges"
                        .to_owned(),
                    _ => "a step is a call of an optimizer, a pass of a loop, a call of the outermost module, or a batch of \
                          a DataLoader"
                        .to_owned(),
                };
                let lead = if ranges.is_empty() { "" } else { ". Ranges that it opened: " };
                let end = if is_cost { "; without steps, --cost needs a command that ends by itself" } else { "" };
                format!("the command made {steps} steps, too few to measure: {what}{lead}{}{end}", ranges.join(", "))
            }
            Self::OutOfTime(steps) => format!(
                "the command took longer than the time for everything, and made {steps} steps; give it more (--budget), or \
                 fewer steps (--steps)"
            ),
        };
        Refused(code, words)
    }
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

    /// Why the unchanged program gave no time.
    fn refused(&self, ended: Ended) -> Refused;
}
