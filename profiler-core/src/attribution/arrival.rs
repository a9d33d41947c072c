//! Incoming records of device work: identifies each operation and its launching thread.
//!
//! Operations are counted in the statistics immediately, since that needs no order. They are then set aside
//! until the next flush joins them to their calls and hands them to their timeline. An operation without
//! times, or on an impossible device, still resolves its launch; it only has no place on a timeline.

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Copy, Kernel, Memset};

use super::devices::Devices;
use super::host::Host;
use super::launch_places::PlaceId;
use super::operation::LaunchCall;
use super::operation::{Delivery, DeviceOperation, KernelClasses, is_no_time};
use super::statistics::CopyPath;
use crate::api::ApiClass;
use crate::counters::estimate::Activity;
use crate::thresholds::{CERTAIN_LAUNCH_NANOS, FUTURE_NANOS};

/// How long an operation waits for its launching call; as long as a launch waits for its operation.
const JOIN_TIMEOUT_NANOS: u64 = 2_000_000_000;
const JOIN_TIMEOUT_FLUSHES: u64 = 3;
/// Operations that may arrive after a flush before those with a known launch move to their timeline.
const ARRIVALS: usize = 1 << 14;

/// Operations with an unknown launch.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    kernel_classes: KernelClasses,
    /// Their indices in [`Devices::operations`].
    pub(super) slots: Vec<u32>,
    /// Number of waiting operations at which they are scanned for launches known by now.
    due: usize,
}

impl Arrivals {
    /// Adds a kernel; `captured` is the place that captured its node of a graph.
    pub(super) fn push_kernel(
        &mut self,
        kernel: &Kernel,
        captured: Option<PlaceId>,
        host: &mut Host,
        devices: &mut Devices,
        delivery: &mut Delivery,
        dictionary: &Dictionary,
    ) {
        let class = self.kernel_classes.get(kernel.config, dictionary);
        let Completeness { kernels, graphs, .. } = &mut delivery.completeness;
        *if class.whole_graph { graphs } else { kernels } += 1;
        let mut operation = DeviceOperation { captured, ..DeviceOperation::of_kernel(kernel, &class, dictionary) };
        if devices.counters.is_sampled() {
            let nanos = kernel.end.since(kernel.start);
            operation.at_roof = devices.counters.at_roof(kernel.device, kernel.config, nanos);
        }
        if let Some((index, nanos)) = self.arrive(operation, host, devices, delivery) {
            devices.sampled(&operation, Activity::Kernel(kernel.config));
            let (of_graph, name) = (kernel.graph_id != 0, (class.name, class.communication));
            devices.timelines[index].account.statistics.add_kernel(kernel.config, name, of_graph, nanos);
            if of_graph {
                host.launch_lines.graph_kernel(kernel.graph_id, nanos);
            }
        }
    }

    pub(super) fn push_copy(
        &mut self,
        copy: &Copy,
        captured: Option<PlaceId>,
        host: &mut Host,
        devices: &mut Devices,
        delivery: &mut Delivery,
        dictionary: &Dictionary,
    ) {
        delivery.completeness.copies += 1;
        let operation = DeviceOperation { captured, ..DeviceOperation::of_copy(copy, dictionary) };
        if let Some((index, nanos)) = self.arrive(operation, host, devices, delivery) {
            devices.sampled(&operation, Activity::Copy);
            let path = CopyPath { kind: copy.kind, source: copy.source, destination: copy.destination };
            devices.timelines[index].account.statistics.add_copy(path, copy.bytes, nanos);
        }
    }

    pub(super) fn push_memset(
        &mut self,
        memset: &Memset,
        captured: Option<PlaceId>,
        host: &mut Host,
        devices: &mut Devices,
        delivery: &mut Delivery,
    ) {
        delivery.completeness.memsets += 1;
        let operation = DeviceOperation { captured, ..DeviceOperation::of_memset(memset) };
        if self.arrive(operation, host, devices, delivery).is_some() {
            devices.sampled(&operation, Activity::Memset);
        }
    }

    /// Sets an operation aside. Returns the index of its timeline and its duration if it has times.
    fn arrive(
        &mut self,
        mut operation: DeviceOperation,
        host: &mut Host,
        devices: &mut Devices,
        delivery: &mut Delivery,
    ) -> Option<(usize, u64)> {
        operation.flush = delivery.flush;
        let index = devices.index(operation.device);
        let timed = !is_no_time(operation.start) && !is_no_time(operation.end) && index.is_some();
        if !timed {
            // It still resolves its launch, but has no place on a timeline.
            delivery.completeness.bad_timestamps += 1;
            operation.start = 0;
        } else if operation.end < operation.start {
            delivery.completeness.clamped_clocks += 1;
            operation.end = operation.start;
        }
        self.slots.push(devices.operations.insert(operation));
        if self.slots.len() >= self.due.max(ARRIVALS) {
            self.join_known(host, devices, delivery);
        }
        timed.then(|| (index.unwrap_or_default(), operation.end - operation.start))
    }

    /// After a flush mark at `at`: hands operations to their timelines and keeps those whose call has not
    /// arrived. Returns the earliest start among the kept ones.
    pub(super) fn join_flushed(
        &mut self,
        at: u64,
        host: &mut Host,
        devices: &mut Devices,
        delivery: &mut Delivery,
    ) -> Option<u64> {
        let mut oldest: Option<u64> = None;
        self.order(host, devices);
        self.slots.retain(|&slot| {
            let operation = &mut devices.operations[slot];
            operation.launch = join(operation, host);
            if operation.launch.is_none() {
                let may_come = at.saturating_sub(operation.end) <= JOIN_TIMEOUT_NANOS
                    || delivery.flush - operation.flush < JOIN_TIMEOUT_FLUSHES;
                if may_come {
                    if operation.start != 0 {
                        oldest = Some(oldest.map_or(operation.start, |time| time.min(operation.start)));
                    }
                    return true;
                }
            }
            enter(slot, host, devices, delivery);
            false
        });
        self.looked_through();
        oldest
    }

    /// Hands the operations that start before `until` to their timelines, with or without a known call.
    pub(super) fn join_begun(&mut self, until: u64, host: &mut Host, devices: &mut Devices, delivery: &mut Delivery) {
        self.order(host, devices);
        self.slots.retain(|&slot| {
            let operation = &mut devices.operations[slot];
            if operation.start >= until {
                return true;
            }
            operation.launch = join(operation, host);
            enter(slot, host, devices, delivery);
            false
        });
        self.looked_through();
    }

    /// Between two flushes, when many operations have arrived: hands over those with a known call. The rest
    /// stays, including operations whose time a flush must confirm, and those that are joined in order.
    fn join_known(&mut self, host: &mut Host, devices: &mut Devices, delivery: &mut Delivery) {
        let confirmed = delivery.newest_flush.saturating_add(FUTURE_NANOS);
        self.slots.retain(|&slot| {
            let operation = &mut devices.operations[slot];
            if delivery.newest_flush == 0 || operation.end > confirmed || host.one_id.has(operation.correlation) {
                return true;
            }
            operation.launch = join(operation, host);
            let known = operation.launch.is_some();
            if known {
                enter(slot, host, devices, delivery);
            }
            !known
        });
        self.looked_through();
    }

    /// Sorts operations by their start if the order says which launch is whose.
    fn order(&mut self, host: &Host, devices: &Devices) {
        if host.one_id.is_needed() {
            self.slots.sort_by_key(|&slot| devices.operations[slot].start);
        }
    }

    /// Schedules the next scan for when as many operations have arrived as are left.
    fn looked_through(&mut self) {
        self.due = ARRIVALS.max(self.slots.len() * 2);
        if self.slots.capacity() > 4 * self.due {
            self.slots.shrink_to(self.due);
        }
    }
}

/// Finds the launch of an operation.
#[inline]
fn join(operation: &mut DeviceOperation, host: &mut Host) -> Option<LaunchCall> {
    operation.correlation = host.one_id.of_operation(operation);
    host.launches.join(operation.correlation, operation.device, operation.stream)
}

/// Hands an operation to its timeline, or frees its slot if it belongs to none.
fn enter(slot: u32, host: &mut Host, devices: &mut Devices, delivery: &mut Delivery) {
    let operation = &mut devices.operations[slot];
    match operation.launch {
        None => delivery.completeness.activities_without_launch += 1,
        Some(launch) => {
            operation.graph |= launch.class == ApiClass::GraphLaunch;
            if launch.sampled {
                host.launch_lines.joined(&launch, operation);
            }
            if launch.end.saturating_sub(launch.start) >= CERTAIN_LAUNCH_NANOS && operation.start != 0 {
                host.launch_lines.joined_long(&launch, operation);
            }
            delivery.completeness.clamped_clocks += u64::from(operation.start != 0 && operation.start < launch.start);
        }
    }
    let DeviceOperation { device, stream, correlation, start, end, leaf, .. } = *operation;
    if start == 0 {
        if let Some(launch) = &operation.launch {
            host.launches.untimed(launch, correlation);
        }
        devices.operations.remove(slot);
        return;
    }
    if delivery.is_damaged(start, end) {
        delivery.completeness.bad_timestamps += 1;
        devices.operations.remove(slot);
        return;
    }
    delivery.observe(start, end);
    if let Some(work) = leaf.work() {
        host.dependencies.ran(device, stream, correlation.0, work, end);
    }
    let Some(index) = devices.index(device) else {
        devices.operations.remove(slot);
        return;
    };
    let late = devices.timelines[index].push(slot, &mut devices.operations, &mut devices.simulation);
    let Completeness { late_ns, late_corrected_ns, .. } = &mut delivery.completeness;
    *late_ns = late_ns.saturating_add(late.total);
    *late_corrected_ns = late_corrected_ns.saturating_add(late.patched);
}
