//! Difference between the steps of several runs of two programs: an exact test, and an interval of the ratio.
//!
//! The runs are the sample, with one value each: steps of one run share its host, clocks and memory, so they do not
//! show how much the next run differs. No distribution is assumed, because a few runs cannot show one.
//!
//! If the two programs are the same, each division of the `m + n` values into `m` and `n` is equally likely. The
//! p-value is the share of divisions whose rank sum is at least as far from its mean as the measured one: the exact
//! permutation form of the rank test, with midranks for ties (Wilcoxon 1945; Mann and Whitney 1947; Lehmann,
//! "Nonparametrics", 1975,
//! 1.4). Even values that do not overlap at all come by chance in 2 of `(m + n)! / (m! n!)` cases: one in ten for 3
//! against 3 runs, one in 35 for 4 against 4, one in 126 for 5 against 5. With fewer than 4 against 4 no difference is
//! significant.
//!
//! The interval inverts the test (Moses 1953; Lehmann 1975, 2.6): with the `m n` ratios of a value of B and a value of
//! A in order, it reaches from the `k`-th to the `k`-th from the end, where `k` is the largest number for which
//! `2 P(U < k)` is at most [`CHANCE`]. The point estimate is the ratio of the two median runs.

use profiler_core::quantile::lower_median;

use super::alike::MOST_RUNS;
use super::model::{RUNS_DIFFER, StepChange};

/// Largest probability of chance outside the interval of a ratio.
pub const CHANCE: f64 = 0.05;

/// Ratio of the steps of B to those of A, from several runs of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunTest {
    /// The median run of B divided by that of A; the lower one of two in the middle.
    pub ratio: f64,
    /// Interval of the ratio; `None` if there are too few runs for one.
    pub interval: Option<(f64, f64)>,
    /// Probability that such an interval contains the ratio, at least `1 - CHANCE`; 0 without.
    pub confidence: f64,
    /// The smallest and the largest ratio of a run of B and one of A.
    pub range: (f64, f64),
    /// Two-sided p-value.
    pub p: f64,
    /// Smallest p-value that this many runs can give.
    pub smallest_p: f64,
}

impl RunTest {
    /// Compares one positive value for each run. `None` if a side has none, more than [`MOST_RUNS`], or a value of 0.
    pub fn of(a: &[u64], b: &[u64]) -> Option<Self> {
        let sizes = [a.len(), b.len()];
        if sizes.contains(&0)
            || sizes.iter().any(|&size| size > MOST_RUNS)
            || a.iter().chain(b).any(|&value| value == 0)
        {
            return None;
        }
        let mut ratios: Vec<f64> =
            b.iter().flat_map(|&after| a.iter().map(move |&before| after as f64 / before as f64)).collect();
        ratios.sort_by(f64::total_cmp);
        let (m, n) = (a.len(), b.len());
        let all: Vec<u64> = a.iter().chain(b).copied().collect();
        // Without ties the doubled ranks are 2, 4, 6, ...; the rank sum is U plus its least value.
        let untied = Divisions::of(&(1..=m + n).map(|rank| 2 * rank).collect::<Vec<_>>(), n);
        let least = n * (n + 1);
        let tail = |k: usize| 2.0 * (0..k).map(|u| untied.share(least + 2 * u)).sum::<f64>();
        let k = (1..=ratios.len() / 2).take_while(|&k| tail(k) <= CHANCE).last();
        let median = |values: &[u64]| {
            let mut sorted = values.to_vec();
            sorted.sort_unstable();
            lower_median(&sorted)
        };
        Some(Self {
            ratio: median(b)? as f64 / median(a)? as f64,
            interval: k.map(|k| (ratios[k - 1], ratios[ratios.len() - k])),
            confidence: k.map_or(0.0, |k| 1.0 - tail(k)),
            range: (ratios[0], ratios[ratios.len() - 1]),
            p: p_value(&all, n),
            smallest_p: tail(1).min(1.0),
        })
    }

    /// Faster or slower if the interval excludes a ratio of 1; without one, if each run of B differs from each run of
    /// A by more than two runs of one program do.
    pub fn outcome(&self) -> StepChange {
        let (low, high) = self.bounds();
        match self.range {
            (1.0, 1.0) => StepChange::Unchanged,
            _ if low > 1.0 => StepChange::Slower,
            _ if high < 1.0 => StepChange::Faster,
            _ => StepChange::Inconclusive,
        }
    }

    /// The ratios that are possible: the interval, or, with too few runs for one, all ratios, wider by what two runs
    /// of one program may differ.
    pub fn bounds(&self) -> (f64, f64) {
        let (least, most) = self.range;
        self.interval.unwrap_or((least * (1.0 - RUNS_DIFFER), most / (1.0 - RUNS_DIFFER)))
    }
}

/// Smallest number of runs of each side with which a difference can be significant.
pub fn fewest_runs() -> usize {
    let smallest = |runs: usize| RunTest::of(&vec![1; runs], &vec![1; runs]).map_or(1.0, |test| test.smallest_p);
    (1..MOST_RUNS).find(|&runs| smallest(runs) <= CHANCE).unwrap_or(MOST_RUNS)
}

/// Numbers of the ways to choose some of the ranks, by their sum.
struct Divisions {
    counts: Vec<f64>,
    all: f64,
}

impl Divisions {
    /// All ways to choose `chosen` of `ranks`.
    fn of(ranks: &[usize], chosen: usize) -> Self {
        let most: usize = ranks.iter().sum();
        // `ways[c][s]`: to choose c of the ranks seen so far with the sum s.
        let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
        ways[0][0] = 1.0;
        for &rank in ranks {
            for count in (1..=chosen).rev() {
                let (fewer, same) = ways.split_at_mut(count);
                for (to, from) in same[0][rank..].iter_mut().zip(&fewer[count - 1]) {
                    *to += from;
                }
            }
        }
        let counts = ways.swap_remove(chosen);
        let all = counts.iter().sum();
        Self { counts, all }
    }

    fn share(&self, sum: usize) -> f64 {
        self.counts.get(sum).copied().unwrap_or(0.0) / self.all
    }
}

/// Two-sided p-value of the rank sum of the last `n` of `all` values.
fn p_value(all: &[u64], n: usize) -> f64 {
    // Twice the midrank, a whole number.
    let rank = |value: u64| {
        let below = all.iter().filter(|&&other| other < value).count();
        2 * below + all.iter().filter(|&&other| other == value).count() + 1
    };
    let ranks: Vec<usize> = all.iter().map(|&value| rank(value)).collect();
    let measured: usize = ranks[all.len() - n..].iter().sum();
    let mean = n * (all.len() + 1);
    let divisions = Divisions::of(&ranks, n);
    let away = measured.abs_diff(mean);
    let sums = (0..divisions.counts.len()).filter(|sum| sum.abs_diff(mean) >= away);
    sums.map(|sum| divisions.share(sum)).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found}, wanted {wanted}");
    }

    fn test(a: &[u64], b: &[u64]) -> RunTest {
        RunTest::of(a, b).unwrap()
    }

    #[test]
    fn three_against_three_runs_cannot_be_significant_and_four_can() {
        let few = test(&[100, 101, 102], &[110, 111, 112]);
        near(few.p, 0.1);
        near(few.smallest_p, 0.1);
        assert_eq!((few.interval, few.outcome()), (None, StepChange::Inconclusive));
        let enough = test(&[100, 101, 102, 103], &[110, 111, 112, 113]);
        near(enough.p, 2.0 / 70.0);
        near(enough.confidence, 1.0 - 2.0 / 70.0);
        assert_eq!(enough.interval, Some((110.0 / 103.0, 113.0 / 100.0)));
        assert_eq!(enough.outcome(), StepChange::Slower);
        assert_eq!(fewest_runs(), 4);
        assert_eq!(test(&[110, 111, 112, 113], &[100, 101, 102, 103]).outcome(), StepChange::Faster);
    }

    #[test]
    fn p_values_are_those_of_published_tables() {
        // Mann and Whitney 1947, table I: P(U <= 4) = 0.048 and P(U <= 2) = 0.016 for 5 and 5.
        let five = |b: &[u64]| test(&[10, 20, 30, 40, 50], b).p / 2.0;
        near(five(&[1, 2, 3, 4, 45]), 12.0 / 252.0);
        near(five(&[1, 2, 3, 4, 25]), 4.0 / 252.0);
        // P(U <= 3) = 0.2 for 3 and 4: 7 of 35.
        near(test(&[10, 20, 30], &[1, 2, 3, 35]).p / 2.0, 7.0 / 35.0);
    }

    #[test]
    fn ties_count_half() {
        assert_eq!(test(&[7; 5], &[7; 5]).p, 1.0);
        assert_eq!(test(&[7; 5], &[7; 5]).outcome(), StepChange::Unchanged);
        // Doubled midranks 3 3 7 | 7 10 12: the sum of the last is 29, 8 from its mean 21. Of the 20 choices of three,
        // two give 29 and two 13.
        near(test(&[1, 1, 2], &[2, 3, 4]).p, 4.0 / 20.0);
    }

    #[test]
    fn few_runs_differ_if_all_are_further_apart_than_runs_of_one_program() {
        assert_eq!(test(&[100], &[136]).outcome(), StepChange::Inconclusive);
        assert_eq!(test(&[100], &[150]).outcome(), StepChange::Slower);
        assert_eq!(test(&[100, 120], &[150, 170]).outcome(), StepChange::Inconclusive);
        assert_eq!(test(&[150, 151, 152], &[100, 99, 98]).outcome(), StepChange::Faster);
    }

    #[test]
    fn an_interval_that_holds_one_is_inconclusive() {
        let overlapping = test(&[100, 104, 108, 112, 116], &[103, 107, 111, 115, 119]);
        let (low, high) = overlapping.interval.unwrap();
        assert!(low < 1.0 && high > 1.0 && overlapping.ratio > 1.0, "{overlapping:?}");
        assert_eq!(overlapping.outcome(), StepChange::Inconclusive);
        // P(U <= 2) = 4 / 252, so the third ratio from each end.
        near(overlapping.confidence, 1.0 - 8.0 / 252.0);
    }

    #[test]
    fn intervals_contain_the_ratio_as_often_as_they_say() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1_000_000 + (state >> 40) % 300_000
        };
        let mut within = 0;
        for _ in 0..2_000 {
            let [a, b]: [Vec<u64>; 2] = [(); 2].map(|()| (0..5).map(|_| random()).collect());
            let (low, high) = test(&a, &b).interval.unwrap();
            within += usize::from(low <= 1.0 && high >= 1.0);
        }
        // 244 of 252: 0.968, with a standard error of 0.004.
        assert!((within as f64 / 2_000.0 - 0.968).abs() < 0.016, "{within}");
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        assert_eq!(RunTest::of(&[], &[1]), None);
        assert_eq!(RunTest::of(&[0], &[1]), None);
        assert_eq!(RunTest::of(&[1; MOST_RUNS + 1], &[1]), None);
    }
}
