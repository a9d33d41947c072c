//! The comparison of ranks for programs: wire types of their own, as in [`crate::report::json`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::{HostClock, RankRow, RanksReport};
use crate::attribution::leaf::Leaf;
use crate::counters::roofs::Limit;

/// The whole document. Times are nanoseconds, shares 0 to 1.
#[derive(Debug, Serialize)]
pub struct RanksDocument {
    world_size: Option<u32>,
    ranks: Vec<RankJson>,
    hosts: Vec<HostJson>,
    collectives: u64,
    collective_ns: u64,
    /// By waiting rank, then by the rank that it waited for.
    waits_ns: Vec<Vec<u64>>,
    straggler: Option<StragglerJson>,
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
    last: u64,
    late_ns: u64,
}

#[derive(Debug, Serialize)]
struct HostJson {
    host: String,
    offset_ns: Option<i64>,
    scatter_median_ns: Option<u64>,
    scatter_p95_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct StragglerJson {
    rank: u32,
    share: f64,
    excess_leaf: Option<&'static str>,
    excess_ns: Option<u64>,
}

impl RanksDocument {
    /// Describes `report`.
    #[must_use]
    pub fn new(report: &RanksReport) -> Self {
        Self {
            world_size: report.world_size,
            ranks: report.rows.iter().map(rank).collect(),
            hosts: report.clocks.iter().map(host).collect(),
            collectives: report.collectives,
            collective_ns: report.collective_ns,
            waits_ns: report.waits.clone(),
            straggler: report.straggler.map(|straggler| StragglerJson {
                rank: report.rows[straggler.row].rank,
                share: straggler.share,
                excess_leaf: straggler.excess.map(|(leaf, _)| leaf.name()),
                excess_ns: straggler.excess.map(|(_, more)| more),
            }),
            doubts: report.doubts.clone(),
        }
    }
}

fn rank(row: &RankRow) -> RankJson {
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
        last: row.last,
        late_ns: row.late_ns,
    }
}

fn host(clock: &HostClock) -> HostJson {
    HostJson {
        host: clock.host.clone(),
        offset_ns: clock.offset_ns,
        scatter_median_ns: clock.scatter_ns.map(|scatter| scatter[0]),
        scatter_p95_ns: clock.scatter_ns.map(|scatter| scatter[1]),
    }
}
