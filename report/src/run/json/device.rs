//! JSON form of a device: its time accounting, its steps, the work that ran on it, and the best cases.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;
use profiler_core::attribution::OtherProcess;
use profiler_core::document::leaves;
use profiler_core::leaf::WorkKind;
use profiler_core::steps::Steps;
use profiler_core::whatif::WhatIf;

use super::limits::GaugesOf;
use crate::run::{
    ComputeSplit, CopyRow, DeviceReport, GapSubject, GridClass, KernelRow, ManagedPages, Report, StepMeaning,
};
use crate::words::not_simulated;

/// Maximum number of steps listed per device; the newest are kept.
const STEP_ROWS: usize = 64;

/// A device of a report.
pub(super) struct DeviceOf<'a>(pub(super) &'a Report, pub(super) &'a DeviceReport);

struct StepsOf<'a>(&'a Steps, StepMeaning);

/// A simulation result, with the reason in words if it was refused.
struct WhatIfOf<'a>(&'a WhatIf);

/// Another process on a device.
struct OtherProcessOf<'a>(&'a OtherProcess);

/// Overlap of two kinds of work, nanoseconds.
struct Beneath(WorkKind, WorkKind, u64);

document! {
    from: DeviceOf<'_> {
        ..*from.1,
        busy: (from.0.busy_of(from.1) * 1e6).round() / 1e6,
    }
    from: DeviceReport {
        id: from.device.id,
        name: from.device.name,
        pcie: from.pcie,
        window_ns: from.window_ns,
        leaves: leaves(&from.leaves),
        steady_leaves: leaves(&from.steady_leaves),
        steps: from.steps.as_ref().map(|steps| StepsOf(steps, from.step_meaning)),
        step_kinds: from.step_kinds,
        what_if: from.what_if.as_ref().map(WhatIfOf),
        untraced: from.untraced,
        host_lead: from.host_lead,
        gaps: from.gaps,
        builds: from.builds,
        other_processes: from.other_processes.iter().map(OtherProcessOf).collect::<Vec<_>>(),
        awaited: from.awaited,
        overlap: WorkKind::ALL
            .into_iter()
            .zip(&from.overlap)
            .flat_map(|(top, row)| WorkKind::ALL.into_iter().zip(row).map(move |(beneath, &ns)| Beneath(top, beneath, ns)))
            .filter(|&Beneath(.., ns)| ns > 0)
            .collect::<Vec<_>>(),
        kernels: from.kernels,
        copies: from.copies,
        compute: from.compute,
        managed?: from.managed,
        copy_overlap: from.copy_overlap,
        compute_limits?: from.limits,
        gauges?: from.gauges.as_ref().map(|gauges| GaugesOf(gauges, from.typical.map(|typical| typical.mean_ns))),
    }
    from: StepsOf<'_> {
        source: from.0.source,
        period: from.0.period,
        recognized_by: from.1.recognized_by,
        inside: from.1.inside,
        contains: from.1.contains,
        seen: from.0.seen,
        median_ns: from.0.duration_percentile(50),
        rows: from.0.rows.iter().skip(from.0.rows.len().saturating_sub(STEP_ROWS)).collect::<Vec<_>>(),
    }
    from: WhatIfOf<'_> {
        simulated: from.0.refused.is_none(),
        refused: from.0.refused.map(not_simulated),
        steps: from.0.steps,
        represented_steps: from.0.represented_steps,
        base_error: from.0.base_error,
        scenarios: from.0.best_cases,
    }
    from: ManagedPages {
        share_of_kernel_time: from.share,
        to_device: from.totals.to_device.count,
        to_device_bytes: from.totals.to_device.bytes,
        to_host: from.totals.to_host.count,
        to_host_bytes: from.totals.to_host.bytes,
        page_faults: from.totals.faults,
        without_time: from.totals.without_time,
    }
    from: GapSubject {
        kind: from.kind(),
        name: from.name(),
    }
    from: OtherProcessOf<'_> {
        pid: from.0.pid,
        name: from.0.name.as_str(),
        busy: from.0.busy(),
        memory_bytes: (from.0.memory_bytes > 0).then_some(from.0.memory_bytes),
        operations?: (from.0.operations > 0).then_some(from.0.operations),
        work_ns?: (from.0.operations > 0).then_some(from.0.work_ns),
    }
    from: Beneath {
        top: from.0,
        beneath: from.1,
        ns: from.2,
    }
    from: KernelRow {
        name: from.name,
        library: from.library,
        communication: from.communication,
        count: from.durations.count(),
        total_ns: from.durations.total(),
        steady_count: from.steady.0,
        steady_ns: from.steady.1,
        mean_ns: from.durations.mean(),
        median_ns: from.durations.median(),
        min_ns: from.durations.min(),
        max_ns: from.durations.max(),
        geometry: from.geometry,
        limits?: from.limits,
    }
    from: CopyRow {
        direction: from.path.kind,
        source: from.path.source,
        destination: from.path.destination,
        count: from.durations.count(),
        bytes: from.bytes,
        total_ns: from.durations.total(),
        median_ns: from.durations.median(),
        gigabytes_per_second: from.gigabytes_per_second(),
        class: from.class,
        link_gigabytes_per_second: from.link_gigabytes_per_second,
        fit: from.fit,
    }
    from: ComputeSplit {
        classes: BTreeMap::from(GridClass::ALL.map(|class| (class.name(), from.time(class)))),
        multiprocessors: from.multiprocessors,
        window_sm_efficiency: from.window_sm_efficiency,
        geometry: from.geometry,
    }
}
