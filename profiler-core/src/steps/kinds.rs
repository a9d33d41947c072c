//! Steps of two kinds: long ones and short ones.
//!
//! A loader whose workers cannot keep up makes every third step wait, but not the others; with gradients
//! accumulated over four steps, the fourth has the optimizer. No single number describes such steps. They are
//! split at the widest gap in the sorted durations, if both sides have enough steps, differ twofold and are
//! narrower than the gap. If durations do not separate them, the time of each cause is used.

use super::Step;
use crate::leaf::Cause;
use crate::sorting::SortRows as _;

/// Minimum fraction of the steps in each kind, as a divisor...
const LEAST_PART: usize = 10;
/// ...and minimum number of steps.
const LEAST_STEPS: usize = 5;
/// Minimum ratio of the medians of the two kinds.
const LEAST_RATIO: u64 = 2;
/// Minimum difference between the kinds of a cause, as a divisor of a step.
const LEAST_OF_STEP: u64 = 5;

/// Two kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKinds {
    /// Number of steps of the kind that takes longer, or that has more of the cause.
    pub more: u64,
    /// Number of other steps.
    pub less: u64,
    /// Median duration of the first kind, nanoseconds.
    pub more_ns: u64,
    /// Median duration of the other kind, nanoseconds.
    pub less_ns: u64,
    /// The cause in which the two kinds differ most.
    pub cause: Cause,
    /// Mean time of that cause in a step of the first kind, nanoseconds.
    pub more_of_cause_ns: u64,
    /// Mean time of that cause in a step of the other kind, nanoseconds.
    pub less_of_cause_ns: u64,
    /// True if the kinds differ in duration; otherwise only in the time of the cause.
    pub by_duration: bool,
}

impl StepKinds {
    /// Kinds of `steps`, if there are two.
    pub fn of(steps: &[Step]) -> Option<Self> {
        let durations: Vec<u64> = steps.iter().map(Step::duration).collect();
        if let Some(from) = split(&durations) {
            return Some(Self::recognized_by(steps, &durations, from, None));
        }
        let typical = median(durations)?;
        let largest_first = |cause: &Cause| std::cmp::Reverse(steps.iter().map(|step| time(*cause, step)).sum::<u64>());
        let mut causes = Cause::ALL;
        causes.sort_rows_by_key(largest_first);
        causes.into_iter().find_map(|cause| {
            let times: Vec<u64> = steps.iter().map(|step| time(cause, step)).collect();
            let kinds = Self::recognized_by(steps, &times, split(&times)?, Some(cause));
            let apart = kinds.more_of_cause_ns - kinds.less_of_cause_ns;
            (apart >= typical / LEAST_OF_STEP).then_some(kinds)
        })
    }

    /// Splits into steps whose value is at least `from`, and the others; they differ in `cause`, if it is
    /// known.
    fn recognized_by(steps: &[Step], values: &[u64], from: u64, cause: Option<Cause>) -> Self {
        let by_duration = cause.is_none();
        let kind = |is_more: bool| {
            let pairs = steps.iter().zip(values);
            pairs.filter(move |(_, value)| (**value >= from) == is_more).map(|(step, _)| step)
        };
        let count = |is_more: bool| kind(is_more).count() as u64;
        let mean = |is_more: bool, cause: Cause| {
            kind(is_more).map(|step| time(cause, step)).sum::<u64>() / count(is_more).max(1)
        };
        let apart = |cause: &Cause| mean(true, *cause).saturating_sub(mean(false, *cause));
        let cause = cause.or_else(|| Cause::ALL.into_iter().max_by_key(apart)).unwrap_or(Cause::CannotTell);
        let duration = |is_more: bool| median(kind(is_more).map(Step::duration).collect()).unwrap_or(0);
        Self {
            more: count(true),
            less: count(false),
            more_ns: duration(true),
            less_ns: duration(false),
            cause,
            more_of_cause_ns: mean(true, cause),
            less_of_cause_ns: mean(false, cause),
            by_duration,
        }
    }

    /// Longest duration of a step that is not unusual for its kind: `times` the median of the longer kind.
    /// `None` if both kinds have the same duration.
    pub fn longest(&self, times: f64) -> Option<f64> {
        self.by_duration.then_some(times * self.more_ns as f64)
    }
}

fn time(cause: Cause, step: &Step) -> u64 {
    cause.total(&step.leaves)
}

/// Upper median.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
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
    use crate::leaf::{LEAF_COUNT, Leaf};
    use gpuwhy_trace::record::Timestamp;

    /// Steps with these times of computation and of waiting for data.
    fn steps(times: impl IntoIterator<Item = (u64, u64)>) -> Vec<Step> {
        let step = |(compute, wait): (u64, u64)| {
            let mut leaves = [0; LEAF_COUNT];
            leaves[Leaf::Compute as usize] = compute;
            leaves[Leaf::DataLoading as usize] = wait;
            let at = Timestamp::from_nanos;
            Step { start: at(1_000), end: at(1_000 + compute + wait), operations: 9, leaves }
        };
        times.into_iter().map(step).collect()
    }

    #[test]
    fn two_of_three_steps_wait() {
        let kinds =
            StepKinds::of(&steps((0..90).map(|n| (10 + n % 2, if n % 3 == 0 { 0 } else { 27 + n % 5 })))).unwrap();
        assert_eq!((kinds.more, kinds.less, kinds.cause), (60, 30, Cause::DataLoading));
        assert_eq!((kinds.more_of_cause_ns, kinds.less_of_cause_ns, kinds.less_ns), (29, 0, 11));
        assert!(kinds.by_duration && (38..42).contains(&kinds.more_ns));
        assert_eq!(kinds.longest(1.5), Some(1.5 * kinds.more_ns as f64));
    }

    #[test]
    fn a_cause_tells_kinds_of_one_length() {
        // In every second step the device computes for the time that it waits in the other.
        let kinds = StepKinds::of(&steps((0..40).map(|n| if n % 2 == 0 { (10, 30) } else { (38, 1) }))).unwrap();
        assert_eq!((kinds.more, kinds.less, kinds.by_duration, kinds.longest(1.5)), (20, 20, false, None));
        assert!(matches!(kinds.cause, Cause::DataLoading | Cause::GpuCompute), "{kinds:?}");
        // A cause that is a small part of the step makes no kind.
        assert_eq!(StepKinds::of(&steps((0..40).map(|n| (100, n % 2 * 15)))), None);
    }

    #[test]
    fn few_alike_or_scattered_steps_are_of_one_kind() {
        assert_eq!(StepKinds::of(&[]), None);
        assert_eq!(StepKinds::of(&steps([(10, 0), (30, 0)])), None);
        assert_eq!(StepKinds::of(&steps((0..100).map(|n| (if n < 4 { 500 } else { 10 }, 0)))), None, "4 % are unusual");
        assert_eq!(
            StepKinds::of(&steps((0..30).map(|n| (if n % 2 == 0 { 10 } else { 19 }, 0)))),
            None,
            "less than twice"
        );
        assert!(StepKinds::of(&steps((0..30).map(|n| (if n % 2 == 0 { 10 } else { 20 }, 0)))).is_some());
        // A uniform range from 10 to 60, or a long tail, has no significant gap.
        assert_eq!(StepKinds::of(&steps((0..50).map(|n| (10 + n * 37 % 50, 0)))), None);
        let tail = |n: u64| (10.0 - 10.0 * (1.0 - (n as f64 + 0.5) / 200.0).ln()) as u64;
        assert_eq!(StepKinds::of(&steps((0..200).map(|n| (tail(n) * 100, 0)))), None);
    }

    #[test]
    fn unusual_steps_do_not_hide_the_kinds() {
        let times = (0..100).map(|n| (10, if n == 50 { 9_000 } else { n % 4 / 3 * 40 }));
        let kinds = StepKinds::of(&steps(times)).unwrap();
        assert_eq!((kinds.more, kinds.less), (26, 74));
    }
}
