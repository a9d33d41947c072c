//! What a change of kernels gains, by shares of the time and factors.
//!
//! Ranges have two sides: the least and the most that the mechanism allows. The most is never above the time of the
//! kernels and of their launches, which a change can make zero and no less. The middle orders the remedies; only the
//! least is said, because measured gains of programs that no factor had seen were often above the most
//! (`tests/gpu/remedies.md`).

/// Least low end of a gain.
pub(super) const WORTH: f64 = 1.05;
/// Least middle of an estimate.
const ESTIMATED: f64 = 1.1;

/// A range of speedups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gain {
    pub(super) speedup: f64,
    pub(super) interval: Option<(f64, f64)>,
    /// From shares of the time and factors, not from a simulation.
    pub(super) is_estimate: bool,
    /// Only a bound is known: it may be anything from nothing to `speedup`.
    pub(super) is_bound: bool,
}

impl Gain {
    pub(super) const NONE: Self = Self { speedup: 1.0, interval: None, is_estimate: false, is_bound: false };

    /// At most this gain.
    pub(super) fn at_most(speedup: f64) -> Self {
        Self { speedup, interval: Some((1.0, speedup)), is_bound: true, ..Self::NONE }
    }

    /// At most the high end of this gain.
    pub(super) fn as_bound(self) -> Self {
        Self::at_most(self.interval.map_or(self.speedup, |(_, high)| high))
    }

    /// Gain of saving between `low` and `high` of a step, 0 to 1.
    pub(super) fn saving(low: f64, high: f64) -> Self {
        let factor = |saved: f64| 1.0 / (1.0 - saved.clamp(0.0, 0.99));
        let (low, high) = (factor(low.min(high)), factor(high.max(low)));
        // A fault costs most of what it may: of 22 measured gains 16 were in the upper half of the range.
        let speedup = low.cbrt() * high.cbrt().powi(2);
        Self { speedup, interval: Some((low, high)), is_estimate: true, is_bound: false }
    }

    /// Both savings together.
    pub(super) fn and(self, other: Self) -> Self {
        let ends = |gain: Self| gain.interval.unwrap_or((gain.speedup, gain.speedup));
        let saved = |a: f64, b: f64| 2.0 - 1.0 / a.max(1.0) - 1.0 / b.max(1.0);
        let ((low, high), (other_low, other_high)) = (ends(self), ends(other));
        Self::saving(saved(low, other_low), saved(high, other_high))
    }

    pub(super) fn low(self) -> f64 {
        self.interval.map_or(self.speedup, |(low, _)| low)
    }

    /// What the report says: of an estimate the low end alone, if that is a gain.
    pub(super) fn said(self) -> Option<Self> {
        let low = self.low();
        match self.is_estimate {
            true => (low > WORTH).then_some(Self { speedup: low, interval: Some((low, f64::INFINITY)), ..self }),
            false => Some(self),
        }
    }

    /// True if a remedy with this gain is named. The low end of an estimate allows for the worst case.
    pub(super) fn is_worth(self) -> bool {
        if self.is_estimate || self.is_bound { self.speedup > ESTIMATED } else { self.low() > WORTH }
    }
}
