//! The report for programs. Wire types of their own: the model may change without changing the schema.
//!
//! Times are integer nanoseconds and named `_ns`; shares are 0 to 1. `docs/reference/report.md` defines every field. A
//! field may be added within a schema version; renaming or removing one, or changing its meaning, raises it.

mod bursts;
mod collectives;
mod cost;
mod device;
mod host;
mod launches;
mod limits;
mod memory;
mod monitored;
mod ranges;
mod utilization;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use self::bursts::{BurstsJson, bursts};
use self::collectives::CollectivesJson;
use self::cost::{CostJson, cost};
use self::device::{DeviceJson, device};
use self::host::HostJson;
use self::launches::{KernelLinesJson, LibraryJson, library};
use self::limits::{CounterLossJson, counter_loss};
use self::memory::MemoryJson;
use self::monitored::{MonitoredJson, monitored};
use self::ranges::RangesJson;
use self::utilization::{UtilizationJson, utilization};
use super::{CaptureRow, PlanStep, Ranked, Report};
use crate::attribution::leaf::Group;
use crate::process_info::End;
use crate::record::Loss;

/// Version of the schema below.
pub const SCHEMA_VERSION: u32 = 1;

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
    kernel_libraries: Vec<LibraryJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_lines: Option<KernelLinesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<RangesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collectives: Option<CollectivesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<CostJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    utilization: Option<UtilizationJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    monitored: Option<MonitoredJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bursts: Option<BurstsJson>,
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
    gpuwhy_version: String,
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
    #[serde(flatten)]
    loss: LossJson,
    bad_timestamps: u64,
    launches_without_activity: u64,
    activities_without_launch: u64,
    clamped_clocks: u64,
    late_ns: u64,
    late_corrected_ns: u64,
    kernel_table_overflow: u64,
    complete_until_unix_ns: Option<u64>,
    flush_interval_ns: Option<u64>,
    end: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<CounterLossJson>,
    damage: Vec<String>,
}

/// The counters of loss by name, each a field of its own.
#[derive(Debug)]
struct LossJson(Loss);

impl Serialize for LossJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.kinds().iter().map(|kind| (kind.name, kind.count)))
    }
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
    plan: Vec<PlanJson>,
}

/// A fix of the plan.
#[derive(Debug, Serialize)]
struct PlanJson {
    kind: &'static str,
    action: &'static str,
    because: Option<&'static str>,
    speedup: f64,
    low: f64,
    high: f64,
    then: Option<&'static str>,
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
            kernel_libraries: report.kernel_libraries.iter().map(library).collect(),
            kernel_lines: report.kernel_lines.as_ref().map(KernelLinesJson::new),
            ranges: report.ranges.as_ref().map(RangesJson::new),
            memory: report.memory.as_ref().map(MemoryJson::new),
            collectives: report.collectives.as_ref().map(CollectivesJson::new),
            cost: report.cost.as_ref().map(cost),
            utilization: utilization(&report.utilization),
            monitored: report.monitored.as_ref().map(monitored),
            bursts: report.bursts.as_ref().map(bursts),
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
                evidence: report.verdict.evidence.iter().chain(&report.verdict.details).cloned().collect(),
                recommendation: report.verdict.recommendation.clone(),
                plan: report.verdict.plan.iter().map(plan_step).collect(),
            },
            capture: report.captures.shown,
            captures: report.captures.rows.iter().map(capture).collect(),
        }
    }
}

fn plan_step(from: &PlanStep) -> PlanJson {
    let PlanStep { kind, action, because, speedup, interval: (low, high), then } = *from;
    PlanJson { kind: kind.name(), action, because, speedup, low, high, then: then.map(Group::name) }
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
        gpuwhy_version: session.gpuwhy_version.clone(),
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
            ("ranges", from.ranges),
            ("samples", from.samples),
            ("memory_events", from.memory_events),
            ("managed_events", from.managed_events),
        ]),
        nested_api_calls: from.nested_api_calls,
        loss: LossJson(from.loss),
        bad_timestamps: from.bad_timestamps,
        launches_without_activity: from.launches_without_activity,
        activities_without_launch: from.activities_without_launch,
        clamped_clocks: from.clamped_clocks,
        late_ns: from.late_ns,
        late_corrected_ns: from.late_corrected_ns,
        kernel_table_overflow: from.kernel_table_overflow,
        complete_until_unix_ns: from.whole_until.map(|(until, _)| until.nanos()),
        flush_interval_ns: from.whole_until.map(|(_, interval)| interval),
        end: match from.end {
            End::Clean => "clean",
            End::Abrupt => "abrupt",
            End::TimedOut => "timed_out",
        },
        counters: report.counter_losses.iter().map(counter_loss).collect(),
        damage: from.damage.clone(),
    }
}
