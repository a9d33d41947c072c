//! Errors of estimated counters: least squares, leaving out one group of samples at a time.
//!
//! The residual variance alone is not enough. Consecutive samples are similar, and a sample cuts the kernels
//! at its two ends: the first part of a kernel differs from its last one (tails of grids, ramps of memory
//! traffic), and all samples that cut it are off in the same way, however many there are. So samples are
//! grouped three times: by time, by the kernel that runs at their start, and by the one at their end. The
//! variance of a value is found by leaving out one group at a time (delete-a-group jackknife: Kott, Journal
//! of Official Statistics 17, 2001; by two groupings at once as in Cameron, Gelbach, Miller, Journal of
//! Business and Economic Statistics 29, 2011: the sum of both less what both count). The largest of the
//! errors by residuals, time and ends counts, widened as Student's t, so that two errors are 95 %. Measured
//! on synthetic programs: docs/design/counters.md.

use gpuwhy_trace::counters::METRIC_LIMIT;

use super::regression::{Equations, Solution, Values};

pub(super) const GROUPS: usize = 12;
/// Initial number of samples per time group. When all groups are full, each two adjacent ones become one.
const FIRST_GROUP: u64 = 4;
/// Fewer groups are too few to estimate their differences.
const FEWEST_GROUPS: usize = 3;
/// If leaving out a group leaves less than this fraction of an unknown's time, the result is not used for
/// that unknown.
const LEAST_LEFT: f64 = 0.2;

/// Running sums, total and by group.
#[derive(Clone, Debug, Default)]
pub(super) struct Grouped {
    all: Equations,
    /// In time order; each has `in_time` samples except for the last.
    times: Vec<Block>,
    in_time: u64,
    /// Number of idle rows.
    idle: u64,
    begins: Vec<Equations>,
    ends: Vec<Equations>,
}

/// Consecutive samples.
#[derive(Clone, Debug, Default)]
struct Block {
    equations: Equations,
    sums: WeightedSums,
    samples: u64,
}

/// Sums over samples, each weighted by its length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WeightedSums {
    /// Values times nanoseconds.
    pub(super) values: Values,
    /// Use of tensor pipes times clock, times nanoseconds.
    pub(super) tensor_clock: f64,
    /// Nanoseconds.
    pub(super) nanos: f64,
    /// Busy part of these nanoseconds.
    pub(super) busy: f64,
}

impl WeightedSums {
    fn add(&mut self, other: &Self) {
        self.values.iter_mut().zip(other.values).for_each(|(sum, value)| *sum += value);
        self.tensor_clock += other.tensor_clock;
        self.nanos += other.nanos;
        self.busy += other.busy;
    }
}

impl Grouped {
    pub(super) fn rows(&self) -> u64 {
        self.all.rows()
    }

    /// See [`Equations::time`].
    pub(super) fn time(&self, unknown: usize) -> f64 {
        self.all.time(unknown)
    }

    /// Adds an unknown and returns its number.
    pub(super) fn grow(&mut self) -> usize {
        self.all.grow()
    }

    /// True if an idle sample should become a row: at most as many as there are others. More would only show
    /// how idle the device was, and dilute the residuals of the informative ones.
    pub(super) fn wants_idle(&self) -> bool {
        self.idle <= self.all.rows() / 2
    }

    /// Counts a sample that is not a row.
    pub(super) fn add_to_sums(&mut self, sums: &WeightedSums) {
        let block = self.block();
        block.sums.add(sums);
        block.samples += 1;
    }

    /// Time of all unknowns except the first, which is idle time: see [`Equations::time`].
    pub(super) fn busy_time(&self) -> f64 {
        (1..self.all.len()).map(|unknown| self.all.time(unknown)).sum()
    }

    /// Adds a sample: the fraction of each unknown in it, its values, its contribution to the sums, and the
    /// groups of the activities at its start and at its end.
    pub(super) fn add(
        &mut self,
        row: &[(usize, f64)],
        values: &Values,
        sums: &WeightedSums,
        (begin, end): (usize, usize),
    ) {
        self.idle += u64::from(row.iter().all(|&(unknown, _)| unknown == 0));
        self.all.add(row, values);
        for (groups, group) in [(&mut self.begins, begin), (&mut self.ends, end)] {
            groups.resize_with(GROUPS, Equations::default);
            groups[group % GROUPS].add_growing(row, values);
        }
        let block = self.block();
        block.equations.add_growing(row, values);
        block.sums.add(sums);
        block.samples += 1;
    }

    /// Time group of the next sample.
    fn block(&mut self) -> &mut Block {
        self.in_time = self.in_time.max(FIRST_GROUP);
        let full = self.times.last().is_none_or(|block| block.samples >= self.in_time);
        if full && self.times.len() == GROUPS {
            let old = std::mem::take(&mut self.times);
            self.times = old
                .chunks(2)
                .map(|pair| {
                    let mut block = pair[0].clone();
                    pair[1..].iter().for_each(|next| {
                        block.equations.append(&next.equations);
                        block.sums.add(&next.sums);
                        block.samples += next.samples;
                    });
                    block
                })
                .collect();
            self.in_time *= 2;
        }
        if full {
            self.times.push(Block::default());
        }
        let last = self.times.len() - 1;
        &mut self.times[last]
    }

    /// See [`Equations::joined`].
    pub(super) fn joined(&self, joined: &[usize], len: usize) -> Self {
        let of = |equations: &Equations| equations.joined(joined, len);
        Self {
            all: of(&self.all),
            times: self.times.iter().map(|block| Block { equations: of(&block.equations), ..*block }).collect(),
            in_time: self.in_time,
            idle: self.idle,
            begins: self.begins.iter().map(of).collect(),
            ends: self.ends.iter().map(of).collect(),
        }
    }

    /// See [`Equations::solve`]; errors are those of the [module](self).
    pub(super) fn solve(&self, upper: &Values) -> Option<Solution> {
        let mut solution = self.all.solve(upper)?;
        let free = self.all.unbounded();
        let times: Vec<&Equations> = self.times.iter().map(|block| &block.equations).collect();
        let of_time = self.variances(&times, &free);
        let [of_begins, of_ends] =
            [&self.begins, &self.ends].map(|groups| self.variances(&groups.iter().collect::<Vec<_>>(), &free));
        for (unknown, errors) in solution.errors.iter_mut().enumerate() {
            for (metric, error) in errors.iter_mut().enumerate() {
                let residual = *error * *error;
                let cut = of_begins[unknown][metric] + of_ends[unknown][metric] - residual;
                let variance = residual.max(of_time[unknown][metric]).max(cut);
                *error = if variance.is_finite() { variance.sqrt() } else { f64::MAX };
            }
        }
        Some(solution)
    }

    /// Variances of the values by leaving out each group; 0 where that yields no estimate.
    fn variances(&self, groups: &[&Equations], free: &[Values]) -> Vec<Values> {
        let mut squares = vec![[0.0; METRIC_LIMIT]; free.len()];
        let mut counts = vec![0usize; free.len()];
        let time: Vec<f64> = (0..free.len()).map(|unknown| self.all.time(unknown)).collect();
        for group in groups.iter().filter(|group| group.rows() > 0) {
            let without = self.all.without(group);
            let values = without.unbounded();
            for (unknown, found) in values.iter().enumerate() {
                if without.time(unknown) < LEAST_LEFT * time[unknown] {
                    continue;
                }
                counts[unknown] += 1;
                for (metric, square) in squares[unknown].iter_mut().enumerate() {
                    let apart = (found[metric] - free[unknown][metric]).powi(2);
                    *square += if apart.is_nan() { f64::INFINITY } else { apart };
                }
            }
        }
        for (squares, count) in squares.iter_mut().zip(counts) {
            let factor = if count < FEWEST_GROUPS { 0.0 } else { jackknife_factor(count) };
            squares.iter_mut().for_each(|square| *square = if factor > 0.0 { *square * factor } else { 0.0 });
        }
        squares
    }

    /// Sums over all samples.
    pub(super) fn sums(&self) -> WeightedSums {
        let mut all = WeightedSums::default();
        self.times.iter().for_each(|block| all.add(&block.sums));
        all
    }

    /// Standard error of the time mean of `of` applied to the sums, given the busy fraction of the device: by
    /// time groups (batch means; Law, Simulation Modeling and Analysis, section 9.5.3), as a ratio to their
    /// busy time. `None` with fewer than three groups.
    pub(super) fn error_of_mean(&self, of: impl Fn(&WeightedSums) -> f64) -> Option<f64> {
        let all = self.sums();
        let busy: Vec<&WeightedSums> =
            self.times.iter().map(|block| &block.sums).filter(|sums| sums.busy > 0.0).collect();
        let ratio = of(&all) / all.busy;
        if busy.len() < FEWEST_GROUPS || !ratio.is_finite() {
            return None;
        }
        let squares: f64 = busy.iter().map(|sums| (of(sums) - ratio * sums.busy).powi(2)).sum();
        let freedom = (busy.len() - 1) as f64;
        Some(widening(freedom) * (busy.len() as f64 / freedom * squares).sqrt() / all.nanos)
    }
}

/// Factor on the sum of squared differences of `groups`.
fn jackknife_factor(groups: usize) -> f64 {
    let freedom = (groups - 1) as f64;
    freedom / groups as f64 * widening(freedom).powi(2)
}

/// Factor that widens an error with `freedom` degrees of freedom: the 97.5 % quantile of Student's t divided
/// by that of the normal distribution, within 1 % from two degrees on.
fn widening(freedom: f64) -> f64 {
    (1.96 + 2.5 / (freedom - 0.95)) / 1.96
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(value: f64) -> Values {
        let mut values = [0.0; METRIC_LIMIT];
        values[0] = value;
        values
    }

    #[test]
    fn student_widens_few_groups() {
        for (freedom, quantile) in [(2.0, 4.303), (3.0, 3.182), (5.0, 2.571), (11.0, 2.201), (1e9, 1.96)] {
            assert!((widening(freedom) * 1.96 / quantile - 1.0).abs() < 0.01, "{freedom}");
        }
    }

    #[test]
    fn every_sample_is_in_one_group_of_time_however_many_there_are() {
        let mut grouped = Grouped::default();
        grouped.grow();
        for sample in 1..=5_000u64 {
            let sums = WeightedSums { nanos: 2.0, ..WeightedSums::default() };
            grouped.add(&[(0, 1.0)], &left(1.0), &sums, (0, 0));
            assert!(grouped.times.len() <= GROUPS);
            assert_eq!(grouped.times.iter().map(|block| block.samples).sum::<u64>(), sample);
            assert_eq!(grouped.sums().nanos, 2.0 * sample as f64);
        }
        assert!(grouped.times.len() > GROUPS / 2);
    }

    #[test]
    fn samples_in_a_row_that_are_alike_count_as_few() {
        let error = |alike: u64| {
            let mut grouped = Grouped::default();
            grouped.grow();
            let mut random = 1u64;
            for sample in 0..960u64 {
                if sample % alike == 0 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                }
                let value = 50.0 + 10.0 * ((random >> 33) as f64 / (1u64 << 31) as f64 - 0.5);
                let mut sums = WeightedSums { nanos: 1.0, busy: 1.0, ..WeightedSums::default() };
                sums.values[0] = value;
                grouped.add(&[(0, 1.0)], &left(value), &sums, (sample as usize, 0));
            }
            let solution = grouped.solve(&[100.0; METRIC_LIMIT]).unwrap();
            (solution.errors[0][0], grouped.error_of_mean(|sums| sums.values[0]).unwrap())
        };
        let (apart, together) = (error(1), error(40));
        // 960 and 24 values with a standard deviation of 2.9.
        assert!((0.05..0.2).contains(&apart.0) && (0.05..0.2).contains(&apart.1), "{apart:?}");
        assert!((0.3..1.2).contains(&together.0) && (0.3..1.2).contains(&together.1), "{together:?}");
    }

    #[test]
    fn one_group_says_nothing_and_the_residuals_count() {
        let mut grouped = Grouped::default();
        grouped.grow();
        for sample in 0..4u64 {
            grouped.add(&[(0, 1.0)], &left(50.0 + (sample % 2) as f64), &WeightedSums::default(), (0, 0));
        }
        let error = grouped.solve(&[100.0; METRIC_LIMIT]).unwrap().errors[0][0];
        assert!((error - (1.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-6, "{error}");
        assert_eq!(grouped.error_of_mean(|sums| sums.values[0]), None);
    }
}
