//! Why nothing ran where no API call was recorded: estimated from gaps like it in the stretches in which calls were.
//!
//! A gap outside of a stretch has a length and the operations around it, which are recorded all the time. So it is
//! divided as the gaps of the same length (half an octave) between the same operations were on average; without enough
//! of these as gaps before the same operation, of that length or up to an octave apart; then as any gap of that length.
//! Without any it stays without a cause. This is post-stratification (W. G. Cochran, *Sampling Techniques*, 1977,
//! section 5A.9): lengths and operations are known for the whole run, so only the division within a stratum is
//! estimated.
//!
//! Only earlier stretches count, so that a time is entered once and for good. The same way gaps inside a stretch are
//! estimated before they are learned from: the differences between estimate and record tell how far off the estimates
//! are (prequential validation: A. P. Dawid, *J. R. Statist. Soc. A* 147, 1984).

use rustc_hash::FxHashMap;

use super::leaf::{BUSY_COUNT, LEAF_COUNT, Leaf, Leaves};

/// Causes of a gap.
const IDLE_COUNT: usize = LEAF_COUNT - BUSY_COUNT;
/// Strata of each kind; gaps of further ones fall to the next coarser kind.
const STRATA_LIMIT: usize = 4_096;
/// Fewest gaps that speak for a stratum of operations.
const FEWEST: u32 = 4;
/// Classes of length, half an octave each, that a gap may be apart from those that speak for it.
const NEAR: u8 = 2;
/// Gaps after which the older ones count half, so that a stratum follows the program.
const REMEMBERED: u32 = 64;
/// Groups of stretches that are left out one after the other.
const GROUPS: usize = 12;
/// Quantiles of Student's t, 97.5 %, by the number of groups less two: from 1 degree of freedom on.
const STUDENT: [f64; GROUPS - 1] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20];

/// Nanoseconds by cause of idle time.
type Division = [u64; IDLE_COUNT];

/// How gaps of one kind were divided.
#[derive(Clone, Copy, Debug, Default)]
struct Stratum {
    gaps: u32,
    sums: Division,
}

impl Stratum {
    fn learn(&mut self, division: &Division) {
        if self.gaps >= REMEMBERED {
            self.gaps /= 2;
            self.sums.iter_mut().for_each(|sum| *sum /= 2);
        }
        self.gaps += 1;
        for (sum, nanos) in self.sums.iter_mut().zip(division) {
            *sum += nanos;
        }
    }
}

/// What a gap is like: the operations around it, the one behind it, and its length.
#[derive(Clone, Copy, Debug)]
struct Kind {
    between: (u32, u32, u8),
    before: (u32, u8),
    length: u8,
}

/// Estimates and records of the same gaps, in a group of stretches.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    idle: u64,
    /// Estimated less recorded.
    difference: [i64; IDLE_COUNT],
}

/// The estimator of one device.
#[derive(Debug, Default)]
pub(super) struct GapEstimator {
    between: FxHashMap<(u32, u32, u8), Stratum>,
    before: FxHashMap<(u32, u8), Stratum>,
    lengths: FxHashMap<u8, Stratum>,
    compared: [Compared; GROUPS],
    /// The stretch that was compared last, and how many were.
    stretch: u64,
    stretches: u64,
    estimated: Division,
}

/// Idle time that was estimated, and how well.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimatedIdle {
    /// Idle time outside of stretches by cause, nanoseconds; zero for causes of busy time.
    pub leaves: Leaves,
    /// By cause, how far the estimate may be off in either direction, as a part of all idle time outside of stretches:
    /// an interval of 95 %. `None` before three stretches were compared.
    pub margins: Option<[f64; LEAF_COUNT]>,
    /// Stretches in which estimates were compared with records.
    pub compared: u64,
    /// Stretches in which calls were recorded, and how long these took within the window of the device, nanoseconds.
    pub stretches: u64,
    /// See [`stretches`](Self::stretches).
    pub recorded_ns: u64,
}

impl EstimatedIdle {
    /// Idle time outside of stretches, nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.leaves.iter().sum()
    }

    /// Least and most that `leaf` took outside of stretches, nanoseconds; `None` without an interval.
    #[must_use]
    pub fn interval(&self, leaf: Leaf) -> Option<(u64, u64)> {
        let (total, nanos) = (self.total_ns(), self.leaves[leaf as usize]);
        let margin = (self.margins?[leaf as usize] * total as f64) as u64;
        Some((nanos.saturating_sub(margin), nanos.saturating_add(margin).min(total)))
    }
}

impl GapEstimator {
    /// A gap between operations of these symbols was divided like this by records of the stretch that began at
    /// `stretch`.
    pub(super) fn learn(&mut self, symbols: (u32, u32), stretch: u64, divided: &Leaves) {
        let division: Division = std::array::from_fn(|cause| divided[BUSY_COUNT + cause]);
        let length: u64 = division.iter().sum();
        let kind = kind(symbols, length);
        // What the first stretch says is compared with nothing: it began with the run.
        if stretch != 0 {
            let estimate = self.divide(&kind, length);
            if self.stretch != stretch {
                (self.stretch, self.stretches) = (stretch, self.stretches + 1);
            }
            let group = &mut self.compared[(self.stretches % GROUPS as u64) as usize];
            group.idle += length;
            for (difference, (estimated, recorded)) in group.difference.iter_mut().zip(estimate.iter().zip(&division)) {
                *difference += *estimated as i64 - *recorded as i64;
            }
        }
        learn(&mut self.between, kind.between, &division);
        learn(&mut self.before, kind.before, &division);
        learn(&mut self.lengths, kind.length, &division);
    }

    /// How a gap of `length` nanoseconds between operations of these symbols divides, outside of stretches: causes and
    /// how long each was, which sum to `length`, in the order in which they are entered.
    pub(super) fn estimate(&mut self, symbols: (u32, u32), length: u64) -> [(Leaf, u64); IDLE_COUNT] {
        let division = self.divide(&kind(symbols, length), length);
        for (sum, nanos) in self.estimated.iter_mut().zip(division) {
            *sum += nanos;
        }
        std::array::from_fn(|cause| (Leaf::ALL[BUSY_COUNT + cause], division[cause]))
    }

    /// What was estimated so far.
    pub(super) fn told(&self) -> EstimatedIdle {
        let mut leaves = [0; LEAF_COUNT];
        leaves[BUSY_COUNT..].copy_from_slice(&self.estimated);
        EstimatedIdle { leaves, margins: self.margins(), compared: self.stretches, stretches: 0, recorded_ns: 0 }
    }

    fn divide(&self, kind: &Kind, length: u64) -> Division {
        let enough = |stratum: &&Stratum| stratum.gaps >= FEWEST;
        let stratum = self.between.get(&kind.between).filter(enough);
        let stratum = stratum.or_else(|| self.before.get(&kind.before).filter(enough));
        let stratum = stratum.or_else(|| self.nearest(kind));
        let mut division = [0; IDLE_COUNT];
        let Some((stratum, total)) =
            stratum.map(|stratum| (stratum, stratum.sums.iter().sum::<u64>())).filter(|&(_, total)| total > 0)
        else {
            division[Leaf::Unobserved as usize - BUSY_COUNT] = length;
            return division;
        };
        // By running sums, so that what is rounded is lost nowhere.
        let (mut passed, mut entered) = (0u64, 0u64);
        for (nanos, sum) in division.iter_mut().zip(&stratum.sums) {
            passed += sum;
            let until = (u128::from(length) * u128::from(passed) / u128::from(total)) as u64;
            *nanos = until - entered;
            entered = until;
        }
        division
    }

    /// Gaps before the same operation of a length next to this one's, up to an octave apart; else gaps of that length.
    fn nearest(&self, kind: &Kind) -> Option<&Stratum> {
        let (next, length) = kind.before;
        let around = (0..=NEAR).flat_map(|apart| [length.saturating_sub(apart), length.saturating_add(apart)]);
        let mut before = around.filter_map(|length| self.before.get(&(next, length)));
        before.next().or_else(|| self.lengths.get(&length))
    }

    /// The mean difference and its standard error by the jackknife over groups of stretches, times Student's t and the
    /// root of two: the stretches that were compared and the time that was estimated scatter alike.
    fn margins(&self) -> Option<[f64; LEAF_COUNT]> {
        let groups: Vec<&Compared> = self.compared.iter().filter(|group| group.idle > 0).collect();
        let count = groups.len();
        if self.stretches < 3 || count < 3 {
            return None;
        }
        let student = STUDENT[count - 2];
        let idle: u64 = groups.iter().map(|group| group.idle).sum();
        let mut margins = [0.0; LEAF_COUNT];
        for cause in 0..IDLE_COUNT {
            let sum: i64 = groups.iter().map(|group| group.difference[cause]).sum();
            let mean = sum as f64 / idle as f64;
            let without =
                |group: &&Compared| (sum - group.difference[cause]) as f64 / (idle - group.idle).max(1) as f64;
            let squares: f64 = groups.iter().map(|group| (without(group) - mean).powi(2)).sum();
            let error = (squares * (count - 1) as f64 / count as f64).sqrt();
            margins[BUSY_COUNT + cause] = mean.abs() + student * std::f64::consts::SQRT_2 * error;
        }
        Some(margins)
    }
}

fn learn<K: Eq + std::hash::Hash>(strata: &mut FxHashMap<K, Stratum>, key: K, division: &Division) {
    if let Some(stratum) = strata.get_mut(&key) {
        stratum.learn(division);
    } else if strata.len() < STRATA_LIMIT {
        strata.entry(key).or_default().learn(division);
    }
}

fn kind((last, next): (u32, u32), length: u64) -> Kind {
    let length = length_class(length);
    Kind { between: (last, next, length), before: (next, length), length }
}

/// Half octaves.
fn length_class(nanos: u64) -> u8 {
    let nanos = nanos.max(2);
    let octave = nanos.ilog2();
    (octave * 2) as u8 + u8::from(nanos >> (octave - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(parts: &[(Leaf, u64)]) -> Leaves {
        let mut leaves = [0; LEAF_COUNT];
        for &(leaf, nanos) in parts {
            leaves[leaf as usize] = nanos;
        }
        leaves
    }

    #[test]
    fn lengths_are_told_apart_by_half_octaves() {
        let classes = [0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 16, u64::MAX].map(length_class);
        assert_eq!(classes, [2, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 127]);
    }

    #[test]
    fn the_most_alike_gaps_speak_and_the_parts_sum_to_the_gap() {
        let mut estimator = GapEstimator::default();
        let unknown: Vec<_> = estimator.estimate((1, 2), 1_000).into_iter().filter(|&(_, nanos)| nanos > 0).collect();
        assert_eq!(unknown, [(Leaf::Unobserved, 1_000)]);
        for _ in 0..FEWEST {
            estimator.learn((1, 2), 0, &divided(&[(Leaf::Dispatch, 600), (Leaf::LaunchApi, 400)]));
            estimator.learn((7, 2), 0, &divided(&[(Leaf::SyncDrain, 1_000)]));
        }
        estimator.learn((8, 9), 0, &divided(&[(Leaf::HostCpu, 1 << 20)]));
        let mut parts = |symbols, length| {
            let parts: Vec<_> =
                estimator.estimate(symbols, length).into_iter().filter(|&(_, nanos)| nanos > 0).collect();
            assert_eq!(parts.iter().map(|&(_, nanos)| nanos).sum::<u64>(), length);
            parts
        };
        assert_eq!(parts((1, 2), 901), [(Leaf::Dispatch, 540), (Leaf::LaunchApi, 361)]);
        assert_eq!(parts((7, 2), 901), [(Leaf::SyncDrain, 901)]);
        assert_eq!(parts((5, 2), 1_000), [(Leaf::SyncDrain, 500), (Leaf::Dispatch, 300), (Leaf::LaunchApi, 200)]);
        assert_eq!(parts((5, 5), 1 << 20), [(Leaf::HostCpu, 1 << 20)], "the length alone");
        assert_eq!(parts((4, 9), 1 << 19), [(Leaf::HostCpu, 1 << 19)], "an octave apart");
        assert_eq!(parts((1, 2), 10), [(Leaf::Unobserved, 10)], "no gap of that length");
        let told = estimator.told();
        assert_eq!(told.total_ns(), 1_000 + 901 + 901 + 1_000 + (1 << 20) + (1 << 19) + 10);
        assert_eq!(told.interval(Leaf::Dispatch), None, "nothing was compared");
    }

    #[test]
    fn margins_are_wide_where_stretches_differ_and_narrow_where_they_do_not() {
        let margins = |scatter: u64| {
            let mut estimator = GapEstimator::default();
            for stretch in 0..20u64 {
                let dispatch = 600 + if stretch % 2 == 0 { scatter } else { 0 };
                for _ in 0..50 {
                    let leaves = divided(&[(Leaf::Dispatch, dispatch), (Leaf::LaunchApi, 1_000 - dispatch)]);
                    estimator.learn((1, 2), stretch, &leaves);
                }
            }
            let told = estimator.told();
            assert_eq!(told.compared, 19);
            told.margins.unwrap()[Leaf::Dispatch as usize]
        };
        assert!(margins(0) < 1e-9);
        assert!(margins(200) > 0.01 && margins(200) < 0.2, "{}", margins(200));
    }
}
