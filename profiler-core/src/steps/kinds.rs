//! Kinds of steps.
//!
//! The iterations of a server have kinds by what they process. Other steps may be long ones and short ones: a
//! loader whose workers cannot keep up makes every third step wait, but not the others; with gradients
//! accumulated over four steps, the fourth has the optimizer. No single number describes such steps. They are
//! split at the widest gap in the sorted durations, if both sides have enough steps, differ twofold and are
//! narrower than the gap. If durations do not separate them, the time of each cause is used.

use super::{IterationKind, Step};
use crate::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use crate::sorting::SortRows as _;

/// Minimum fraction of the steps in each kind, as a divisor...
const LEAST_PART: usize = 10;
/// ...and minimum number of steps.
const LEAST_STEPS: usize = 5;
/// Minimum ratio of the medians of the two kinds.
const LEAST_RATIO: u64 = 2;
/// Minimum difference between the kinds of a cause, as a divisor of a step.
const LEAST_OF_STEP: u64 = 5;

/// Number of iterations from which one that lasts this many times the median is a pause: graphs are captured, or, where
/// that is not recorded, nobody asks.
const MANY: u64 = 20;
const PAUSE: u64 = 20;

/// Steps of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKind {
    /// `decode`, `prefill`, `mixed` or `prefill or mixed` for iterations of a server; `long` and `short`, or `more`
    /// and `less` if they differ only in the time of a cause.
    pub name: &'static str,
    /// Number of steps.
    pub count: u64,
    /// Their time, nanoseconds; for a server without the time in which nobody asks, and without iterations of twenty
    /// times the median.
    pub total_ns: u64,
    /// Median of their durations, nanoseconds, without the time in which nobody asks a server; of the remembered ones,
    /// like the two that follow.
    pub median_ns: u64,
    /// Duration that 99 % of them do not exceed, nanoseconds.
    pub p99_ns: u64,
    /// Their time by cause, nanoseconds.
    pub leaves: Leaves,
    /// Sequences in the median iteration; `None` if unknown.
    pub sequences: Option<u32>,
    /// Tokens of all iterations together; `None` if unknown.
    pub tokens: Option<u64>,
}

/// The cause in which two kinds of steps differ most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindsDifference {
    /// The cause.
    pub cause: Cause,
    /// Its mean time in a step of the kind with more of it, nanoseconds.
    pub more_ns: u64,
    /// Its mean time in a step of the other kind, nanoseconds.
    pub less_ns: u64,
}

/// Iterations of a server by kind, also those that are no longer remembered.
pub(super) type IterationTotals = [KindTotals; IterationKind::ALL.len()];

/// Totals of the iterations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindTotals {
    count: u64,
    nanos: u64,
    tokens: u64,
    /// True if the tokens of an iteration are unknown, so that their sum is.
    unknown: bool,
}

impl KindTotals {
    pub(super) fn add(&mut self, step: &Step, tokens: u32) {
        self.count += 1;
        self.nanos = self.nanos.saturating_add(working(step));
        self.tokens = self.tokens.saturating_add(tokens.into());
        self.unknown |= tokens == 0;
    }
}

impl StepKind {
    /// Long and short steps, or steps with more and less time of a cause; empty if `steps` are of one kind.
    pub(super) fn by_gap(steps: &[Step]) -> Vec<Self> {
        let durations: Vec<u64> = steps.iter().map(Step::duration).collect();
        if let Some(from) = split(&durations) {
            return Self::divided(steps, &durations, from, ["long", "short"]).into();
        }
        let mut typical = durations;
        typical.sort_unstable();
        let typical = typical.get(typical.len() / 2).copied().unwrap_or(0);
        let largest_first = |cause: &Cause| std::cmp::Reverse(steps.iter().map(|step| time(*cause, step)).sum::<u64>());
        let mut causes = Cause::ALL;
        causes.sort_rows_by_key(largest_first);
        let found = causes.into_iter().find_map(|cause| {
            let times: Vec<u64> = steps.iter().map(|step| time(cause, step)).collect();
            let [more, less] = Self::divided(steps, &times, split(&times)?, ["more", "less"]);
            (more.mean(cause).saturating_sub(less.mean(cause)) >= typical / LEAST_OF_STEP).then_some([more, less])
        });
        found.map_or_else(Vec::new, Vec::from)
    }

    /// Kinds of these iterations, with the totals of all iterations.
    pub(super) fn by_iteration(steps: &[Step], totals: &IterationTotals) -> Vec<Self> {
        let of_kind = |(kind, totals): (IterationKind, &KindTotals)| {
            let rows = steps.iter().filter(|step| step.iteration.is_some_and(|of| of.kind == kind));
            let mut sequences: Vec<u32> = rows.clone().filter_map(|row| row.iteration.map(|of| of.sequences)).collect();
            sequences.sort_unstable();
            let sequences = sequences.get(sequences.len() / 2).copied().filter(|&sequences| sequences > 0);
            let &KindTotals { count, nanos, tokens, unknown } = totals;
            let tokens = (!unknown).then_some(tokens);
            let remembered = Self::of(kind.name(), rows.clone(), working);
            let pauses = rows.map(working).filter(|&nanos| count >= MANY && nanos > PAUSE * remembered.median_ns);
            let total_ns = nanos.saturating_sub(pauses.sum());
            (count > 0).then_some(Self { count, total_ns, sequences, tokens, ..remembered })
        };
        IterationKind::ALL.into_iter().zip(totals).filter_map(of_kind).collect()
    }

    /// Steps whose value is at least `from`, and the others.
    fn divided(steps: &[Step], values: &[u64], from: u64, names: [&'static str; 2]) -> [Self; 2] {
        [true, false].map(|is_more| {
            let pairs = steps.iter().zip(values).filter(|(_, value)| (**value >= from) == is_more);
            Self::of(names[usize::from(!is_more)], pairs.map(|(step, _)| step), Step::duration)
        })
    }

    fn of<'a>(name: &'static str, steps: impl Iterator<Item = &'a Step>, time: impl Fn(&Step) -> u64) -> Self {
        let (mut durations, mut leaves) = (Vec::new(), [0; LEAF_COUNT]);
        for step in steps {
            durations.push(time(step));
            leaves.iter_mut().zip(step.leaves).for_each(|(sum, nanos): (&mut u64, _)| *sum = sum.saturating_add(nanos));
        }
        durations.sort_unstable();
        let at = |index: usize| durations.get(index).copied().unwrap_or(0);
        let count = durations.len();
        Self {
            name,
            count: count as u64,
            total_ns: durations.iter().fold(0, |sum, nanos| sum.saturating_add(*nanos)),
            median_ns: u64::midpoint(at(count / 2), at(count.saturating_sub(1) / 2)),
            p99_ns: at((99 * count).div_ceil(100).saturating_sub(1)),
            leaves,
            sequences: None,
            tokens: None,
        }
    }

    /// Mean time of `cause` in a step, nanoseconds.
    pub fn mean(&self, cause: Cause) -> u64 {
        let all: u64 = self.leaves.iter().sum::<u64>() - self.leaves[Leaf::NoWork as usize];
        // Of the remembered steps: they may be fewer than `count`.
        let steps = (self.count as f64 * all as f64 / self.total_ns.max(1) as f64).max(1.0);
        (cause.total(&self.leaves) as f64 / steps) as u64
    }
}

impl KindsDifference {
    /// The difference of the first two kinds; `None` unless there are two.
    pub fn of(kinds: &[StepKind]) -> Option<Self> {
        let [more, less, ..] = kinds else { return None };
        let apart = |cause: &Cause| more.mean(*cause).saturating_sub(less.mean(*cause));
        let cause = Cause::ALL.into_iter().max_by_key(apart)?;
        Some(Self { cause, more_ns: more.mean(cause), less_ns: less.mean(cause) })
    }
}

/// Duration of an iteration without the time in which nobody asks, nanoseconds.
fn working(step: &Step) -> u64 {
    step.duration().saturating_sub(step.leaves[Leaf::NoWork as usize])
}

fn time(cause: Cause, step: &Step) -> u64 {
    cause.total(&step.leaves)
}

/// Smallest of the larger values, if there are two kinds.
fn split(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let least = LEAST_STEPS.max(sorted.len().div_ceil(LEAST_PART));
    let indices = least..(sorted.len() + 1).saturating_sub(least);
    let index = indices.max_by_key(|&index| sorted[index] - sorted[index - 1])?;
    let (less, more) = sorted.split_at(index);
    let gap = more[0] - less[less.len() - 1];
    // The middle half of each kind; with the full range, a single step in between would decide.
    let spread = |kind: &[u64]| kind[kind.len() - 1 - kind.len() / 4] - kind[kind.len() / 4];
    let (low, high) = (less[less.len() / 2], more[more.len() / 2]);
    let apart = high > 0 && high >= LEAST_RATIO.saturating_mul(low) && gap > spread(less).max(spread(more));
    apart.then_some(more[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Iteration;
    use gpuwhy_trace::record::Timestamp;

    /// Steps with these times of computation and of waiting for data.
    fn steps(times: impl IntoIterator<Item = (u64, u64)>) -> Vec<Step> {
        let step = |(compute, wait): (u64, u64)| {
            let mut leaves = [0; LEAF_COUNT];
            leaves[Leaf::Compute as usize] = compute;
            leaves[Leaf::DataLoading as usize] = wait;
            let at = Timestamp::from_nanos;
            Step { start: at(1_000), end: at(1_000 + compute + wait), operations: 9, leaves, iteration: None }
        };
        times.into_iter().map(step).collect()
    }

    fn counts(kinds: &[StepKind]) -> Vec<(&'static str, u64)> {
        kinds.iter().map(|kind| (kind.name, kind.count)).collect()
    }

    #[test]
    fn two_of_three_steps_wait() {
        let kinds = StepKind::by_gap(&steps((0..90).map(|n| (10 + n % 2, if n % 3 == 0 { 0 } else { 27 + n % 5 }))));
        assert_eq!(counts(&kinds), [("long", 60), ("short", 30)]);
        assert!((38..42).contains(&kinds[0].median_ns) && kinds[1].median_ns == 10);
        assert_eq!(
            KindsDifference::of(&kinds).unwrap(),
            KindsDifference { cause: Cause::DataLoading, more_ns: 29, less_ns: 0 }
        );
    }

    #[test]
    fn a_cause_tells_kinds_of_one_length() {
        // In every second step the device computes for the time that it waits in the other.
        let kinds = StepKind::by_gap(&steps((0..40).map(|n| if n % 2 == 0 { (10, 30) } else { (38, 1) })));
        assert_eq!(counts(&kinds), [("more", 20), ("less", 20)]);
        let cause = KindsDifference::of(&kinds).unwrap().cause;
        assert!(matches!(cause, Cause::DataLoading | Cause::GpuCompute), "{kinds:?}");
        // A cause that is a small part of the step makes no kind.
        assert_eq!(StepKind::by_gap(&steps((0..40).map(|n| (100, n % 2 * 15)))), []);
    }

    #[test]
    fn few_alike_or_scattered_steps_are_of_one_kind() {
        let are_of_one_kind = |times: &[(u64, u64)]| StepKind::by_gap(&steps(times.iter().copied())).is_empty();
        assert!(are_of_one_kind(&[]));
        assert!(are_of_one_kind(&[(10, 0), (30, 0)]));
        let of = |count: u64, time: &dyn Fn(u64) -> u64| (0..count).map(|n| (time(n), 0)).collect::<Vec<_>>();
        assert!(are_of_one_kind(&of(100, &|n| if n < 4 { 500 } else { 10 })), "4 % are unusual");
        assert!(are_of_one_kind(&of(30, &|n| if n % 2 == 0 { 10 } else { 19 })), "less than twice");
        assert!(!are_of_one_kind(&of(30, &|n| if n % 2 == 0 { 10 } else { 20 })));
        // A uniform range from 10 to 60, or a long tail, has no significant gap.
        assert!(are_of_one_kind(&of(50, &|n| 10 + n * 37 % 50)));
        let tail = |n: u64| (10.0 - 10.0 * (1.0 - (n as f64 + 0.5) / 200.0).ln()) as u64;
        assert!(are_of_one_kind(&of(200, &|n| tail(n) * 100)));
    }

    #[test]
    fn unusual_steps_do_not_hide_the_kinds() {
        let times = (0..100).map(|n| (10, if n == 50 { 9_000 } else { n % 4 / 3 * 40 }));
        assert_eq!(counts(&StepKind::by_gap(&steps(times))), [("long", 26), ("short", 74)]);
    }

    #[test]
    fn iterations_count_when_they_are_forgotten() {
        let mut rows = steps((0..8).map(|n| (if n < 2 { 50 } else { 10 + n }, 0)));
        let mut totals = IterationTotals::default();
        for (number, row) in rows.iter_mut().enumerate() {
            let kind = if number < 2 { IterationKind::Prefill } else { IterationKind::Decode };
            let tokens = if number < 2 { 500 } else { 4 };
            row.iteration = Some(Iteration { kind, sequences: 4, tokens });
            totals[kind as usize].add(row, tokens);
        }
        let kinds = StepKind::by_iteration(&rows[1..], &totals);
        assert_eq!(counts(&kinds), [("decode", 6), ("prefill", 2)]);
        assert_eq!(kinds.iter().map(|kind| (kind.median_ns, kind.p99_ns)).collect::<Vec<_>>(), [(14, 17), (50, 50)]);
        assert_eq!(
            kinds.iter().map(|kind| (kind.sequences, kind.tokens)).collect::<Vec<_>>(),
            [(Some(4), Some(24)), (Some(4), Some(1_000))]
        );
        assert_eq!((kinds[1].total_ns, kinds[1].mean(Cause::GpuCompute)), (100, 50), "one of two is remembered");
        // Nobody asked for 30 ns before an iteration, and the tokens of another are unknown.
        rows[7].leaves[Leaf::NoWork as usize] = 30;
        rows[7].end = Timestamp::from_nanos(rows[7].end.nanos() + 30);
        totals[0].add(&rows[7], 0);
        let decode = StepKind::by_iteration(&rows, &totals)[0];
        assert_eq!((decode.p99_ns, decode.tokens, decode.total_ns), (17, None, 87 + 17));
    }
}
