//! What one step launches, place by place, with names: what two runs are aligned by.
//!
//! It is not part of the JSON report: a step has hundreds of places, and what is wrong with them is in the tables.

use std::collections::HashMap;

use super::{Sequence, names};
use crate::attribution::{Attributor, Subject};
use crate::dictionary::Dictionary;
use crate::record::DeviceId;

impl Sequence {
    /// Of a device; `None` without steps.
    pub(super) fn of(attributor: &Attributor, device: DeviceId, dictionary: &Dictionary) -> Option<Self> {
        let (places, steps) = attributor.step_sequence(device);
        let mut sequence = Self { steps, names: Vec::new(), places: Vec::with_capacity(places.len()) };
        let mut known: HashMap<_, u32> = HashMap::new();
        for place in places {
            let index = *known.entry((place.leaf, place.subject)).or_insert_with(|| {
                sequence.names.push(match place.subject {
                    Subject::Kernel(name) => names::kernel(dictionary, name),
                    _ => place.leaf.name().to_owned(),
                });
                (sequence.names.len() - 1) as u32
            });
            sequence.places.push((index, *place));
        }
        (steps > 0 && !places.is_empty()).then_some(sequence)
    }
}
