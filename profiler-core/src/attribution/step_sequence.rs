//! Sequence of operations that the steps of a device launch, with the duration at each position.
//!
//! One sequence is kept: that of the current steps. A step that launches the same adds its durations to it;
//! three in a row that launch something else replace it, so an evaluation in between changes nothing, but a
//! new phase does. Operations come in launch order, which is the same for equal steps regardless of stream
//! scheduling. Memory is bounded by [`PLACE_LIMIT`]; a longer step has no sequence.

use super::host_cause::Subject;
use crate::leaf::Leaf;

/// Maximum length of a sequence (56 bytes each). The longest detectable period has fewer launches.
pub const PLACE_LIMIT: usize = 65_536;
/// Consecutive steps that must differ from the kept sequence to replace it.
const CONSECUTIVE_DIFFERENT: u32 = 3;

/// One operation of a step, over all steps with the same launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOperation {
    /// Kind of operation.
    pub leaf: Leaf,
    /// Kernel, or the subject of another operation.
    pub subject: Subject,
    /// Sum of its durations, nanoseconds.
    pub total_ns: u64,
    /// Shortest duration, nanoseconds.
    pub min_ns: u64,
    /// Longest duration, nanoseconds.
    pub max_ns: u64,
}

/// Calls and bytes of steps, beside their operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCalls {
    /// Calls that launched kernels or graphs.
    pub launches: u64,
    /// Calls of any thread that only waited for a device.
    pub synchronizations: u64,
    /// Calls of any thread that allocated device or pinned memory.
    pub allocations: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
}

impl StepCalls {
    fn add(&mut self, other: Self) {
        self.launches += other.launches;
        self.synchronizations += other.synchronizations;
        self.allocations += other.allocations;
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
    }
}

/// The step that launches operations now.
#[derive(Debug)]
struct OpenStep {
    operations: Vec<OpenStepOperation>,
    calls: StepCalls,
    /// Waits and allocations of the host before it.
    before: StepCalls,
}

/// An operation of the open step.
#[derive(Clone, Copy, Debug)]
struct OpenStepOperation {
    leaf: Leaf,
    subject: Subject,
    nanos: u64,
}

impl StepOperation {
    fn new(&OpenStepOperation { leaf, subject, nanos }: &OpenStepOperation) -> Self {
        Self { leaf, subject, total_ns: nanos, min_ns: nanos, max_ns: nanos }
    }

    fn is_like(&self, other: &OpenStepOperation) -> bool {
        (self.leaf, self.subject) == (other.leaf, other.subject)
    }

    fn add(&mut self, nanos: u64) {
        self.total_ns = self.total_ns.saturating_add(nanos);
        self.min_ns = self.min_ns.min(nanos);
        self.max_ns = self.max_ns.max(nanos);
    }
}

#[derive(Debug, Default)]
pub(super) struct StepSequence {
    kept: Vec<StepOperation>,
    /// Sums over the steps with these launches.
    calls: StepCalls,
    steps: u64,
    open: Option<OpenStep>,
    different: u32,
}

impl StepSequence {
    /// A step starts with the next operation; the open one is complete. `before` has the host's waits and allocations
    /// before it.
    pub(super) fn begin(&mut self, before: StepCalls) {
        let operations = Vec::with_capacity(self.kept.len());
        let open = OpenStep { operations, calls: StepCalls::default(), before };
        let Some(OpenStep { operations: step, mut calls, before: earlier }) = self.open.replace(open) else { return };
        calls.synchronizations = before.synchronizations.saturating_sub(earlier.synchronizations);
        calls.allocations = before.allocations.saturating_sub(earlier.allocations);
        let same = step.len() == self.kept.len()
            && self.kept.iter().zip(&step).all(|(place, launched)| place.is_like(launched));
        if same {
            self.kept.iter_mut().zip(&step).for_each(|(place, launched)| place.add(launched.nanos));
            self.calls.add(calls);
            self.steps += 1;
            self.different = 0;
            return;
        }
        self.different += 1;
        if self.kept.is_empty() || self.different >= CONSECUTIVE_DIFFERENT {
            (self.kept, self.steps, self.different) = (step.iter().map(StepOperation::new).collect(), 1, 0);
            self.calls = calls;
        }
    }

    /// Discards the open step, which turned out not to be one.
    pub(super) fn lose(&mut self) {
        self.open = None;
    }

    /// Adds the next operation in launch order. `launches`: a call launched it as its first kernel or node.
    pub(super) fn push(&mut self, leaf: Leaf, subject: Subject, nanos: u64, bytes: u64, launches: bool) {
        let Some(open) = &mut self.open else { return };
        if open.operations.len() < PLACE_LIMIT {
            open.operations.push(OpenStepOperation { leaf, subject, nanos });
            open.calls.launches += u64::from(launches);
            open.calls.copied_bytes = open.calls.copied_bytes.saturating_add(bytes);
        } else {
            self.open = None;
        }
    }

    /// Operations of a step, and the number of steps with exactly these launches, and their calls in sum. Empty
    /// without steps.
    pub(super) fn places(&self) -> (&[StepOperation], u64, StepCalls) {
        (&self.kept, self.steps, self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(synchronizations: u64) -> StepCalls {
        StepCalls { synchronizations, allocations: 3 * synchronizations, ..StepCalls::default() }
    }

    fn run(steps: &[&[(Leaf, u64)]]) -> StepSequence {
        let mut sequence = StepSequence::default();
        sequence.push(Leaf::Compute, Subject::None, 1, 0, true);
        for (step, waits) in steps.iter().zip((7..).step_by(2)) {
            sequence.begin(before(waits));
            let bytes = |leaf: Leaf| u64::from(leaf != Leaf::Compute) * 100;
            step.iter()
                .for_each(|&(leaf, nanos)| sequence.push(leaf, Subject::None, nanos, bytes(leaf), bytes(leaf) == 0));
        }
        sequence.begin(before(7 + 2 * steps.len() as u64));
        sequence
    }

    #[test]
    fn equal_steps_add_up_and_another_in_between_does_not_count() {
        let train = |nanos| [(Leaf::CopyH2dPinned, 5), (Leaf::Compute, nanos)];
        let evaluation = [(Leaf::Compute, 900)];
        let sequence = run(&[&train(10), &train(30), &evaluation, &evaluation, &train(20)]);
        let (places, steps, calls) = sequence.places();
        assert_eq!((places.len(), steps), (2, 3));
        assert_eq!(calls, StepCalls { launches: 3, synchronizations: 6, allocations: 18, copied_bytes: 300 });
        let compute = places[1];
        assert_eq!((compute.total_ns, compute.min_ns, compute.max_ns), (60, 10, 30));

        let changed = run(&[&train(10), &train(30), &evaluation, &evaluation, &evaluation, &evaluation]);
        let (places, steps, calls) = changed.places();
        assert_eq!((places.len(), places[0].total_ns, steps), (1, 1_800, 2));
        assert_eq!(calls, StepCalls { launches: 2, synchronizations: 4, allocations: 12, copied_bytes: 0 });
    }

    #[test]
    fn what_is_open_or_lost_does_not_count() {
        let mut sequence = run(&[&[(Leaf::Compute, 1)]]);
        sequence.push(Leaf::Compute, Subject::None, 5, 0, true);
        sequence.lose();
        sequence.push(Leaf::Compute, Subject::None, 5, 0, true);
        sequence.begin(before(9));
        assert_eq!(sequence.places().1, 1);
    }
}
