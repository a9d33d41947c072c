//! What one step launches, place by place, with names: what two runs are aligned by.
//!
//! It is not part of the JSON report: a step has hundreds of places, and what is wrong with them is in the tables.

use std::collections::HashMap;

use super::names;
use crate::attribution::step_sequence::StepOperation;
use crate::attribution::{Attributor, Subject};
use crate::dictionary::Dictionary;
use crate::record::DeviceId;

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
    /// Of a device; `None` without steps.
    pub(super) fn of(attributor: &Attributor, device: DeviceId, dictionary: &Dictionary) -> Option<Self> {
        let (places, steps) = attributor.step_sequence(device);
        let mut sequence = Self { steps, names: Vec::new(), places: Vec::with_capacity(places.len()) };
        let mut known: HashMap<_, u32> = HashMap::new();
        for place in places {
            let index = *known.entry((place.leaf, place.subject)).or_insert_with(|| {
                sequence.names.push(match place.subject {
                    Subject::Kernel(name) => names::demangled(dictionary.name(name)),
                    _ => place.leaf.name().to_owned(),
                });
                (sequence.names.len() - 1) as u32
            });
            sequence.places.push((index, *place));
        }
        (steps > 0 && !places.is_empty()).then_some(sequence)
    }

    /// Name of a place.
    #[must_use]
    pub fn name(&self, place: usize) -> &str {
        self.places.get(place).and_then(|(index, _)| self.names.get(*index as usize)).map_or("", String::as_str)
    }
}
