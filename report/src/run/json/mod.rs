//! JSON form of the report.

mod device;
mod limits;
mod sections;

use std::collections::BTreeMap;

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::counters::CounterLoss;
use gpuwhy_trace::document::document;
use gpuwhy_trace::process_info::ProcessInfo;

use self::device::DeviceOf;
use self::limits::LossOf;
use super::{CaptureRow, DeviceReport, PlanStep, Remedy, Report, StepBasis};

const SCHEMA_VERSION: u32 = 2;

struct ProcessJson<'a>(&'a ProcessInfo, &'a [DeviceReport]);

/// The bottleneck of a report.
struct BottleneckOf<'a>(&'a Report);

/// A remedy of a report.
struct RemedyOf<'a>(&'a Remedy, &'a Report);

struct Missing<'a>(&'a Completeness, &'a [CounterLoss]);

document! {
    from: Report {
        schema_version: SCHEMA_VERSION,
        process: ProcessJson(&from.process, &from.devices),
        observed_ns: from.observed_ns,
        completeness: Missing(&from.completeness, &from.counter_losses),
        devices: from.devices.iter().map(|device| DeviceOf(from, device)).collect::<Vec<_>>(),
        api: from.api,
        host?: from.host,
        kernel_libraries: from.kernel_libraries,
        kernel_lines?: from.kernel_lines,
        graph_origins?: from.graph_origins,
        ranges?: from.ranges,
        operators?: from.operators,
        memory?: from.memory,
        collectives?: from.collectives,
        cost?: from.cost,
        utilization?: Some(&from.utilization).filter(|utilization| !utilization.is_empty()),
        monitored?: from.monitored,
        bursts?: from.bursts,
        bottleneck: BottleneckOf(from),
        phases: from.bottleneck.phases,
        serving: from.serving(),
        source_lines?: Some(from.source_rows()).filter(|rows| !rows.is_empty()),
        capture: from.captures.shown,
        captures: from.captures.rows,
    }
    from: ProcessJson<'_> {
        pid: from.0.process_id,
        parent_pid: from.0.parent_process_id,
        command: from.0.command,
        host: from.0.host,
        start_time_unix_ns: from.0.start,
        gpuwhy_version: from.0.gpuwhy_version,
        driver_version: from.0.driver_version,
        driver_cuda_version: from.0.driver_cuda_version,
        cupti_version: from.0.cupti_version,
        rank_variables: from.0.rank_variables.iter().map(|(name, value)| (name, value)).collect::<BTreeMap<_, _>>(),
        devices: from.1.iter().map(|device| &device.device.name).collect::<Vec<_>>(),
        notes: from.0.notes,
    }
    from: Missing<'_> {
        records: BTreeMap::from([
            ("kernels", from.0.kernels),
            ("graphs", from.0.graphs),
            ("copies", from.0.copies),
            ("memsets", from.0.memsets),
            ("api_calls", from.0.api_calls),
            ("syncs", from.0.syncs),
            ("events", from.0.events),
            ("overheads", from.0.overheads),
            ("ranges", from.0.ranges),
            ("samples", from.0.samples),
            ("memory_events", from.0.memory_events),
            ("managed_events", from.0.managed_events),
        ]),
        nested_api_calls: from.0.nested_api_calls,
        ..from.0.loss,
        bad_timestamps: from.0.bad_timestamps,
        launches_without_activity: from.0.launches_without_activity,
        activities_without_launch: from.0.activities_without_launch,
        shared_ids: from.0.shared_ids,
        ordered_launches: from.0.ordered_launches,
        clamped_clocks: from.0.clamped_clocks,
        late_ns: from.0.late_ns,
        late_corrected_ns: from.0.late_corrected_ns,
        kernel_table_overflow: from.0.kernel_table_overflow,
        complete_until_unix_ns: from.0.complete_until.map(|(until, _)| until),
        flush_interval_ns: from.0.complete_until.map(|(_, interval)| interval),
        end: from.0.end,
        counters?: Some(from.1.iter().map(LossOf).collect::<Vec<_>>()).filter(|losses| !losses.is_empty()),
        damage: from.0.damage,
    }
    from: CaptureRow {
        number: from.number,
        trigger: from.trigger,
        begin_unix_ns: from.begin,
        end_unix_ns: from.end,
        kernels: from.kernels,
        bottleneck: from.bottleneck.map(|(cause, _)| cause),
        share: from.bottleneck.map(|(_, share)| share),
    }
    from: BottleneckOf<'_> {
        cause: from.0.bottleneck.cause,
        share: from.0.bottleneck.share,
        ranking: from.0.bottleneck.ranking,
        basis: from.0.bottleneck.basis,
        best_case: from.0.best_case(from.0.bottleneck.cause),
        evidence: from.0.bottleneck.evidence.iter().chain(&from.0.bottleneck.details).collect::<Vec<_>>(),
        recommendation: from.0.bottleneck.recommendation,
        remedies: from.0.bottleneck.remedies.iter().map(|remedy| RemedyOf(remedy, from.0)).collect::<Vec<_>>(),
        plan: from.0.bottleneck.plan,
    }
    from: StepBasis {
        steps: from.steps,
        set_aside: from.set_aside,
        share_low: from.share.low,
        share_high: from.share.high,
    }
    from: RemedyOf<'_> {
        id: from.0.id,
        text: from.0.text,
        at: from.0.at,
        source?: from.1.source_of(from.0).map(|row| row.text),
        results: from.0.results,
        certainty: from.0.certainty,
        speedup: from.0.speedup,
        low: from.0.interval.map(|(low, _)| low),
        high: from.0.interval.map(|(_, high)| high),
        link: from.0.link,
        outside: from.0.outside,
        measured: from.0.measured,
    }
    from: PlanStep {
        kind: from.kind,
        action: from.action,
        because: from.because,
        speedup: from.speedup,
        low: from.interval.0,
        high: from.interval.1,
        then: from.then,
    }
}
