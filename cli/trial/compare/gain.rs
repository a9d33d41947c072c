//! From times of runs to a gain with its interval.

use gpuwhy_report::run::{SMALLEST_GAIN, helps};

use crate::trial::runs::steps::median;

/// Part of a gain that its interval may reach to either side when no more pairs are needed.
const NARROW: f64 = 0.05;
/// Largest probability of chance outside an interval: five pairs are the fewest that reach it.
const CHANCE: f64 = 0.0625;
/// How much further the interval of two pairs reaches: hosts become faster or slower by as much from one run to the
/// next, and chance alone puts both unchanged times above both changed ones in one of six cases.
const SCATTER: f64 = 1.1;

/// A gain with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Median of the pairs.
    pub middle: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Gain {
    /// Gain from times per step without and with the remedy, in the order of the pairs; `None` without any.
    ///
    /// The interval of up to four pairs reaches from the shortest unchanged over the longest changed time to the
    /// opposite: for three pairs that are alike, chance puts all unchanged times above all changed ones in one
    /// of 20 cases; that of fewer reaches a tenth further. From five pairs on, it is that of the sign test for the
    /// median (at least 94 %): it assumes nothing about how times scatter, and a host that becomes slower affects both
    /// runs of a pair.
    pub fn of(unchanged: &[f64], changed: &[f64]) -> Option<Self> {
        let mut ratios: Vec<f64> = unchanged.iter().zip(changed).map(|(before, after)| before / after).collect();
        let middle = median(&ratios)?;
        ratios.sort_by(f64::total_cmp);
        let skipped = outside(ratios.len());
        if let Some(skipped) = skipped {
            return Some(Self { middle, low: ratios[skipped], high: ratios[ratios.len() - 1 - skipped] });
        }
        let further = if ratios.len() < 3 { SCATTER } else { 1.0 };
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let (low, high) = (least(unchanged) / most(changed), most(unchanged) / least(changed));
        Some(Self { middle, low: low / further, high: high * further })
    }

    /// The interval without recording, which may take up to these shares of the times without and with the change.
    pub fn without(self, share: f64, share_with: f64) -> Self {
        Self { low: self.low * (1.0 - share), high: self.high / (1.0 - share_with), ..self }
    }

    /// True if its interval is within a twentieth of it.
    pub fn is_narrow(self) -> bool {
        self.high <= self.middle * (1.0 + NARROW) && self.low >= self.middle * (1.0 - NARROW)
    }

    /// True if more pairs would hardly make it one that counts.
    pub fn is_hopeless(self) -> bool {
        self.high < SMALLEST_GAIN
    }

    /// True if it makes steps shorter for certain, and by enough.
    pub fn helps(self) -> bool {
        helps(self.middle, self.low)
    }

    /// True if it makes them longer.
    pub fn is_slower(self) -> bool {
        self.high < 1.0 && self.middle <= 1.0 / SMALLEST_GAIN
    }
}

/// Number of values at each end outside the sign test's interval for the median; `None` when there are too few.
fn outside(count: usize) -> Option<usize> {
    let (mut skipped, mut term, mut tail) = (None, 0.5_f64.powi(i32::try_from(count).ok()?), 0.0);
    for at in 0..count / 2 {
        tail += term;
        if 2.0 * tail > CHANCE {
            break;
        }
        skipped = Some(at);
        term *= (count - at) as f64 / (at + 1) as f64;
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_three_pairs_is_that_of_all_runs() {
        let gain = Gain::of(&[60.0, 62.0, 61.0], &[30.0, 31.0, 30.5]).unwrap();
        assert_eq!(gain, Gain { middle: 2.0, low: 60.0 / 31.0, high: 62.0 / 30.0 });
        assert!(gain.helps() && !gain.is_slower());
        assert_eq!(Gain::of(&[], &[]), None);
    }

    #[test]
    fn two_pairs_show_no_small_gain() {
        let gain = Gain::of(&[1.04, 1.05], &[1.0, 1.02]).unwrap();
        assert!(!gain.helps() && !gain.is_slower() && gain.low < 1.0, "{gain:?}");
        assert!(Gain::of(&[2.0, 2.1], &[1.0, 1.05]).unwrap().helps());
    }

    #[test]
    fn more_pairs_give_the_interval_of_the_sign_test() {
        assert_eq!([4, 5, 8, 9, 12, 20].map(outside), [None, Some(0), Some(0), Some(1), Some(2), Some(5)]);
        let changed: Vec<f64> = (0..9).map(|at| 1.0 / (1.0 + f64::from(at) / 10.0)).collect();
        let gain = Gain::of(&[1.0; 9], &changed).unwrap();
        assert!((gain.low - 1.1).abs() < 1e-9 && (gain.high - 1.7).abs() < 1e-9, "{gain:?}");
    }

    #[test]
    fn a_gain_is_known_when_its_interval_is_narrow_or_below_the_smallest() {
        let gain = |middle, low, high| Gain { middle, low, high };
        assert!(
            gain(2.0, 1.91, 2.09).is_narrow() && !gain(2.0, 1.89, 2.0).is_narrow() && !gain(2.0, 2.0, 2.2).is_narrow()
        );
        assert!(gain(1.0, 0.8, 1.02).is_hopeless() && !gain(1.0, 0.9, 1.2).is_hopeless());
    }

    #[test]
    fn a_gain_needs_an_interval_above_one_and_three_percent() {
        let answer = |middle, low, high| {
            let gain = Gain { middle, low, high };
            [gain.helps(), gain.is_slower()]
        };
        assert_eq!(answer(1.2, 0.99, 1.4), [false, false]);
        assert_eq!(answer(1.02, 1.01, 1.03), [false, false]);
        assert_eq!(answer(1.03, 1.01, 1.05), [true, false]);
        assert_eq!(answer(0.9, 0.85, 0.95), [false, true]);
        assert_eq!(answer(0.98, 0.97, 0.99), [false, false]);
    }
}
