//! What one step launches, place by place, with names.

use crate::attribution::step_sequence::StepOperation;

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
    #[must_use]
    pub fn name(&self, place: usize) -> &str {
        self.places.get(place).and_then(|(index, _)| self.names.get(*index as usize)).map_or("", String::as_str)
    }
}
