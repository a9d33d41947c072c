//! Least squares on running sums: X'X and X'y, for several right-hand sides at once.
//!
//! Rows are added once and not stored, so memory does not grow with the run. Unknowns can be joined
//! afterwards without an error: the column of the joined unknown would have been the sum of theirs, so its
//! sums are sums of theirs.
//!
//! Method: Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23 (bounds by active sets); the
//! standard errors are those of the unbounded problem, s^2 (X'X)^-1 with s^2 the residual variance.

use gpuwhy_trace::counters::METRIC_LIMIT;

pub(crate) type Values = [f64; METRIC_LIMIT];

/// Added to each diagonal element of X'X, relative to it: unresolved unknowns get a large error instead of a
/// division by zero.
const RIDGE: f64 = 1e-9;
/// Maximum rounds that move unknowns to a bound or off it. Two or three are usual.
const ROUNDS: usize = 12;

/// Running sums. See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Equations {
    /// Lower triangle of X'X, row by row.
    xx: Vec<f64>,
    xy: Vec<Values>,
    yy: Values,
    rows: u64,
}

/// Solution of the equations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Solution {
    /// By unknown.
    pub(crate) values: Vec<Values>,
    /// Standard errors by unknown.
    pub(crate) errors: Vec<Values>,
}

const fn at(row: usize, column: usize) -> usize {
    if row < column { column * (column + 1) / 2 + row } else { row * (row + 1) / 2 + column }
}

impl Equations {
    pub(crate) fn len(&self) -> usize {
        self.xy.len()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Sum of the fractions of an unknown over all rows, where the fractions of a row sum to 1 (rows that sum
    /// to more count more): 0 if it never occurred.
    pub(crate) fn time(&self, unknown: usize) -> f64 {
        (0..self.len()).map(|other| self.xx[at(unknown, other)]).sum()
    }

    /// Adds an unknown and returns its number.
    pub(crate) fn grow(&mut self) -> usize {
        self.xy.push([0.0; METRIC_LIMIT]);
        self.xx.resize(at(self.len() - 1, self.len() - 1) + 1, 0.0);
        self.len() - 1
    }

    /// Adds a row: the fraction of each unknown in it (each once), and its measured values.
    pub(crate) fn add(&mut self, row: &[(usize, f64)], values: &Values) {
        for (place, &(unknown, part)) in row.iter().enumerate() {
            for &(other, of_other) in &row[..=place] {
                self.xx[at(unknown, other)] += part * of_other;
            }
            for (sum, value) in self.xy[unknown].iter_mut().zip(values) {
                *sum += part * value;
            }
        }
        for (sum, value) in self.yy.iter_mut().zip(values) {
            *sum += value * value;
        }
        self.rows += 1;
    }

    /// Adds a row whose unknowns may be new.
    pub(crate) fn add_growing(&mut self, row: &[(usize, f64)], values: &Values) {
        let most = row.iter().map(|&(unknown, _)| unknown + 1).max().unwrap_or(0);
        while self.len() < most {
            self.grow();
        }
        self.add(row, values);
    }

    /// Adds the rows of `others`, which must have the same unknowns.
    pub(crate) fn append(&mut self, others: &Self) {
        while self.len() < others.len() {
            self.grow();
        }
        self.xx.iter_mut().zip(&others.xx).for_each(|(sum, other)| *sum += other);
        for (sums, others) in self.xy.iter_mut().zip(&others.xy) {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
        self.yy.iter_mut().zip(others.yy).for_each(|(sum, other)| *sum += other);
        self.rows += others.rows;
    }

    /// These equations without the rows of `part`.
    pub(crate) fn without(&self, part: &Self) -> Self {
        let mut rest = self.clone();
        rest.xx.iter_mut().zip(&part.xx).for_each(|(sum, other)| *sum -= other);
        for (sums, others) in rest.xy.iter_mut().zip(&part.xy) {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum -= other);
        }
        rest.yy.iter_mut().zip(part.yy).for_each(|(sum, other)| *sum -= other);
        rest.rows -= part.rows.min(rest.rows);
        rest
    }

    /// Values with the least sum of squares, without bounds.
    pub(crate) fn unbounded(&self) -> Vec<Values> {
        let all: Vec<usize> = (0..self.len()).collect();
        let factor = self.factor(&all);
        let mut values = self.xy.clone();
        substitute_all(&factor, &mut values);
        values
    }

    /// Equations in which unknown `i` is part of unknown `joined[i]` of `len`.
    pub(crate) fn joined(&self, joined: &[usize], len: usize) -> Self {
        let mut equations = Self { yy: self.yy, rows: self.rows, ..Self::default() };
        for _ in 0..len {
            equations.grow();
        }
        for row in 0..self.len() {
            for (sum, value) in equations.xy[joined[row]].iter_mut().zip(&self.xy[row]) {
                *sum += value;
            }
            for column in 0..=row {
                let (to, value) = (at(joined[row], joined[column]), self.xx[at(row, column)]);
                // Both halves of an off-diagonal pair end up on the same diagonal element.
                let twice = row != column && joined[row] == joined[column];
                equations.xx[to] += if twice { 2.0 * value } else { value };
            }
        }
        equations
    }

    /// Values with the least sum of squares among those between 0 and `upper`, by metric. `None` unless there
    /// are more rows than unknowns.
    pub(crate) fn solve(&self, upper: &Values) -> Option<Solution> {
        let (count, rows) = (self.len(), self.rows as f64);
        if count == 0 || rows <= count as f64 {
            return None;
        }
        let all: Vec<usize> = (0..count).collect();
        let factor = self.factor(&all);
        let variances = inverse_diagonal(&factor, count);
        let zero = [0.0; METRIC_LIMIT];
        let mut solution = Solution { values: vec![zero; count], errors: vec![zero; count] };
        for (metric, &limit) in upper.iter().enumerate() {
            let values = self.bounded(metric, limit, &factor);
            let squares = self.squares(metric, &values).max(0.0) / (rows - count as f64);
            for (unknown, &value) in values.iter().enumerate() {
                solution.values[unknown][metric] = value;
                solution.errors[unknown][metric] = (squares * variances[unknown]).sqrt();
            }
        }
        Some(solution)
    }

    /// Sum of squared residuals of `values`.
    fn squares(&self, metric: usize, values: &[f64]) -> f64 {
        let mut sum = self.yy[metric];
        for (row, &value) in values.iter().enumerate() {
            let product: f64 = values.iter().enumerate().map(|(column, other)| self.xx[at(row, column)] * other).sum();
            sum += value * (product - 2.0 * self.xy[row][metric]);
        }
        sum
    }

    fn bounded(&self, metric: usize, upper: f64, factor: &[f64]) -> Vec<f64> {
        let count = self.len();
        let right: Vec<f64> = self.xy.iter().map(|sums| sums[metric]).collect();
        let mut values = right.clone();
        substitute(factor, &mut values);
        // Bound at which each unknown is fixed.
        let mut fixed: Vec<Option<f64>> = vec![None; count];
        for _ in 0..ROUNDS {
            let mut changed = false;
            for unknown in 0..count {
                let outside = values[unknown] < 0.0 || values[unknown] > upper;
                if fixed[unknown].is_none() && outside {
                    fixed[unknown] = Some(if values[unknown] < 0.0 { 0.0 } else { upper });
                    changed = true;
                }
            }
            if !changed {
                // Releases an unknown whose gradient points inward from its bound.
                let scale = right.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                for unknown in 0..count {
                    let Some(bound) = fixed[unknown] else { continue };
                    let product: f64 = (0..count).map(|other| self.xx[at(unknown, other)] * values[other]).sum();
                    let pull = right[unknown] - product;
                    if (bound == 0.0 && pull > 1e-9 * scale) || (bound > 0.0 && pull < -1e-9 * scale) {
                        fixed[unknown] = None;
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
            values = self.with_fixed(&right, &fixed);
        }
        values.iter().map(|value| value.clamp(0.0, upper)).collect()
    }

    /// Solves for all unknowns with some of them fixed.
    fn with_fixed(&self, right: &[f64], fixed: &[Option<f64>]) -> Vec<f64> {
        let free: Vec<usize> = (0..fixed.len()).filter(|&unknown| fixed[unknown].is_none()).collect();
        let mut values: Vec<f64> = fixed.iter().map(|bound| bound.unwrap_or(0.0)).collect();
        let rest = |&unknown: &usize| {
            let known: f64 = (0..fixed.len()).map(|other| self.xx[at(unknown, other)] * values[other]).sum();
            right[unknown] - known
        };
        let mut solved: Vec<f64> = free.iter().map(rest).collect();
        substitute(&self.factor(&free), &mut solved);
        for (&unknown, value) in free.iter().zip(solved) {
            values[unknown] = value;
        }
        values
    }

    /// Cholesky factor of X'X over these unknowns, lower triangle row by row.
    fn factor(&self, of: &[usize]) -> Vec<f64> {
        let mut factor = vec![0.0; of.len() * (of.len() + 1) / 2];
        for row in 0..of.len() {
            for column in 0..=row {
                let product: f64 = (0..column).map(|before| factor[at(row, before)] * factor[at(column, before)]).sum();
                let value = self.xx[at(of[row], of[column])];
                factor[at(row, column)] = if row == column {
                    let least = value.max(f64::MIN_POSITIVE) * RIDGE;
                    (value + least - product).max(least).sqrt()
                } else {
                    (value - product) / factor[at(column, column)]
                };
            }
        }
        factor
    }
}

/// Solves L L' x = `values` in place.
fn substitute(factor: &[f64], values: &mut [f64]) {
    for row in 0..values.len() {
        let known: f64 = (0..row).map(|before| factor[at(row, before)] * values[before]).sum();
        values[row] = (values[row] - known) / factor[at(row, row)];
    }
    for row in (0..values.len()).rev() {
        let known: f64 = (row + 1..values.len()).map(|after| factor[at(after, row)] * values[after]).sum();
        values[row] = (values[row] - known) / factor[at(row, row)];
    }
}

/// [`substitute`] for all metrics at once.
fn substitute_all(factor: &[f64], values: &mut [Values]) {
    let count = values.len();
    let step = |row: usize, others: std::ops::Range<usize>, of: &dyn Fn(usize) -> f64, values: &mut [Values]| {
        let mut sums = values[row];
        for other in others {
            let part = of(other);
            sums.iter_mut().zip(values[other]).for_each(|(sum, value)| *sum -= part * value);
        }
        values[row] = sums.map(|sum| sum / factor[at(row, row)]);
    };
    for row in 0..count {
        step(row, 0..row, &|before| factor[at(row, before)], values);
    }
    for row in (0..count).rev() {
        step(row, row + 1..count, &|after| factor[at(after, row)], values);
    }
}

/// Diagonal of (L L')^-1.
fn inverse_diagonal(factor: &[f64], count: usize) -> Vec<f64> {
    let mut column = vec![0.0; count];
    (0..count)
        .map(|first| {
            for row in first..count {
                let known: f64 = (first..row).map(|before| factor[at(row, before)] * column[before]).sum();
                let unit = if row == first { 1.0 } else { 0.0 };
                column[row] = (unit - known) / factor[at(row, row)];
            }
            column[first..].iter().map(|value| value * value).sum()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UPPER: Values = [100.0; METRIC_LIMIT];

    fn left(value: f64) -> Values {
        let mut values = [0.0; METRIC_LIMIT];
        values[0] = value;
        values
    }

    fn of(count: usize) -> Equations {
        let mut equations = Equations::default();
        (0..count).for_each(|_| {
            equations.grow();
        });
        equations
    }

    #[test]
    fn exact_rows_give_the_truth_and_no_error() {
        let mut equations = of(3);
        let truth = [90.0, 10.0, 0.0];
        for step in 0..40usize {
            let parts = [(step % 5) as f64 / 8.0, (step % 3) as f64 / 9.0, (step % 7) as f64 / 70.0];
            let row: Vec<_> = parts.into_iter().enumerate().collect();
            equations.add(&row, &left(parts.iter().zip(truth).map(|(part, value)| part * value).sum()));
        }
        let solution = equations.solve(&UPPER).unwrap();
        for (unknown, value) in truth.into_iter().enumerate() {
            assert!((solution.values[unknown][0] - value).abs() < 1e-4, "{:?}", solution.values[unknown][0]);
            assert!(solution.errors[unknown][0] < 1e-2);
        }
    }

    #[test]
    fn what_always_runs_together_has_a_large_error() {
        let mut equations = of(2);
        for step in 0..50 {
            let part = 0.2 + f64::from(step % 4) / 10.0;
            let noise = if step % 2 == 0 { 0.5 } else { -0.5 };
            equations.add(&[(0, part), (1, part)], &left(part * 80.0 + noise));
        }
        let solution = equations.solve(&UPPER).unwrap();
        assert!(solution.errors.iter().all(|errors| errors[0] > 100.0), "{:?}", solution.errors[0][0]);
    }

    #[test]
    fn fewer_rows_than_unknowns_say_nothing() {
        let mut equations = of(2);
        equations.add(&[(0, 1.0)], &left(5.0));
        equations.add(&[(1, 1.0)], &left(5.0));
        assert_eq!(equations.solve(&UPPER), None);
        assert_eq!(Equations::default().solve(&UPPER), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// Joining afterwards is equivalent to never having separated them.
        #[test]
        fn joined_equations_are_those_of_the_joined_rows(
            rows in prop::collection::vec(([0.0..1.0f64, 0.0..1.0, 0.0..1.0, 0.0..1.0], 0.0..100.0f64), 1..40),
        ) {
            let (mut apart, mut together) = (of(4), of(2));
            for (parts, value) in &rows {
                let row: Vec<_> = parts.iter().copied().enumerate().collect();
                apart.add(&row, &left(*value));
                together.add(&[(0, parts[0] + parts[2]), (1, parts[1] + parts[3])], &left(*value));
            }
            let joined = apart.joined(&[0, 1, 0, 1], 2);
            prop_assert_eq!(joined.rows(), together.rows());
            for (a, b) in joined.xx.iter().zip(&together.xx) {
                prop_assert!((a - b).abs() < 1e-9 * (1.0 + a.abs()), "{} {}", a, b);
            }
            for (a, b) in joined.xy.iter().zip(&together.xy) {
                prop_assert!((a[0] - b[0]).abs() < 1e-9 * (1.0 + a[0].abs()));
            }
        }

        /// For any measurement, the values are within the bounds and no close values are better.
        #[test]
        fn bounded_values_are_within_and_the_best(
            rows in prop::collection::vec(([0.0..1.0f64, 0.0..1.0, 0.0..1.0], -50.0..150.0f64), 12..40),
        ) {
            let mut equations = of(3);
            for (parts, value) in &rows {
                let row: Vec<_> = parts.iter().copied().enumerate().collect();
                equations.add(&row, &left(*value));
            }
            let solution = equations.solve(&UPPER).unwrap();
            let values: Vec<f64> = solution.values.iter().map(|values| values[0]).collect();
            let best = equations.squares(0, &values);
            for unknown in 0..3 {
                prop_assert!((0.0..=100.0).contains(&values[unknown]));
                for step in [-0.5, 0.5] {
                    let mut near = values.clone();
                    near[unknown] = (near[unknown] + step).clamp(0.0, 100.0);
                    prop_assert!(equations.squares(0, &near) >= best - 1e-6 * (1.0 + best.abs()));
                }
            }
        }
    }
}
