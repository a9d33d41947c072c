//! Work on the devices of the process: operations in order of their start, turned into contiguous segments.
//!
//! Operations wait until the watermark passes their start. After that, nothing earlier can arrive, so each is
//! processed exactly once and memory does not grow with the run.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiFunctionId, DeviceId, ManagedEvent};
use rustc_hash::FxHashMap;

use super::account::DeviceAccount;
use super::gap::{self, Next};
use super::gap_history::GapHistory;
use super::host::Host;
use super::host_cause::Subject;
use super::launch_order::LaunchOrder;
use super::node_gaps::NodeGaps;
use super::operation::{Delivery, DeviceOperation, LONGEST_WINDOW};
use super::other_processes::OtherProcesses;
use super::ranges::Ranges;
use super::segments::Idle;
use super::simulation_feed::SimulationFeed;
use super::step_sequence::StepSequence;
use crate::api::ApiClass;
use crate::collections::slab::Slab;
use crate::collections::sorted_runs::InOrder;
use crate::counters::engine::Counters;
use crate::counters::estimate::Activity;
use crate::leaf::{BUSY_COUNT, Leaf};
use crate::managed::ManagedMemory;
use crate::steps::{Cuts, PeriodFacts};
use crate::thresholds::{CLOCK_SLACK_NANOS, INTER_KERNEL_NANOS};

/// Maximum devices of one process; higher ordinals are damage.
const DEVICE_LIMIT: usize = 256;
/// Operations of the busiest device that are processed and simulated at a time, so that they stay in the CPU
/// caches.
const SLICE: usize = 512;

/// Timelines of all devices, and their consumers.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// By ordinal.
    pub(super) timelines: Vec<Timeline>,
    /// All waiting operations: for their launch, then for the watermark.
    pub(super) operations: Slab<DeviceOperation>,
    pub(super) simulation: SimulationFeed,
    pub(super) counters: Counters,
    pub(super) others: OtherProcesses,
    managed: FxHashMap<DeviceId, ManagedMemory>,
    /// True if the timelines are logged.
    pub(super) segments_logged: bool,
    /// True if the recording began while the program ran.
    midway: bool,
    /// True if forgotten steps are kept until they are taken.
    pub(super) step_overflow_kept: bool,
}

impl Devices {
    /// A recording that did not begin with its process has no start-up.
    pub(super) fn set_midway(&mut self, midway: bool) {
        self.midway = midway;
        self.accounts_mut().for_each(|account| account.set_midway(midway));
    }

    /// The program called `function`.
    #[inline]
    pub(super) fn called(&mut self, function: ApiFunctionId, dictionary: &Dictionary) {
        if self.midway
            && let Some(known) = dictionary.api_function(function)
            && ApiClass::initializes(dictionary.name(known.name))
        {
            self.set_midway(false);
        }
    }

    /// Accounts of every device on which something ran.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.timelines.iter().map(|timeline| &timeline.account)
    }

    /// Mutable [`accounts`](Self::accounts).
    pub(super) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut DeviceAccount> {
        self.timelines.iter_mut().map(|timeline| &mut timeline.account)
    }

    /// Timeline of a device on which something ran.
    pub(super) fn timeline(&self, device: DeviceId) -> Option<&Timeline> {
        self.timelines.iter().find(|timeline| timeline.account.id() == device)
    }

    /// Index of a device's timeline, which is created if there is room.
    #[inline]
    pub(super) fn index(&mut self, device: DeviceId) -> Option<usize> {
        // The ordinals are nearly always 0, 1, and so on.
        let usual = device.0 as usize;
        if self.timelines.get(usual).is_some_and(|timeline| timeline.account.id() == device) {
            return Some(usual);
        }
        self.find_or_add(device)
    }

    #[cold]
    fn find_or_add(&mut self, device: DeviceId) -> Option<usize> {
        match self.timelines.binary_search_by_key(&device, |timeline| timeline.account.id()) {
            Ok(index) => Some(index),
            Err(_) if self.timelines.len() >= DEVICE_LIMIT => None,
            Err(index) => {
                let mut timeline = Timeline::new(device);
                timeline.account.managed = self.managed.remove(&device).unwrap_or_default();
                if self.segments_logged {
                    timeline.account.log_segments();
                }
                timeline.account.set_midway(self.midway);
                if self.step_overflow_kept {
                    timeline.account.steps.keep_overflow();
                }
                self.timelines.insert(index, timeline);
                Some(index)
            }
        }
    }

    pub(super) fn managed(&mut self, event: &ManagedEvent, delivery: &mut Delivery) {
        delivery.completeness.managed_events += 1;
        let Some(device) = event.device() else { return };
        if let Some(timeline) = self.timelines.iter_mut().find(|timeline| timeline.account.id() == device) {
            timeline.account.managed.add(event);
        } else if self.managed.len() < DEVICE_LIMIT {
            self.managed.entry(device).or_default().add(event);
        }
    }

    /// Passes an operation to the counters, if any are sampled.
    #[inline]
    pub(super) fn sampled(&mut self, operation: &DeviceOperation, activity: Activity) {
        if self.counters.is_sampled() {
            self.counters.ran(operation.device, activity, operation.start, operation.end);
        }
    }

    /// Operations that the watermark has not passed.
    pub(super) fn pending(&self) -> usize {
        self.timelines.iter().map(Timeline::pending).sum()
    }

    /// Processes everything before `watermark`, in slices of time, so that flush boundaries do not matter.
    /// Returns the number of rejected operations.
    pub(super) fn advance(&mut self, watermark: u64, host: &Host, ranges: &mut Ranges) -> u64 {
        for timeline in &mut self.timelines {
            timeline.sort(&self.operations);
        }
        let busiest = self.timelines.iter().max_by_key(|timeline| timeline.pending());
        let slices = busiest.into_iter().flat_map(|timeline| timeline.every(SLICE));
        let slices: Vec<u64> = slices.take_while(|&to| to < watermark).chain([watermark]).collect();
        let refused = slices.into_iter().map(|to| self.advance_slice(to, host, ranges)).sum();
        if let Some(oldest) = self.oldest_position() {
            self.others.forget_before(oldest);
        }
        refused
    }

    fn advance_slice(&mut self, watermark: u64, host: &Host, ranges: &mut Ranges) -> u64 {
        let mut refused = 0;
        let others = Some(&self.others).filter(|_| self.timelines.len() == 1);
        for timeline in &mut self.timelines {
            refused += timeline.advance(watermark, &mut self.operations, host, &mut self.simulation, ranges, others);
            self.simulation.take_findings(&mut timeline.account, &mut timeline.history.waits);
        }
        self.simulation.advance(watermark);
        refused
    }

    /// Earliest point up to which a timeline is final. A device that runs nothing yet has no gap that could
    /// need old calls.
    pub(super) fn oldest_position(&self) -> Option<u64> {
        self.accounts().map(DeviceAccount::position).filter(|&position| position != 0).min()
    }
}

/// Timeline of one device with its accounts.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) account: DeviceAccount,
    /// Operations that the watermark has not passed: start and slab index.
    pending: InOrder<(u64, u32)>,
    launch_order: LaunchOrder,
    running: Running,
    /// Host gaps before input batches.
    pub(super) history: GapHistory,
    pub(super) node_gaps: NodeGaps,
}

/// Time that arrived too late, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    pub(super) total: u64,
    pub(super) patched: u64,
}

impl Timeline {
    pub(super) fn new(id: DeviceId) -> Self {
        Self {
            account: DeviceAccount::new(id),
            pending: InOrder::default(),
            launch_order: LaunchOrder::default(),
            running: Running::default(),
            history: GapHistory::default(),
            node_gaps: NodeGaps::default(),
        }
    }

    /// Launch sequence of the device's steps.
    pub(super) fn sequence(&self) -> &StepSequence {
        self.launch_order.sequence()
    }

    /// Known facts about steps of `period` launches.
    pub(super) fn facts(&self, period: u32) -> PeriodFacts {
        self.launch_order.facts(period)
    }

    /// Operations that the watermark has not passed.
    pub(super) fn pending(&self) -> usize {
        self.pending.waiting().len()
    }

    /// Adds the operation in `slot`, which is freed once it is processed. If its time is already accounted
    /// for, it claims the available idle time in it, and its remainder continues normally.
    #[inline]
    pub(super) fn push(
        &mut self,
        slot: u32,
        operations: &mut Slab<DeviceOperation>,
        simulation: &mut SimulationFeed,
    ) -> Late {
        let operation = &operations[slot];
        self.account.operations += 1;
        if operation.graph {
            self.account.graph_operations += 1;
            self.account.graph_ns = self.account.graph_ns.saturating_add(operation.end - operation.start);
        }
        if operation.start < self.account.position() {
            return self.push_late(slot, operations, simulation);
        }
        self.launch_order.push(operation, slot);
        simulation.launched(operation);
        self.pending.push((operation.start, slot));
        Late::default()
    }

    #[cold]
    fn push_late(
        &mut self,
        slot: u32,
        operations: &mut Slab<DeviceOperation>,
        simulation: &mut SimulationFeed,
    ) -> Late {
        let operation = &mut operations[slot];
        simulation.operation(operation);
        let position = self.account.position();
        let to = operation.end.min(position);
        let total = to - operation.start;
        let patched = self.account.patch(operation.leaf, operation.start, to);
        if operation.end <= position {
            operations.remove(slot);
        } else {
            operation.start = position;
            // Its position in launch order has passed.
            operation.status.shown = true;
            operation.late = true;
            self.pending.push((position, slot));
        }
        Late { total, patched }
    }

    /// Sorts the pushed operations; to be called before the next advance.
    pub(super) fn sort(&mut self, operations: &Slab<DeviceOperation>) {
        // Operations that start together get a fixed order, so that the one that ends a gap does not depend
        // on the order of delivery.
        self.pending.sort(|a, b| match a.0.cmp(&b.0) {
            Ordering::Equal => {
                let (a, b) = (&operations[a.1], &operations[b.1]);
                (a.correlation, a.stream, a.end, a.leaf).cmp(&(b.correlation, b.stream, b.end, b.leaf))
            }
            unequal => unequal,
        });
        self.launch_order.sort(operations);
    }

    /// Start times of the waiting operations.
    pub(super) fn begins(&self) -> impl Iterator<Item = u64> {
        self.pending.waiting().iter().map(|&(start, _)| start)
    }

    /// Start times of every `step`-th waiting operation.
    pub(super) fn every(&self, step: usize) -> impl Iterator<Item = u64> {
        self.begins().skip(step).step_by(step)
    }

    /// Processes everything before `watermark` and passes it to the simulation. Returns the number of
    /// operations that cannot be part of any window or exceed the number that a device can run at once. `others`
    /// are the processes that operations may wait for, unless they may also wait for another device.
    pub(super) fn advance(
        &mut self,
        watermark: u64,
        operations: &mut Slab<DeviceOperation>,
        host: &Host,
        simulation: &mut SimulationFeed,
        ranges: &mut Ranges,
        others: Option<&OtherProcesses>,
    ) -> u64 {
        let mut refused = 0;
        self.launch_order.show(operations, watermark, &host.marks);
        let watermark = self.first_hidden(operations, watermark).unwrap_or(watermark);
        let mut pending = std::mem::take(&mut self.pending);
        for &(_, slot) in pending.take_while(|&(start, _)| start < watermark) {
            let operation = &operations[slot];
            if !operation.late {
                simulation.operation(operation);
            }
            let cuts = self.launch_order.take_cuts(slot, &operation.status);
            let window_start = if self.account.position() == 0 { operation.start } else { self.account.start() };
            let beyond = operation.end - window_start > LONGEST_WINDOW;
            if !beyond {
                self.enter_ends(operation.start);
            }
            if beyond || self.running.is_full() {
                refused += 1;
                self.account.operations -= 1;
                if operation.graph {
                    self.account.graph_operations -= 1;
                    self.account.graph_ns = self.account.graph_ns.saturating_sub(operation.end - operation.start);
                }
            } else {
                self.begin(operation, cuts, host, ranges, others);
            }
            operations.remove(slot);
        }
        self.pending = pending;
        self.enter_ends(watermark);
        debug_assert_eq!(self.account.leaves().iter().sum::<u64>(), self.account.window_ns());
        refused
    }

    /// Start of the first operation before `watermark` that was not shown. None starts more than the clock
    /// slack before its position in launch order.
    fn first_hidden(&self, operations: &Slab<DeviceOperation>, watermark: u64) -> Option<u64> {
        let waiting = self.pending.waiting();
        let from = waiting.partition_point(|&(start, _)| start < watermark.saturating_sub(CLOCK_SLACK_NANOS));
        let mut near = waiting[from..].iter().take_while(|&&(start, _)| start < watermark);
        near.find(|&&(_, slot)| !operations[slot].status.shown).map(|&(start, _)| start)
    }

    /// Records busy time up to the last end that is not after `limit`.
    #[inline]
    fn enter_ends(&mut self, limit: u64) {
        while let Some(end) = self.running.next_end()
            && end <= limit
        {
            if end > self.account.position() {
                self.account.busy(self.running.leaves(), end);
            }
            self.running.end();
        }
    }

    fn begin(
        &mut self,
        operation: &DeviceOperation,
        cuts: Cuts,
        host: &Host,
        ranges: &mut Ranges,
        others: Option<&OtherProcesses>,
    ) {
        let start = operation.start;
        let from = self.account.position();
        let running = self.running.leaves();
        let busy_until = if running != 0 { start } else { from };
        if from == 0 {
            self.account.open(start);
        } else if running != 0 {
            if start > from {
                self.account.busy(running, start);
            }
        } else if start > from {
            let lost_end =
                operation.launch.and_then(|launch| host.launches.lost_within(launch.thread, from, launch.start));
            // A shorter gap is never a wait.
            let others = others.filter(|_| start - from > INTER_KERNEL_NANOS);
            let next = Next { operation, producer: host.dependencies.producer(operation, from), others };
            gap::explain(&mut self.account, &mut self.history, &next, &host.threads, lost_end);
            let thread = operation.launch.and_then(|launch| host.threads.ids().get(launch.thread as usize)).copied();
            self.account.end_gap(from, operation, thread);
            self.account.pause(start - from);
            if let Some(launch) = operation.launch.filter(|_| ranges.any()) {
                for Idle { leaf, from, to } in self.account.idle_since(from) {
                    ranges.idle(launch.thread, launch.start, leaf, from, to);
                }
            }
        }
        if let Some(launch) = operation.launch.filter(|_| ranges.any()) {
            let kernel = if let Subject::Kernel(name) = operation.subject { Some(name) } else { None };
            ranges.operation(launch.thread, launch.start, (start, operation.end), kernel);
        }
        let was_idle = running == 0 && from != 0;
        self.node_gaps.began(operation, if was_idle { start.saturating_sub(from) } else { 0 });
        self.account.begin(operation, cuts);
        if let Some(launch) = operation.launch.filter(|_| operation.status.first) {
            self.account.launched(&launch, busy_until);
        }
        self.running.begin(operation.leaf, operation.end);
    }
}

/// Operations that may run at once (16 bytes each): 500 times as many as a device can run kernels.
const RUNNING_LIMIT: usize = 1 << 16;

/// Operations that run on a device at one instant: their number by leaf, and the one that ends first. There
/// is mostly just one, so the earliest end is stored separately and the heap stays untouched.
#[derive(Debug, Default)]
struct Running {
    /// End and leaf of the operation that ends first.
    first: Option<(u64, u8)>,
    others: BinaryHeap<Reverse<(u64, u8)>>,
    counts: [u32; BUSY_COUNT],
    /// Bit by leaf: set if its counter is not zero.
    mask: u32,
}

impl Running {
    /// A bit for each leaf that runs.
    #[inline]
    fn leaves(&self) -> u32 {
        self.mask
    }

    /// Earliest end of a running operation.
    #[inline]
    fn next_end(&self) -> Option<u64> {
        self.first.map(|(end, _)| end)
    }

    /// True if no more can run at once.
    #[inline]
    fn is_full(&self) -> bool {
        self.others.len() >= RUNNING_LIMIT
    }

    /// Adds an operation that ends at `end`.
    #[inline]
    fn begin(&mut self, leaf: Leaf, end: u64) {
        self.counts[leaf as usize] += 1;
        self.mask |= 1 << leaf as u8;
        let new = (end, leaf as u8);
        match self.first {
            None => self.first = Some(new),
            Some(first) => {
                self.first = Some(first.min(new));
                self.others.push(Reverse(first.max(new)));
            }
        }
    }

    /// Removes the operation that ends first.
    #[inline]
    fn end(&mut self) {
        let Some((_, leaf)) = self.first else { return };
        self.first = if self.others.is_empty() { None } else { self.others.pop().map(|Reverse(next)| next) };
        let leaf = usize::from(leaf);
        self.counts[leaf] -= 1;
        if self.counts[leaf] == 0 {
            self.mask &= !(1 << leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_runs_so_many_at_once() {
        let mut running = Running::default();
        (0..=RUNNING_LIMIT as u64).for_each(|end| running.begin(Leaf::Compute, end));
        assert!(running.is_full());
        running.end();
        assert!(!running.is_full());
    }

    #[test]
    fn they_end_in_order_and_each_leaf_runs_until_its_last_ends() {
        let mut running = Running::default();
        let (compute, memset) = (1 << Leaf::Compute as u8, 1 << Leaf::Memset as u8);
        for (leaf, end) in [(Leaf::Compute, 50), (Leaf::Memset, 20), (Leaf::Compute, 30), (Leaf::Compute, 90)] {
            running.begin(leaf, end);
        }
        let mut seen = Vec::new();
        while let Some(end) = running.next_end() {
            seen.push((end, running.leaves()));
            running.end();
        }
        assert_eq!(seen, [(20, compute | memset), (30, compute), (50, compute), (90, compute)]);
        assert_eq!(running.leaves(), 0);
    }
}
