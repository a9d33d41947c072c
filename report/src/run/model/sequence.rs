//! Launch sequence of one step, position by position and with names, and the meaning of a detected step.

use profiler_core::attribution::step_sequence::{StepCalls, StepOperation};
use profiler_core::steps::{Inside, RecognizedBy};

/// Meaning of a device's steps: steps of the program, or a repeating unit that may be part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepMeaning {
    /// Evidence that they are steps of the program; `None` without evidence.
    pub recognized_by: Option<RecognizedBy>,
    /// Unit that repeats within each step.
    pub inside: Option<Inside>,
    /// Number of the program's steps in each, if there are several: the evidence is in the unit that repeats.
    pub contains: Option<u32>,
}

impl StepMeaning {
    /// Meaning of the iterations of a server.
    pub(in crate::run) const ITERATION: Self =
        Self { recognized_by: Some(RecognizedBy::Tokens), inside: None, contains: None };

    pub(crate) const fn noun(self) -> &'static str {
        match self.recognized_by {
            Some(RecognizedBy::Tokens) => "iteration",
            Some(_) if self.contains.is_none() => "step",
            _ => "repeating unit",
        }
    }

    /// Number of the program's steps in each.
    pub(crate) fn steps(self) -> u64 {
        self.contains.map_or(1, u64::from)
    }
}

/// Operations of a step in launch order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Number of steps that launched exactly this sequence.
    pub steps: u64,
    /// Their calls and copied bytes, in sum.
    pub calls: StepCalls,
    /// Distinct names.
    pub names: Vec<String>,
    /// Per position: index of the name, and the durations over the steps.
    pub places: Vec<(u32, StepOperation)>,
}

impl Sequence {
    /// Name of the operation at a position.
    pub fn name(&self, place: usize) -> &str {
        self.places.get(place).and_then(|(index, _)| self.names.get(*index as usize)).map_or("", String::as_str)
    }
}
