//! Launch sequence of one step, position by position and with names, used to align two runs.
//!
//! It is not part of the JSON report: a step has hundreds of positions, and the tables show the problems
//! among them.

use std::collections::HashMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::DeviceId;
use profiler_core::attribution::{Attributor, DeviceAccount, Subject, is_layer, is_optimizer, is_selection, is_step};
use profiler_core::leaf::Leaf;
use profiler_core::steps::{RecognizedBy, StepSource};

use super::{Sequence, StepMeaning, names};

impl Sequence {
    /// Returns the sequence of a device; `None` without steps.
    pub(super) fn of(attributor: &Attributor, device: DeviceId, dictionary: &Dictionary) -> Option<Self> {
        let (places, steps, calls) = attributor.step_sequence(device);
        let mut sequence = Self { steps, calls, names: Vec::new(), places: Vec::with_capacity(places.len()) };
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

impl Sequence {
    /// True if it selects elements: it reads their number, in a layer as well as in a step.
    fn selects(&self) -> bool {
        self.names.iter().any(|name| is_selection(name))
    }
}

impl StepMeaning {
    /// Determines the meaning of the steps that represent `account`; one of them launches `sequence`. A
    /// period alone may be that of a layer. Operations that are unlikely in a layer, or that occur once next
    /// to repeated layers, show that it is a step.
    pub(super) fn of(
        attributor: &Attributor,
        account: &DeviceAccount,
        sequence: Option<&Sequence>,
        dictionary: &Dictionary,
    ) -> Self {
        let series = account.step_series();
        match series.source {
            StepSource::Annotated => return Self { recognized_by: Some(RecognizedBy::Range), inside: None },
            StepSource::Anchor => return Self { recognized_by: Some(RecognizedBy::Rare), inside: None },
            StepSource::Window => return Self::default(),
            StepSource::Period => {}
        }
        let facts = attributor.step_facts(account.id(), series.period);
        let has = |wanted: &dyn Fn(Leaf) -> bool| {
            sequence.is_some_and(|sequence| sequence.places.iter().any(|(_, place)| wanted(place.leaf)))
        };
        let from_host = |leaf| matches!(leaf, Leaf::CopyH2dPageable | Leaf::CopyH2dPinned | Leaf::CopyH2dOther);
        let inside = facts.and_then(|facts| facts.inside);
        if is_part(attributor, account, series.period, dictionary) {
            return Self { recognized_by: None, inside };
        }
        // A copy delimits a step with other work; without other work, the copy itself is the repeating unit.
        let computes = has(&|leaf| !leaf.is_host_copy());
        let recognized_by = if sequence.is_some_and(|sequence| sequence.names.iter().any(|name| is_optimizer(name))) {
            Some(RecognizedBy::Optimizer)
        } else if computes && has(&from_host) {
            Some(RecognizedBy::Input)
        } else if 2 * account.graph_operations() > account.operations() {
            Some(RecognizedBy::Graph)
        } else if computes && has(&Leaf::is_host_copy) && !sequence.is_some_and(Sequence::selects) {
            Some(RecognizedBy::Readback)
        } else if facts.is_some_and(|facts| facts.waits) && !sequence.is_some_and(Sequence::selects) {
            Some(RecognizedBy::Wait)
        } else {
            inside.filter(|inside| inside.all() < series.period).map(|_| RecognizedBy::Rare)
        };
        Self { recognized_by, inside }
    }
}

/// True if the program's ranges show that units of `period` launches are parts of a step: ranges that are steps by
/// their name contain most of the work and are at most half as many, or each unit has a range that is a layer by its
/// name.
fn is_part(attributor: &Attributor, account: &DeviceAccount, period: u32, dictionary: &Dictionary) -> bool {
    let units = account.operations() / u64::from(period.max(1));
    let (mut steps, mut in_steps, mut layers) = (0, 0, 0);
    for (totals, _) in attributor.ranges() {
        let (name, count) = (dictionary.name(totals.key.message), totals.host.durations.count());
        if is_step(name) {
            steps += count;
            in_steps += totals.operations;
        } else if is_layer(name) {
            layers += count;
        }
    }
    let within_steps = steps > 0 && 2 * steps <= units && 2 * in_steps >= account.operations();
    // The range of a layer in the forward pass, and one in the backward pass.
    within_steps || units > 1 && (units / 2..=2 * units + 1).contains(&layers)
}
