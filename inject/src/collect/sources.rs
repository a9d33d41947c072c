//! Sources of events: CUPTI's buffers, the program's ranges and communicators, samples of its threads.
//!
//! Other threads deliver finished events: counter readings, kernel profiles.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::memory_call::{MemoryCall, MemoryFunction};
use gpuwhy_trace::record::{ContextId, DeviceId, HostSample, NameId, Record, StackId, ThreadId, ThreadName, Timestamp};
use rustc_hash::FxHashMap;

use super::ranges::RangeDrain;
use crate::cupti::decode::Decoder;
use crate::sampler::stacks::PythonStacks;
use crate::shared::graph_origins::QueuedNode;
use crate::shared::launchers::CallCounter;
use crate::shared::memory_calls::QueuedCall;
use crate::shared::samples::SampleBatch;

/// Sources that intern names.
pub struct Sources {
    pub decoder: Decoder,
    ranges: RangeDrain,
    stacks: PythonStacks,
    /// Interns native functions outside a Python stack.
    earlier_stacks: PythonStacks,
    /// Interns stacks of the threads that add nodes of graphs.
    node_stacks: PythonStacks,
    /// Interns stacks of the threads that take memory.
    memory_stacks: PythonStacks,
    /// Names of threads that the kernel has.
    thread_names: FxHashMap<ThreadId, NameId>,
    /// Counts the calls of each thread, to find the threads that launch.
    pub calls: CallCounter,
}

impl Sources {
    /// Creates the sources with the decoder of the loaded CUPTI.
    pub fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            ranges: RangeDrain::default(),
            stacks: PythonStacks::new(),
            earlier_stacks: PythonStacks::new(),
            node_stacks: PythonStacks::new(),
            memory_stacks: PythonStacks::new(),
            thread_names: FxHashMap::default(),
            calls: CallCounter::default(),
        }
    }

    /// Dictionary that the events refer to.
    #[inline]
    pub fn dictionary(&self) -> &Dictionary {
        self.decoder.dictionary()
    }

    /// Takes over the program's ranges and marks up to `until`, and the events that NCCL reported meanwhile.
    pub fn ranges(&mut self, until: Timestamp, events: &mut Vec<Event>) {
        let ranges = self.ranges.events(until, self.decoder.dictionary_mut());
        events.extend(ranges.map(|range| Event::Record(Record::Range(range))));
        events.extend(self.ranges.operations.drain().map(Event::Collective));
    }

    /// First ranges that the program opened.
    pub fn opened_ranges(&self) -> Vec<String> {
        self.ranges.opened(self.decoder.dictionary())
    }

    /// Takes over the samples of a batch. Returns the number of failed samples.
    pub fn samples(&mut self, batch: &SampleBatch, events: &mut Vec<Event>) -> u64 {
        let mut failed = batch.failed;
        for (thread, name) in &batch.names {
            self.name_thread(ThreadId(*thread), name);
        }
        for queued in &batch.samples {
            let stack = self.stacks.intern(&queued.frames, self.decoder.dictionary_mut());
            failed += u64::from(stack.is_none());
            let stack = stack.unwrap_or(StackId::NONE);
            let earlier = match queued.earlier.is_empty() {
                true => None,
                false => self.earlier_stacks.intern(&queued.earlier, self.decoder.dictionary_mut()),
            };
            events.push(Event::Record(Record::Sample(HostSample { stack, earlier, ..queued.sample })));
        }
        failed
    }

    /// Takes over nodes of graphs. If the dictionary has no room for a stack, which it counts, the node keeps its
    /// thread.
    pub fn graph_nodes(&mut self, nodes: &[QueuedNode], events: &mut Vec<Event>) {
        for &QueuedNode { node, original, at, thread, ref frames } in nodes {
            let stack = self.node_stacks.intern(frames, self.decoder.dictionary_mut()).unwrap_or(StackId::NONE);
            // A copy of an unknown node is sent too: its id may have been that of another one.
            let original = original.map_or(0, |id| if id == 0 { GraphNode::UNKNOWN } else { id });
            let thread = ThreadId(thread);
            events.push(Event::GraphNode(GraphNode { node, original, at, thread, stack }));
        }
    }

    /// Takes over calls that take or give device memory. Without room in the dictionary as for nodes.
    pub fn memory_calls(&mut self, calls: &[QueuedCall], events: &mut Vec<Event>) {
        for queued in calls {
            let dictionary = self.decoder.dictionary_mut();
            // Marks of a capture are in the calls between them.
            let Some(function) = MemoryFunction::of_number(queued.call.function as u8) else { continue };
            events.push(Event::MemoryCall(Box::new(MemoryCall {
                function,
                start: queued.start,
                end: queued.end,
                thread: ThreadId(queued.thread),
                device: queued.call.device.map(DeviceId),
                context: ContextId(queued.call.context_id),
                address: queued.call.address,
                handle: queued.call.handle,
                bytes: queued.call.bytes,
                result: queued.call.result,
                captures: queued.captures,
                stack: self.memory_stacks.intern(&queued.frames, dictionary).unwrap_or(StackId::NONE),
                library: queued.library.as_ref().map(|library| dictionary.intern_name(library)),
            })));
        }
    }

    /// Names a thread, unless the program did so by NVTX: that name says more than the 15 bytes of the kernel.
    fn name_thread(&mut self, thread: ThreadId, name: &str) {
        let dictionary = self.decoder.dictionary_mut();
        let named = dictionary.thread_names().iter().rev().find(|known| known.thread == thread);
        if named.is_none_or(|known| self.thread_names.get(&thread) == Some(&known.name)) {
            let name = dictionary.intern_name(name);
            dictionary.add_thread_name(ThreadName { thread, name });
            self.thread_names.insert(thread, name);
        }
    }
}
