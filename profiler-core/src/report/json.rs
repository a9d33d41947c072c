//! The report for programs. Wire types of their own: the model may change without changing the schema.
//!
//! Times are integer nanoseconds and named `_ns`; shares are 0 to 1. `docs/METRICS.md` defines every field. A field
//! may be added within a schema version; renaming or removing one, or changing its meaning, raises it.

mod host;

use std::collections::BTreeMap;

use serde::Serialize;

use self::host::HostJson;
use super::captures::CaptureRow;
use super::compute::{GridClass, KernelGeometry};
use super::{DeviceReport, Ranked, Report};
use crate::attribution::HostLead;
use crate::attribution::leaf::{Leaf, Leaves, Work};
use crate::session::End;
use crate::steps::Steps;
use crate::whatif::{Ceiling, WhatIf};

/// Version of the schema below.
pub const SCHEMA_VERSION: u32 = 1;
/// Steps of a device that are listed, the newest.
const STEP_ROWS: usize = 64;

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Document {
    schema_version: u32,
    process: Process,
    observed_ns: u64,
    completeness: CompletenessJson,
    devices: Vec<DeviceJson>,
    api: Vec<ApiJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostJson>,
    verdict: VerdictJson,
    capture: Option<u32>,
    captures: Vec<CaptureJson>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    parent_pid: u32,
    command: Vec<String>,
    host: String,
    start_time_unix_ns: u64,
    gpuprof_version: String,
    driver_version: String,
    driver_cuda_version: u32,
    cupti_version: u32,
    rank_variables: BTreeMap<String, String>,
    devices: Vec<String>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CompletenessJson {
    records: BTreeMap<&'static str, u64>,
    nested_api_calls: u64,
    dropped_by_cupti: u64,
    dropped_by_gpuprof: u64,
    unknown_kinds: u64,
    broken_buffers: u64,
    broken_bytes: u64,
    undelivered_buffers: u64,
    dropped_ranges: u64,
    failed_samples: u64,
    zero_timestamps: u64,
    launches_without_activity: u64,
    activities_without_launch: u64,
    clamped: u64,
    late_ns: u64,
    patched_ns: u64,
    kernels_beyond_table: u64,
    whole_until_unix_ns: Option<u64>,
    flush_interval_ns: Option<u64>,
    end: &'static str,
    damage: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    id: u32,
    name: String,
    pcie: Option<PcieJson>,
    window_ns: u64,
    leaves: BTreeMap<&'static str, u64>,
    steady_leaves: BTreeMap<&'static str, u64>,
    steps: Option<StepsJson>,
    what_if: Option<WhatIfJson>,
    host_lead: HostLeadJson,
    overlap: Vec<OverlapJson>,
    kernels: Vec<KernelJson>,
    copies: Vec<CopyJson>,
    compute: ComputeJson,
    copy_overlap: CopyOverlapJson,
}

/// Ceilings: what could be gained at most.
#[derive(Debug, Serialize)]
struct WhatIfJson {
    replayed: bool,
    refused: Option<String>,
    steps: u64,
    base_error: Option<f64>,
    scenarios: Vec<ScenarioJson>,
}

#[derive(Debug, Serialize)]
struct ScenarioJson {
    kind: &'static str,
    step_ns: u64,
    speedup: Option<f64>,
}

#[derive(Debug, Serialize)]
struct HostLeadJson {
    launches: u64,
    late: u64,
    median_ns: u64,
    min_ns: u64,
    held_back: u64,
    held_back_ns: u64,
}

#[derive(Debug, Serialize)]
struct StepsJson {
    source: &'static str,
    period: Option<u64>,
    seen: u64,
    median_ns: u64,
    rows: Vec<StepJson>,
}

#[derive(Debug, Serialize)]
struct StepJson {
    start_unix_ns: u64,
    duration_ns: u64,
    leaves: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct OverlapJson {
    top: &'static str,
    beneath: &'static str,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    communication: bool,
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    median_ns: u64,
    min_ns: u64,
    max_ns: u64,
    geometry: Option<GeometryJson>,
}

#[derive(Debug, Serialize)]
struct GeometryJson {
    configurations: u64,
    known_ns: u64,
    limiter: &'static str,
    theoretical_occupancy: f64,
    achieved_occupancy: f64,
    sm_efficiency: f64,
    waves: f64,
    tail_loss: f64,
}

#[derive(Debug, Serialize)]
struct ComputeJson {
    classes: BTreeMap<&'static str, u64>,
    multiprocessors: u32,
    window_sm_efficiency: Option<f64>,
    geometry: Option<GeometryJson>,
}

#[derive(Debug, Serialize)]
struct CopyOverlapJson {
    exposed_ns: u64,
    hidden_ns: u64,
    serial: bool,
}

#[derive(Debug, Serialize)]
struct PcieJson {
    generation: u32,
    lanes: u32,
    gigabytes_per_second: f64,
}

#[derive(Debug, Serialize)]
struct CopyJson {
    direction: &'static str,
    source: &'static str,
    destination: &'static str,
    count: u64,
    bytes: u64,
    total_ns: u64,
    median_ns: u64,
    gigabytes_per_second: f64,
    class: &'static str,
    link_gigabytes_per_second: Option<f64>,
    fit: Option<FitJson>,
}

#[derive(Debug, Serialize)]
struct FitJson {
    latency_ns: f64,
    gigabytes_per_second: f64,
}

#[derive(Debug, Serialize)]
struct ApiJson {
    name: String,
    calls: u64,
    failed: u64,
    total_ns: u64,
    max_ns: u64,
}

/// One capture of the run.
#[derive(Debug, Serialize)]
struct CaptureJson {
    number: u32,
    trigger: &'static str,
    begin_unix_ns: u64,
    end_unix_ns: Option<u64>,
    kernels: u64,
    verdict: Option<&'static str>,
    share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct VerdictJson {
    group: &'static str,
    share: f64,
    ranking: Vec<RankedJson>,
    basis: Option<BasisJson>,
    evidence: Vec<String>,
    recommendation: String,
}

#[derive(Debug, Serialize)]
struct RankedJson {
    group: &'static str,
    share: f64,
    recoverable: f64,
    by: &'static str,
}

#[derive(Debug, Serialize)]
struct BasisJson {
    steps: u64,
    set_aside: u64,
    share_low: f64,
    share_high: f64,
}

impl Document {
    /// The document of `report`.
    #[must_use]
    pub fn new(report: &Report) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            process: process(report),
            observed_ns: report.observed_ns,
            completeness: completeness(report),
            devices: report.devices.iter().map(device).collect(),
            api: report
                .api
                .iter()
                .map(|row| ApiJson {
                    name: row.name.clone(),
                    calls: row.calls,
                    failed: row.failed,
                    total_ns: row.total_ns,
                    max_ns: row.max_ns,
                })
                .collect(),
            host: report.host.as_ref().map(HostJson::new),
            verdict: VerdictJson {
                group: report.verdict.group.name(),
                share: report.verdict.share,
                ranking: report.verdict.ranking.iter().map(ranked).collect(),
                basis: report.verdict.basis.map(|basis| BasisJson {
                    steps: basis.steps,
                    set_aside: basis.set_aside,
                    share_low: basis.share.low,
                    share_high: basis.share.high,
                }),
                evidence: report.verdict.evidence.clone(),
                recommendation: report.verdict.recommendation.clone(),
            },
            capture: report.captures.shown,
            captures: report.captures.rows.iter().map(capture).collect(),
        }
    }
}

fn ranked(from: &Ranked) -> RankedJson {
    let Ranked { group, share, recoverable, by } = *from;
    RankedJson { group: group.name(), share, recoverable, by: by.name() }
}

fn capture(row: &CaptureRow) -> CaptureJson {
    CaptureJson {
        number: row.number,
        trigger: row.trigger.name(),
        begin_unix_ns: row.begin.nanos(),
        end_unix_ns: row.end.map(|end| end.nanos()),
        kernels: row.kernels,
        verdict: row.verdict.map(|(group, _)| group.name()),
        share: row.verdict.map(|(_, share)| share),
    }
}

fn process(report: &Report) -> Process {
    let session = &report.process;
    Process {
        pid: session.process_id,
        parent_pid: session.parent_process_id,
        command: session.command.clone(),
        host: session.host.clone(),
        start_time_unix_ns: session.start.nanos(),
        gpuprof_version: session.gpuprof_version.clone(),
        driver_version: session.driver_version.clone(),
        driver_cuda_version: session.driver_cuda_version,
        cupti_version: session.cupti_version,
        rank_variables: session.rank_variables.iter().cloned().collect(),
        devices: report.devices.iter().map(|device| device.device.name.clone()).collect(),
        notes: session.notes.clone(),
    }
}

fn completeness(report: &Report) -> CompletenessJson {
    let from = &report.completeness;
    CompletenessJson {
        records: BTreeMap::from([
            ("kernels", from.kernels),
            ("copies", from.copies),
            ("memsets", from.memsets),
            ("api_calls", from.api_calls),
            ("syncs", from.syncs),
            ("events", from.events),
            ("overheads", from.overheads),
            ("samples", from.samples),
        ]),
        nested_api_calls: from.nested_api_calls,
        dropped_by_cupti: from.loss.dropped_by_cupti,
        dropped_by_gpuprof: from.loss.dropped_by_gpuprof,
        unknown_kinds: from.loss.unknown_kinds,
        broken_buffers: from.loss.broken_buffers,
        broken_bytes: from.loss.broken_bytes,
        undelivered_buffers: from.loss.undelivered_buffers,
        dropped_ranges: from.loss.dropped_ranges,
        failed_samples: from.loss.failed_samples,
        zero_timestamps: from.bad_timestamps,
        launches_without_activity: from.launches_without_activity,
        activities_without_launch: from.activities_without_launch,
        clamped: from.clamped_clocks,
        late_ns: from.late_ns,
        patched_ns: from.patched_ns,
        kernels_beyond_table: from.kernels_beyond_table,
        whole_until_unix_ns: from.whole_until.map(|(until, _)| until.nanos()),
        flush_interval_ns: from.whole_until.map(|(_, interval)| interval),
        end: match from.end {
            End::Clean => "clean",
            End::Abrupt => "abrupt",
            End::TimedOut => "timed_out",
        },
        damage: from.damage.clone(),
    }
}

/// Nanoseconds by name of leaf.
fn named(leaves: &Leaves) -> BTreeMap<&'static str, u64> {
    Leaf::ALL.into_iter().map(|leaf| (leaf.name(), leaves[leaf as usize])).collect()
}

fn what_if(from: &WhatIf) -> WhatIfJson {
    let scenario = |ceiling: &Ceiling| ScenarioJson {
        kind: ceiling.kind.name(),
        step_ns: ceiling.step_ns,
        speedup: Some(ceiling.speedup).filter(|speedup| speedup.is_finite()),
    };
    WhatIfJson {
        replayed: from.refused.is_none(),
        refused: from.refused.map(|reason| reason.to_string()),
        steps: from.steps as u64,
        base_error: from.base_error,
        scenarios: from.ceilings.iter().map(scenario).collect(),
    }
}

fn steps(from: &Steps) -> StepsJson {
    let rows = from.rows.iter().skip(from.rows.len().saturating_sub(STEP_ROWS));
    StepsJson {
        source: from.source.name(),
        period: from.period,
        seen: from.seen,
        median_ns: from.duration_percentile(50),
        rows: rows
            .map(|row| StepJson {
                start_unix_ns: row.start.nanos(),
                duration_ns: row.duration(),
                leaves: named(&row.leaves),
            })
            .collect(),
    }
}

fn host_lead(from: &HostLead) -> HostLeadJson {
    HostLeadJson {
        launches: from.launches(),
        late: from.late(),
        median_ns: from.median_ns(),
        min_ns: from.min_ns(),
        held_back: from.held_back(),
        held_back_ns: from.held_back_ns(),
    }
}

fn device(from: &DeviceReport) -> DeviceJson {
    let named = |leaves: &[u64]| Leaf::ALL.into_iter().map(|leaf| (leaf.name(), leaves[leaf as usize])).collect();
    let mut overlap = Vec::new();
    for (top, row) in Work::ALL.into_iter().zip(&from.overlap) {
        for (beneath, &ns) in Work::ALL.into_iter().zip(row).filter(|(_, ns)| **ns > 0) {
            overlap.push(OverlapJson { top: top.name(), beneath: beneath.name(), ns });
        }
    }
    DeviceJson {
        id: from.device.id.0,
        name: from.device.name.clone(),
        pcie: from.pcie.map(|link| PcieJson {
            generation: link.generation,
            lanes: link.lanes,
            gigabytes_per_second: link.bytes_per_second() / 1e9,
        }),
        window_ns: from.window_ns,
        leaves: named(&from.leaves),
        steady_leaves: named(&from.steady_leaves),
        steps: from.steps.as_ref().map(steps),
        what_if: from.what_if.as_ref().map(what_if),
        host_lead: host_lead(&from.host_lead),
        overlap,
        kernels: from
            .kernels
            .iter()
            .map(|row| KernelJson {
                name: row.name.clone(),
                communication: row.communication,
                count: row.durations.count(),
                total_ns: row.durations.total(),
                mean_ns: row.durations.mean(),
                median_ns: row.durations.median(),
                min_ns: row.durations.min(),
                max_ns: row.durations.max(),
                geometry: row.geometry.as_ref().map(geometry),
            })
            .collect(),
        copies: from
            .copies
            .iter()
            .map(|row| CopyJson {
                direction: row.path.kind.name(),
                source: row.path.source.name(),
                destination: row.path.destination.name(),
                count: row.durations.count(),
                bytes: row.bytes,
                total_ns: row.durations.total(),
                median_ns: row.durations.median(),
                gigabytes_per_second: row.gigabytes_per_second(),
                class: row.class.name(),
                link_gigabytes_per_second: row.link_gigabytes_per_second,
                fit: row
                    .fit
                    .map(|fit| FitJson { latency_ns: fit.latency_ns, gigabytes_per_second: fit.gigabytes_per_second }),
            })
            .collect(),
        compute: ComputeJson {
            classes: GridClass::ALL.into_iter().map(|class| (class.name(), from.compute.time(class))).collect(),
            multiprocessors: from.compute.multiprocessors,
            window_sm_efficiency: from.compute.window_sm_efficiency,
            geometry: from.compute.geometry.as_ref().map(geometry),
        },
        copy_overlap: CopyOverlapJson {
            exposed_ns: from.copy_overlap.exposed_ns,
            hidden_ns: from.copy_overlap.hidden_ns,
            serial: from.copy_overlap.serial,
        },
    }
}

fn geometry(from: &KernelGeometry) -> GeometryJson {
    GeometryJson {
        configurations: from.configurations,
        known_ns: from.known_ns,
        limiter: from.limiter.name(),
        theoretical_occupancy: from.theoretical_occupancy,
        achieved_occupancy: from.achieved_occupancy,
        sm_efficiency: from.sm_efficiency,
        waves: from.waves,
        tail_loss: from.tail_loss,
    }
}
