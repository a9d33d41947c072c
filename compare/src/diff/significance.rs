//! Significance of a difference: two tests, both with a normal approximation and without tables.
//!
//! Steps are compared by rank, because their durations have long tails. Kernels are compared by mean. A report
//! has only their count, mean, minimum and maximum, so the test assumes the largest variance that these allow:
//! "significant" is reliable, "not significant" may be due to missing data.
//!
//! Both tests treat the values of a run as independent. They show that the two runs differ, not that the next
//! two runs of the same programs would.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Significance level: differences with a lower p-value are significant.
pub const SIGNIFICANCE: f64 = 0.01;

/// Minimum number of executions for a test of a mean.
const FEWEST_EXECUTIONS: u64 = 5;

/// Result of a rank test of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// Two-sided p-value.
    pub p: f64,
    /// Share of all pairs in which the value of the second sample is larger, with ties counted half: 0.5 when
    /// neither tends to be larger.
    pub larger: f64,
}

impl RankTest {
    /// True if the samples may differ by chance alone.
    pub(crate) fn is_chance(&self) -> bool {
        self.p >= SIGNIFICANCE
    }
}

/// The Mann-Whitney U test with midranks, tie and continuity correction (Mann and Whitney 1947; Lehmann,
/// "Nonparametrics", 1975, 1.4). `None` when a sample is empty. The approximation is good from about eight values on.
pub fn mann_whitney(first: &[u64], second: &[u64]) -> Option<RankTest> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let mut values: Vec<(u64, bool)> =
        first.iter().map(|&value| (value, false)).chain(second.iter().map(|&value| (value, true))).collect();
    values.sort_unstable();
    let (mut rank_sum, mut ties, mut before) = (0.0, 0.0, 0.0);
    for tied in values.chunk_by(|a, b| a.0 == b.0) {
        let size = tied.len() as f64;
        let midrank = before + (size + 1.0) / 2.0;
        rank_sum += midrank * tied.iter().filter(|(_, is_second)| *is_second).count() as f64;
        ties += size * (size * size - 1.0);
        before += size;
    }
    let (m, n) = (first.len() as f64, second.len() as f64);
    let total = m + n;
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let variance = m * n / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    let distance = ((u - m * n / 2.0).abs() - 0.5).max(0.0);
    let p = if variance > 0.0 { two_sided(distance / variance.sqrt()) } else { 1.0 };
    Some(RankTest { p, larger: u / (m * n) })
}

/// Statistics of the durations of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of executions.
    pub count: u64,
    /// Mean duration, nanoseconds.
    pub mean: f64,
    /// Shortest duration, nanoseconds.
    pub min: u64,
    /// Longest duration, nanoseconds.
    pub max: u64,
}

impl Spread {
    /// Upper bound of the squared standard error of the mean: no distribution with this mean and these limits
    /// has a greater variance than `(max - mean) (mean - min)` (Bhatia and Davis 2000).
    fn squared_error(&self) -> f64 {
        (self.max as f64 - self.mean).max(0.0) * (self.mean - self.min as f64).max(0.0) / self.count as f64
    }
}

/// Upper bound of the two-sided p-value of the difference of two means. `None` with too few executions.
pub fn mean_shift(first: &Spread, second: &Spread) -> Option<f64> {
    if first.count.min(second.count) < FEWEST_EXECUTIONS {
        return None;
    }
    let distance = (second.mean - first.mean).abs();
    let error = (first.squared_error() + second.squared_error()).sqrt();
    Some(match (distance > 0.0, error > 0.0) {
        (false, _) => 1.0,
        (true, false) => 0.0,
        (true, true) => two_sided(distance / error),
    })
}

/// Probability that a standard normal variable is at least `z` away from 0, for `z` not below 0.
fn two_sided(z: f64) -> f64 {
    erfc(z * FRAC_1_SQRT_2).clamp(0.0, 1.0)
}

/// The complementary error function for `x` not below 0: the series 7.1.6 of Abramowitz and Stegun below 2, the
/// continued fraction 7.1.14 above, where 1 - erf(x) would lose all digits. Relative error below 1e-9.
fn erfc(x: f64) -> f64 {
    let bell = (-x * x).exp() / PI.sqrt();
    if x < 2.0 {
        let mut term = x;
        let mut sum = x;
        for odd in (3..).step_by(2) {
            term *= 2.0 * x * x / f64::from(odd);
            sum += term;
            if term <= sum * 1e-17 {
                break;
            }
        }
        return 1.0 - 2.0 * bell * sum;
    }
    let fraction = (1..=60).rev().fold(x, |tail, index| x + f64::from(index) / 2.0 / tail);
    bell / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_agrees_with_tables() {
        for (x, expected) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (1.999, 0.004_698_409_451_790_6),
            (2.0, 0.004_677_734_981_047_266),
            (4.0, 1.541_725_790_028_002e-8),
        ] {
            let found = erfc(x);
            assert!((found - expected).abs() <= 1e-4 * expected, "erfc({x}) = {found}");
        }
        assert!((erfc(0.5) / 0.479_500_122_186_953_5 - 1.0).abs() < 1e-12);
        assert!((erfc(4.0) / 1.541_725_790_028_002e-8 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn samples_that_do_not_overlap_differ_and_equal_ones_do_not() {
        let low: Vec<u64> = (100..120).collect();
        let high: Vec<u64> = (200..220).collect();
        let test = mann_whitney(&low, &high).unwrap();
        // U = 0, z = (200 - 0.5) / sqrt(20 * 20 * 41 / 12) = 5.396.
        assert!((test.p / 6.8e-8 - 1.0).abs() < 0.02, "{test:?}");
        assert!((test.larger - 1.0).abs() < 1e-12);
        assert_eq!(mann_whitney(&low, &low).unwrap(), RankTest { p: 1.0, larger: 0.5 });
        assert_eq!(mann_whitney(&[7; 9], &[7; 5]).unwrap(), RankTest { p: 1.0, larger: 0.5 });
        assert_eq!(mann_whitney(&[], &low), None);
    }

    #[test]
    fn ties_narrow_the_distribution() {
        // Ranks 2, 2, 5 against 2, 5, 5: U = 6.5; variance 9/12 * (7 - 48/30) = 4.05; z = 1.5 / 2.0125.
        let test = mann_whitney(&[1, 1, 2], &[1, 2, 2]).unwrap();
        assert!((test.larger - 6.0 / 9.0).abs() < 1e-12, "{test:?}");
        assert!((test.p - 0.619).abs() < 0.001, "{test:?}");
    }

    #[test]
    fn swapping_the_samples_changes_only_the_direction() {
        let (a, b) = ([5, 9, 9, 12, 30], [7, 9, 11, 40, 41, 42]);
        let (forwards, backwards) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&b, &a).unwrap());
        assert!((forwards.p - backwards.p).abs() < 1e-12);
        assert!((forwards.larger + backwards.larger - 1.0).abs() < 1e-12);
    }

    #[test]
    fn means_are_tested_with_the_largest_possible_variance() {
        let of = |count, mean, min, max| Spread { count, mean, min, max };
        let narrow = mean_shift(&of(100, 1_000.0, 990, 1_010), &of(100, 1_030.0, 1_020, 1_040)).unwrap();
        let wide = mean_shift(&of(100, 1_000.0, 100, 9_000), &of(100, 1_030.0, 100, 9_000)).unwrap();
        assert!(narrow < 1e-6 && wide > 0.5, "{narrow} {wide}");
        assert_eq!(mean_shift(&of(9, 5.0, 5, 5), &of(9, 6.0, 6, 6)), Some(0.0));
        assert_eq!(mean_shift(&of(9, 5.0, 5, 5), &of(9, 5.0, 5, 5)), Some(1.0));
        assert_eq!(mean_shift(&of(4, 5.0, 5, 5), &of(9, 6.0, 6, 6)), None);
    }
}
