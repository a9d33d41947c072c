//! A device in the report for programs: its accounts, its steps, what ran on it and what could be gained.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attribution::HostLead;
use crate::attribution::leaf::{Leaf, Leaves, Work};
use crate::report::library::Library;
use crate::report::{Awaited, DeviceReport, GapRow, GridClass, KernelGeometry, StepMeaning};
use crate::steps::{StepKinds, Steps, ToldBy};
use crate::whatif::{Ceiling, WhatIf};

use super::cost::{UntracedJson, untraced};
use super::limits::{ComputeLimitsJson, GaugeSumsJson, KernelLimitsJson, compute_limits, gauge_sums, kernel_limits};

/// Steps of a device that are listed, the newest.
const STEP_ROWS: usize = 64;

#[derive(Debug, Serialize)]
pub(super) struct DeviceJson {
    id: u32,
    name: String,
    pcie: Option<PcieJson>,
    window_ns: u64,
    leaves: BTreeMap<&'static str, u64>,
    steady_leaves: BTreeMap<&'static str, u64>,
    steps: Option<StepsJson>,
    step_kinds: Option<StepKindsJson>,
    what_if: Option<WhatIfJson>,
    untraced: Option<UntracedJson>,
    host_lead: HostLeadJson,
    gaps: Vec<GapJson>,
    awaited: Vec<AwaitedJson>,
    overlap: Vec<OverlapJson>,
    kernels: Vec<KernelJson>,
    copies: Vec<CopyJson>,
    compute: ComputeJson,
    copy_overlap: CopyOverlapJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute_limits: Option<ComputeLimitsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gauges: Option<GaugeSumsJson>,
}

/// Ceilings: what could be gained.
#[derive(Debug, Serialize)]
struct WhatIfJson {
    simulated: bool,
    refused: Option<String>,
    steps: u64,
    represented_steps: u64,
    base_error: Option<f64>,
    scenarios: Vec<ScenarioJson>,
}

#[derive(Debug, Serialize)]
struct ScenarioJson {
    kind: &'static str,
    step_ns: u64,
    speedup: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Debug, Serialize)]
struct GapJson {
    leaf: &'static str,
    kind: &'static str,
    name: Option<String>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
}

#[derive(Debug, Serialize)]
struct AwaitedJson {
    work: &'static str,
    other_device: bool,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
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
    told_by: Option<&'static str>,
    inside: Option<InsideJson>,
    seen: u64,
    median_ns: u64,
    rows: Vec<StepJson>,
}

/// What repeats within a step.
#[derive(Debug, Serialize)]
struct InsideJson {
    times: u32,
    launches: u32,
}

/// Steps of two kinds.
#[derive(Debug, Serialize)]
struct StepKindsJson {
    group: &'static str,
    more: StepKindJson,
    less: StepKindJson,
}

#[derive(Debug, Serialize)]
struct StepKindJson {
    steps: u64,
    median_ns: u64,
    group_mean_ns: u64,
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
    library: Option<&'static str>,
    communication: bool,
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    median_ns: u64,
    min_ns: u64,
    max_ns: u64,
    geometry: Option<GeometryJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<KernelLimitsJson>,
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

/// Nanoseconds by name of leaf.
fn named(leaves: &Leaves) -> BTreeMap<&'static str, u64> {
    Leaf::ALL.into_iter().map(|leaf| (leaf.name(), leaves[leaf as usize])).collect()
}

fn what_if(from: &WhatIf) -> WhatIfJson {
    let scenario = |ceiling: &Ceiling| ScenarioJson {
        kind: ceiling.kind.name(),
        step_ns: ceiling.step_ns,
        speedup: Some(ceiling.speedup).filter(|speedup| speedup.is_finite()),
        low: ceiling.interval.map(|(low, _)| low),
        high: ceiling.interval.map(|(_, high)| high),
    };
    WhatIfJson {
        simulated: from.refused.is_none(),
        refused: from.refused.map(|reason| reason.to_string()),
        steps: from.steps,
        represented_steps: from.represented_steps,
        base_error: from.base_error,
        scenarios: from.ceilings.iter().map(scenario).collect(),
    }
}

fn steps(from: &Steps, meaning: StepMeaning) -> StepsJson {
    let rows = from.rows.iter().skip(from.rows.len().saturating_sub(STEP_ROWS));
    StepsJson {
        source: from.source.name(),
        period: from.period,
        told_by: meaning.told_by.map(ToldBy::name),
        inside: meaning.inside.map(|inside| InsideJson { times: inside.times, launches: inside.launches }),
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

fn step_kinds(from: StepKinds) -> StepKindsJson {
    let kind = |steps, median_ns, group_mean_ns| StepKindJson { steps, median_ns, group_mean_ns };
    StepKindsJson {
        group: from.group.name(),
        more: kind(from.more, from.more_ns, from.more_of_group_ns),
        less: kind(from.less, from.less_ns, from.less_of_group_ns),
    }
}

fn gap(from: &GapRow) -> GapJson {
    GapJson {
        leaf: from.leaf.name(),
        kind: from.subject.kind(),
        name: from.subject.name().map(str::to_owned),
        count: from.tally.count,
        total_ns: from.tally.total_ns,
        longest_ns: from.tally.longest_ns,
    }
}

fn awaited(from: &Awaited) -> AwaitedJson {
    let Awaited { producer, tally } = *from;
    AwaitedJson {
        work: producer.work.name(),
        other_device: producer.other_device,
        count: tally.count,
        total_ns: tally.total_ns,
        longest_ns: tally.longest_ns,
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

pub(super) fn device(from: &DeviceReport) -> DeviceJson {
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
        steps: from.steps.as_ref().map(|of| steps(of, from.step_meaning)),
        step_kinds: from.typical.and_then(|typical| typical.kinds).map(step_kinds),
        what_if: from.what_if.as_ref().map(what_if),
        untraced: from.untraced.map(untraced),
        host_lead: host_lead(&from.host_lead),
        gaps: from.gaps.iter().map(gap).collect(),
        awaited: from.awaited.iter().map(awaited).collect(),
        overlap,
        kernels: from
            .kernels
            .iter()
            .map(|row| KernelJson {
                name: row.name.clone(),
                library: row.library.map(Library::name),
                communication: row.communication,
                count: row.durations.count(),
                total_ns: row.durations.total(),
                mean_ns: row.durations.mean(),
                median_ns: row.durations.median(),
                min_ns: row.durations.min(),
                max_ns: row.durations.max(),
                geometry: row.geometry.as_ref().map(geometry),
                limits: row.limits.as_ref().map(kernel_limits),
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
        compute_limits: from.limits.as_ref().map(compute_limits),
        gauges: from.gauges.as_ref().map(|gauges| gauge_sums(gauges, from.typical.map(|typical| typical.mean_ns))),
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
