//! What one step launches, place by place, with names, and what a found step is.

use profiler_core::attribution::step_sequence::StepOperation;
use profiler_core::steps::{Inside, ToldBy};

/// What the steps of a device are: the program's own, or a unit that repeats and may be a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepMeaning {
    /// What tells that they are steps; `None` where nothing does.
    pub told_by: Option<ToldBy>,
    /// What repeats within each.
    pub inside: Option<Inside>,
}

impl StepMeaning {
    pub(crate) const fn noun(self) -> &'static str {
        if self.told_by.is_some() { "step" } else { "repeating unit" }
    }
}

/// The operations of a step in the order of their launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Steps that launched just this.
    pub steps: u64,
    /// Names that occur.
    pub names: Vec<String>,
    /// Index of the name, and the durations over the steps.
    pub places: Vec<(u32, StepOperation)>,
}

impl Sequence {
    /// Name of a place.
    pub fn name(&self, place: usize) -> &str {
        self.places.get(place).and_then(|(index, _)| self.names.get(*index as usize)).map_or("", String::as_str)
    }
}
