//! Dependencies between streams, where the program expresses them with events.
//!
//! An event record and a wait for it carry the same id if the tracing library reports it (CUDA 12.8 and
//! later, with synchronization records on). The producer is the last operation that was launched on the
//! recording stream before the event was recorded; "before" is by correlation id, which grows with each call.
//! A wait explains a gap only if its producer ended in the gap or just before; otherwise the stream continued
//! for another reason.
//!
//! No state is kept until the first such record arrives. Waits for host functions leave no record, and events
//! without that id (their handles are reused) are not resolved.

use std::collections::{BTreeMap, VecDeque};

use gpuwhy_trace::record::{CudaEvent, DeviceId, StreamId, Sync, SyncKind};
use rustc_hash::FxHashMap;

use crate::attribution::host_cause::Producer;
use crate::attribution::operation::DeviceOperation;
use crate::leaf::WorkKind;

/// Number of event records and waits that are remembered (the newest).
const REMEMBERED: usize = 65_536;
/// Operations remembered per stream, the newest by launch.
const OPERATIONS: usize = 1_024;
/// Number of streams with remembered operations.
const STREAMS: usize = 256;
/// Delay between the end of an operation and the start of a stream that waited for it; as in the simulation.
const EVENT_NANOS: u64 = 15_000;

#[derive(Clone, Copy, Debug)]
struct Ran {
    device: DeviceId,
    work: WorkKind,
    end: u64,
}

/// Events, waits for them, and the operations that they may depend on.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// Stream and call of an event record, by its id.
    events: FxHashMap<u64, (StreamId, u32)>,
    event_order: VecDeque<u64>,
    /// Ids of the events that a stream waits for, by the call.
    waits: FxHashMap<StreamId, BTreeMap<u32, u64>>,
    wait_order: VecDeque<(StreamId, u32)>,
    ran: FxHashMap<StreamId, BTreeMap<u32, Ran>>,
}

impl Dependencies {
    pub(crate) fn recorded(&mut self, event: &CudaEvent) {
        if event.event_sync_id == 0 {
            return;
        }
        let before = self.events.insert(event.event_sync_id, (event.stream, event.correlation.0));
        if before.is_none() {
            self.event_order.push_back(event.event_sync_id);
        }
        if self.event_order.len() > REMEMBERED
            && let Some(oldest) = self.event_order.pop_front()
        {
            self.events.remove(&oldest);
        }
    }

    /// Records that a stream waits for an event; other synchronizations make no stream wait.
    pub(crate) fn waited(&mut self, sync: &Sync) {
        if sync.kind != SyncKind::StreamWaitEvent || sync.event_sync_id == 0 {
            return;
        }
        self.waits.entry(sync.stream).or_default().insert(sync.correlation.0, sync.event_sync_id);
        self.wait_order.push_back((sync.stream, sync.correlation.0));
        if self.wait_order.len() > REMEMBERED
            && let Some((stream, correlation)) = self.wait_order.pop_front()
            && let Some(waits) = self.waits.get_mut(&stream)
        {
            waits.remove(&correlation);
            if waits.is_empty() {
                self.waits.remove(&stream);
            }
        }
    }

    /// Records an operation with a known launch.
    pub(crate) fn ran(&mut self, device: DeviceId, stream: StreamId, correlation: u32, work: WorkKind, end: u64) {
        if self.events.is_empty() && self.waits.is_empty() {
            return;
        }
        if self.ran.len() >= STREAMS && !self.ran.contains_key(&stream) {
            return;
        }
        let of_stream = self.ran.entry(stream).or_default();
        // All nodes of a graph share one call; the wait is for the last one to end.
        let ran = of_stream.entry(correlation).or_insert(Ran { device, work, end });
        if end > ran.end {
            *ran = Ran { device, work, end };
        }
        if of_stream.len() > OPERATIONS {
            of_stream.pop_first();
        }
    }

    /// Producer for which the operation that ends a gap from `from` waited, if an event names one; of
    /// several, the one that ended last.
    #[inline]
    pub(crate) fn producer(&self, next: &DeviceOperation, from: u64) -> Option<Producer> {
        if self.waits.is_empty() { None } else { self.newest_producer(next, from) }
    }

    #[inline(never)]
    fn newest_producer(&self, next: &DeviceOperation, from: u64) -> Option<Producer> {
        let &DeviceOperation { device, stream, correlation, start, .. } = next;
        let since = self.ran.get(&stream).and_then(|ran| ran.range(..correlation.0).next_back());
        let since = since.map_or(0, |(&correlation, _)| correlation);
        let waits = self.waits.get(&stream)?.range(since..correlation.0);
        let producers = waits.filter_map(|(_, id)| {
            let (stream, recorded) = *self.events.get(id)?;
            let (_, ran) = self.ran.get(&stream)?.range(..recorded).next_back()?;
            (ran.end.saturating_add(EVENT_NANOS) >= from && ran.end <= start).then_some(*ran)
        });
        let last = producers.max_by_key(|ran| ran.end)?;
        Some(Producer { work: last.work, other_device: last.device != device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::{CorrelationId, Timestamp};

    fn event(id: u64, stream: u32, correlation: u32) -> CudaEvent {
        let (stream, correlation) = (StreamId(stream), CorrelationId(correlation));
        CudaEvent { event_sync_id: id, stream, correlation, ..CudaEvent::default() }
    }

    fn wait(id: u64, stream: u32, correlation: u32) -> Sync {
        let (stream, correlation) = (StreamId(stream), CorrelationId(correlation));
        Sync { kind: SyncKind::StreamWaitEvent, event_sync_id: id, stream, correlation, ..Sync::default() }
    }

    #[test]
    fn the_producer_is_the_last_before_the_event() {
        let mut dependencies = Dependencies::default();
        dependencies.recorded(&event(1, 20, 5));
        dependencies.waited(&wait(1, 7, 6));
        let mut ran = |stream, correlation, work, end| {
            dependencies.ran(DeviceId(0), StreamId(stream), correlation, work, end);
        };
        ran(20, 3, WorkKind::Compute, 100_000);
        ran(20, 4, WorkKind::Copy, 500_000);
        ran(20, 8, WorkKind::Communication, 900_000);
        ran(7, 2, WorkKind::Compute, 50_000);
        let producer = |dependencies: &Dependencies, correlation, from, to| {
            let (device, stream, correlation) = (DeviceId(1), StreamId(7), CorrelationId(correlation));
            let (start, end) = (Timestamp::from_nanos(to), Timestamp::from_nanos(to));
            dependencies.producer(&DeviceOperation::new(start, end, device, stream, correlation), from)
        };
        let copy = Some(Producer { work: WorkKind::Copy, other_device: true });
        assert_eq!(producer(&dependencies, 7, 60_000, 505_000), copy);
        assert_eq!(producer(&dependencies, 7, 514_000, 600_000), copy, "just before the gap");
        assert_eq!(producer(&dependencies, 7, 600_000, 700_000), None, "long over");
        assert_eq!(producer(&dependencies, 5, 60_000, 505_000), None, "launched before the wait");
        dependencies.ran(DeviceId(1), StreamId(7), 7, WorkKind::Compute, 510_000);
        assert_eq!(producer(&dependencies, 9, 60_000, 505_000), None, "the operation before waited already");
    }

    #[test]
    fn memory_is_bounded() {
        let mut dependencies = Dependencies::default();
        for id in 1..200_000 {
            dependencies.recorded(&event(u64::from(id), id % 7, id));
            dependencies.waited(&wait(u64::from(id), id % 7, id));
            dependencies.ran(DeviceId(0), StreamId(id % 500), id, WorkKind::Compute, 1);
        }
        assert_eq!((dependencies.events.len(), dependencies.event_order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(dependencies.waits.values().map(BTreeMap::len).sum::<usize>(), REMEMBERED);
        assert!(dependencies.ran.len() <= STREAMS && dependencies.ran.values().all(|ran| ran.len() <= OPERATIONS));
    }
}
