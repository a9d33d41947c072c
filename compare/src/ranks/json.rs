//! JSON form of the comparison of ranks.

use gpuwhy_trace::document::document;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::document::leaves;

use super::{CriticalPath, ExcessEvidence, HostClock, RankRow, RanksReport, Straggler, WAITS_SHOWN};
use gpuwhy_report::document::limits;

/// A part of a comparison.
struct Of<'a, T>(&'a T, &'a RanksReport);

/// Index of a rank in the rows, and nanoseconds.
struct RankTime<'a>(&'a (u32, u64), &'a RanksReport);

struct SlowHost<'a>(&'a (String, f64));

struct KernelExcess<'a>(&'a str, (u64, u64), (u64, u64));

struct LineExcess<'a>(HostCause, &'a str, u32, &'a str, u64);

fn times<'a>(times: &'a [(u32, u64)], report: &'a RanksReport) -> Vec<RankTime<'a>> {
    times.iter().map(|time| RankTime(time, report)).collect()
}

document! {
    from: RanksReport {
        world_size,
        ranks: from.rows.iter().map(|row| Of(row, from)).collect::<Vec<_>>(),
        hosts: from.clocks,
        matched_by: from.basis,
        collectives, collective_ns,
        missing_collectives: from.missing,
        too_close_collectives: from.too_close,
        waits_ns: Some(&from.waits).filter(|_| from.rows.len() <= WAITS_SHOWN),
        straggler: from.straggler.as_ref().map(|found| Of(found, from)),
        slow_host: from.slow_host.as_ref().map(SlowHost),
        critical_path: from.critical_path.as_ref().map(|found| Of(found, from)),
        doubts,
    }
    from: Of<'_, RankRow> {
        rank: from.0.rank,
        host: from.0.host,
        pid: from.0.process_id,
        window_ns: from.0.window_ns,
        leaves: leaves(&from.0.leaves),
        limits_ns: from.0.limits.as_ref().map(limits),
        bottleneck: from.0.bottleneck.0,
        bottleneck_share: from.0.bottleneck.1,
        waited_ns: from.0.waited_ns,
        without_waiting_ns: from.0.without_waiting_ns(),
        awaited_ns: from.0.awaited_ns,
        waited_for: times(&from.0.waited_for, from.1),
        last: from.0.last,
        late_ns: from.0.late_ns,
    }
    from: RankTime<'_> {
        rank: from.1.rows[from.0.0 as usize].rank,
        ns: from.0.1,
    }
    from: HostClock {
        host, offset_ns, drift_ppb, error_ns,
        scatter_median_ns: from.scatter_ns.map(|scatter| scatter[0]),
        scatter_p95_ns: from.scatter_ns.map(|scatter| scatter[1]),
    }
    from: Of<'_, Straggler> {
        rank: from.1.rows[from.0.row].rank,
        share: from.0.share,
        communication_share: from.0.communication.map(|(own, _)| own),
        median_communication_share: from.0.communication.map(|(_, median)| median),
        worst_tenths: from.0.tenths.0,
        waiting_tenths: from.0.tenths.1,
        compared_with: from.0.role,
        excess_leaf: from.0.excess.map(|(leaf, _)| leaf),
        excess_ns: from.0.excess.map(|(_, more)| more),
        steps: from.0.steps,
        kernel: match &from.0.evidence {
            Some(ExcessEvidence::Kernel { name, counts, times }) => Some(KernelExcess(name, *counts, *times)),
            _ => None,
        },
        line: match &from.0.evidence {
            Some(ExcessEvidence::Line { cause, file, line, function, total_ns }) => {
                Some(LineExcess(*cause, file, *line, function, *total_ns))
            }
            _ => None,
        },
    }
    from: KernelExcess<'_> {
        name: from.0,
        count: from.1.0,
        others_count: from.1.1,
        total_ns: from.2.0,
        others_ns: from.2.1,
    }
    from: LineExcess<'_> {
        cause: from.0,
        file: from.1,
        line: from.2,
        function: from.3,
        total_ns: from.4,
    }
    from: SlowHost<'_> {
        host: from.0.0,
        share: from.0.1,
    }
    from: Of<'_, CriticalPath> {
        total_ns: from.0.total_ns,
        collectives: from.0.collectives,
        leaves: leaves(&from.0.leaves),
        ranks: times(&from.0.ranks, from.1),
        without_excess_ns: from.0.without_excess_ns,
    }
}
