//! Repetition within a step: layers, micro-batches, time steps.

use rustc_hash::FxHashMap;

/// Fewest repetitions worth reporting.
const FEWEST: u32 = 3;
/// Minimum fraction of the step that they make up, as a divisor.
const LEAST_PART: u32 = 2;
/// Maximum number of distances examined (the most frequent ones).
const DISTANCES: usize = 8;

/// A unit that repeats within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Inside {
    /// Number of consecutive occurrences.
    pub times: u32,
    /// Number of launches of the unit.
    pub launches: u32,
}

impl Inside {
    /// Total launches of all repetitions.
    pub fn all(self) -> u32 {
        self.times * self.launches
    }

    /// The unit that makes up most of a step of these launches, or the shortest one that makes up nearly as
    /// much.
    pub(super) fn of(step: &[u32]) -> Option<Self> {
        let mut last: FxHashMap<u32, usize> = FxHashMap::default();
        let mut distances: FxHashMap<usize, usize> = FxHashMap::default();
        for (index, &symbol) in step.iter().enumerate() {
            if let Some(before) = last.insert(symbol, index) {
                *distances.entry(index - before).or_default() += 1;
            }
        }
        let mut rows: Vec<(usize, usize)> = distances.into_iter().collect();
        // The result must not depend on the order of the map.
        rows.sort_unstable_by_key(|&(distance, count)| (std::cmp::Reverse(count * distance), distance));
        let units = rows.iter().take(DISTANCES).map(|&(distance, _)| Self::at(distance, step));
        let is_large = |unit: &Self| unit.times >= FEWEST && unit.all() >= step.len() as u32 / LEAST_PART;
        let mut units: Vec<Self> = units.filter(is_large).collect();
        units.sort_unstable_by_key(|unit| unit.launches);
        let most = units.iter().map(|unit| unit.all()).max()?;
        units.into_iter().find(|unit| 10 * unit.all() >= 9 * most)
    }

    /// Longest run in which each launch equals the one `distance` before. The step wraps around, since its
    /// starting point is not known yet.
    fn at(distance: usize, step: &[u32]) -> Self {
        let (mut run, mut longest) = (0, 0);
        let again = || step.iter().chain(step);
        for (symbol, before) in again().skip(distance).zip(again()) {
            run = if symbol == before { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let times = ((longest + distance) / distance).min(step.len() / distance);
        Self { times: times as u32, launches: distance as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_within_a_step() {
        let layers: Vec<u32> = (0..160).map(|launch| launch % 10).collect();
        assert_eq!(Inside::of(&layers), Some(Inside { times: 16, launches: 10 }));
        let with_ends = [&[90, 91][..], &layers, &[92; 1], &[93, 94]].concat();
        assert_eq!(Inside::of(&with_ends), Some(Inside { times: 16, launches: 10 }));
        let begun_in_the_middle = [&with_ends[70..], &with_ends[..70]].concat();
        assert_eq!(Inside::of(&begun_in_the_middle), Some(Inside { times: 16, launches: 10 }));
        assert_eq!(Inside::of(&[7; 100]), Some(Inside { times: 100, launches: 1 }));
        // The optimizer's equal kernels are less than half of the step; two halves are not layers.
        let training: Vec<u32> = (0..100).chain([7; 60]).collect();
        assert_eq!(Inside::of(&training), None);
        assert_eq!(Inside::of(&(0..50).chain(0..50).collect::<Vec<u32>>()), None);
        assert_eq!(Inside::of(&[]), None);
    }
}
