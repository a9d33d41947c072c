//! Idle time between the nodes of one replay of a CUDA graph.
//!
//! No launch lies between two nodes, so the graph itself left the device idle: by a dependency, by a branch that ends
//! before another one, or by the pause between two nodes.

use rustc_hash::FxHashMap;

use super::host_cause::GapTotals;
use super::launch_places::PlaceId;
use super::operation::DeviceOperation;

/// Gaps of one device by the place that captured the node after them; `None` without a known place.
#[derive(Debug, Default)]
pub(super) struct NodeGaps {
    /// Start and thread of the launch of the operation that started last, if that was a node.
    replay: Option<(u64, u32)>,
    by_place: FxHashMap<Option<PlaceId>, GapTotals>,
}

impl NodeGaps {
    /// `operation` starts after the device was idle for `idle` nanoseconds.
    #[inline]
    pub(super) fn began(&mut self, operation: &DeviceOperation, idle: u64) {
        if !operation.graph {
            self.replay = None;
            return;
        }
        let replay = operation.launch.map(|launch| (launch.start, launch.thread));
        if idle > 0 && replay.is_some() && replay == self.replay {
            let gap = GapTotals { count: 1, total_ns: idle, longest_ns: idle };
            self.by_place.entry(operation.captured).or_default().add(gap);
        }
        self.replay = replay;
    }

    /// Number and sum of the gaps by place. In no particular order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Option<PlaceId>, GapTotals)> {
        self.by_place.iter().map(|(&place, &gaps)| (place, gaps))
    }
}
