//! The comparison for programs. Wire types of their own: the model may change without changing the schema.
//!
//! Times are nanoseconds and named `_ns`, those of leaves and units integers; shares are 0 to 1.
//! `docs/reference/report.md` defines every field. A field may be added within a schema version; renaming or removing
//! one raises it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rows::{Launches, Row, Speed, Usage};
use super::unit::{Basis, Representative};
use super::{ChangedPlace, DeviceDiff, Diff, Fate, LimitChanges, Outcome, Places, Prediction, Refusal};
use crate::attribution::leaf::Leaf;
use crate::counters::roofs::{Limit, LimitTimes};
use crate::steps::StepSource;

/// Version of the schema below.
pub const SCHEMA_VERSION: u32 = 2;

/// The whole document: a comparison, or the reason why there is none.
#[derive(Debug, Serialize)]
pub struct Document {
    schema_version: u32,
    refused: Option<String>,
    similarity: Option<f64>,
    devices: Vec<DeviceJson>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    id_a: u32,
    id_b: u32,
    basis: &'static str,
    outcome: &'static str,
    headline: String,
    change_ns: i64,
    recordings_p: Option<f64>,
    longer_pairs: Option<f64>,
    a: UnitJson,
    b: UnitJson,
    leaf_changes: Vec<ChangeJson>,
    group_changes: Vec<ChangeJson>,
    compute_limits: Option<LimitsJson>,
    kernels: Vec<RowJson>,
    copies: Vec<RowJson>,
    places: Option<PlacesJson>,
    places_refused: Option<String>,
    prediction: Option<PredictionJson>,
}

#[derive(Debug, Serialize)]
struct PlacesJson {
    operations_a: usize,
    operations_b: usize,
    steps_a: u64,
    steps_b: u64,
    aligned: usize,
    changed: Vec<PlaceJson>,
}

#[derive(Debug, Serialize)]
struct PlaceJson {
    fate: &'static str,
    name: String,
    at_a: usize,
    at_b: usize,
    a_ns: f64,
    b_ns: f64,
}

#[derive(Debug, Serialize)]
struct PredictionJson {
    kind: &'static str,
    group: &'static str,
    step_ns: u64,
    predicted_step_ns: u64,
    predicted_speedup: f64,
    actual_step_ns: u64,
    actual_speedup: f64,
    base_error: f64,
    over_ceiling_ns: u64,
    other_leaf_changes: Vec<ChangeJson>,
}

#[derive(Debug, Serialize)]
struct UnitJson {
    unit_ns: u64,
    median_ns: Option<u64>,
    operations: u64,
    steps_averaged: usize,
    steps_considered: usize,
    step_source: Option<&'static str>,
    leaves: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct LimitsJson {
    a_ns: BTreeMap<&'static str, u64>,
    b_ns: BTreeMap<&'static str, u64>,
    changes: Vec<ChangeJson>,
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    name: &'static str,
    change_ns: i64,
}

#[derive(Debug, Serialize)]
struct RowJson {
    name: String,
    launches: &'static str,
    speed: &'static str,
    change_ns: f64,
    p: Option<f64>,
    a: UsageJson,
    b: UsageJson,
}

#[derive(Debug, Serialize)]
struct UsageJson {
    count: u64,
    per_unit: f64,
    mean_ns: f64,
    unit_ns: f64,
    unit_bytes: f64,
}

impl Document {
    /// The document of a comparison or of its refusal.
    #[must_use]
    pub fn new(outcome: &Result<Diff, Refusal>) -> Self {
        match outcome {
            Ok(diff) => Self {
                schema_version: SCHEMA_VERSION,
                refused: None,
                similarity: Some(diff.similarity),
                devices: diff.devices.iter().map(device).collect(),
                warnings: diff.warnings.clone(),
            },
            Err(refusal) => Self {
                schema_version: SCHEMA_VERSION,
                refused: Some(refusal.to_string()),
                similarity: match refusal {
                    Refusal::DifferentPrograms(similarity) => Some(*similarity),
                    Refusal::NoWork(_) => None,
                },
                devices: Vec::new(),
                warnings: Vec::new(),
            },
        }
    }
}

fn device(diff: &DeviceDiff) -> DeviceJson {
    DeviceJson {
        id_a: diff.ids.0.0,
        id_b: diff.ids.1.0,
        basis: match diff.basis {
            Basis::Step => "step",
            Basis::Operations => "operations",
        },
        outcome: match diff.outcome() {
            Outcome::Faster => "faster",
            Outcome::Slower => "slower",
            Outcome::Unchanged => "unchanged",
            Outcome::Inconclusive => "inconclusive",
        },
        headline: super::text::headline(diff),
        change_ns: diff.change_ns(),
        recordings_p: diff.test.map(|test| test.p),
        longer_pairs: diff.test.map(|test| test.larger),
        a: unit(&diff.a),
        b: unit(&diff.b),
        leaf_changes: leaf_changes(&diff.leaves),
        group_changes: diff
            .groups
            .iter()
            .map(|&(group, change_ns)| ChangeJson { name: group.name(), change_ns })
            .collect(),
        compute_limits: diff.limits.as_ref().map(limits),
        kernels: diff.kernels.iter().map(row).collect(),
        copies: diff.copies.iter().map(row).collect(),
        places: diff.places.as_ref().ok().map(places),
        places_refused: diff.places.as_ref().err().cloned(),
        prediction: diff.prediction.as_ref().map(prediction),
    }
}

fn limits(from: &LimitChanges) -> LimitsJson {
    let times = |times: &LimitTimes| Limit::ALL.map(|limit| (limit.name(), times[limit as usize])).into();
    let changes = from.changes.iter().map(|&(limit, change_ns)| ChangeJson { name: limit.name(), change_ns });
    LimitsJson { a_ns: times(&from.a), b_ns: times(&from.b), changes: changes.collect() }
}

fn places(from: &Places) -> PlacesJson {
    let place = |row: &ChangedPlace| PlaceJson {
        fate: match row.fate {
            Fate::Added => "added",
            Fate::Removed => "removed",
            Fate::Slower => "slower",
            Fate::Faster => "faster",
        },
        name: row.name.clone(),
        at_a: row.at_a,
        at_b: row.at_b,
        a_ns: row.a_ns,
        b_ns: row.b_ns,
    };
    PlacesJson {
        operations_a: from.operations.0,
        operations_b: from.operations.1,
        steps_a: from.steps.0,
        steps_b: from.steps.1,
        aligned: from.aligned,
        changed: from.changed.iter().map(place).collect(),
    }
}

fn prediction(from: &Prediction) -> PredictionJson {
    PredictionJson {
        kind: from.kind.name(),
        group: from.group.name(),
        step_ns: from.step_ns,
        predicted_step_ns: from.predicted_step_ns,
        predicted_speedup: from.predicted_speedup,
        actual_step_ns: from.actual_step_ns,
        actual_speedup: from.actual_speedup,
        base_error: from.base_error,
        over_ceiling_ns: from.over_ceiling_ns(),
        other_leaf_changes: leaf_changes(&from.others),
    }
}

fn leaf_changes(from: &[(Leaf, i64)]) -> Vec<ChangeJson> {
    from.iter().map(|&(leaf, change_ns)| ChangeJson { name: leaf.name(), change_ns }).collect()
}

fn unit(from: &Representative) -> UnitJson {
    UnitJson {
        unit_ns: from.unit_ns,
        median_ns: from.median_ns,
        operations: from.operations,
        steps_averaged: from.averaged,
        steps_considered: from.considered,
        step_source: from.source.map(StepSource::name),
        leaves: Leaf::ALL.into_iter().map(|leaf| (leaf.name(), from.leaves[leaf as usize])).collect(),
    }
}

fn row(from: &Row) -> RowJson {
    RowJson {
        name: from.name.clone(),
        launches: match from.launches {
            Launches::Added => "added",
            Launches::Removed => "removed",
            Launches::More => "more",
            Launches::Fewer => "fewer",
            Launches::Same => "same",
        },
        speed: match from.speed {
            Speed::Slower => "slower",
            Speed::Faster => "faster",
            Speed::Same => "same",
        },
        change_ns: from.change_ns(),
        p: from.p,
        a: usage(&from.a),
        b: usage(&from.b),
    }
}

fn usage(from: &Usage) -> UsageJson {
    UsageJson {
        count: from.count,
        per_unit: from.per_unit,
        mean_ns: from.mean_ns,
        unit_ns: from.unit_ns,
        unit_bytes: from.unit_bytes,
    }
}
