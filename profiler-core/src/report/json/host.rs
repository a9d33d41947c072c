//! The section of the JSON report about the launching threads.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attribution::host_cause::HostCause;
use crate::report::{HostReport, LineRow};

#[derive(Debug, Serialize)]
pub(super) struct HostJson {
    samples: u64,
    failed_samples: u64,
    garbage_collection_samples: u64,
    covered_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    data_loading_ns: u64,
    off_cpu_ns: BTreeMap<&'static str, u64>,
    outside_cuda_ns: u64,
    sampled_ns: u64,
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
    samples: u64,
    sampled_ns: u64,
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
        let off = HostCause::ALL.into_iter().map(|cause| (cause.name(), totals.off_cpu_ns[cause as usize]));
        Self {
            samples: totals.samples,
            failed_samples: from.failed,
            garbage_collection_samples: totals.collecting,
            covered_ns: totals.covered_ns,
            on_cpu_ns: totals.on_cpu_ns,
            runnable_ns: totals.runnable_ns,
            data_loading_ns: totals.data_loading_ns,
            off_cpu_ns: off.filter(|&(_, nanos)| nanos > 0).collect(),
            outside_cuda_ns: from.outside_cuda_ns,
            sampled_ns: from.sampled_ns,
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
        samples: row.samples,
        sampled_ns: row.sampled_ns,
        total_ns: row.total_ns,
        share: row.share,
        step_ns: row.step_ns,
    }
}
