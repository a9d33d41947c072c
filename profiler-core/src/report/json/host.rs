//! The section of the JSON report about the launching threads.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attribution::host_cause::HostCause;
use crate::report::host::{HostReport, LineRow};

#[derive(Debug, Serialize)]
pub(super) struct HostJson {
    looks: u64,
    failed_looks: u64,
    collecting_garbage_looks: u64,
    covered_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    loading_ns: u64,
    off_ns: BTreeMap<&'static str, u64>,
    late_ns: u64,
    seen_ns: u64,
    causes: BTreeMap<&'static str, u64>,
    lines: Vec<LineJson>,
}

#[derive(Debug, Serialize)]
struct LineJson {
    cause: &'static str,
    file: String,
    line: u32,
    function: String,
    within: Option<WithinJson>,
    total_ns: u64,
    share: f64,
    step_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct WithinJson {
    file: String,
    function: String,
}

impl HostJson {
    pub(super) fn new(from: &HostReport) -> Self {
        let totals = &from.totals;
        let off = HostCause::ALL.into_iter().map(|cause| (cause.name(), totals.off_ns[cause as usize]));
        Self {
            looks: totals.looks,
            failed_looks: from.failed,
            collecting_garbage_looks: totals.collecting,
            covered_ns: totals.covered_ns,
            on_cpu_ns: totals.on_cpu_ns,
            runnable_ns: totals.runnable_ns,
            loading_ns: totals.loading_ns,
            off_ns: off.filter(|&(_, nanos)| nanos > 0).collect(),
            late_ns: from.late_ns,
            seen_ns: from.seen_ns,
            causes: from.causes.iter().map(|row| (row.cause.name(), row.total_ns)).collect(),
            lines: from.lines.iter().map(line).collect(),
        }
    }
}

fn line(row: &LineRow) -> LineJson {
    LineJson {
        cause: row.cause.name(),
        file: row.file.clone(),
        line: row.line,
        function: row.function.clone(),
        within: row.within.clone().map(|(function, file)| WithinJson { file, function }),
        total_ns: row.total_ns,
        share: row.share,
        step_ns: row.step_ns,
    }
}
