//! JSON form of the comparison.

use gpuwhy_trace::document::document;

use super::counts::CountRow;
use super::model::DeviceRuns;
use super::prediction::Prediction;
use super::rows::{DiffRow, ModuleRow};
use super::{DeviceDiff, Diff, LimitChanges, NotComparable, Places};
use gpuwhy_report::document::limits;
use gpuwhy_report::run::{MemoryOfDevice, ServingKind};

const SCHEMA_VERSION: u32 = 3;

/// The complete document: a comparison, or the reason why there is none.
#[derive(Debug)]
pub struct DiffJson<'a>(pub &'a Result<Diff, NotComparable>);

impl DiffJson<'_> {
    fn similarity(&self) -> Option<f64> {
        match self.0 {
            Ok(diff) => Some(diff.similarity),
            Err(NotComparable::DifferentPrograms(similarity)) => Some(*similarity),
            Err(NotComparable::NoWork(_) | NotComparable::NotAlike(..)) => None,
        }
    }
}

/// A name and the change of its time, nanoseconds.
struct TimeChange(&'static str, i64);

/// Iterations of one kind in A and in B.
struct IterationsOf<'a>(&'a ServingKind, &'a ServingKind);

/// Memory of a device in A and in B.
struct MemoryOf<'a>(&'a MemoryOfDevice, &'a MemoryOfDevice);

document! {
    from: IterationsOf<'_> {
        a: from.0,
        b: from.1,
    }
    from: MemoryOf<'_> {
        a: from.0,
        b: from.1,
    }
    from: DiffJson<'_> {
        schema_version: SCHEMA_VERSION,
        refused: from.0.as_ref().err().map(ToString::to_string),
        runs_a: from.0.as_ref().ok().map(|diff| diff.runs.0),
        runs_b: from.0.as_ref().ok().map(|diff| diff.runs.1),
        median_a: from.0.as_ref().ok().map(|diff| diff.medians.0),
        median_b: from.0.as_ref().ok().map(|diff| diff.medians.1),
        bottleneck_a: from.0.as_ref().ok().map(|diff| diff.bottlenecks.0.name()),
        bottleneck_b: from.0.as_ref().ok().map(|diff| diff.bottlenecks.1.name()),
        similarity: from.similarity(),
        devices: from.0.as_ref().map_or(&[][..], |diff| &diff.devices),
        graph_modules: from.0.as_ref().map_or(&[][..], |diff| &diff.modules),
        warnings: from.0.as_ref().map_or(&[][..], |diff| &diff.warnings),
    }
    from: DeviceDiff {
        id_a: from.ids.0,
        id_b: from.ids.1,
        basis,
        outcome: from.outcome(),
        headline: super::text::headline(from),
        change_ns: from.change_ns(),
        recordings_p: from.test.map(|test| test.p),
        longer_pairs: from.test.map(|test| test.larger),
        runs,
        iterations: from.iterations.iter().map(|(a, b)| IterationsOf(a, b)).collect::<Vec<_>>(),
        memory: from.memory.as_ref().map(|(a, b)| MemoryOf(a, b)),
        counts, same_sampling, a, b,
        leaf_changes: from.leaves.iter().map(|&(leaf, change)| TimeChange(leaf.name(), change)).collect::<Vec<_>>(),
        cause_changes: from.causes.iter().map(|&(cause, change)| TimeChange(cause.name(), change)).collect::<Vec<_>>(),
        compute_limits: from.limits,
        kernels, copies,
        places: from.places.as_ref().ok(),
        places_refused: from.places.as_ref().err(),
        prediction,
    }
    from: DeviceRuns {
        a_ns: from.a.iter().map(|run| run.unit_ns).collect::<Vec<_>>(),
        b_ns: from.b.iter().map(|run| run.unit_ns).collect::<Vec<_>>(),
        ratio: from.test.ratio,
        low: from.test.bounds().0,
        high: from.test.bounds().1,
        confidence: from.test.confidence,
        p: from.test.p,
        smallest_p: from.test.smallest_p,
    }
    from: CountRow {
        name,
        a_low: from.a.0,
        a_high: from.a.1,
        b_low: from.b.0,
        b_high: from.b.1,
        change: from.change(),
    }
    from: TimeChange {
        name: from.0,
        change_ns: from.1,
    }
    from: LimitChanges {
        a_ns: limits(&from.a),
        b_ns: limits(&from.b),
        changes: from.changes.iter().map(|&(limit, change)| TimeChange(limit.name(), change)).collect::<Vec<_>>(),
    }
    from: Places {
        operations_a: from.operations.0,
        operations_b: from.operations.1,
        steps_a: from.steps.0,
        steps_b: from.steps.1,
        aligned, changed,
    }
    from: Prediction {
        kind, cause, step_ns, predicted_step_ns, predicted_speedup, actual_step_ns, actual_speedup,
        base_error,
        over_best_case_ns: from.over_best_case_ns(),
        other_leaf_changes: from.others.iter().map(|&(leaf, change)| TimeChange(leaf.name(), change)).collect::<Vec<_>>(),
    }
    from: ModuleRow {
        name,
        change_ns: from.change_ns(),
        a, b,
    }
    from: DiffRow {
        name, launches, speed,
        change_ns: from.change_ns(),
        p, a, b,
    }
}
