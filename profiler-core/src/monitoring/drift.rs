//! Detects a change of a steady value: the two-sided cumulative sum test.
//!
//! E. S. Page, "Continuous Inspection Schemes", Biometrika 41 (1954), 100-115. Values are compared with the
//! mean and the deviation of the first ones. With an allowance of 1 and a limit of 5 deviations, a steady
//! normal value raises a false alarm once in 56,000 values on average, if its mean is known, and a shift of
//! two deviations is found after 6 (D. Siegmund, "Sequential Analysis", 1985, section 2.6: the limit counts
//! 1.166 more, for the overshoot). The mean is known to a quarter of a deviation.

/// Number of values that define the steady state.
const REFERENCE: u32 = 16;
/// Allowance per value in deviations (half of the shift to detect).
const ALLOWANCE: f64 = 1.0;
/// Deviations at which a sum raises the alarm.
const LIMIT: f64 = 5.0;
/// Maximum deviations that one value adds to a sum: a single one raises no alarm.
const MOST_OF_ONE: f64 = 3.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drift {
    count: u32,
    mean: f64,
    /// Sum of the squared differences from the mean.
    squares: f64,
    above: f64,
    below: f64,
}

impl Drift {
    /// Adds a value; deviations smaller than `smallest` count as chance. Returns true if the value has
    /// drifted.
    pub(super) fn push(&mut self, value: f64, smallest: f64) -> bool {
        if !value.is_finite() {
            return false;
        }
        if self.count < REFERENCE {
            self.count += 1;
            let before = value - self.mean;
            self.mean += before / f64::from(self.count);
            self.squares += before * (value - self.mean);
            return false;
        }
        let deviation = (self.squares / f64::from(REFERENCE - 1)).sqrt().max(smallest);
        let distance = ((value - self.mean) / deviation).clamp(-MOST_OF_ONE, MOST_OF_ONE);
        self.above = (self.above + distance - ALLOWANCE).max(0.0);
        self.below = (self.below - distance - ALLOWANCE).max(0.0);
        self.above.max(self.below) > LIMIT
    }

    /// Starts over: the values from here on define the steady state.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of about mean 0 and deviation 1.
    fn normal(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            let mut uniform = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    /// Number of values until the alarm, at most `most`, with a shift by `shift` deviations from value 100
    /// on.
    fn alarm(seed: u64, shift: f64, most: u32) -> Option<u32> {
        let (mut drift, mut next) = (Drift::default(), normal(seed));
        (0..most).find(|&index| {
            let value = 10.0 + 0.1 * (next() + if index >= 100 { shift } else { 0.0 });
            drift.push(value, 0.1)
        })
    }

    #[test]
    fn steady_values_give_no_alarm_and_shifts_are_found_soon() {
        let false_alarms = (0..100).filter(|&seed| alarm(seed, 0.0, 1_000).is_some()).count();
        assert!(false_alarms <= 10, "{false_alarms} of 100 in 1,000 values, with a mean that is estimated from 16");
        for shift in [-3.0, 3.0, 20.0] {
            let found: Vec<_> = (0..100).filter_map(|seed| alarm(seed, shift, 200)).filter(|&at| at >= 100).collect();
            let soon = found.iter().filter(|&&at| at < 112).count();
            assert!(soon >= 90, "{soon} of {} by {shift}", found.len());
        }
    }

    #[test]
    fn one_value_far_off_gives_none_and_a_restart_forgets() {
        let mut drift = Drift::default();
        let push = |drift: &mut Drift, value: f64| drift.push(value, 0.01);
        assert!((0..50).all(|_| !push(&mut drift, 1.0)));
        assert!(!push(&mut drift, 9.0) && !push(&mut drift, f64::NAN));
        assert!((0..50).all(|_| !push(&mut drift, 1.0)));
        assert!((0..4).any(|_| push(&mut drift, 2.0)));
        drift.restart();
        assert!((0..50).all(|_| !push(&mut drift, 2.0)));
    }
}
