//! Records of device work on their way in: what each operation is, and who launched it.
//!
//! They are counted in the statistics at once, since that needs no order, and put aside until the next flush joins them
//! to their calls and hands them to their timeline. An operation without times, or on a device that cannot be, still
//! answers its launch; it only has no place on a timeline.

use super::activity::{KernelClass, leaf_of_copy, symbol};
use super::api::ApiClass;
use super::leaf::Leaf;
use super::operation::Operation;
use super::statistics::CopyPath;
use super::subject::Subject;
use super::{Attributor, is_no_time};
use crate::completeness::Completeness;
use crate::counters::estimate::Activity;
use crate::dictionary::Dictionary;
use crate::record::{Copy, CopyKind, DeviceId, Kernel, Memset};
use crate::thresholds::{FUTURE_NANOS, INPUT_BYTES};
use crate::whatif::{MOST_BYTES, SmallGrid};

/// An operation waits for its launching call for as long as a launch waits for its operation.
const JOIN_TIMEOUT_NANOS: u64 = 2_000_000_000;
const JOIN_TIMEOUT_FLUSHES: u64 = 3;

impl Attributor {
    pub(super) fn push_kernel(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        self.completeness.kernels += 1;
        let KernelClass { name, communication, optimizer, symbol, blocks } =
            self.kernel_classes.get(kernel.config, dictionary);
        let mut operation = Operation {
            leaf: if communication { Leaf::Communication } else { Leaf::Compute },
            subject: Subject::Kernel(name),
            graph: kernel.graph_id != 0,
            optimizer,
            kernel: kernel.config.0,
            graph_id: kernel.graph_id,
            symbol: if kernel.graph_id == 0 { symbol } else { symbol_of_graph(kernel.graph_id) },
            fit: if communication || blocks == 0 { 0 } else { fit(blocks, kernel.device, dictionary) },
            ..Operation::new(kernel.start, kernel.end, kernel.device, kernel.stream, kernel.correlation)
        };
        if self.counters.is_sampled() {
            operation.at_roof = self.counters.at_roof(kernel.device, kernel.config, kernel.end.since(kernel.start));
        }
        if let Some((index, nanos)) = self.arrive(operation) {
            self.sampled(&operation, Activity::Kernel(kernel.config));
            let of_graph = kernel.graph_id != 0;
            self.timelines[index].account.statistics.add_kernel(kernel.config, (name, communication), of_graph, nanos);
            if of_graph {
                self.launch_lines.graph_kernel(kernel.graph_id, nanos);
            }
        }
    }

    pub(super) fn push_copy(&mut self, copy: &Copy, dictionary: &Dictionary) {
        self.completeness.copies += 1;
        let from_host = copy.kind == CopyKind::HostToDevice;
        let operation = Operation {
            leaf: leaf_of_copy(copy),
            subject: if from_host { Subject::HostToDevice } else { Subject::OtherTransfer },
            graph: copy.graph_id != 0,
            graph_id: copy.graph_id,
            symbol: if copy.graph_id == 0 { symbol(&("copy", copy.kind)) } else { symbol_of_graph(copy.graph_id) },
            input: from_host && copy.bytes >= INPUT_BYTES,
            link: link_nanos(copy, dictionary),
            bytes: u16::try_from(copy.bytes).unwrap_or(MOST_BYTES),
            ..Operation::new(copy.start, copy.end, copy.device, copy.stream, copy.correlation)
        };
        if let Some((index, nanos)) = self.arrive(operation) {
            self.sampled(&operation, Activity::Copy);
            let path = CopyPath { kind: copy.kind, source: copy.source, destination: copy.destination };
            self.timelines[index].account.statistics.add_copy(path, copy.bytes, nanos);
        }
    }

    pub(super) fn push_memset(&mut self, memset: &Memset) {
        self.completeness.memsets += 1;
        let operation = Operation {
            leaf: Leaf::Memset,
            subject: Subject::OtherTransfer,
            graph: memset.graph_id != 0,
            graph_id: memset.graph_id,
            symbol: if memset.graph_id == 0 { symbol(&"memset") } else { symbol_of_graph(memset.graph_id) },
            ..Operation::new(memset.start, memset.end, memset.device, memset.stream, memset.correlation)
        };
        if self.arrive(operation).is_some() {
            self.sampled(&operation, Activity::Memset);
        }
    }

    /// Tells the counters what ran, where there are any.
    #[inline]
    fn sampled(&mut self, operation: &Operation, activity: Activity) {
        if self.counters.is_sampled() {
            self.counters.ran(operation.device, activity, operation.start, operation.end);
        }
    }

    /// Puts an operation aside; gives the index of its timeline and its duration when it has times.
    fn arrive(&mut self, mut operation: Operation) -> Option<(usize, u64)> {
        operation.flush = self.flush;
        let index = self.timeline_index(operation.device);
        let timed = !is_no_time(operation.start) && !is_no_time(operation.end) && index.is_some();
        if !timed {
            // It still answers its launch, but has no place on a timeline.
            self.completeness.bad_timestamps += 1;
            operation.start = 0;
        } else if operation.end < operation.start {
            self.completeness.clamped_clocks += 1;
            operation.end = operation.start;
        }
        self.arrivals.places.push(self.operations.insert(operation));
        if self.arrivals.is_due() {
            self.join_known();
        }
        timed.then(|| (index.unwrap_or_default(), operation.end - operation.start))
    }

    /// Hands operations to their timelines; those whose call is not there yet stay. Gives the earliest of these.
    pub(super) fn join_arrivals(&mut self, at: u64) -> Option<u64> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut oldest: Option<u64> = None;
        arrivals.places.retain(|&place| {
            let operation = &mut self.operations[place];
            operation.launch = self.launches.join(operation.correlation, operation.device, operation.stream);
            if operation.launch.is_none() {
                let may_come = at.saturating_sub(operation.end) <= JOIN_TIMEOUT_NANOS
                    || self.flush - operation.flush < JOIN_TIMEOUT_FLUSHES;
                if may_come {
                    if operation.start != 0 {
                        oldest = Some(oldest.map_or(operation.start, |time| time.min(operation.start)));
                    }
                    return true;
                }
            }
            self.enter(place);
            false
        });
        arrivals.looked_through();
        self.arrivals = arrivals;
        oldest
    }

    /// Hands the operations that begin before `until` to their timelines, whether their call is known or not.
    pub(super) fn join_begun(&mut self, until: u64) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.places.retain(|&place| {
            let operation = &mut self.operations[place];
            if operation.start >= until {
                return true;
            }
            operation.launch = self.launches.join(operation.correlation, operation.device, operation.stream);
            self.enter(place);
            false
        });
        arrivals.looked_through();
        self.arrivals = arrivals;
    }

    /// Between two flushes, when many operations came: hands those over whose call is known. The rest, and what a flush
    /// must confirm the time of, stays.
    fn join_known(&mut self) {
        let confirmed = self.newest_flush.saturating_add(FUTURE_NANOS);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.places.retain(|&place| {
            let operation = &mut self.operations[place];
            if self.newest_flush == 0 || operation.end > confirmed {
                return true;
            }
            operation.launch = self.launches.join(operation.correlation, operation.device, operation.stream);
            let known = operation.launch.is_some();
            if known {
                self.enter(place);
            }
            !known
        });
        arrivals.looked_through();
        self.arrivals = arrivals;
    }

    /// Hands an operation to its timeline, or frees its place if it has none there.
    fn enter(&mut self, place: u32) {
        let operation = &mut self.operations[place];
        match operation.launch {
            None => self.completeness.activities_without_launch += 1,
            Some(launch) => {
                operation.graph |= launch.class == ApiClass::GraphLaunch;
                if launch.sampled {
                    self.launch_lines.joined(&launch, operation);
                }
                self.completeness.clamped_clocks += u64::from(operation.start != 0 && operation.start < launch.start);
            }
        }
        let Operation { device, stream, correlation, start, end, leaf, .. } = *operation;
        if start == 0 {
            self.operations.remove(place);
            return;
        }
        if self.is_damaged(start, end) {
            self.completeness.bad_timestamps += 1;
            self.operations.remove(place);
            return;
        }
        self.observe(start, end);
        if let Some(work) = leaf.work() {
            self.dependencies.ran(device, stream, correlation.0, work, end);
        }
        let Some(index) = self.timeline_index(device) else {
            self.operations.remove(place);
            return;
        };
        let late = self.timelines[index].push(place, &mut self.operations, &mut self.simulation);
        let Completeness { late_ns, late_corrected_ns, .. } = &mut self.completeness;
        *late_ns = late_ns.saturating_add(late.total);
        *late_corrected_ns = late_corrected_ns.saturating_add(late.patched);
    }
}

/// All operations of a graph are one launch, whichever of them begins first.
fn symbol_of_graph(graph_id: u32) -> u32 {
    symbol(&("graph", graph_id))
}

/// How many grids of so many blocks run at once with a block to each multiprocessor of the device; 0 for less than two,
/// or when it has not described itself yet.
fn fit(blocks: u16, device: DeviceId, dictionary: &Dictionary) -> u16 {
    let multiprocessors = dictionary.device(device).map_or(0, |device| device.multiprocessors);
    let fit = SmallGrid::fit(blocks.into(), multiprocessors).unwrap_or(0);
    u16::try_from(fit).unwrap_or(u16::MAX)
}

/// How long a copy between host and device needs the link at least, no longer than it took; 0 where the link is not
/// known.
fn link_nanos(copy: &Copy, dictionary: &Dictionary) -> u32 {
    let over_link = matches!(copy.kind, CopyKind::HostToDevice | CopyKind::DeviceToHost);
    let link = dictionary.link(copy.device).filter(|_| over_link);
    let shortest = link.and_then(|link| link.shortest_copy_nanos(copy.bytes));
    // A few bytes take no time by their number, which is known all the same.
    let nanos = shortest.map_or(0, |shortest| shortest.max(1).min(copy.end.since(copy.start)));
    u32::try_from(nanos).unwrap_or(u32::MAX)
}
