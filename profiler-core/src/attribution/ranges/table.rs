//! Accounts of ranges: by name, the time on the host and on the devices; by path, the device work and idle
//! time in them.
//!
//! Additive values (operations, device time, idle time, kernels) are recorded once, for the innermost range;
//! a report sums them for the enclosing ranges along the tree of paths. Other values (from the first
//! operation of an instance to its last) are kept per instance, for as long as its operations may still come.

use std::collections::VecDeque;

use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use crate::attribution::statistics::Durations;
use crate::leaf::{LEAF_COUNT, Leaf, Leaves};

/// Distinct ranges (style, domain and message) with a row, at up to 2 KiB each.
const NAME_LIMIT: usize = 1_024;
/// Maximum distinct paths of ranges, 256 bytes each.
const NODE_LIMIT: usize = 4_096;
/// Rows of kernels by path, at up to 1 KiB each.
const KERNEL_LIMIT: usize = 4_096;
/// Ended instances that still accept operations, 64 bytes each. The device lags the host by at most some
/// thousand launches.
const CLOSED_LIMIT: usize = 32_768;

/// How a range is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum RangeStyle {
    /// Pushed on and popped from the stack of its thread and domain.
    PushPop,
    /// Started and ended, on any thread, in parallel with others.
    StartEnd,
}

/// Identity of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeKey {
    /// Style.
    pub style: RangeStyle,
    /// Domain.
    pub domain: NameId,
    /// A message, representing all that differ from it only in a counter.
    pub message: NameId,
}

/// Durations and their deviation.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Durations.
    pub durations: Durations,
    squares: u128,
}

impl Spread {
    fn add(&mut self, nanos: u64) {
        self.durations.add(nanos);
        self.squares = self.squares.saturating_add(u128::from(nanos) * u128::from(nanos));
    }

    /// Standard deviation of a sample, nanoseconds; 0 with fewer than two values.
    pub fn deviation(&self) -> f64 {
        let count = self.durations.count() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let mean = self.durations.total() as f64 / count;
        ((self.squares as f64 - count * mean * mean).max(0.0) / (count - 1.0)).sqrt()
    }
}

/// Statistics of the ranges of one name.
#[derive(Clone, Debug)]
pub struct RangeTotals {
    /// Identity of the ranges.
    pub key: RangeKey,
    /// Ended instances, on the host.
    pub host: Spread,
    /// Instances with device work: from the start of the first operation to the end of the last.
    pub projected: Spread,
    /// Operations launched in those instances, including nested ranges.
    pub operations: u64,
    /// Sum over those instances of the number of enclosing ranges.
    pub levels: u64,
    /// Sum over those instances of the number of ranges directly within them.
    pub children: u64,
}

/// Values recorded for the innermost range of a path.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: Option<u32>,
    /// Index of the name.
    pub(super) name: u32,
    pub(super) device_ns: u64,
    pub(super) idle: Leaves,
}

/// An instance of a range, valid until its slot is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    index: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    parent: Option<Instance>,
    name: u32,
    start: u64,
    first: u64,
    last: u64,
    operations: u64,
    level: u32,
    children: u32,
}

#[derive(Debug, Default)]
pub(super) struct RangeTable {
    names: Vec<RangeTotals>,
    name_ids: FxHashMap<RangeKey, u32>,
    pub(super) nodes: Vec<Node>,
    node_ids: FxHashMap<(Option<u32>, u32), u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    closed: VecDeque<u32>,
    pub(super) kernels: FxHashMap<(u32, NameId), Durations>,
    /// Ranges without a row because a table is full.
    pub(super) beyond: u64,
    /// Kernels without a row because a table is full.
    pub(super) kernel_overflow: u64,
}

impl RangeTable {
    /// Path of a range within `parent`; `None` if the tables are full.
    pub(super) fn node(&mut self, parent: Option<u32>, key: RangeKey) -> Option<u32> {
        let Some(name) = self.name(key) else {
            self.beyond += 1;
            return None;
        };
        if let Some(&known) = self.node_ids.get(&(parent, name)) {
            return Some(known);
        }
        if self.nodes.len() >= NODE_LIMIT {
            self.beyond += 1;
            return None;
        }
        let id = self.nodes.len() as u32;
        self.nodes.push(Node { parent, name, device_ns: 0, idle: [0; LEAF_COUNT] });
        self.node_ids.insert((parent, name), id);
        Some(id)
    }

    fn name(&mut self, key: RangeKey) -> Option<u32> {
        if let Some(&known) = self.name_ids.get(&key) {
            return Some(known);
        }
        if self.names.len() >= NAME_LIMIT {
            return None;
        }
        let id = self.names.len() as u32;
        let (host, projected) = (Spread::default(), Spread::default());
        self.names.push(RangeTotals { key, host, projected, operations: 0, levels: 0, children: 0 });
        self.name_ids.insert(key, id);
        Some(id)
    }

    /// A range of the path `node` starts on the host at `start`.
    pub(super) fn open(&mut self, node: u32, parent: Option<Instance>, start: u64) -> Instance {
        let around = parent.and_then(|parent| self.slot(parent));
        let level = around.map_or(0, |slot| {
            slot.children += 1;
            slot.level + 1
        });
        let name = self.nodes[node as usize].name;
        let slot =
            Slot { generation: 0, parent, name, start, first: u64::MAX, last: 0, operations: 0, level, children: 0 };
        match self.free.pop() {
            Some(index) => {
                let generation = self.slots[index as usize].generation.wrapping_add(1);
                self.slots[index as usize] = Slot { generation, ..slot };
                Instance { index, generation }
            }
            None => {
                self.slots.push(slot);
                Instance { index: (self.slots.len() - 1) as u32, generation: 0 }
            }
        }
    }

    /// Message of a path's innermost range.
    pub(super) fn message(&self, node: u32) -> Option<NameId> {
        self.nodes.get(node as usize).and_then(|node| self.key(node)).map(|key| key.message)
    }

    /// Identity of a path's innermost range.
    pub(super) fn key(&self, node: &Node) -> Option<RangeKey> {
        self.names.get(node.name as usize).map(|row| row.key)
    }

    /// Start of an instance; 0 once its slot was reused.
    pub(super) fn begin(&self, instance: Instance) -> u64 {
        let slot = self.slots.get(instance.index as usize).filter(|slot| slot.generation == instance.generation);
        slot.map_or(0, |slot| slot.start)
    }

    /// An open range ends on the host at `end`.
    pub(super) fn close(&mut self, instance: Instance, end: u64) {
        let Some(&mut Slot { name, start, .. }) = self.slot(instance) else { return };
        self.names[name as usize].host.add(end.saturating_sub(start));
        self.closed.push_back(instance.index);
        if self.closed.len() > CLOSED_LIMIT
            && let Some(oldest) = self.closed.pop_front()
        {
            let slot = self.slots[oldest as usize];
            slot.enter(&mut self.names);
            // The slot belongs to no instance any more.
            self.slots[oldest as usize] = Slot { generation: slot.generation.wrapping_add(1), operations: 0, ..slot };
            self.free.push(oldest);
        }
    }

    /// Records an operation launched in `instance` of the path `node`.
    pub(super) fn operation(
        &mut self,
        node: u32,
        instance: Instance,
        (start, end): (u64, u64),
        kernel: Option<NameId>,
    ) {
        let row = &mut self.nodes[node as usize];
        row.device_ns = row.device_ns.saturating_add(end - start);
        if let Some(kernel) = kernel {
            let full = self.kernels.len() >= KERNEL_LIMIT;
            match self.kernels.get_mut(&(node, kernel)) {
                Some(durations) => durations.add(end - start),
                None if full => self.kernel_overflow += 1,
                None => self.kernels.entry((node, kernel)).or_default().add(end - start),
            }
        }
        let mut around = Some(instance);
        while let Some(slot) = around.and_then(|instance| self.slot(instance)) {
            slot.first = slot.first.min(start);
            slot.last = slot.last.max(end);
            slot.operations += 1;
            around = slot.parent;
        }
    }

    /// Records `nanos` of idle time in a range of the path `node`.
    pub(super) fn idle(&mut self, node: u32, leaf: Leaf, nanos: u64) {
        self.nodes[node as usize].idle[leaf as usize] += nanos;
    }

    /// Ranges by name, including those that still accept operations.
    pub(super) fn all_totals(&self) -> Vec<RangeTotals> {
        let mut names = self.names.clone();
        for slot in &self.slots {
            slot.enter(&mut names);
        }
        names
    }

    fn slot(&mut self, instance: Instance) -> Option<&mut Slot> {
        self.slots.get_mut(instance.index as usize).filter(|slot| slot.generation == instance.generation)
    }
}

impl Slot {
    fn enter(&self, names: &mut [RangeTotals]) {
        if self.operations == 0 {
            return;
        }
        let row = &mut names[self.name as usize];
        row.projected.add(self.last - self.first);
        row.operations += self.operations;
        row.levels += u64::from(self.level);
        row.children += u64::from(self.children);
    }
}
