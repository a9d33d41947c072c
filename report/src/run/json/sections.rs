//! JSON sections about host activity and the origin of work.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::statistics::Durations;

use crate::document::limits;
use crate::run::{BurstRow, GraphOrigins, HostReport, KernelLines, MemoryRow, RangeRow, SampledTime};

/// Maximum number of rows listed; the largest are kept.
const LINES: usize = 64;
const ROWS: usize = 128;
/// Maximum number of kernels listed per range; the largest are kept.
const KERNELS: usize = 16;

struct KernelOf<'a>(&'a str, &'a Durations);

document! {
    from: HostReport {
        samples: from.totals.samples,
        failed_samples: from.failed,
        garbage_collection_samples: from.totals.collecting,
        covered_ns: from.totals.covered_ns,
        on_cpu_ns: from.totals.on_cpu_ns,
        runnable_ns: from.totals.runnable_ns,
        data_loading_ns: from.totals.data_loading_ns,
        off_cpu_ns: HostCause::ALL
            .into_iter()
            .map(|cause| (cause.name(), from.totals.off_cpu_ns[cause as usize]))
            .filter(|&(_, nanos)| nanos > 0)
            .collect::<BTreeMap<_, _>>(),
        outside_cuda_ns: from.outside_cuda_ns,
        sampled_ns: from.sampled_ns,
        causes: from.causes.iter().map(|row| (row.cause.name(), row.total_ns)).collect::<BTreeMap<_, _>>(),
        lines: from.lines,
        calls: from.calls,
        lock_waits: from.lock_waits,
        lock_holders: from.lock_holders,
    }
    from: KernelLines {
        basis: "estimate",
        samples: from.samples,
        samples_in_copies: from.counts.in_copies,
        samples_elsewhere: from.counts.elsewhere,
        samples_without_record: from.counts.without_record,
        samples_without_row: from.counts.overflow,
        kernel_ns: from.kernel_ns,
        not_sampled_ns: from.not_sampled_ns,
        placed_ns: from.placed_ns,
        left_out: from.left_out(),
        distinct_lines: from.distinct_lines,
        distinct_kernels: from.distinct_rows,
        lines: from.lines.iter().take(LINES).collect::<Vec<_>>(),
        kernels: from.rows.iter().take(ROWS).collect::<Vec<_>>(),
    }
    from: GraphOrigins {
        nodes: from.counts.nodes,
        updates: from.counts.updates,
        without_row: from.counts.overflow,
        with_place: from.counts.with_place,
        without_place: from.counts.without_place,
        unknown: from.counts.unknown,
        unplaced_idle_before_ns: from.unplaced_idle_before_ns,
        distinct_rows: from.distinct_rows,
        modules: from.modules,
        per_replay: from.per_replay,
        partial_graphs: from.partial_graphs,
        rows: from.rows.iter().take(ROWS).collect::<Vec<_>>(),
        threads: from.threads,
        ranges?: from.ranges,
        whole: from.whole,
        distinct_whole: from.distinct_whole,
    }
    from: SampledTime {
        samples: from.samples,
        total_ns: from.total_ns.round() as u64,
        low_ns: from.low_ns.round() as u64,
        high_ns: from.high_ns.round() as u64,
    }
    from: RangeRow {
        domain: from.domain,
        message: from.message,
        style: from.style,
        host: from.host,
        projected: from.projected,
        operations: from.operations,
        mean_level: from.mean_level,
        mean_children: from.mean_children,
        device_ns: from.device_ns,
        idle: from.causes().into_iter().map(|(leaf, nanos)| (leaf.name(), nanos)).collect::<BTreeMap<_, _>>(),
        kernels: from.kernels.iter().take(KERNELS).map(|(name, of)| KernelOf(name, of)).collect::<Vec<_>>(),
        limits_ns?: from.limits.as_ref().map(limits),
    }
    from: KernelOf<'_> {
        name: from.0,
        count: from.1.count(),
        total_ns: from.1.total(),
        median_ns: from.1.median(),
    }
    from: MemoryRow {
        device: from.device,
        kind: from.kind,
        peak_bytes: from.holding.peak,
        peak_unix_ns: from.holding.peak_at,
        peak_by: from.peak_by,
        current_bytes: from.holding.current,
        allocations: from.holding.allocations,
        releases: from.holding.releases,
        allocated_bytes: from.holding.allocated,
        largest_bytes: from.holding.largest,
        pool_peak_bytes: from.holding.pool_peak,
    }
    from: BurstRow {
        capture: from.number,
        trigger: from.trigger,
        begin_unix_ns: from.begin,
        end_unix_ns: from.end,
        kernels: from.kernels,
        bottleneck: from.cause,
        share: from.share,
        window_ns: from.window_ns,
        causes_ns: from.causes.iter().map(|&(cause, nanos)| (cause.name(), nanos)).collect::<BTreeMap<_, _>>(),
        steps: from.steps.0,
        step_median_ns: Some(from.steps.1).filter(|&nanos| nanos > 0),
    }
}
