//! Sums of operations of graphs, and what added their nodes.

use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxHashMap;

use super::super::launch_places::PlaceId;

/// Operations of graphs, and their time on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GraphWork {
    /// Number of operations.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

impl GraphWork {
    pub(super) fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(nanos);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// What added a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Place(PlaceId),
    /// Nothing but the thread that added it.
    Thread(ThreadId),
}

/// Adds to a row. False if there is none and the table is full.
pub(super) fn add<K: Eq + std::hash::Hash>(
    rows: &mut FxHashMap<K, GraphWork>,
    limit: usize,
    key: K,
    nanos: u64,
) -> bool {
    let full = rows.len() >= limit;
    match rows.get_mut(&key) {
        Some(row) => row.add(nanos),
        None if full => return false,
        None => {
            rows.insert(key, GraphWork { count: 1, total_ns: nanos });
        }
    }
    true
}
