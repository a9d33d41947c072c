//! Idle time that was estimated because API calls were recorded in stretches, in the report for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attribution::EstimatedIdle;
use crate::attribution::leaf::Leaf;

#[derive(Debug, Serialize)]
pub(super) struct EstimatedJson {
    from: &'static str,
    stretches: u64,
    recorded_ns: u64,
    compared_stretches: u64,
    idle_ns: u64,
    leaves: BTreeMap<&'static str, EstimateJson>,
}

/// One cause. Without an interval its bounds are null.
#[derive(Debug, Serialize)]
struct EstimateJson {
    ns: u64,
    low_ns: Option<u64>,
    high_ns: Option<u64>,
}

pub(super) fn estimated(from: &EstimatedIdle) -> EstimatedJson {
    let leaves = Leaf::ALL.into_iter().filter_map(|leaf| {
        let ns = from.leaves[leaf as usize];
        let (low_ns, high_ns) = from.interval(leaf).unzip();
        // Also what is not estimated to be there, if it may be.
        (ns > 0 || high_ns.is_some_and(|high| high > 0)).then_some((leaf.name(), EstimateJson { ns, low_ns, high_ns }))
    });
    EstimatedJson {
        from: "stretches",
        stretches: from.stretches,
        recorded_ns: from.recorded_ns,
        compared_stretches: from.compared,
        idle_ns: from.total_ns(),
        leaves: leaves.collect(),
    }
}
