//! Kernels and copies of two runs by their position in the step: added, removed, and slower or faster ones.
//!
//! The sequences of the steps are aligned by name. Both are first rotated to start with the same operation,
//! because the position in its cycle at which a step starts is a convention and may differ between runs. A
//! name alone cannot distinguish the tenth layer's kernel from the others; its position can.
//!
//! Changes within an operation that kept its name are unknown, except for its duration.

use std::collections::HashMap;

use super::alignment::{MOST_EDITS, align};
use super::compared::same_steps;
use super::rows::{Speed, speed};
use super::significance::{SIGNIFICANCE, Spread, mean_shift};
use gpuwhy_report::run::Sequence;

/// Change of an operation of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// Only in B's step.
    Added,
    /// Only in A's step.
    Removed,
    /// In both, and significantly longer in B by at least [`SLOWER_SHARE`](super::SLOWER_SHARE).
    Slower,
    /// In both, and significantly shorter in B by at least the same share.
    Faster,
}

/// A position at which the steps differ.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ChangedPlace {
    /// Kind of change.
    pub fate: Fate,
    /// Name of the operation.
    pub name: String,
    /// Index of the operation in A's step, from 0; for an added operation, the index of the next one in A.
    pub at_a: usize,
    /// The same in B's step; for a removed operation, the index of the next one in B.
    pub at_b: usize,
    /// Mean duration in A, nanoseconds; 0 when added.
    pub a_ns: f64,
    /// Mean duration in B, nanoseconds; 0 when removed.
    pub b_ns: f64,
}

impl ChangedPlace {
    /// Change of its time in a step, nanoseconds.
    pub fn change_ns(&self) -> f64 {
        self.b_ns - self.a_ns
    }
}

/// Steps of two runs, aligned.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Number of operations in a step of A and of B.
    pub operations: (usize, usize),
    /// Number of steps that launched exactly this sequence, of A and of B.
    pub steps: (u64, u64),
    /// Number of operations in both, in the same order.
    pub aligned: usize,
    /// Positions that differ, the largest change of time first.
    pub changed: Vec<ChangedPlace>,
}

impl Places {
    /// Aligns two steps. `similarity` is that of the runs.
    ///
    /// # Errors
    /// The reason if they cannot be aligned: then only names can be compared.
    pub(super) fn of(a: Option<&Sequence>, b: Option<&Sequence>, similarity: f64) -> Result<Self, String> {
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            (None, Some(_)) => return Err("no steps that repeat were found in A".to_owned()),
            (Some(_), None) => return Err("no steps that repeat were found in B".to_owned()),
            (None, None) => return Err("no steps that repeat were found".to_owned()),
        };
        let (in_a, in_b) = (a.places.len(), b.places.len());
        if !same_steps(in_a as u64, in_b as u64, similarity) {
            return Err(format!(
                "the steps that were found hold {in_a} operations in A and {in_b} in B, of the same kinds"
            ));
        }
        let (ids_a, ids_b) = identified(a, b);
        let (turn_a, turn_b) = common_begin(&ids_a, &ids_b).unwrap_or((0, 0));
        let turned = |ids: &[u32], by: usize| [&ids[by..], &ids[..by]].concat();
        let pairs = align(&turned(&ids_a, turn_a), &turned(&ids_b, turn_b))
            .ok_or_else(|| format!("their steps differ in more than {MOST_EDITS} operations"))?;
        let original = |index: usize, turn: usize, length: usize| (index + turn) % length.max(1);
        let place_a = |index| original(index, turn_a, ids_a.len());
        let place_b = |index| original(index, turn_b, ids_b.len());
        let level = SIGNIFICANCE / pairs.len().max(1) as f64;
        let mut changed = Vec::new();
        let (mut next_a, mut next_b) = (0, 0);
        for &(x, y) in pairs.iter().chain([&(ids_a.len(), ids_b.len())]) {
            let gone = (next_a..x).map(|index| changed_place(Fate::Removed, a, b, place_a(index), place_b(y)));
            changed.extend(gone);
            let come = (next_b..y).map(|index| changed_place(Fate::Added, a, b, place_a(x), place_b(index)));
            changed.extend(come);
            if x < ids_a.len() && y < ids_b.len() {
                let (at_a, at_b) = (place_a(x), place_b(y));
                let (first, second) = (spread(a, at_a), spread(b, at_b));
                let is_significant = mean_shift(&first, &second).is_some_and(|p| p < level);
                match speed(first.mean, second.mean, is_significant) {
                    Speed::Slower => changed.push(changed_place(Fate::Slower, a, b, at_a, at_b)),
                    Speed::Faster => changed.push(changed_place(Fate::Faster, a, b, at_a, at_b)),
                    Speed::Same => {}
                }
            }
            (next_a, next_b) = (x + 1, y + 1);
        }
        changed.sort_by(|x, y| y.change_ns().abs().total_cmp(&x.change_ns().abs()).then(x.at_a.cmp(&y.at_a)));
        Ok(Self { operations: (ids_a.len(), ids_b.len()), steps: (a.steps, b.steps), aligned: pairs.len(), changed })
    }
}

/// Equal names get equal numbers.
fn identified(a: &Sequence, b: &Sequence) -> (Vec<u32>, Vec<u32>) {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut ids = [Vec::new(), Vec::new()];
    for (ids, sequence) in ids.iter_mut().zip([a, b]) {
        for place in 0..sequence.places.len() {
            let next = numbers.len() as u32;
            ids.push(*numbers.entry(sequence.name(place)).or_insert(next));
        }
    }
    let [a, b] = ids;
    (a, b)
}

/// Positions in A and B of the first operation of A that occurs exactly once in both.
fn common_begin(a: &[u32], b: &[u32]) -> Option<(usize, usize)> {
    let mut seen: HashMap<u32, (u32, u32, usize)> = HashMap::new();
    for &id in a {
        seen.entry(id).or_default().0 += 1;
    }
    for (index, &id) in b.iter().enumerate() {
        let entry = seen.entry(id).or_default();
        (entry.1, entry.2) = (entry.1 + 1, index);
    }
    a.iter().enumerate().find_map(|(index, id)| match seen.get(id) {
        Some(&(1, 1, in_b)) => Some((index, in_b)),
        _ => None,
    })
}

fn spread(sequence: &Sequence, at: usize) -> Spread {
    sequence.places.get(at).map_or(Spread { count: 0, mean: 0.0, min: 0, max: 0 }, |(_, place)| Spread {
        count: sequence.steps,
        mean: place.total_ns as f64 / sequence.steps.max(1) as f64,
        min: place.min_ns,
        max: place.max_ns,
    })
}

fn changed_place(fate: Fate, a: &Sequence, b: &Sequence, at_a: usize, at_b: usize) -> ChangedPlace {
    let name = if fate == Fate::Added { b.name(at_b) } else { a.name(at_a) }.to_owned();
    let a_ns = if fate == Fate::Added { 0.0 } else { spread(a, at_a).mean };
    let b_ns = if fate == Fate::Removed { 0.0 } else { spread(b, at_b).mean };
    ChangedPlace { fate, name, at_a, at_b, a_ns, b_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::attribution::Subject;
    use profiler_core::attribution::step_sequence::{StepCalls, StepOperation};
    use profiler_core::leaf::Leaf;

    /// Names and durations; a run of 20 steps.
    fn run(places: &[(&str, u64)]) -> Sequence {
        let calls = StepCalls { launches: 20 * places.len() as u64, ..StepCalls::default() };
        let mut sequence = Sequence { steps: 20, calls, names: Vec::new(), places: Vec::new() };
        for &(name, nanos) in places {
            let index = sequence.names.iter().position(|known| known == name).unwrap_or_else(|| {
                sequence.names.push(name.to_owned());
                sequence.names.len() - 1
            });
            let (leaf, subject) = (Leaf::Compute, Subject::None);
            let place = StepOperation { leaf, subject, total_ns: 20 * nanos, min_ns: nanos - 1, max_ns: nanos + 1 };
            sequence.places.push((index as u32, place));
        }
        sequence
    }

    #[test]
    fn one_of_many_kernels_of_a_name_is_reported_by_its_place() {
        let a =
            run(&[("load", 50), ("gemm", 100), ("relu", 10), ("gemm", 100), ("relu", 10), ("gemm", 100), ("adam", 20)]);
        let b =
            run(&[("gemm", 100), ("relu", 10), ("gemm", 180), ("gemm", 100), ("clip", 30), ("adam", 20), ("load", 50)]);
        let places = Places::of(Some(&a), Some(&b), 0.9).unwrap();
        assert_eq!((places.operations, places.aligned), ((7, 7), 6));
        let rows: Vec<_> = places.changed.iter().map(|row| (row.fate, row.name.as_str(), row.at_a, row.at_b)).collect();
        assert_eq!(rows, [(Fate::Slower, "gemm", 3, 2), (Fate::Added, "clip", 6, 4), (Fate::Removed, "relu", 4, 3),]);
        assert!((places.changed[0].change_ns() - 80.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_like_itself_has_no_changes_wherever_it_begins() {
        let a = run(&[("load", 50), ("gemm", 100), ("gemm", 200), ("adam", 20)]);
        let turned = run(&[("gemm", 200), ("adam", 20), ("load", 50), ("gemm", 100)]);
        let places = Places::of(Some(&a), Some(&turned), 1.0).unwrap();
        assert_eq!((places.aligned, places.changed.len()), (4, 0));
    }

    #[test]
    fn without_steps_there_are_no_places() {
        let a = run(&[("gemm", 100)]);
        assert_eq!(Places::of(Some(&a), None, 1.0), Err("no steps that repeat were found in B".to_owned()));
        assert!(Places::of(None, None, 1.0).is_err());
        let two = run(&[("gemm", 100), ("gemm", 100)]);
        assert!(Places::of(Some(&a), Some(&two), 1.0).is_err(), "two iterations for one");
        assert!(Places::of(Some(&a), Some(&two), 0.6).is_ok(), "another mixture is another step");
    }
}
