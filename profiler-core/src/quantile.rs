//! Durations of one kind in bounded memory: exact while they are few, a logarithmic histogram afterwards.
//!
//! A histogram rather than P-squared or a sketch: it is independent of the order of the values, so a shuffled
//! delivery produces the same report, and its error has a simple bound.

/// Up to this many values are stored individually, and the median is exact.
const EXACT: usize = 32;
/// Buckets per power of two. A bucket spans 1/32 of its lower end, and its middle is reported, so the
/// relative error of a quantile is at most 1/64 (1.6 %). A median that crosses a bucket border jumps by twice
/// that, which a test that allows five percent must not take for a regression.
const BUCKETS_PER_OCTAVE_LOG2: u32 = 5;

/// A distribution of nanoseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Durations {
    count: u64,
    total: u64,
    min: u64,
    max: u64,
    exact: Vec<u64>,
    first_bucket: usize,
    /// Half the size of the other counters, as every kernel name has buckets; a full counter saturates.
    buckets: Vec<u32>,
}

impl Default for Durations {
    fn default() -> Self {
        Self { count: 0, total: 0, min: u64::MAX, max: 0, exact: Vec::new(), first_bucket: 0, buckets: Vec::new() }
    }
}

impl Durations {
    /// Adds one value.
    pub fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
        let bucket = bucket(nanos);
        // The bucket nearly always exists.
        match bucket.checked_sub(self.first_bucket).and_then(|index| self.buckets.get_mut(index)) {
            Some(count) => *count = count.saturating_add(1),
            None => self.add_first(nanos, bucket),
        }
    }

    /// Adds a value to the list, or the first one to `bucket`.
    #[cold]
    fn add_first(&mut self, nanos: u64, to: usize) {
        if self.buckets.is_empty() {
            if self.exact.len() < EXACT {
                self.exact.push(nanos);
                return;
            }
            for value in std::mem::take(&mut self.exact) {
                self.add_to_bucket(bucket(value), 1);
            }
        }
        self.add_to_bucket(to, 1);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        for &nanos in &other.exact {
            self.add(nanos);
        }
        if other.buckets.is_empty() {
            return;
        }
        for value in std::mem::take(&mut self.exact) {
            self.add_to_bucket(bucket(value), 1);
        }
        for (index, &count) in other.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_to_bucket(other.first_bucket + index, count);
        }
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Smallest value, or 0 without values.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Largest value, or 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean, rounded down, or 0 without values.
    pub fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// The lower median: exact up to 32 values, then within 1.6 %. 0 without values.
    pub fn median(&self) -> u64 {
        if self.buckets.is_empty() {
            let mut values = self.exact.clone();
            values.sort_unstable();
            return lower_median(&values).unwrap_or(0);
        }
        let rank = self.buckets.iter().map(|&count| u64::from(count)).sum::<u64>().saturating_sub(1) / 2;
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += u64::from(count);
            if seen > rank {
                return middle(self.first_bucket + index).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Only the octaves that occur are stored: the durations of one kernel span few of the 64.
    fn add_to_bucket(&mut self, bucket: usize, count: u32) {
        if self.buckets.is_empty() {
            self.first_bucket = bucket;
        }
        if bucket < self.first_bucket {
            let missing = self.first_bucket - bucket;
            self.buckets.splice(0..0, std::iter::repeat_n(0, missing));
            self.first_bucket = bucket;
        }
        let index = bucket - self.first_bucket;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] = self.buckets[index].saturating_add(count);
    }
}

/// Values below 32 have a bucket each; above, the five bits after the leading one choose the bucket.
fn bucket(nanos: u64) -> usize {
    let base = 1u64 << BUCKETS_PER_OCTAVE_LOG2;
    if nanos < base {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - BUCKETS_PER_OCTAVE_LOG2;
    let within = (nanos >> shift) - base;
    ((u64::from(shift) + 1) * base + within) as usize
}

fn middle(bucket: usize) -> u64 {
    let base = 1usize << BUCKETS_PER_OCTAVE_LOG2;
    if bucket < base {
        return bucket as u64;
    }
    let shift = bucket / base - 1;
    let low = ((base + bucket % base) as u64) << shift;
    low + ((1u64 << shift) >> 1)
}

/// Lower median of sorted values.
pub fn lower_median<T: Copy>(sorted: &[T]) -> Option<T> {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_adding_all() {
        let values: Vec<u64> = (0..200).map(|index| (index * 7_919) % 1_000 * (index % 13)).collect();
        for cut in [0, 5, 20, 100, 190, 200] {
            let of = |values: &[u64]| {
                let mut durations = Durations::default();
                values.iter().for_each(|&nanos| durations.add(nanos));
                durations
            };
            let mut merged = of(&values[..cut]);
            merged.merge(&of(&values[cut..]));
            let all = of(&values);
            let figures = |of: &Durations| (of.count(), of.total(), of.min(), of.max(), of.median());
            assert_eq!(figures(&merged), figures(&all), "cut at {cut}");
        }
    }

    #[test]
    fn few_values_are_exact() {
        let mut durations = Durations::default();
        assert_eq!((durations.median(), durations.min(), durations.mean()), (0, 0, 0));
        for value in [9_001, 3, 70_007] {
            durations.add(value);
        }
        assert_eq!(durations.median(), 9_001);
        assert_eq!((durations.min(), durations.max(), durations.total()), (3, 70_007, 79_011));
    }

    #[test]
    fn every_bucket_keeps_the_stated_error() {
        for exponent in 0..64 {
            for offset in [0u64, 1, 3, 7, 1 << (exponent / 2)] {
                let value = (1u64 << exponent).saturating_add(offset);
                let reported = middle(bucket(value));
                assert!(reported.abs_diff(value) as f64 <= value as f64 / 64.0, "{value} reported as {reported}");
            }
        }
    }

    #[test]
    fn the_order_of_many_values_does_not_matter() {
        let values: Vec<u64> = (0..1000).map(|i| 1_000 + (i * 7919) % 5_000).collect();
        let mut forwards = Durations::default();
        let mut backwards = Durations::default();
        values.iter().for_each(|&value| forwards.add(value));
        values.iter().rev().for_each(|&value| backwards.add(value));
        assert_eq!(forwards.median(), backwards.median());
        let mut sorted = values;
        sorted.sort_unstable();
        let exact = sorted[499];
        assert!(forwards.median().abs_diff(exact) as f64 <= exact as f64 / 64.0);
    }
}
