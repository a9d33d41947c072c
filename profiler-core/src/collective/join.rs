//! Joins queued operations with their kernels.
//!
//! On the queuing thread, NCCL reports the launch of a kernel, launches it, and then reports the operations
//! that the kernel performs. So the launching call lies within the reported launch, and the call and the
//! kernel share a correlation id. Version 4 of the plugin reports no launches: then the last launch of the
//! thread before the operation is used. Operations reported by a thread that launched no kernel (host
//! functions of CUDA) join by order: the first waiting operation of a function goes to the next kernel of
//! that function without operations.
//!
//! Without the plugin, NCCL's NVTX ranges report operations. A range is taken for a launch only if exactly
//! one kernel was launched within it; other operations are never guessed.
//!
//! Records come in any order up to a flush mark. So all records wait for one, and kernels a little longer
//! ([`HOLD_NANOS`]): kernels that computed in parallel with them may end later. Memory is bounded; discarded
//! items are counted.

use std::collections::VecDeque;

use gpuwhy_trace::collective::{CollectiveEvent, Communicator, Execution, Function, QueuedOperation};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiCall, CorrelationId, Kernel, LaunchConfigId, Record, ThreadId, Timestamp};
use rustc_hash::FxHashMap;

use super::{Basis, Collective, Overlap, arithmetic};
use crate::attribution::is_communication;
use crate::thresholds::CLOCK_SLACK_NANOS;

/// How long after its end a kernel waits for computing kernels that ran in parallel, nanoseconds. A computing
/// kernel that runs longer is missed, and the exposed time is then too large.
pub const HOLD_NANOS: u64 = 1_000_000_000;
/// How long an operation waits for its kernel, nanoseconds: hosts are at most seconds ahead of devices.
const PATIENCE_NANOS: u64 = 60_000_000_000;
/// How long calls are kept after a flush mark, nanoseconds.
const CALLS_NANOS: u64 = 1_000_000_000;
/// Maximum number of waiting operations, kernels and calls, each.
const WAITING_LIMIT: usize = 1 << 17;
/// Maximum number of communicators known at once.
const COMMUNICATOR_LIMIT: usize = 1 << 12;
/// Maximum number of (communicator, function) pairs with separate counts.
const COUNTED_LIMIT: usize = 1 << 12;

/// Operations and kernels that did not become a complete row. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unjoined {
    /// Operations whose kernel was not found.
    pub operations: u64,
    /// Operations captured into CUDA graphs; their kernels are known by name.
    pub captured: u64,
    /// Operations of copy engines, which use no kernel.
    pub copy_engine: u64,
    /// Communication kernels known only by name although the plugin reported operations.
    pub kernels: u64,
    /// Part of these that are kernels of CUDA graphs.
    pub graph_kernels: u64,
    /// Operations, kernels and calls that were discarded because too many waited.
    pub dropped: u64,
}

/// A call that launched a kernel.
#[derive(Clone, Copy, Debug)]
struct KernelLaunch {
    thread: ThreadId,
    start: u64,
    end: u64,
    correlation: CorrelationId,
}

/// Class of kernel with this launch configuration.
#[derive(Clone, Copy, Debug)]
enum Class {
    Computes,
    Communicates(Function),
}

/// Turns records and events into rows.
#[derive(Debug, Default)]
pub struct Joiner {
    communicators: FxHashMap<u32, Communicator>,
    classes: FxHashMap<LaunchConfigId, Class>,
    /// By function id: true if the function launches a kernel.
    launching: Vec<Option<bool>>,
    launches: Vec<KernelLaunch>,
    /// Operations that wait for a flush mark.
    reported: Vec<QueuedOperation>,
    /// Operations whose kernel is known from its call.
    placed: FxHashMap<CorrelationId, Vec<(QueuedOperation, Basis)>>,
    /// Operations that join by order.
    unplaced: VecDeque<QueuedOperation>,
    kernels: Vec<(Kernel, Function)>,
    compute: FxHashMap<u32, Overlap>,
    counted: FxHashMap<(u64, Function), u64>,
    unjoined: Unjoined,
    /// True once there is communication: nothing is stored before.
    active: bool,
}

impl Joiner {
    /// Processes an event of the plugin.
    pub fn event(&mut self, event: &CollectiveEvent) {
        self.active = true;
        match *event {
            CollectiveEvent::Communicator(communicator) => {
                if self.communicators.len() < COMMUNICATOR_LIMIT {
                    self.communicators.insert(communicator.number, communicator);
                } else {
                    self.unjoined.dropped += 1;
                }
            }
            CollectiveEvent::Operation(operation) => match operation.way {
                Execution::Captured => self.unjoined.captured += 1,
                Execution::CopyEngine => self.unjoined.copy_engine += 1,
                Execution::Kernel if self.reported.len() < WAITING_LIMIT => self.reported.push(operation),
                Execution::Kernel => self.unjoined.dropped += 1,
            },
        }
    }

    /// Processes a record. Most are ignored.
    #[inline]
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Kernel(kernel) => self.kernel(kernel, dictionary),
            Record::Api(call) if self.active => self.call(call, dictionary),
            _ => {}
        }
    }

    fn kernel(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        let class = match self.classes.get(&kernel.config) {
            Some(&class) => class,
            None => {
                let name = dictionary.name(dictionary.launch_config(kernel.config).name);
                let class = if is_communication(name) {
                    Class::Communicates(Function::of_kernel(name))
                } else {
                    Class::Computes
                };
                self.classes.insert(kernel.config, class);
                class
            }
        };
        match class {
            Class::Computes if self.active => {
                self.compute.entry(kernel.device.0).or_default().push(kernel.start, kernel.end);
            }
            Class::Computes => {}
            Class::Communicates(function) => {
                self.active = true;
                if self.kernels.len() < WAITING_LIMIT {
                    self.kernels.push((*kernel, function));
                } else {
                    self.unjoined.dropped += 1;
                }
            }
        }
    }

    fn call(&mut self, call: &ApiCall, dictionary: &Dictionary) {
        // Without the plugin, calls are not needed.
        if self.communicators.is_empty() {
            return;
        }
        let index = call.function.0 as usize;
        if self.launching.len() <= index {
            // Bounded by the number of functions in the dictionary.
            self.launching.resize(index.min(dictionary.api_functions().len()) + 1, None);
        }
        let Some(place) = self.launching.get_mut(index) else { return };
        let launches = *place.get_or_insert_with(|| {
            let name = dictionary.api_function(call.function).map_or("", |function| dictionary.name(function.name));
            name.contains("Launch") && name.contains("Kernel")
        });
        if !launches {
            return;
        }
        if self.launches.len() < WAITING_LIMIT {
            let (start, end) = (call.start.nanos(), call.end.nanos());
            self.launches.push(KernelLaunch { thread: call.thread, start, end, correlation: call.correlation });
        } else {
            self.unjoined.dropped += 1;
        }
    }

    /// Everything that completed before `at` has been pushed: emits the complete rows, ordered by start.
    pub fn flushed(&mut self, at: Timestamp, mut row: impl FnMut(&Collective)) {
        if self.active {
            self.place(at.nanos());
            self.take(at.nanos().saturating_sub(HOLD_NANOS), &mut row);
            let patience = at.nanos().saturating_sub(PATIENCE_NANOS);
            self.give_up(patience);
            self.launches.retain(|launch| launch.end >= at.nanos().saturating_sub(CALLS_NANOS));
        }
    }

    /// No more records will come: emits all other rows. Operations queued after `end` do not count as
    /// missing.
    pub fn finish(&mut self, end: Timestamp, mut row: impl FnMut(&Collective)) {
        if self.active {
            self.place(u64::MAX);
            self.take(u64::MAX, &mut row);
            self.reported.clear();
            self.unplaced.retain(|operation| queued(operation) <= end.nanos());
            self.placed
                .values_mut()
                .for_each(|operations| operations.retain(|(reported, _)| queued(reported) <= end.nanos()));
            self.give_up(u64::MAX);
            self.launches.clear();
        }
    }

    /// Finds the calls of the operations that were reported before `before`.
    fn place(&mut self, before: u64) {
        if self.reported.is_empty() {
            return;
        }
        self.launches.sort_unstable_by_key(|launch| (launch.thread, launch.start));
        let mut reported = std::mem::take(&mut self.reported);
        reported.retain(|operation| {
            if operation.at.nanos() >= before {
                return true;
            }
            match self.launch_of(operation) {
                Some((launch, basis)) => {
                    let mut operation = *operation;
                    if operation.launch_begin == Timestamp::ZERO {
                        operation.launch_begin = Timestamp::from_nanos(launch.start);
                    }
                    self.placed.entry(launch.correlation).or_default().push((operation, basis));
                }
                None if operation.by_range => self.unjoined.operations += 1,
                None => self.unplaced.push_back(*operation),
            }
            false
        });
        self.reported = reported;
        self.unplaced.make_contiguous().sort_by_key(|operation| operation.at);
    }

    /// The call that launched the kernel of an operation. If the launch was reported: the call of the thread
    /// that lies in it, or the nearest one within the clock error. Otherwise: the last call before the
    /// operation was reported.
    fn launch_of(&self, operation: &QueuedOperation) -> Option<(KernelLaunch, Basis)> {
        let of_thread = |launch: &&KernelLaunch| launch.thread == operation.thread;
        let key = |time: u64| {
            self.launches.partition_point(|launch| (launch.thread, launch.start) < (operation.thread, time))
        };
        if operation.launch_begin == Timestamp::ZERO {
            // With several kernels in a group, the kernel of this operation cannot be identified.
            if operation.by_range {
                return None;
            }
            let last = key(operation.at.nanos()).checked_sub(1)?;
            let launch = self.launches.get(last).filter(of_thread)?;
            return (launch.end <= operation.at.nanos() + CLOCK_SLACK_NANOS).then_some((*launch, Basis::Order));
        }
        let begin = operation.launch_begin.nanos();
        let end = if operation.launch_end == Timestamp::ZERO { operation.at } else { operation.launch_end }.nanos();
        let near = self.launches.get(key(begin.saturating_sub(CLOCK_SLACK_NANOS))..)?.iter();
        let near = near.take_while(of_thread).take_while(|launch| launch.start <= end + CLOCK_SLACK_NANOS);
        if operation.by_range {
            // The only call in the range; if the clocks disagree, the only one near it.
            let only = |slack: u64| {
                let inside = |launch: &&KernelLaunch| launch.start + slack >= begin && launch.end <= end + slack;
                let mut inside = near.clone().filter(inside);
                let first = inside.next()?;
                inside.all(|launch| launch.correlation == first.correlation).then_some((*first, Basis::Range))
            };
            return only(CLOCK_SLACK_NANOS).or_else(|| only(0));
        }
        let outside = |launch: &&KernelLaunch| begin.saturating_sub(launch.start) + launch.end.saturating_sub(end);
        near.min_by_key(outside).map(|launch| (*launch, Basis::Plugin))
    }

    /// Emits the rows of kernels that ended before `until`.
    fn take(&mut self, until: u64, row: &mut impl FnMut(&Collective)) {
        for compute in self.compute.values_mut() {
            compute.merge();
        }
        self.kernels.sort_by_key(|(kernel, _)| (kernel.start, kernel.correlation));
        let mut kernels = std::mem::take(&mut self.kernels);
        kernels.retain(|(kernel, function)| {
            let done = kernel.end.nanos() < until;
            if done {
                self.rows_of(kernel, *function, row);
            }
            !done
        });
        self.kernels = kernels;
        let first = self.kernels.iter().map(|(kernel, _)| kernel.start.nanos()).min();
        // A kernel that has not arrived ends after the mark, and started at most this much before it.
        let needed = Timestamp::from_nanos(first.unwrap_or(until).min(until.saturating_sub(HOLD_NANOS)));
        for compute in self.compute.values_mut() {
            compute.forget(needed);
        }
    }

    fn rows_of(&mut self, kernel: &Kernel, function: Function, row: &mut impl FnMut(&Collective)) {
        let operations = self.operations_of(kernel, function);
        let length = kernel.end.since(kernel.start);
        let hidden = self.compute.get(&kernel.device.0).map_or(0, |compute| compute.covered(kernel.start, kernel.end));
        let plain = Collective {
            function,
            start: kernel.start,
            end: kernel.end,
            exposed_ns: length.saturating_sub(hidden),
            device: kernel.device,
            stream: kernel.stream,
            correlation: kernel.correlation,
            graph: kernel.graph_id,
            graph_node: kernel.graph_node_id,
            ..Collective::default()
        };
        if operations.is_empty() {
            if !self.communicators.is_empty() {
                self.unjoined.kernels += 1;
                self.unjoined.graph_kernels += u64::from(kernel.graph_id != 0);
            }
            let ordinal = self.count(0, function);
            return row(&Collective { ordinal, ..plain });
        }
        let together = u32::try_from(operations.len()).unwrap_or(u32::MAX);
        for (operation, basis) in operations {
            let communicator = self.communicators.get(&operation.communicator).copied().unwrap_or_default();
            let QueuedOperation { function, data_type, count, .. } = operation;
            row(&Collective {
                communicator: communicator.id,
                ranks: communicator.ranks,
                function,
                sequence: operation.sequence,
                ordinal: self.count(communicator.id, function),
                bytes: match operation.by_range {
                    true => arithmetic::bytes_of_buffer(function, count, communicator.ranks),
                    false => arithmetic::bytes(function, data_type, count, communicator.ranks),
                },
                data_type,
                algorithm: operation.algorithm,
                protocol: operation.protocol,
                channels: operation.channels,
                root_or_peer: operation.root_or_peer,
                operations_in_kernel: together,
                queued: Timestamp::from_nanos(queued(&operation)),
                basis,
                ..plain
            });
        }
    }

    fn operations_of(&mut self, kernel: &Kernel, function: Function) -> Vec<(QueuedOperation, Basis)> {
        // Kernels of a graph have the call that launched the graph.
        if kernel.graph_id == 0
            && let Some(operations) = self.placed.remove(&kernel.correlation)
        {
            return operations;
        }
        let fits = |operation: &QueuedOperation| {
            function.may_do(operation.function) && queued(operation) <= kernel.start.nanos() + CLOCK_SLACK_NANOS
        };
        let found = self.unplaced.iter().position(fits).and_then(|at| self.unplaced.remove(at));
        found.map(|operation| (operation, Basis::Order)).into_iter().collect()
    }

    fn count(&mut self, communicator: u64, function: Function) -> u64 {
        let full = self.counted.len() >= COUNTED_LIMIT;
        match self.counted.get_mut(&(communicator, function)) {
            Some(count) => {
                *count += 1;
                *count - 1
            }
            None => {
                if !full {
                    self.counted.insert((communicator, function), 1);
                }
                0
            }
        }
    }

    /// Abandons operations that were reported before `before`.
    fn give_up(&mut self, before: u64) {
        let Self { placed, unplaced, unjoined, .. } = self;
        let old = |operation: &QueuedOperation| operation.at.nanos() < before;
        placed.retain(|_, operations| {
            let keep = !operations.iter().any(|(operation, _)| old(operation));
            if !keep {
                unjoined.operations += operations.len() as u64;
            }
            keep
        });
        let over = placed.values().map(Vec::len).sum::<usize>() > WAITING_LIMIT;
        if over {
            unjoined.dropped += placed.values().map(|operations| operations.len() as u64).sum::<u64>();
            placed.clear();
        }
        while unplaced.front().is_some_and(old) || unplaced.len() > WAITING_LIMIT {
            unplaced.pop_front();
            unjoined.operations += 1;
        }
    }

    /// Counts `events` events that were lost before they arrived here.
    pub fn add_dropped(&mut self, events: u64) {
        self.unjoined.dropped += events;
    }

    /// Known communicators by number.
    pub fn communicators(&self) -> Vec<Communicator> {
        let mut all: Vec<_> = self.communicators.values().copied().collect();
        all.sort_unstable_by_key(|communicator| communicator.number);
        all
    }

    /// Operations and kernels that did not become a complete row.
    pub const fn unjoined(&self) -> Unjoined {
        self.unjoined
    }

    /// True if there was communication, or an event of the plugin.
    pub const fn is_active(&self) -> bool {
        self.active
    }
}

/// Time at which an operation was queued, nanoseconds: its launch, or when it was reported.
fn queued(operation: &QueuedOperation) -> u64 {
    match operation.launch_begin {
        Timestamp::ZERO => operation.at.nanos(),
        begin => begin.nanos(),
    }
}
