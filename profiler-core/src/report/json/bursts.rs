//! Bursts of a run in mode auto, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::monitoring::Change;
use crate::report::{BurstRow, BurstTable};

#[derive(Debug, Serialize)]
pub(super) struct BurstsJson {
    rows: Vec<BurstJson>,
    changes: Vec<ChangeJson>,
    earlier_changes: u64,
}

#[derive(Debug, Serialize)]
struct BurstJson {
    capture: u32,
    trigger: &'static str,
    begin_unix_ns: u64,
    end_unix_ns: u64,
    kernels: u64,
    verdict: &'static str,
    share: f64,
    window_ns: u64,
    groups_ns: BTreeMap<&'static str, u64>,
    steps: u64,
    step_median_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    at_unix_ns: u64,
    group: &'static str,
    share: f64,
    /// The capture that tells; samples where it is null.
    capture: Option<u32>,
}

pub(super) fn bursts(table: &BurstTable) -> BurstsJson {
    let row = |row: &BurstRow| BurstJson {
        capture: row.number,
        trigger: row.trigger.name(),
        begin_unix_ns: row.begin.nanos(),
        end_unix_ns: row.end.nanos(),
        kernels: row.kernels,
        verdict: row.group.name(),
        share: row.share,
        window_ns: row.window_ns,
        groups_ns: row.groups.iter().map(|&(group, nanos)| (group.name(), nanos)).collect(),
        steps: row.steps.0,
        step_median_ns: Some(row.steps.1).filter(|&nanos| nanos > 0),
    };
    let change = |change: &Change| ChangeJson {
        at_unix_ns: change.at.nanos(),
        group: change.group.name(),
        share: change.share,
        capture: change.burst,
    };
    BurstsJson {
        rows: table.rows.iter().map(row).collect(),
        changes: table.changes.iter().map(change).collect(),
        earlier_changes: table.earlier_changes,
    }
}
