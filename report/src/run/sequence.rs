//! Launch sequence of one step, position by position and with names, used to align two runs.
//!
//! It is not part of the JSON report: a step has hundreds of positions, and the tables show the problems
//! among them.

use std::collections::{HashMap, HashSet};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::DeviceId;
use profiler_core::attribution::{
    Attributor, CallKind, DeviceAccount, Subject, is_layer, is_optimizer, is_selection, is_step,
};
use profiler_core::leaf::Leaf;
use profiler_core::steps::{Inside, RecognizedBy, StepSource};

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
    /// Number of times that `inside` repeats, if each of these is a step: it contains the reason to be one, and the
    /// rest of the sequence launches no other kernels.
    fn steps_in(&self, inside: Inside, is_reason: impl Fn(&str, Leaf) -> bool) -> Option<u32> {
        let (count, distance, all) = (self.places.len(), inside.launches as usize, inside.all() as usize);
        if inside.times < 2 || distance == 0 || all > count {
            return None;
        }
        let name = |place: usize| self.places[place % count].0;
        // The sequence may begin anywhere in a step.
        let (mut run, mut longest) = (0, (0, 0));
        for place in distance..2 * count {
            run = if name(place) == name(place - distance) { run + 1 } else { 0 };
            longest = longest.max((run, place + 1));
        }
        let (repeated, end) = longest;
        let begin = end.saturating_sub(repeated + distance);
        let group: Vec<u32> = (begin..begin + distance).map(name).collect();
        let holds = (begin..begin + distance)
            .any(|place| is_reason(self.name(place % count), self.places[place % count].1.leaf));
        let mut rest = (begin + all..begin + count).map(|place| self.places[place % count]);
        let alone = rest.all(|(name, place)| place.leaf != Leaf::Compute || group.contains(&name));
        (holds && alone && repeated + distance >= all).then_some(inside.times)
    }

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
            StepSource::Annotated => return Self { recognized_by: Some(RecognizedBy::Range), ..Self::default() },
            StepSource::Anchor => return Self { recognized_by: Some(RecognizedBy::Rare), ..Self::default() },
            StepSource::Iteration => return Self { recognized_by: Some(RecognizedBy::Tokens), ..Self::default() },
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
            return Self { inside, ..Self::default() };
        }
        // A layer of some kernels, or an element of a loop, may have a wait or a copy to the host as well.
        let is_large = series.period >= WHOLE_STEP || spans_lines(attributor, account);
        // A copy delimits a step with other work; without other work, the copy itself is the repeating unit.
        let computes = has(&|leaf| !leaf.is_host_copy());
        let recognized_by = if sequence.is_some_and(|sequence| sequence.names.iter().any(|name| is_optimizer(name))) {
            Some(RecognizedBy::Optimizer)
        } else if computes && has(&from_host) {
            Some(RecognizedBy::Input)
        } else if 2 * account.graph_operations() > account.operations() {
            Some(RecognizedBy::Graph)
        } else if is_large && computes && has(&Leaf::is_host_copy) && !sequence.is_some_and(Sequence::selects) {
            Some(RecognizedBy::Readback)
        } else if is_large && facts.is_some_and(|facts| facts.waits) && !sequence.is_some_and(Sequence::selects) {
            Some(RecognizedBy::Wait)
        } else {
            inside.filter(|inside| is_large && inside.all() < series.period).map(|_| RecognizedBy::Rare)
        };
        let is_reason = |name: &str, leaf: Leaf| match recognized_by {
            Some(RecognizedBy::Optimizer) => is_optimizer(name),
            Some(RecognizedBy::Input) => from_host(leaf),
            Some(RecognizedBy::Readback) => leaf.is_host_copy(),
            _ => false,
        };
        let contains = sequence.zip(inside).and_then(|(sequence, inside)| sequence.steps_in(inside, is_reason));
        Self { recognized_by, inside, contains }
    }
}

/// Fewest launches of a unit that a wait, a copy to the host or a rare operation makes a step though one line launches
/// all of it: layers have up to some twenty kernels.
const WHOLE_STEP: u32 = 20;
/// Least part of the samples in calls of a kind, and their least number, for a line to be one of those that make them.
const CALLING_PART: f64 = 0.2;
const CALLING_SAMPLES: u64 = 2;

/// True if several lines launch and copy.
fn spans_lines(attributor: &Attributor, account: &DeviceAccount) -> bool {
    let mut lines: HashMap<(CallKind, _, u32), u64> = HashMap::new();
    for (kind, place, samples) in attributor.call_lines(account.steady_start()) {
        if matches!(kind, CallKind::Launch | CallKind::Copy) && place.line > 0 {
            *lines.entry((kind, place.file, place.line)).or_default() += samples;
        }
    }
    let all =
        |kind: CallKind| lines.iter().filter(|((of, ..), _)| *of == kind).map(|(_, samples)| samples).sum::<u64>();
    let calls = |&(&(kind, ..), &samples): &(&(CallKind, _, u32), &u64)| {
        samples >= CALLING_SAMPLES && samples as f64 >= CALLING_PART * all(kind) as f64
    };
    let lines: HashSet<_> = lines.iter().filter(calls).map(|(&(_, file, line), _)| (file, line)).collect();
    lines.len() > 1
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
