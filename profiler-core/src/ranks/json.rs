//! The comparison of ranks for programs: wire types of their own, as in [`crate::report::json`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CriticalPath, ExcessEvidence, HostClock, RankRow, RanksReport, Straggler, WAITS_SHOWN};
use crate::attribution::leaf::Leaf;
use crate::counters::roofs::Limit;

/// The whole document. Times are nanoseconds, shares 0 to 1.
#[derive(Debug, Serialize)]
pub struct RanksDocument {
    world_size: Option<u32>,
    ranks: Vec<RankJson>,
    hosts: Vec<HostJson>,
    /// What tells that collectives of several ranks are one.
    matched_by: &'static str,
    collectives: u64,
    collective_ns: u64,
    missing_collectives: u64,
    too_close_collectives: u64,
    /// By waiting rank, then by the rank that it waited for; `null` with more than 64 ranks.
    waits_ns: Option<Vec<Vec<u64>>>,
    straggler: Option<StragglerJson>,
    slow_host: Option<SlowHostJson>,
    critical_path: Option<PathJson>,
    doubts: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RankJson {
    rank: u32,
    host: String,
    pid: u32,
    window_ns: u64,
    leaves: BTreeMap<&'static str, u64>,
    limits_ns: Option<BTreeMap<&'static str, u64>>,
    verdict: &'static str,
    verdict_share: f64,
    waited_ns: u64,
    without_waiting_ns: u64,
    awaited_ns: u64,
    /// The ranks that it waited for longest, at most 16.
    waited_for: Vec<RankTimeJson>,
    last: u64,
    late_ns: u64,
}

#[derive(Debug, Serialize)]
struct RankTimeJson {
    rank: u32,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct HostJson {
    host: String,
    offset_ns: Option<i64>,
    drift_ppb: i64,
    error_ns: Option<u64>,
    scatter_median_ns: Option<u64>,
    scatter_p95_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct StragglerJson {
    rank: u32,
    share: f64,
    /// Where groups are not known and these shares tell who is late; else null.
    communication_share: Option<f64>,
    median_communication_share: Option<f64>,
    /// Tenths of the compared time in which most waiting is for it, and in which anybody waits.
    worst_tenths: u32,
    waiting_tenths: u32,
    /// Ranks with the same part in the job that it is compared with.
    compared_with: u32,
    excess_leaf: Option<&'static str>,
    excess_ns: Option<u64>,
    /// Steady steps in which the excess arose; 0 when unknown.
    steps: u64,
    kernel: Option<KernelJson>,
    line: Option<LineJson>,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    count: u64,
    others_count: u64,
    total_ns: u64,
    others_ns: u64,
}

#[derive(Debug, Serialize)]
struct LineJson {
    cause: &'static str,
    file: String,
    line: u32,
    function: String,
    total_ns: u64,
}

#[derive(Debug, Serialize)]
struct SlowHostJson {
    host: String,
    share: f64,
}

/// Sums to `total_ns`.
#[derive(Debug, Serialize)]
struct PathJson {
    total_ns: u64,
    collectives: u64,
    leaves: BTreeMap<&'static str, u64>,
    ranks: Vec<RankTimeJson>,
    without_excess_ns: Option<u64>,
}

impl RanksDocument {
    /// Describes `report`.
    #[must_use]
    pub fn new(report: &RanksReport) -> Self {
        Self {
            world_size: report.world_size,
            ranks: report.rows.iter().map(|row| rank(report, row)).collect(),
            hosts: report.clocks.iter().map(host).collect(),
            matched_by: report.basis.name(),
            collectives: report.collectives,
            collective_ns: report.collective_ns,
            missing_collectives: report.missing,
            too_close_collectives: report.too_close,
            waits_ns: (report.rows.len() <= WAITS_SHOWN).then(|| report.waits.clone()),
            straggler: report.straggler.as_ref().map(|found| straggler(report, found)),
            slow_host: report
                .slow_host
                .as_ref()
                .map(|(host, share)| SlowHostJson { host: host.clone(), share: *share }),
            critical_path: report.critical_path.as_ref().map(|found| path(report, found)),
            doubts: report.doubts.clone(),
        }
    }
}

fn straggler(report: &RanksReport, found: &Straggler) -> StragglerJson {
    let (mut kernel, mut line) = (None, None);
    match found.evidence.clone() {
        Some(ExcessEvidence::Kernel { name, counts, times }) => {
            let (count, others_count, total_ns, others_ns) = (counts.0, counts.1, times.0, times.1);
            kernel = Some(KernelJson { name, count, others_count, total_ns, others_ns });
        }
        Some(ExcessEvidence::Line { cause, file, line: number, function, total_ns }) => {
            line = Some(LineJson { cause: cause.name(), file, line: number, function, total_ns });
        }
        None => {}
    }
    StragglerJson {
        rank: report.rows[found.row].rank,
        share: found.share,
        communication_share: found.communication.map(|(own, _)| own),
        median_communication_share: found.communication.map(|(_, median)| median),
        worst_tenths: found.tenths.0,
        waiting_tenths: found.tenths.1,
        compared_with: found.role,
        excess_leaf: found.excess.map(|(leaf, _)| leaf.name()),
        excess_ns: found.excess.map(|(_, more)| more),
        steps: found.steps,
        kernel,
        line,
    }
}

fn path(report: &RanksReport, path: &CriticalPath) -> PathJson {
    PathJson {
        total_ns: path.total_ns,
        collectives: path.collectives,
        leaves: Leaf::ALL.into_iter().map(|leaf| (leaf.name(), path.leaves[leaf as usize])).collect(),
        ranks: rank_times(report, &path.ranks),
        without_excess_ns: path.without_excess_ns,
    }
}

fn rank_times(report: &RanksReport, times: &[(u32, u64)]) -> Vec<RankTimeJson> {
    times.iter().map(|&(place, ns)| RankTimeJson { rank: report.rows[place as usize].rank, ns }).collect()
}

fn rank(report: &RanksReport, row: &RankRow) -> RankJson {
    RankJson {
        rank: row.rank,
        host: row.host.clone(),
        pid: row.process_id,
        window_ns: row.window_ns,
        leaves: Leaf::ALL.into_iter().map(|leaf| (leaf.name(), row.leaves[leaf as usize])).collect(),
        limits_ns: row.limits.map(|times| Limit::ALL.map(|limit| (limit.name(), times[limit as usize])).into()),
        verdict: row.verdict.0.name(),
        verdict_share: row.verdict.1,
        waited_ns: row.waited_ns,
        without_waiting_ns: row.without_waiting_ns(),
        awaited_ns: row.awaited_ns,
        waited_for: rank_times(report, &row.waited_for),
        last: row.last,
        late_ns: row.late_ns,
    }
}

fn host(clock: &HostClock) -> HostJson {
    HostJson {
        host: clock.host.clone(),
        offset_ns: clock.offset_ns,
        drift_ppb: clock.drift_ppb,
        error_ns: clock.error_ns,
        scatter_median_ns: clock.scatter_ns.map(|scatter| scatter[0]),
        scatter_p95_ns: clock.scatter_ns.map(|scatter| scatter[1]),
    }
}
