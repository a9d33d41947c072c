//! Engines of one capture.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::record::{Record, Timestamp, Trigger};
use profiler_core::attribution::{Attributor, EngineOptions};
use profiler_core::collective::CollectiveEngine;
use profiler_core::monitoring::Monitoring;

use crate::run::CaptureRow;
use crate::run::bottleneck::LiveBottleneck;

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) row: CaptureRow,
    pub(super) attributor: Attributor,
    /// Divides the time if no device work is recorded.
    pub(super) monitoring: Monitoring,
    pub(super) collectives: CollectiveEngine,
    /// Bottleneck shown in the live line.
    pub(super) live_bottleneck: LiveBottleneck,
}

impl Capture {
    pub(super) fn new(number: u32, at: Timestamp, trigger: Trigger, options: EngineOptions) -> Self {
        let mut attributor = Attributor::with(options);
        attributor.begin(at);
        Self {
            row: CaptureRow { number, trigger, begin: at, ..CaptureRow::default() },
            attributor,
            monitoring: Monitoring::default(),
            collectives: CollectiveEngine::new(at),
            live_bottleneck: LiveBottleneck::default(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        self.monitoring.push(record, dictionary);
        self.attributor.push(record, dictionary);
        self.collectives.push(record, dictionary);
    }
}

impl Sink for Capture {
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => self.push(record, dictionary),
            Event::Counters(event) => {
                self.attributor.push_counters(event);
                self.monitoring.counters(event);
            }
            Event::Collective(event) => self.collectives.event(event),
            Event::GraphNode(node) => self.attributor.push_graph_node(node, dictionary),
            Event::MemoryCall(call) => self.attributor.push_memory_call(call, dictionary),
            Event::KernelProfile(profile) if profile.launches > 0 => {
                self.attributor.disturbed(profile.begin, profile.end);
            }
            Event::Flush(at) => {
                self.attributor.flushed(*at, dictionary);
                self.collectives.flushed(*at);
            }
            // Events of the run, not of a capture.
            Event::KernelProfile(_)
            | Event::Utilization { .. }
            | Event::Capture(_)
            | Event::Loss(_)
            | Event::Cost { .. }
            | Event::End(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::graph_node::GraphNode;
    use gpuwhy_trace::process_info::ProcessInfo;
    use gpuwhy_trace::record::{CaptureMark, Frame, Kernel, StackId, ThreadId};

    use super::super::Captures;
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_790_000_000_000_000_000 + nanos)
    }

    fn begin(number: u32, nanos: u64) -> Event {
        Event::Capture(CaptureMark::Begin { number, at: at(nanos), trigger: Trigger::ProfilerApi })
    }

    /// The node that a kernel of the graph was captured as, and the copy that its records name.
    fn nodes(dictionary: &mut Dictionary) -> [Event; 2] {
        let (function, file) = (dictionary.intern_name("Block.forward"), dictionary.intern_name("/home/u/model.py"));
        let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 31 });
        let added = GraphNode { node: 1, at: at(1), thread: ThreadId(300), stack, ..GraphNode::default() };
        [added, GraphNode { node: 7, original: 1, stack: StackId::NONE, ..added }].map(Event::GraphNode)
    }

    fn replay(nanos: u64) -> Event {
        let (start, end) = (at(nanos), at(nanos + 40));
        Event::Record(Record::Kernel(Kernel { start, end, graph_id: 2, graph_node_id: 7, ..Kernel::default() }))
    }

    /// Count and nanoseconds of the kernels that lead to line 31 in the capture of the report.
    fn origins(events: &[Event], dictionary: &Dictionary) -> (u64, u64) {
        let mut captures = Captures::new(None);
        let session = ProcessInfo::default();
        events.iter().for_each(|event| captures.event(event, &session, dictionary));
        let mut rows = captures.shown().unwrap().attributor.graph_origins();
        let (_, place, count, total_ns) = rows.next().unwrap();
        assert_eq!((place.line, rows.next()), (31, None));
        (count, total_ns)
    }

    #[test]
    fn a_capture_that_starts_after_the_graph_was_captured_has_its_origins() {
        let mut dictionary = Dictionary::new();
        let [added, copied] = nodes(&mut dictionary);
        let whole = [added.clone(), copied.clone(), replay(100), replay(200), Event::Flush(at(300))];
        assert_eq!(origins(&whole, &dictionary), (2, 80), "one unnamed capture");
        let later = [added, copied, begin(1, 50), replay(100), begin(2, 150), replay(200), Event::Flush(at(300))];
        assert_eq!(origins(&later, &dictionary), (1, 40), "the second capture");
    }
}
