//! Typical steps, and inference from the measured steps to all steps.
//!
//! The result for the same steps is the same on every machine. The share of a cause in all steps is in
//! `time_share`.

use gpuwhy_trace::record::Timestamp;

use super::{Step, StepKind, StepSource, Steps, TimeShare};
use crate::leaf::{Cause, Leaves};

/// Named steps at the start of a run that are never steady: caches fill, libraries choose their algorithms.
/// Before detected steps there are more that are not listed: those used for detection.
pub const WARM_UP_STEPS: u64 = 3;
/// A step longer than this many times the median duration is set aside: a checkpoint, an evaluation, a
/// collection. With long and short steps ([`StepKind`]), that is the median of the long ones.
pub const UNUSUAL: f64 = 1.5;
/// With fewer steady steps, no inference to others is possible.
pub const FEWEST_STEADY: usize = 5;

/// Maximum fraction of the time of all steady steps in steps that were set aside.
const SET_ASIDE_SHARE: f64 = 0.10;
/// Steady steps must make up half of the steady time of a device, or this much, nanoseconds.
const ENOUGH_NANOS: u64 = 1_000_000_000;

/// Steady steps, and the unusual ones among them, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steady {
    /// Typical steps.
    pub rows: Vec<Step>,
    /// Steps longer than [`UNUSUAL`] times the median; of the longer kind, if there are two.
    pub set_aside: Vec<Step>,
    /// Kinds of the typical steps; empty if they are of one kind.
    pub kinds: Vec<StepKind>,
}

impl Steady {
    /// True if no single step is typical, so that means describe them.
    pub fn are_of_kinds(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Lower median of the durations of the typical steps, nanoseconds; 0 without any.
    pub fn median_duration(&self) -> u64 {
        percentile(self.rows.iter().map(Step::duration), 50)
    }

    /// Mean duration of the typical steps, nanoseconds; 0 without any.
    pub fn mean_duration(&self) -> u64 {
        self.rows.iter().map(Step::duration).sum::<u64>() / (self.rows.len() as u64).max(1)
    }

    /// Share of `cause` in the time of the typical steps; `None` without any.
    pub fn share(&self, cause: Cause) -> Option<TimeShare> {
        let times: Vec<_> = self.rows.iter().map(|step| (cause.total(&step.leaves), step.duration())).collect();
        TimeShare::of(&times)
    }

    /// Time of the typical steps by cause, nanoseconds.
    pub fn leaves(&self) -> Leaves {
        let sum = |leaf: usize| self.rows.iter().map(|row| row.leaves[leaf]).fold(0, u64::saturating_add);
        std::array::from_fn(sum)
    }

    /// Removes steps that the profiler itself disturbed: those that touch one of these intervals.
    #[must_use]
    pub(crate) fn without(mut self, disturbed: &[(Timestamp, Timestamp)]) -> Self {
        let is_complete = |step: &Step| disturbed.iter().all(|&(from, to)| step.end < from || step.start > to);
        self.rows.retain(is_complete);
        self.set_aside.retain(is_complete);
        self
    }

    /// These steps, if they can represent `whole` nanoseconds of steady time.
    pub(crate) fn if_typical(self, whole: u64) -> Option<Self> {
        let time = |rows: &[Step]| rows.iter().map(Step::duration).sum::<u64>();
        let (typical, unusual) = (time(&self.rows), time(&self.set_aside));
        let few_unusual = unusual as f64 <= SET_ASIDE_SHARE * (typical + unusual) as f64;
        let enough = self.rows.len() >= FEWEST_STEADY && typical >= ENOUGH_NANOS.min(whole / 2) && typical > 0;
        (few_unusual && enough).then_some(self)
    }
}

impl Step {
    /// Duration, nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.since(self.start)
    }
}

impl Steps {
    /// Remembered steps that start at `from` or later, without the first [`WARM_UP_STEPS`] if the program
    /// names them; windows are not steps, so none is steady.
    pub fn steady(&self, from: Timestamp) -> Steady {
        self.steady_without(if self.source == StepSource::Annotated { WARM_UP_STEPS } else { 0 }, from)
    }

    /// As [`steady`](Self::steady), without the first `warm_up` of all steps.
    pub(crate) fn steady_without(&self, warm_up: u64, from: Timestamp) -> Steady {
        let forgotten = self.seen.saturating_sub(self.rows.len() as u64);
        let skipped = warm_up.saturating_sub(forgotten) as usize;
        let is_step = self.source != StepSource::Window;
        let after: Vec<Step> =
            self.rows.iter().skip(skipped).filter(|row| is_step && row.start >= from).copied().collect();
        if self.source == StepSource::Iteration {
            // Iterations differ by what they process: a long one is not unusual.
            return Steady { rows: after, set_aside: Vec::new(), kinds: Vec::new() };
        }
        let kinds = StepKind::by_gap(&after);
        let of_long = kinds.first().filter(|kind| kind.name == "long").map(|kind| kind.median_ns);
        let typical = of_long.unwrap_or_else(|| percentile(after.iter().map(Step::duration), 50));
        let (rows, set_aside) = after.into_iter().partition(|row| row.duration() as f64 <= UNUSUAL * typical as f64);
        Steady { rows, set_aside, kinds }
    }

    /// Duration that `percent` of the remembered steps do not exceed, nanoseconds; 0 without any.
    pub fn duration_percentile(&self, percent: usize) -> u64 {
        percentile(self.rows.iter().map(Step::duration), percent)
    }
}

/// By nearest rank.
fn percentile(values: impl Iterator<Item = u64>, percent: usize) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(0)
}

/// Median, and the interval that contains the median of all values with 95 % confidence if they are
/// independent. It uses order statistics, so no distribution is assumed. Steps are not independent;
/// [`TimeShare`] accounts for that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Median of the measured steps.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Computed from `values`; `None` without any.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let middle = *values.get(count / 2)?;
        let median = if count.is_multiple_of(2) { f64::midpoint(values[count / 2 - 1], middle) } else { middle };
        // The number of values below the true median is binomial with p = 1/2; 1.96 standard deviations to either
        // side of its mean. Below 6 values this is their whole range, with 93.75 % at 5.
        let below = (count as f64 / 2.0 - 1.96 * (count as f64).sqrt() / 2.0).floor().max(0.0) as usize;
        Some(Self { median, low: values[below], high: values[count - 1 - below] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::LEAF_COUNT;

    fn steps(seen: u64, durations: &[u64]) -> Steps {
        let mut at = 1_000;
        let row = |&duration: &u64| {
            let start = Timestamp::from_nanos(at);
            at += duration;
            Step { start, end: Timestamp::from_nanos(at), operations: 1, leaves: [0; LEAF_COUNT], iteration: None }
        };
        Steps { source: StepSource::Annotated, period: None, seen, rows: durations.iter().map(row).collect() }
    }

    #[test]
    fn the_first_are_dropped_once_and_the_long_ones_set_aside() {
        let durations = [900, 10, 11, 10, 10, 16, 10, 15, 12];
        let steady = steps(9, &durations).steady(Timestamp::ZERO);
        assert_eq!(steady.rows.iter().map(Step::duration).collect::<Vec<_>>(), [10, 10, 10, 15, 12]);
        assert_eq!(steady.set_aside.iter().map(Step::duration).collect::<Vec<_>>(), [16]);
        let steady = steps(1_000, &durations).steady(Timestamp::ZERO);
        assert_eq!(steady.rows.len() + steady.set_aside.len(), durations.len(), "the first are long forgotten");
        assert_eq!(steps(9, &durations).steady(Timestamp::from_nanos(1_931)).rows[0].start.nanos(), 1_931);
        let found = Steps { source: StepSource::Period, ..steps(9, &durations) }.steady(Timestamp::ZERO);
        assert_eq!((found.rows.len(), found.set_aside.len()), (8, 1), "what they were found by came first");
        let windows = Steps { source: StepSource::Window, ..steps(9, &durations) };
        assert!(windows.steady(Timestamp::ZERO).rows.is_empty());
        let whole = steps(9, &durations).steady(Timestamp::ZERO);
        let second = whole.rows[1];
        let rest = whole.clone().without(&[(second.start, second.start)]);
        assert_eq!(rest.rows, [&whole.rows[..0], &whole.rows[2..]].concat(), "it touches the end of the first one");
        assert_eq!(rest.set_aside, whole.set_aside);
        assert_eq!(whole.clone().without(&[]), whole);
    }

    #[test]
    fn one_of_two_kinds_is_not_set_aside() {
        // Every third step takes four times as long, and one is unusual even for that kind.
        let durations: Vec<u64> = (0..60)
            .map(|n| {
                if n == 40 {
                    700
                } else if n % 3 == 0 {
                    40
                } else {
                    10
                }
            })
            .collect();
        let found = Steps { source: StepSource::Period, ..steps(60, &durations) };
        let steady = found.steady(Timestamp::ZERO);
        assert_eq!((steady.rows.len(), steady.set_aside.len()), (59, 1));
        let kinds: Vec<_> = steady.kinds.iter().map(|kind| (kind.name, kind.median_ns)).collect();
        assert_eq!(kinds, [("long", 40), ("short", 10)]);
        assert_eq!(steady.mean_duration(), (20 * 40 + 39 * 10) / 59);
        // Four of sixty do not make a kind.
        let durations: Vec<u64> = (0..60).map(|n| if n % 15 == 7 { 40 } else { 10 }).collect();
        let found = Steps { source: StepSource::Period, ..steps(60, &durations) };
        assert_eq!(found.steady(Timestamp::ZERO).set_aside.len(), 4);
    }

    #[test]
    fn steps_are_typical_when_few_are_unusual_and_they_fill_half_of_the_time() {
        let typical = |durations: &[u64], set_aside: &[u64], whole: u64| {
            let rows = |durations: &[u64]| steps(0, durations).rows;
            let steady = Steady { rows: rows(durations), set_aside: rows(set_aside), kinds: Vec::new() };
            steady.if_typical(whole).is_some()
        };
        let five = [20; 5];
        assert!(typical(&five, &[], 201) && !typical(&five, &[], 202), "100 of 202 ns are less than half");
        assert!(typical(&[25; 4], &[], 10) != typical(&five, &[], 10), "four steps are too few");
        // One tenth of their total time.
        assert!(typical(&[18; 5], &[10], 100) && !typical(&[18; 5], &[11], 100));
        // One second is enough for any total time.
        assert!(typical(&[200_000_000; 5], &[], u64::MAX) && !typical(&[199_999_999; 5], &[], u64::MAX));
        assert!(!typical(&[0; 5], &[], 0));
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let steps = steps(10, &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        assert_eq!([10, 50, 90, 100].map(|percent| steps.duration_percentile(percent)), [10, 50, 90, 100]);
    }

    #[test]
    fn the_interval_is_that_of_the_binomial_distribution() {
        assert_eq!(Interval::of(Vec::new()), None);
        let of = |count: u32| Interval::of((1..=count).map(f64::from).collect()).map(|i| (i.low, i.median, i.high));
        assert_eq!(of(5), Some((1.0, 3.0, 5.0)));
        // Tables give the 40th and 61st of 100 values, and the 6th and 15th of 20.
        assert_eq!(of(100), Some((41.0, 50.5, 60.0)));
        assert_eq!(of(20), Some((6.0, 10.5, 15.0)));
    }
}
