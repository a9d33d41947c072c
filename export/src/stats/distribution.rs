//! What nsys says about a group of values: total, mean, median, extremes, standard deviation.
//!
//! nsys sorts all values. Here memory is bounded: values are counted as they are while few of them differ, and by
//! their leading bits afterwards, which a median shows as an error of at most 1 in 8192. The rest is always exact but
//! for rounding.

use rustc_hash::FxHashMap;

/// Different values that are counted as they are. Kernels have few, since GPU clocks tick in steps of
/// 32 ns; calls have more.
const EXACT_LIMIT: usize = 1 << 16;
/// Leading bits that are kept beyond that, behind the first one.
const KEPT_BITS: u32 = 12;

/// A group of values.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    count: u64,
    total: u64,
    min: u64,
    max: u64,
    /// Running mean and sum of squared differences from it (Welford).
    mean: f64,
    squares: f64,
    counts: FxHashMap<u64, u64>,
    is_coarse: bool,
}

impl Distribution {
    /// Adds one value.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.total = self.total.saturating_add(value);
        let difference = value as f64 - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (value as f64 - self.mean);
        let key = if self.is_coarse { coarse(value) } else { value };
        *self.counts.entry(key).or_default() += 1;
        if !self.is_coarse && self.counts.len() > EXACT_LIMIT {
            self.is_coarse = true;
            for (value, count) in std::mem::take(&mut self.counts) {
                *self.counts.entry(coarse(value)).or_default() += count;
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn min(&self) -> u64 {
        self.min
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total as f64 / self.count as f64 }
    }

    /// The middle value, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted: Vec<(u64, u64)> = self.counts.iter().map(|(&value, &count)| (value, count)).collect();
        sorted.sort_unstable();
        let at = |rank: u64| {
            let mut before = 0;
            let found = sorted.iter().find(|(_, count)| {
                before += count;
                before > rank
            });
            found.map_or(0.0, |(value, _)| *value as f64)
        };
        match self.count {
            0 => 0.0,
            count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
        }
    }

    /// Of a sample, that is with one degree of freedom less than values; 0 for a single one.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }

    /// Whether the median may differ from the true one by 1 in 8192.
    pub fn is_coarse(&self) -> bool {
        self.is_coarse
    }
}

/// The middle of all values that share their leading bits with `value`.
fn coarse(value: u64) -> u64 {
    let dropped = (u64::BITS - value.leading_zeros()).saturating_sub(KEPT_BITS + 1);
    if dropped == 0 { value } else { (value >> dropped << dropped) | (1 << (dropped - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        values.into_iter().for_each(|value| distribution.add(value));
        distribution
    }

    #[test]
    fn few_values_are_exact() {
        let even = of([2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((even.count(), even.total(), even.min(), even.max()), (8, 40, 2, 9));
        assert_eq!((even.mean(), even.median()), (5.0, 4.5));
        assert!((even.deviation() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        let single = of([7]);
        assert_eq!((single.median(), single.deviation()), (7.0, 0.0));
        assert_eq!(of([]).median(), 0.0);
    }

    #[test]
    fn many_different_values_keep_the_median_within_its_bound() {
        let values: Vec<u64> = (0..200_000u64).map(|number| 1_000_000 + number * number).collect();
        let many = of(values.iter().copied());
        assert!(many.is_coarse());
        let truth = f64::midpoint(values[99_999] as f64, values[100_000] as f64);
        assert!((many.median() - truth).abs() <= truth / 8192.0, "{} {truth}", many.median());
        assert_eq!(many.total(), values.iter().sum::<u64>());
    }

    #[test]
    fn coarse_values_stay_in_their_interval() {
        for value in [0, 1, 8191, 8192, 123_456_789, u64::MAX] {
            let error = coarse(value).abs_diff(value);
            assert!(error as f64 <= value as f64 / 8192.0, "{value}");
        }
    }
}
