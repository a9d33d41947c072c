//! Tables whose rows are individual records of the trace.
//!
//! A table is declared together with the function that fills a row, each value next to its column, so that
//! they cannot diverge.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, Copy, CudaEvent, HostSample, Kernel, LaunchConfig, ManagedEvent, ManagedKind,
    MemoryEvent, Memset, NameId, Overhead, Payload, RangeEvent, StackId, Sync, ThreadId, Timestamp,
};
use profiler_core::attribution::is_communication;
use rustc_hash::FxHashMap;

use super::cell::{Cell, Cells, Column, ColumnType};
use crate::captured::Captured;
use crate::counters::CounterValue;
use crate::instances::Instance;
use crate::names::demangled;

/// Ids that mean "none".
const NONE: u32 = u32::MAX;
/// Maximum number of stacks whose text is cached.
const STACKS_LIMIT: usize = 1 << 16;

/// Defines the columns of a table, and the function that fills one of its rows.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $columns:ident, $fill:ident($($argument:ident: $of:ty),*) {
            $($name:literal $kind:ident $about:literal = $value:expr;)*
        }
    ) => {
        pub const $columns: &[Column] = &[$(Column { name: $name, kind: ColumnType::$kind, about: $about },)*];

        $(#[$doc])*
        pub fn $fill<'a>($($argument: $of,)* cells: &mut Cells<'a>) {
            $(cells.add(|| Cell::from($value));)*
        }
    };
}
pub(super) use table;

table! {
    /// `name` is the name of `config`.
    KERNELS, kernel(row: &Kernel, config: &LaunchConfig, name: &'a KernelName, captured: Option<&'a Captured>, dictionary: &'a Dictionary) {
        "start_ns" Integer "begin on the device" = row.start.nanos();
        "end_ns" Integer "end on the device" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "device" Integer "ordinal of the device" = row.device.0;
        "context" Integer "context it was launched in" = row.context.0;
        "stream" Integer "stream it ran on" = row.stream.0;
        "correlation" Integer "joins with api.correlation" = row.correlation.0;
        "name" Text "demangled, with parameters" = name.readable.as_str();
        "mangled_name" Text "as in the program's binary" = dictionary.name(config.name);
        "communication" Flag "whether it counts as communication between devices" = name.communicates;
        "grid_x" Integer "blocks" = config.grid[0];
        "grid_y" Integer "blocks" = config.grid[1];
        "grid_z" Integer "blocks" = config.grid[2];
        "block_x" Integer "threads" = config.block[0];
        "block_y" Integer "threads" = config.block[1];
        "block_z" Integer "threads" = config.block[2];
        "cluster_x" Integer "blocks; 0 without clusters" = config.cluster[0];
        "cluster_y" Integer "blocks; 0 without clusters" = config.cluster[1];
        "cluster_z" Integer "blocks; 0 without clusters" = config.cluster[2];
        "registers_per_thread" Integer "32-bit registers" = u32::from(config.registers_per_thread);
        "static_shared_bytes" Integer "of a block" = config.static_shared_bytes;
        "dynamic_shared_bytes" Integer "of a block" = config.dynamic_shared_bytes;
        "shared_executed_bytes" Integer "set aside on a multiprocessor" = config.shared_executed_bytes;
        "local_bytes_per_thread" Integer "local memory" = config.local_bytes_per_thread;
        "launch_type" Integer "0 regular, 1 cooperative, 2 cooperative on several devices, 3 command list"
            = u32::from(config.launch_type);
        "graph" Integer "executable CUDA graph; empty without" = some(row.graph_id);
        "graph_node" Integer "node of the graph; empty without" = some(row.graph_node_id);
        "captured_at" Text "file:line in function that captured the node; empty when unknown"
            = captured.map(|captured| captured.at.as_str());
        "module" Text "class of the module in whose forward it was captured"
            = captured.and_then(|captured| captured.module.as_deref());
        "parent" Text "class of the module that called it" = captured.and_then(|captured| captured.parent.as_deref());
        "operators" Text "of compiled code, fused into the node"
            = captured.and_then(|captured| captured.operators.as_deref());
    }
}

table! {
    COPIES, copy(row: &Copy, captured: Option<&'a Captured>) {
        "start_ns" Integer "begin on the device" = row.start.nanos();
        "end_ns" Integer "end on the device" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "device" Integer "ordinal of the device whose engine copied" = row.device.0;
        "context" Integer "context it was issued in" = row.context.0;
        "stream" Integer "stream it ran on" = row.stream.0;
        "correlation" Integer "joins with api.correlation" = row.correlation.0;
        "direction" Text "host_to_device, device_to_host, device_to_device, host_to_host, peer_to_peer, unknown"
            = row.kind.name();
        "source" Text "memory read: pageable, pinned, device, array, managed, unknown" = row.source.name();
        "destination" Text "memory written" = row.destination.name();
        "asynchronous" Flag "whether it was issued as such" = row.is_async;
        "bytes" Integer "moved" = row.bytes;
        "source_device" Integer "of a peer copy; else the device" = row.peers[0].0;
        "destination_device" Integer "of a peer copy; else the device" = row.peers[1].0;
        "graph" Integer "executable CUDA graph; empty without" = some(row.graph_id);
        "graph_node" Integer "node of the graph; empty without" = some(row.graph_node_id);
        "captured_at" Text "file:line in function that captured the node; empty when unknown"
            = captured.map(|captured| captured.at.as_str());
        "module" Text "class of the module in whose forward it was captured"
            = captured.and_then(|captured| captured.module.as_deref());
        "parent" Text "class of the module that called it" = captured.and_then(|captured| captured.parent.as_deref());
        "operators" Text "of compiled code, fused into the node"
            = captured.and_then(|captured| captured.operators.as_deref());
    }
}

table! {
    MEMSETS, memset(row: &Memset, captured: Option<&'a Captured>) {
        "start_ns" Integer "begin on the device" = row.start.nanos();
        "end_ns" Integer "end on the device" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "device" Integer "ordinal of the device" = row.device.0;
        "context" Integer "context it was issued in" = row.context.0;
        "stream" Integer "stream it ran on" = row.stream.0;
        "correlation" Integer "joins with api.correlation" = row.correlation.0;
        "memory" Text "memory written: pageable, pinned, device, array, managed, unknown" = row.memory.name();
        "asynchronous" Flag "whether it was issued as such" = row.is_async;
        "value" Integer "what was written" = row.value;
        "bytes" Integer "written" = row.bytes;
        "graph" Integer "executable CUDA graph; empty without" = some(row.graph_id);
        "graph_node" Integer "node of the graph; empty without" = some(row.graph_node_id);
        "captured_at" Text "file:line in function that captured the node; empty when unknown"
            = captured.map(|captured| captured.at.as_str());
        "module" Text "class of the module in whose forward it was captured"
            = captured.and_then(|captured| captured.module.as_deref());
        "parent" Text "class of the module that called it" = captured.and_then(|captured| captured.parent.as_deref());
        "operators" Text "of compiled code, fused into the node"
            = captured.and_then(|captured| captured.operators.as_deref());
    }
}

table! {
    /// `name` is the name of `function` without its version suffix.
    API, api(row: &ApiCall, function: Option<ApiFunction>, name: Option<&'a str>, dictionary: &'a Dictionary) {
        "start_ns" Integer "entry" = row.start.nanos();
        "end_ns" Integer "return" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "thread" Integer "kernel id of the calling thread" = row.thread.0;
        "correlation" Integer "joins with the work that it caused" = row.correlation.0;
        "domain" Text "runtime or driver" = function.map(|function| match function.domain {
            ApiDomain::Driver => "driver",
            ApiDomain::Runtime => "runtime",
        });
        "name" Text "function, without version suffix" = name;
        "function" Text "the same with it" = function.map(|function| dictionary.name(function.name));
        "callback" Integer "CUPTI's number of the function in its domain"
            = function.map(|function| function.callback_id);
        "return_value" Integer "cudaError_t or CUresult; 0 is success" = row.return_value;
    }
}

table! {
    SYNCS, sync(row: &Sync, dictionary: &Dictionary) {
        "start_ns" Integer "begin on the host" = row.start.nanos();
        "end_ns" Integer "end on the host" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "kind" Text "event, stream_wait_event, stream, context, unknown" = row.kind.name();
        "device" Integer "of the context" = dictionary.context(row.context).map(|context| context.device.0);
        "context" Integer "context" = row.context.0;
        "stream" Integer "the stream that is waited for, or that waits; empty for a context" = unless_none(row.stream.0);
        "correlation" Integer "joins with api.correlation" = row.correlation.0;
        "event" Integer "event; ids are reused" = unless_none(row.event_id);
        "event_recording" Integer "joins with events.event_recording; empty when not reported"
            = some(row.event_sync_id);
    }
}

table! {
    EVENTS, event(row: &CudaEvent, dictionary: &Dictionary) {
        "device" Integer "of the context" = dictionary.context(row.context).map(|context| context.device.0);
        "context" Integer "context" = row.context.0;
        "stream" Integer "stream it was recorded on" = row.stream.0;
        "correlation" Integer "joins with api.correlation" = row.correlation.0;
        "event" Integer "event; ids are reused" = row.event_id;
        "event_recording" Integer "this recording; empty when not reported" = some(row.event_sync_id);
    }
}

table! {
    OVERHEADS, overhead(row: &Overhead) {
        "start_ns" Integer "begin on the host" = row.start.nanos();
        "end_ns" Integer "end on the host" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "kind" Text "what the time was spent on" = row.kind.name();
        "thread" Integer "the thread that paid; empty when it is about none" = some(row.thread.0);
        "correlation" Integer "the call during which it was; empty without" = some(row.correlation.0);
    }
}

table! {
    /// A range with its end, the thread that ended it, and a flag that is true if the program ended it; or a
    /// mark.
    NVTX, range(row: &RangeEvent, end: Option<(Timestamp, ThreadId, bool)>, dictionary: &'a Dictionary) {
        "start_ns" Integer "begin, or time of the mark" = row.at.nanos();
        "end_ns" Integer "end; that of the trace for a range that never ended; empty for a mark"
            = end.map(|(at, ..)| at.nanos());
        "duration_ns" Integer "end_ns - start_ns" = end.map(|(at, ..)| at.since(row.at));
        "kind" Text "push, start, mark" = row.kind.name();
        "ended" Flag "whether the program ended it; empty for a mark" = end.map(|(.., ended)| ended);
        "thread" Integer "kernel id of the thread that began it" = row.thread.0;
        "end_thread" Integer "of the thread that ended it" = end.map(|(_, thread, _)| thread.0);
        "domain" Text "empty text: the default domain" = dictionary.name(row.domain);
        "text" Text "its message" = dictionary.name(row.message);
        "category" Text "name, or number where it has none; empty without" = nonempty(dictionary.name(row.category));
        "range_id" Integer "of a started range, unique in the process; empty for others" = some(row.range_id);
        "color" Integer "0xAARRGGBB; empty without" = some(row.color);
        "payload_type" Text "unsigned, signed, real; empty without payload" = match row.payload {
            Payload::None => None,
            Payload::Unsigned(_) => Some("unsigned"),
            Payload::Signed(_) => Some("signed"),
            Payload::Float(_) => Some("real"),
        };
        "payload_integer" Integer "payload, if it is a whole number below 2^63" = match row.payload {
            Payload::Unsigned(number) => i64::try_from(number).ok(),
            Payload::Signed(number) => Some(number),
            Payload::None | Payload::Float(_) => None,
        };
        "payload_real" Real "payload, if it is any other number" = match row.payload {
            Payload::Unsigned(number) if i64::try_from(number).is_err() => Some(number as f64),
            Payload::Float(number) => Some(number),
            _ => None,
        };
    }
}

table! {
    /// `stack` has the functions and the lines of its stack.
    HOST_SAMPLES, look(row: &HostSample, dictionary: &'a Dictionary, stack: Option<&'a [String; 2]>) {
        "since_ns" Integer "the look before at this thread" = row.since.nanos();
        "at_ns" Integer "time of the sample" = row.at.nanos();
        "thread" Integer "kernel id of the thread" = row.thread.0;
        "state" Text "running, futex, poll, io, disk, sleep, child, memory, driver, other, unknown"
            = row.state.name();
        "on_cpu_ns" Integer "CPU time between since_ns and at_ns" = row.on_cpu;
        "runnable_ns" Integer "waited for a core between since_ns and at_ns" = row.runnable;
        "interpreter_lock" Text "who held Python's lock: this_thread, other_thread, free, unknown"
            = row.interpreter_lock.name();
        "collecting_garbage" Flag "whether Python was" = row.collecting_garbage;
        "children" Integer "child processes" = row.children;
        "children_running" Integer "of them, on a core or ready for one" = row.children_running;
        "children_in_io" Integer "of them, waiting for input, output or storage" = row.children_in_io;
        "function" Text "innermost function" = dictionary.stack(row.stack).next().map(|frame| dictionary.name(frame.function));
        "file" Text "its file" = dictionary.stack(row.stack).next().map(|frame| dictionary.name(frame.file));
        "line" Integer "the line being executed" = dictionary.stack(row.stack).next().and_then(|frame| some(frame.line));
        "stack" Text "Python functions, outermost first, separated by semicolons"
            = stack.map(|[functions, _]| functions.as_str());
        "stack_lines" Text "file:line of each function of stack, in its order; without line where unknown"
            = stack.map(|[_, lines]| lines.as_str());
    }
}

table! {
    MEMORY, memory(row: &MemoryEvent, dictionary: &'a Dictionary) {
        "at_ns" Integer "when" = row.at.nanos();
        "operation" Text "allocation, release, pool_created, pool_destroyed, pool_trimmed, unknown"
            = row.operation.name();
        "memory" Text "pageable, pinned, device, array, managed, unknown" = row.kind.name();
        "device" Integer "ordinal; of host memory that of the calling context" = row.device.0;
        "context" Integer "context" = row.context.0;
        "stream" Integer "that orders the operation; empty without" = unless_none(row.stream.0);
        "correlation" Integer "joins with api.correlation; empty for memory that came with a module"
            = some(row.correlation.0);
        "address" Integer "where the memory begins; empty for an operation on a pool" = some(row.address);
        "bytes" Integer "allocated or released" = row.bytes;
        "name" Text "the variable, for static memory" = nonempty(dictionary.name(row.name)).filter(|_| row.name != NameId::UNKNOWN);
        "pool" Integer "address of the pool; empty without" = some(row.pool);
        "pool_bytes" Integer "that the pool holds; empty without" = some(row.pool).map(|_| row.pool_bytes);
        "pool_used_bytes" Integer "of them, in use; empty without" = some(row.pool).map(|_| row.pool_used);
        "pool_threshold_bytes" Integer "that the pool keeps rather than give back; empty without"
            = some(row.pool).map(|_| row.pool_threshold);
    }
}

table! {
    MANAGED, managed(row: &ManagedEvent) {
        "start_ns" Integer "begin of a migration, or when a fault was seen" = row.start.nanos();
        "end_ns" Integer "end of a migration, or when a device's fault was answered" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "event" Text "host_to_device, device_to_host, device_to_device, host_fault, device_fault, unknown" = row.kind.name();
        "source" Integer "device that pages left, or that missed them; empty for the host" = unless_none(row.source.0);
        "destination" Integer "device that pages went to; empty for the host and for faults"
            = unless_none(row.destination.0);
        "address" Integer "where the pages begin" = row.address;
        "bytes" Integer "that moved; empty for faults" = Some(row.value).filter(|_| row.kind.is_migration());
        "faults" Integer "groups of faults for the page, of a device's fault"
            = Some(row.value).filter(|_| row.kind == ManagedKind::DeviceFault);
        "instruction" Integer "address of the instruction, of a host's fault"
            = Some(row.value).filter(|_| row.kind == ManagedKind::HostFault);
        "cause" Integer "of a migration: 1 asked for, 2 coherence, 3 prefetch, 4 eviction, 5 access counters; of a \
            device's fault: 1 read, 2 write, 3 atomic, 4 prefetch; empty: unknown" = some(row.cause);
    }
}

table! {
    GPU_METRICS, gpu_metric(row: &CounterValue) {
        "start_ns" Integer "begin of the time that the value is about" = row.begin.nanos();
        "end_ns" Integer "its end; the same for a reading of a gauge" = row.end.nanos();
        "device" Integer "ordinal of the device" = row.device.0;
        "metric" Text "name of the counter or gauge" = row.counter.name();
        "unit" Text "%: of the peak, of elapsed cycles" = row.counter.unit();
        "value" Real "mean over the time; of the whole device, whichever process used it" = row.value;
    }
}

table! {
    /// A range of the program, only in queries: producing these rows requires memory for every range (see
    /// `instances`). `numbers` are those of the ranges around it and its own.
    NESTED_RANGES, nested_range(place: u32, row: &Instance, numbers: &'a str, dictionary: &'a Dictionary) {
        "number" Integer "from 1, in the order of begins, those around others first" = place + 1;
        "start_ns" Integer "begin" = row.begin;
        "end_ns" Integer "end; that of the trace for a range that never ended" = row.end;
        "duration_ns" Integer "end_ns - start_ns" = row.duration();
        "kind" Text "push, start" = if row.started { "start" } else { "push" };
        "thread" Integer "kernel id of the thread that began and ended it" = row.thread.0;
        "domain" Text "empty text: the default domain" = dictionary.name(row.domain);
        "text" Text "its message" = dictionary.name(row.message);
        "parent" Integer "number of the range around it; empty without" = row.parent.map(|parent| parent + 1);
        "level" Integer "ranges around it" = row.level;
        "numbers" Text "of the ranges around it and its own, as :1:2; of more than 128 the innermost" = numbers;
    }
}

table! {
    /// A range around a call, only in queries.
    RANGE_CALLS, range_call(place: u32, correlation: u32) {
        "number" Integer "joins with nested_ranges.number" = place + 1;
        "correlation" Integer "joins with api.correlation, kernels.correlation and others" = correlation;
    }
}

/// `None` for zero, which means "none" for this number.
fn some<T: Default + PartialEq>(number: T) -> Option<T> {
    (number != T::default()).then_some(number)
}

fn unless_none(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

fn nonempty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Name of a kernel.
#[derive(Debug)]
pub struct KernelName {
    readable: String,
    communicates: bool,
}

impl KernelName {
    /// From its name in the dictionary.
    pub fn of(name: &str) -> Self {
        Self { readable: demangled(name), communicates: is_communication(name) }
    }
}

/// Cached texts of stacks. Nearly all samples have one of few stacks; a full cache is cleared.
#[derive(Debug, Default)]
pub struct Stacks {
    texts: FxHashMap<StackId, [String; 2]>,
}

impl Stacks {
    /// Functions of a stack and their lines, outermost first; `None` without a stack.
    pub fn get(&mut self, stack: StackId, dictionary: &Dictionary) -> Option<&[String; 2]> {
        if stack == StackId::NONE {
            return None;
        }
        if self.texts.len() >= STACKS_LIMIT && !self.texts.contains_key(&stack) {
            self.texts.clear();
        }
        let texts = self.texts.entry(stack).or_insert_with(|| {
            let mut frames: Vec<_> = dictionary.stack(stack).collect();
            frames.reverse();
            let lines = frames.iter().map(|frame| match frame.line {
                0 => dictionary.name(frame.file).to_owned(),
                line => format!("{}:{line}", dictionary.name(frame.file)),
            });
            let lines: Vec<String> = lines.collect();
            let functions: Vec<&str> = frames.iter().map(|frame| dictionary.name(frame.function)).collect();
            [functions.join(";"), lines.join(";")]
        });
        Some(&*texts).filter(|[functions, _]| !functions.is_empty())
    }
}
