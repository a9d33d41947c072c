//! Records of device work on their way in: what each operation is, before it is known who launched it.
//!
//! They are counted in the statistics at once, since that needs no order, and put aside until the next flush joins them
//! to their calls. An operation without times, or on a device that cannot be, still answers its launch; it only has no
//! place on a timeline.

use super::activity::{KernelClass, leaf_of_copy, symbol};
use super::gap::INPUT_BYTES;
use super::launch_order::Standing;
use super::statistics::CopyPath;
use super::sweep::Operation;
use super::{ARRIVALS, Attributor, Leaf, Subject};
use crate::dictionary::Dictionary;
use crate::record::{Copy, CopyKind, CorrelationId, DeviceId, Kernel, MemoryKind, Memset, StreamId, Timestamp};

impl Attributor {
    pub(super) fn push_kernel(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        self.completeness.kernels += 1;
        let KernelClass { name, communication, symbol } = self.kernel_classes.get(kernel.config, dictionary);
        let operation = Operation {
            leaf: if communication { Leaf::Communication } else { Leaf::Compute },
            subject: Subject::Kernel(name),
            graph: kernel.graph_id != 0,
            symbol: if kernel.graph_id == 0 { symbol } else { symbol_of_graph(kernel.graph_id) },
            ..operation(kernel.start, kernel.end, kernel.device, kernel.stream, kernel.correlation)
        };
        if let Some((index, nanos)) = self.arrive(operation) {
            self.timelines[index].account.statistics.add_kernel(kernel.config, name, communication, nanos);
        }
    }

    pub(super) fn push_copy(&mut self, copy: &Copy, dictionary: &Dictionary) {
        self.completeness.copies += 1;
        let from_host = copy.kind == CopyKind::HostToDevice;
        let operation = Operation {
            leaf: leaf_of_copy(copy),
            subject: if from_host { Subject::HostToDevice } else { Subject::OtherTransfer },
            graph: copy.graph_id != 0,
            symbol: if copy.graph_id == 0 { symbol(&("copy", copy.kind)) } else { symbol_of_graph(copy.graph_id) },
            input: from_host && copy.bytes >= INPUT_BYTES,
            excess: excess(copy, dictionary),
            ..operation(copy.start, copy.end, copy.device, copy.stream, copy.correlation)
        };
        if let Some((index, nanos)) = self.arrive(operation) {
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
            symbol: if memset.graph_id == 0 { symbol(&"memset") } else { symbol_of_graph(memset.graph_id) },
            ..operation(memset.start, memset.end, memset.device, memset.stream, memset.correlation)
        };
        self.arrive(operation);
    }

    /// Puts an operation aside; gives the index of its timeline and its duration when it has times.
    fn arrive(&mut self, mut operation: Operation) -> Option<(usize, u64)> {
        operation.flush = self.flush;
        let index = self.timeline_index(operation.device);
        let timed = operation.start != 0 && operation.end != 0 && index.is_some();
        if !timed {
            // It still answers its launch, but has no place on a timeline.
            self.completeness.bad_timestamps += 1;
            operation.start = 0;
        } else if operation.end < operation.start {
            self.completeness.clamped_clocks += 1;
            operation.end = operation.start;
        }
        self.arrivals.push(operation);
        if self.arrivals.len() >= self.arrivals_due.max(ARRIVALS) {
            self.join_known();
        }
        timed.then(|| (index.unwrap_or_default(), operation.end - operation.start))
    }
}

/// All operations of a graph are one launch, whichever of them begins first.
fn symbol_of_graph(graph_id: u32) -> u32 {
    symbol(&("graph", graph_id))
}

fn operation(
    start: Timestamp,
    end: Timestamp,
    device: DeviceId,
    stream: StreamId,
    correlation: CorrelationId,
) -> Operation {
    Operation {
        start: start.nanos(),
        end: end.nanos(),
        launch: None,
        device,
        stream,
        correlation,
        subject: Subject::None,
        leaf: Leaf::CopyOther,
        graph: false,
        input: false,
        flush: 0,
        symbol: 0,
        standing: Standing::default(),
        late: false,
        excess: 0,
    }
}

/// What a copy from or to ordinary memory takes longer than it would from page-locked memory, as far as the link tells.
fn excess(copy: &Copy, dictionary: &Dictionary) -> u32 {
    let pageable = [copy.source, copy.destination].contains(&MemoryKind::Pageable);
    let shortest =
        dictionary.link(copy.device).filter(|_| pageable).and_then(|link| link.shortest_copy_nanos(copy.bytes));
    let excess = shortest.map_or(0, |shortest| copy.end.since(copy.start).saturating_sub(shortest));
    u32::try_from(excess).unwrap_or(u32::MAX)
}
