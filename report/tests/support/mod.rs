// A small language for synthetic programs: calls of host threads and work on the device, in microseconds.
//
// `Scenario` keeps each record with its earliest delivery time, so that the same program can be fed in any
// order and with any flush period. Times in the scenario count from its own zero, one second after the
// epoch.

use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::{PriceSource, Prices};
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Leaf, Leaves};

/// Nanoseconds of the scenario's zero.
pub const ZERO: u64 = 1_000_000_000;

/// A synthetic program.
#[derive(Debug, Default)]
pub struct Scenario {
    pub dictionary: Dictionary,
    /// Records with the time at which each was complete.
    pub records: Vec<(u64, Record)>,
    /// Nodes of graphs, which precede all records.
    pub nodes: Vec<GraphNode>,
    next_correlation: u32,
}

/// A device and a stream on which work runs.
#[derive(Clone, Copy, Debug)]
pub struct On {
    device: u32,
    stream: u32,
}

/// Device `device`, stream 7.
pub fn gpu(device: u32) -> On {
    On { device, stream: 7 }
}

impl On {
    /// Another stream of the device.
    pub fn stream(self, stream: u32) -> Self {
        Self { stream, ..self }
    }

    /// A kernel.
    pub fn kernel(self, name: &str) -> Work {
        self.work(What::Kernel(name.to_owned()))
    }

    /// A copy from the host.
    pub fn h2d(self, memory: MemoryKind, bytes: u64) -> Work {
        self.work(What::Copy(CopyKind::HostToDevice, memory, bytes))
    }

    /// A copy to the host.
    pub fn d2h(self, memory: MemoryKind, bytes: u64) -> Work {
        self.work(What::Copy(CopyKind::DeviceToHost, memory, bytes))
    }

    /// A copy between memory of devices.
    pub fn between(self, kind: CopyKind, bytes: u64) -> Work {
        self.work(What::Copy(kind, MemoryKind::Device, bytes))
    }

    /// A memset.
    pub fn memset(self, bytes: u64) -> Work {
        self.work(What::Memset(bytes))
    }

    fn work(self, what: What) -> Work {
        Work { on: self, what, at: 0, lasting: 0, blocks: 0, graph: 0, node: 0, correlation: None }
    }
}

#[derive(Clone, Debug)]
enum What {
    Kernel(String),
    Copy(CopyKind, MemoryKind, u64),
    Memset(u64),
}

/// Work on a device.
#[derive(Clone, Debug)]
pub struct Work {
    on: On,
    what: What,
    at: u64,
    lasting: u64,
    blocks: u32,
    graph: u32,
    node: u64,
    correlation: Option<u32>,
}

impl Work {
    /// Sets the start, microseconds.
    pub fn at(self, micros: u64) -> Self {
        Self { at: micros, ..self }
    }

    /// Sets the duration, microseconds.
    pub fn lasting(self, micros: u64) -> Self {
        Self { lasting: micros, ..self }
    }

    /// Sets a grid of this many blocks of 1,024 threads.
    pub fn blocks(self, blocks: u32) -> Self {
        Self { blocks, ..self }
    }

    /// Makes it a node of a graph.
    pub fn of_graph(self, graph: u32) -> Self {
        Self { graph, ..self }
    }

    /// Makes it this node of a graph.
    pub fn of_node(self, graph: u32, node: u64) -> Self {
        Self { graph, node, ..self }
    }

    /// Launched by this call rather than by a separate one.
    pub fn by(self, correlation: u32) -> Self {
        Self { correlation: Some(correlation), ..self }
    }

    /// Launches it by a call of the matching function on `thread`, from `at` for `lasting` microseconds.
    pub fn launched(self, scenario: &mut Scenario, thread: u32, at: u64, lasting: u64) -> u32 {
        let function = match self.what {
            What::Kernel(_) => "cudaLaunchKernel_v7000",
            What::Copy(..) => "cudaMemcpyAsync_v3020",
            What::Memset(_) => "cudaMemsetAsync_v3020",
        };
        let correlation = scenario.call(thread, function, at, lasting);
        scenario.add(self.by(correlation));
        correlation
    }
}

fn time(micros: u64) -> Timestamp {
    Timestamp::from_nanos(ZERO + micros * 1_000)
}

impl Scenario {
    /// Creates an empty scenario.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call and returns its correlation id.
    pub fn call(&mut self, thread: u32, function: &str, at: u64, lasting: u64) -> u32 {
        self.next_correlation += 1;
        let correlation = self.next_correlation;
        self.call_as(correlation, thread, function, at, lasting, 0);
        correlation
    }

    /// Adds a call with explicit values.
    pub fn call_as(&mut self, correlation: u32, thread: u32, function: &str, at: u64, lasting: u64, status: u32) {
        let domain = if function.starts_with("cuda") { ApiDomain::Runtime } else { ApiDomain::Driver };
        let name = self.dictionary.intern_name(function);
        let function = self.dictionary.intern_api_function(ApiFunction { domain, callback_id: name.0, name });
        let call = ApiCall {
            start: time(at),
            end: time(at + lasting),
            thread: ThreadId(thread),
            correlation: CorrelationId(correlation),
            function,
            return_value: status,
        };
        self.push(call.end, Record::Api(call));
    }

    /// Adds the start or end of a range on a thread; `text` is empty for an end.
    pub fn range(&mut self, thread: u32, at: u64, kind: RangeEventKind, text: &str, id: u64) {
        let (domain, message) = (self.dictionary.intern_name(""), self.dictionary.intern_name(text));
        let thread = ThreadId(thread);
        let event = RangeEvent { at: time(at), thread, kind, domain, message, range_id: id, ..RangeEvent::default() };
        self.push(event.at, Record::Range(event));
    }

    /// Adds a range that is pushed and popped on a thread.
    pub fn pushed(&mut self, thread: u32, from: u64, to: u64, text: &str) {
        self.range(thread, from, RangeEventKind::Push, text, 0);
        self.range(thread, to, RangeEventKind::Pop, "", 0);
    }

    /// Adds a sample of a thread for the time since `since`, divided according to `sample` (nanoseconds),
    /// with a stack, innermost frame first: file, function and line.
    pub fn sample(&mut self, thread: u32, since: u64, at: u64, sample: HostSample, stack: &[(&str, &str, u32)]) {
        let stack = self.stack(stack);
        let sample = HostSample { since: time(since), at: time(at), thread: ThreadId(thread), stack, ..sample };
        self.push(sample.at, Record::Sample(sample));
    }

    fn stack(&mut self, frames: &[(&str, &str, u32)]) -> StackId {
        frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
            let (function, file) = (self.dictionary.intern_name(function), self.dictionary.intern_name(file));
            self.dictionary.intern_frame(Frame { caller, function, file, line })
        })
    }

    /// Adds a node of a graph, with the stack of the thread, innermost frame first.
    pub fn node(&mut self, node: u64, thread: u32, stack: &[(&str, &str, u32)]) {
        let stack = self.stack(stack);
        self.nodes.push(GraphNode { node, stack, thread: ThreadId(thread), ..GraphNode::default() });
    }

    /// Sets the time of the node that was added last.
    pub fn node_at(&mut self, micros: u64) {
        self.nodes.last_mut().unwrap().at = time(micros);
    }

    /// Copies a node.
    pub fn copy_node(&mut self, node: u64, original: u64) {
        self.nodes.push(GraphNode { node, original, ..GraphNode::default() });
    }

    /// Records an event on `stream`: adds the call, and the record that names the event.
    pub fn record_event(&mut self, thread: u32, at: u64, stream: u32, event_sync_id: u64) {
        let correlation = CorrelationId(self.call(thread, "cudaEventRecord_v3020", at, 2));
        let event = CudaEvent { correlation, stream: StreamId(stream), event_sync_id, ..CudaEvent::default() };
        self.push(time(at + 2), Record::Event(event));
    }

    /// Makes `stream` wait for an event.
    pub fn wait_event(&mut self, thread: u32, at: u64, stream: u32, event_sync_id: u64) {
        let correlation = CorrelationId(self.call(thread, "cudaStreamWaitEvent_v3020", at, 2));
        let sync = Sync {
            start: time(at),
            end: time(at + 2),
            kind: SyncKind::StreamWaitEvent,
            stream: StreamId(stream),
            correlation,
            event_sync_id,
            ..Sync::default()
        };
        self.push(sync.end, Record::Sync(sync));
    }

    /// Adds a call that allocates or releases memory in its middle.
    pub fn memory(&mut self, thread: u32, at: u64, operation: MemoryOperation, address: u64, bytes: u64) {
        let function = if operation == MemoryOperation::Release { "cudaFree_v3020" } else { "cudaMalloc_v3020" };
        let correlation = CorrelationId(self.call(thread, function, at, 10));
        let (at, kind) = (time(at + 5), MemoryKind::Device);
        let event = MemoryEvent { at, operation, kind, correlation, address, bytes, ..MemoryEvent::default() };
        self.push(at, Record::Memory(event));
    }

    /// Adds tracing overhead of a thread.
    pub fn overhead(&mut self, thread: u32, at: u64, lasting: u64) {
        let overhead = Overhead {
            start: time(at),
            end: time(at + lasting),
            kind: OverheadKind::BufferFlush,
            thread: ThreadId(thread),
            ..Overhead::default()
        };
        self.push(overhead.end, Record::Overhead(overhead));
    }

    /// Adds device work, with or without a recorded call.
    pub fn add(&mut self, work: Work) {
        let (start, end) = (time(work.at), time(work.at + work.lasting));
        let (device, stream) = (DeviceId(work.on.device), StreamId(work.on.stream));
        let correlation = CorrelationId(work.correlation.unwrap_or(u32::MAX));
        let (graph_id, graph_node_id) = (work.graph, work.node);
        let record = match work.what {
            What::Kernel(name) => {
                let name = self.dictionary.intern_name(&name);
                let shape = |n: u32| if work.blocks == 0 { [0; 3] } else { [n, 1, 1] };
                let (grid, block) = (shape(work.blocks), shape(1_024));
                let config =
                    self.dictionary.intern_launch_config(LaunchConfig { name, grid, block, ..LaunchConfig::default() });
                Record::Kernel(Kernel {
                    start,
                    end,
                    device,
                    stream,
                    correlation,
                    config,
                    graph_id,
                    graph_node_id,
                    ..Kernel::default()
                })
            }
            What::Copy(kind, memory, bytes) => {
                let to_device = kind == CopyKind::HostToDevice;
                let (source, destination) =
                    if to_device { (memory, MemoryKind::Device) } else { (MemoryKind::Device, memory) };
                Record::Copy(Copy {
                    start,
                    end,
                    device,
                    stream,
                    correlation,
                    kind,
                    source,
                    destination,
                    bytes,
                    graph_id,
                    graph_node_id,
                    ..Copy::default()
                })
            }
            What::Memset(bytes) => Record::Memset(Memset {
                start,
                end,
                device,
                stream,
                correlation,
                bytes,
                graph_id,
                graph_node_id,
                ..Memset::default()
            }),
        };
        self.push(end, record);
    }

    fn push(&mut self, complete: Timestamp, record: Record) {
        self.records.push((complete.nanos(), record));
    }

    /// Feeds everything in flushes `period` microseconds apart, shuffled within each when `seed` is not 0.
    pub fn run_with(&self, period: u64, seed: u64) -> Attributor {
        self.feed(Attributor::new(), period, seed)
    }

    /// Like [`run`](Self::run), with this overhead of tracing.
    pub fn run_priced(&self, prices: Prices) -> Attributor {
        let mut attributor = Attributor::new();
        attributor.set_prices(prices, PriceSource::Measured);
        self.feed(attributor, 10_000, 0)
    }

    /// Like [`run`](Self::run), with these counter events before the records.
    pub fn run_beside(&self, events: &[CounterEvent]) -> Attributor {
        let mut attributor = Attributor::new();
        events.iter().for_each(|event| attributor.push_counters(event));
        self.feed(attributor, 10_000, 0)
    }

    fn feed(&self, mut attributor: Attributor, period: u64, seed: u64) -> Attributor {
        self.nodes.iter().for_each(|node| attributor.push_graph_node(node, &self.dictionary));
        let mut records = self.records.clone();
        records.sort_by_key(|&(complete, _)| complete);
        let last = records.last().map_or(ZERO, |&(complete, _)| complete);
        let mut state = seed;
        let mut rest = &records[..];
        let mut at = ZERO;
        while at < last {
            at += period * 1_000;
            let count = rest.partition_point(|&(complete, _)| complete < at);
            let mut delivered: Vec<_> = rest[..count].iter().map(|&(_, record)| record).collect();
            rest = &rest[count..];
            if seed != 0 {
                shuffle(&mut delivered, &mut state);
            }
            for record in &delivered {
                attributor.push(record, &self.dictionary);
            }
            attributor.flushed(Timestamp::from_nanos(at), &self.dictionary);
        }
        for (_, record) in rest {
            attributor.push(record, &self.dictionary);
        }
        attributor.finish(Timestamp::from_nanos(at), &self.dictionary);
        attributor
    }

    /// Feeds everything with a flush each 10 ms.
    pub fn run(&self) -> Attributor {
        self.run_with(10_000, 0)
    }

    /// The report of [`run`](Self::run).
    pub fn report(&self) -> Report {
        self.report_of(&self.run())
    }

    /// A complete report without losses.
    pub fn report_of(&self, attributor: &Attributor) -> Report {
        self.report_with(attributor, &Loss::default())
    }

    /// A report with these losses.
    pub fn report_with(&self, attributor: &Attributor, loss: &Loss) -> Report {
        let session = ProcessInfo {
            process_id: 42,
            command: vec!["python3".to_owned(), "train.py".to_owned()],
            ..ProcessInfo::default()
        };
        Report::new(&session, attributor, &self.dictionary, loss, End::Clean, Vec::new())
    }

    /// Leaves of the only device, checked to sum to its window.
    pub fn leaves(&self) -> Leaves {
        only_leaves(&self.run())
    }
}

/// Leaves of the only device, checked to sum to its window.
pub fn only_leaves(attributor: &Attributor) -> Leaves {
    let accounts: Vec<_> = attributor.devices().collect();
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].leaves().iter().sum::<u64>(), accounts[0].window_ns());
    *accounts[0].leaves()
}

/// Asserts the leaves that are not zero, in microseconds.
#[track_caller]
pub fn assert_leaves(leaves: &Leaves, expected: &[(Leaf, u64)]) {
    let actual: Vec<_> = Leaf::ALL
        .into_iter()
        .filter(|&leaf| leaves[leaf as usize] != 0)
        .map(|leaf| (leaf, leaves[leaf as usize] as f64 / 1_000.0))
        .collect();
    let mut expected: Vec<_> = expected.iter().map(|&(leaf, micros)| (leaf, micros as f64)).collect();
    expected.sort_by_key(|&(leaf, _)| leaf);
    assert_eq!(actual, expected);
}

/// Fisher-Yates shuffle with an xorshift generator: a seed determines the order on every machine.
fn shuffle<T>(items: &mut [T], state: &mut u64) {
    for index in (1..items.len()).rev() {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        items.swap(index, (*state % (index as u64 + 1)) as usize);
    }
}
