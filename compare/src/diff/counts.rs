//! Counts of one step of several runs: calls, operations and bytes. They do not depend on the host's load, so a change
//! of one of them is a change of the program.

use profiler_core::leaf::Leaf;

use gpuwhy_report::run::Sequence;

/// A count in one step of each run.
#[derive(Clone, Debug, PartialEq)]
pub struct CountRow {
    /// What is counted.
    pub name: &'static str,
    /// The fewest and the most in a run of A.
    pub a: (f64, f64),
    /// The same of B.
    pub b: (f64, f64),
}

/// Counts whose values are bytes.
pub(super) const BYTES: &str = "copied bytes";

impl CountRow {
    /// True if no run of B has a count that a run of A has.
    pub fn is_changed(&self) -> bool {
        self.a.1 < self.b.0 || self.b.1 < self.a.0
    }

    /// True if it is the same in all runs.
    pub(super) fn is_equal(&self) -> bool {
        let (least, most) = (self.a.0.min(self.b.0), self.a.1.max(self.b.1));
        least >= most
    }

    /// Change from the runs of A to those of B that are nearest; 0 unless it is changed.
    pub fn change(&self) -> f64 {
        match (self.a, self.b) {
            ((_, most), (least, _)) if most < least => least - most,
            ((least, _), (_, most)) if most < least => most - least,
            _ => 0.0,
        }
    }
}

/// Counts of the steps of the runs of A and of B; empty unless all of them have steps that repeat.
pub(super) fn counts(a: &[Option<&Sequence>], b: &[Option<&Sequence>]) -> Vec<CountRow> {
    let of = |runs: &[Option<&Sequence>]| -> Option<Vec<[(&'static str, f64); 6]>> {
        runs.iter().map(|run| run.map(of_step)).collect()
    };
    let (Some(a), Some(b)) = (of(a), of(b)) else { return Vec::new() };
    let range = |runs: &[[(&'static str, f64); 6]], at: usize| {
        let values = runs.iter().map(|run| run[at].1);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
    };
    let names = a.first().map(|run| run.map(|(name, _)| name)).unwrap_or_default();
    let rows = names.into_iter().enumerate();
    rows.map(|(at, name)| CountRow { name, a: range(&a, at), b: range(&b, at) }).collect()
}

fn of_step(sequence: &Sequence) -> [(&'static str, f64); 6] {
    let with = |wanted: fn(Leaf) -> bool| sequence.places.iter().filter(|(_, place)| wanted(place.leaf)).count() as f64;
    let mean = |sum: u64| sum as f64 / sequence.steps.max(1) as f64;
    let kernel = |leaf| matches!(leaf, Leaf::Compute | Leaf::Communication);
    [
        ("calls that launch kernels or graphs", mean(sequence.calls.launches)),
        ("kernels", with(kernel)),
        ("synchronizing calls", mean(sequence.calls.synchronizations)),
        ("copies", with(|leaf| !matches!(leaf, Leaf::Compute | Leaf::Communication | Leaf::Memset))),
        ("memsets", with(|leaf| leaf == Leaf::Memset)),
        (BYTES, mean(sequence.calls.copied_bytes)),
    ]
}
