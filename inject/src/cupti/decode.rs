//! From CUPTI's records to ours.
//!
//! The only place where both models meet. Runs on the collector thread while the buffer is held, because names live
//! no longer than that.

use std::collections::HashMap;

use cupti_sys::abi;
use cupti_sys::record::{
    Activity, ApiRecord, ContextRecord, CudaEventRecord, DeviceRecord, GraphTraceRecord, KernelRecord, MemcpyP2pRecord,
    MemcpyRecord, MemoryPoolRecord, MemoryRecord, MemsetRecord, OverheadRecord, SyncRecord,
};
use cupti_sys::{Cupti, Domain, DriverDevice};
use profiler_core::dictionary::Dictionary;
use profiler_core::event::Event;
use profiler_core::record::{
    ApiCall, ApiDomain, ApiFunction, ApiFunctionId, Context, ContextId, Copy, CopyKind, CorrelationId, CudaEvent,
    Device, DeviceId, Kernel, LaunchConfig, MemoryEvent, MemoryKind, MemoryOperation, Memset, NameId, Overhead,
    OverheadKind, Record, StreamId, Sync, SyncKind, ThreadId, Timestamp,
};
use rustc_hash::FxBuildHasher;

use crate::cupti::kernel_names::KernelNames;
use crate::cupti::kinds::LAST_CALLBACK_ID;
use crate::cupti::{pcie_links, recorder};

/// What a CUPTI record turned into.
#[derive(Debug)]
pub enum Decoded {
    /// An event with a record.
    Event(Event),
    /// An entry of the dictionary.
    Description,
    /// Nothing: a kind that this version does not know.
    Unknown,
}

/// Decodes, and owns the dictionary that grows on the way.
#[derive(Debug)]
pub struct Decoder {
    /// Asked for at the start: a CUPTI that hangs later must not take the collector along.
    api_names: HashMap<(Domain, u32), String, FxBuildHasher>,
    dictionary: Dictionary,
    links_asked: bool,
    kernel_names: KernelNames,
    /// Functions that were called, by number: of the runtime, of the driver.
    functions: [Vec<Option<ApiFunctionId>>; 2],
}

impl Decoder {
    /// A decoder with an empty dictionary. `cupti` is asked for the names of all API functions, now and never again.
    pub fn new(cupti: &'static Cupti) -> Self {
        let names = |domain| recorder::api_functions(cupti, domain).map(move |(id, name)| ((domain, id), name));
        Self {
            api_names: names(Domain::RUNTIME).chain(names(Domain::DRIVER)).collect(),
            dictionary: Dictionary::new(),
            links_asked: false,
            kernel_names: KernelNames::default(),
            functions: Default::default(),
        }
    }

    /// What records refer to.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// As [`dictionary`](Self::dictionary), for names that do not come from CUPTI.
    pub fn dictionary_mut(&mut self) -> &mut Dictionary {
        &mut self.dictionary
    }

    /// Describes the devices as the driver does, unless they are described, and asks for their links once; does nothing
    /// while CUDA is not initialized.
    pub fn describe_devices(&mut self) {
        let no_devices = self.dictionary.devices().is_empty();
        if !no_devices && self.links_asked {
            return;
        }
        let devices = cupti_sys::driver_devices();
        if !devices.is_empty() && !std::mem::replace(&mut self.links_asked, true) {
            pcie_links::of(&devices).for_each(|link| self.dictionary.add_link(link));
        }
        if no_devices {
            devices.into_iter().map(driver_device).for_each(|device| self.dictionary.add_device(device));
        }
    }

    /// The records that follow are those of another buffer.
    pub fn next_buffer(&mut self) {
        self.kernel_names.next_buffer();
    }

    /// Decodes one record.
    pub fn decode(&mut self, record: cupti_sys::Record<'_>) -> Decoded {
        Decoded::Event(Event::Record(match record.activity() {
            Activity::Kernel(kernel) => Record::Kernel(self.kernel(&kernel)),
            Activity::Api(call) => Record::Api(self.api(&call)),
            Activity::Memcpy(copy) => Record::Copy(memcpy(&copy)),
            Activity::MemcpyP2p(copy) => Record::Copy(peer_memcpy(&copy)),
            Activity::Memset(memset) => Record::Memset(self::memset(&memset)),
            Activity::Sync(sync) => Record::Sync(self::sync(&sync)),
            Activity::CudaEvent(event) => Record::Event(self::event(&event)),
            Activity::Overhead(overhead) => Record::Overhead(self::overhead(&overhead)),
            Activity::Memory(event) => Record::Memory(self.memory(&event)),
            Activity::MemoryPool(event) => Record::Memory(memory_pool(&event)),
            Activity::Device(device) => {
                self.dictionary.add_device(self::device(&device));
                self.describe_devices();
                return Decoded::Description;
            }
            Activity::Context(context) => {
                self.dictionary.add_context(self::context(&context));
                return Decoded::Description;
            }
            // Of another tool: ours do not come from CUPTI (pcie_links.rs).
            Activity::Pcie(_) => return Decoded::Description,
            Activity::GraphTrace(graph) => Record::Kernel(self.whole_graph(&graph)),
            Activity::Other => return Decoded::Unknown,
        }))
    }

    fn kernel(&mut self, kernel: &KernelRecord<'_>) -> Kernel {
        let known = self.kernel_names.find(kernel.name_address(), || kernel.name(), &mut self.dictionary);
        let config = LaunchConfig {
            name: known.id,
            grid: kernel.grid(),
            block: kernel.block(),
            cluster: kernel.cluster(),
            registers_per_thread: kernel.registers_per_thread(),
            static_shared_bytes: kernel.static_shared_memory().cast_unsigned(),
            dynamic_shared_bytes: kernel.dynamic_shared_memory().cast_unsigned(),
            shared_executed_bytes: kernel.shared_memory_executed(),
            local_bytes_per_thread: kernel.local_memory_per_thread(),
            launch_type: kernel.launch_type(),
        };
        Kernel {
            start: Timestamp::from_nanos(kernel.start()),
            end: Timestamp::from_nanos(kernel.end()),
            device: DeviceId(kernel.device_id()),
            context: ContextId(kernel.context_id()),
            stream: StreamId(kernel.stream_id()),
            correlation: CorrelationId(kernel.correlation_id()),
            config: known.launch(config, &mut self.dictionary),
            graph_id: kernel.graph_id(),
            graph_node_id: kernel.graph_node_id(),
        }
    }

    fn memory(&mut self, event: &MemoryRecord<'_>) -> MemoryEvent {
        let name = event.name().map(|name| self.dictionary.intern_name(&name.to_string_lossy()));
        let local = event.pool_type() == abi::MemoryPoolType::LOCAL;
        let of_pool = |value: u64| if local { value } else { 0 };
        MemoryEvent {
            at: Timestamp::from_nanos(event.timestamp()),
            operation: match event.operation() {
                abi::MemoryOperation::ALLOCATION => MemoryOperation::Allocation,
                abi::MemoryOperation::RELEASE => MemoryOperation::Release,
                _ => MemoryOperation::Unknown,
            },
            kind: memory_kind(event.memory()),
            device: DeviceId(event.device_id()),
            context: ContextId(event.context_id()),
            stream: StreamId(event.stream_id()),
            correlation: CorrelationId(event.correlation_id()),
            address: event.address(),
            bytes: event.byte_count(),
            name: name.unwrap_or(NameId::UNKNOWN),
            pool: of_pool(event.pool_address()),
            pool_bytes: of_pool(event.pool_size_or_process()),
            pool_used: of_pool(event.pool_utilized()),
            pool_threshold: of_pool(event.pool_release_threshold()),
        }
    }

    /// A launch of a graph that was recorded as one piece: computation under a name of its own. What ran inside, and
    /// whether it was copies, is not known.
    fn whole_graph(&mut self, graph: &GraphTraceRecord<'_>) -> Kernel {
        let name = self.dictionary.intern_name(&format!("[CUDA graph {}, not looked into]", graph.graph_id()));
        Kernel {
            start: Timestamp::from_nanos(graph.start()),
            end: Timestamp::from_nanos(graph.end()),
            device: DeviceId(graph.device_id()),
            context: ContextId(graph.context_id()),
            stream: StreamId(graph.stream_id()),
            correlation: CorrelationId(graph.correlation_id()),
            config: self.dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() }),
            graph_id: graph.graph_id(),
            graph_node_id: 0,
        }
    }

    fn api(&mut self, call: &ApiRecord<'_>) -> ApiCall {
        ApiCall {
            start: Timestamp::from_nanos(call.start()),
            end: Timestamp::from_nanos(call.end()),
            thread: ThreadId(call.thread_id()),
            correlation: CorrelationId(call.correlation_id()),
            function: self.function(call.domain(), call.callback_id()),
            return_value: call.return_value(),
        }
    }

    #[inline]
    fn function(&mut self, domain: Domain, callback_id: u32) -> ApiFunctionId {
        let of_domain = &self.functions[usize::from(domain != Domain::RUNTIME)];
        match of_domain.get(callback_id as usize) {
            Some(&Some(id)) => id,
            _ => self.new_function(domain, callback_id),
        }
    }

    #[cold]
    fn new_function(&mut self, domain: Domain, callback_id: u32) -> ApiFunctionId {
        let (ours, prefix) =
            if domain == Domain::RUNTIME { (ApiDomain::Runtime, "cuda") } else { (ApiDomain::Driver, "cu") };
        let known = self.api_names.get(&(domain, callback_id)).cloned();
        let name = known.unwrap_or_else(|| format!("{prefix}#{callback_id}"));
        let name = self.dictionary.intern_name(&name);
        let id = self.dictionary.intern_api_function(ApiFunction { domain: ours, callback_id, name });
        // Numbers that no library has can only be damage, and are looked up each time.
        if callback_id <= LAST_CALLBACK_ID {
            let of_domain = &mut self.functions[usize::from(domain != Domain::RUNTIME)];
            let place = callback_id as usize;
            of_domain.resize(of_domain.len().max(place + 1), None);
            of_domain[place] = Some(id);
        }
        id
    }
}

fn memcpy(copy: &MemcpyRecord<'_>) -> Copy {
    let device = DeviceId(copy.device_id());
    Copy {
        start: Timestamp::from_nanos(copy.start()),
        end: Timestamp::from_nanos(copy.end()),
        device,
        context: ContextId(copy.context_id()),
        stream: StreamId(copy.stream_id()),
        correlation: CorrelationId(copy.correlation_id()),
        kind: copy_kind(copy.kind()),
        source: memory_kind(copy.source()),
        destination: memory_kind(copy.destination()),
        is_async: copy.is_async(),
        bytes: copy.byte_count(),
        peers: [device; 2],
        graph_id: copy.graph_id(),
        graph_node_id: copy.graph_node_id(),
    }
}

fn peer_memcpy(copy: &MemcpyP2pRecord<'_>) -> Copy {
    Copy {
        start: Timestamp::from_nanos(copy.start()),
        end: Timestamp::from_nanos(copy.end()),
        device: DeviceId(copy.device_id()),
        context: ContextId(copy.context_id()),
        stream: StreamId(copy.stream_id()),
        correlation: CorrelationId(copy.correlation_id()),
        kind: copy_kind(copy.kind()),
        source: memory_kind(copy.source()),
        destination: memory_kind(copy.destination()),
        is_async: copy.is_async(),
        bytes: copy.byte_count(),
        peers: [DeviceId(copy.source_device_id()), DeviceId(copy.destination_device_id())],
        graph_id: copy.graph_id(),
        graph_node_id: copy.graph_node_id(),
    }
}

fn memset(memset: &MemsetRecord<'_>) -> Memset {
    Memset {
        start: Timestamp::from_nanos(memset.start()),
        end: Timestamp::from_nanos(memset.end()),
        device: DeviceId(memset.device_id()),
        context: ContextId(memset.context_id()),
        stream: StreamId(memset.stream_id()),
        correlation: CorrelationId(memset.correlation_id()),
        memory: memory_kind(memset.memory()),
        is_async: memset.is_async(),
        value: memset.value(),
        bytes: memset.byte_count(),
        graph_id: memset.graph_id(),
        graph_node_id: memset.graph_node_id(),
    }
}

fn memory_pool(event: &MemoryPoolRecord<'_>) -> MemoryEvent {
    let local = event.pool_type() == abi::MemoryPoolType::LOCAL;
    let of_pool = |value: u64| if local { value } else { 0 };
    MemoryEvent {
        at: Timestamp::from_nanos(event.timestamp()),
        operation: match event.operation() {
            abi::MemoryPoolOperation::CREATED => MemoryOperation::PoolCreated,
            abi::MemoryPoolOperation::DESTROYED => MemoryOperation::PoolDestroyed,
            abi::MemoryPoolOperation::TRIMMED => MemoryOperation::PoolTrimmed,
            _ => MemoryOperation::Unknown,
        },
        kind: MemoryKind::Device,
        device: DeviceId(event.device_id()),
        correlation: CorrelationId(event.correlation_id()),
        pool: of_pool(event.address()),
        pool_bytes: of_pool(event.size()),
        pool_used: of_pool(event.utilized()),
        pool_threshold: of_pool(event.release_threshold()),
        ..MemoryEvent::default()
    }
}

fn sync(sync: &SyncRecord<'_>) -> Sync {
    Sync {
        start: Timestamp::from_nanos(sync.start()),
        end: Timestamp::from_nanos(sync.end()),
        kind: match sync.kind() {
            abi::SyncType::EVENT_SYNCHRONIZE => SyncKind::Event,
            abi::SyncType::STREAM_WAIT_EVENT => SyncKind::StreamWaitEvent,
            abi::SyncType::STREAM_SYNCHRONIZE => SyncKind::Stream,
            abi::SyncType::CONTEXT_SYNCHRONIZE => SyncKind::Context,
            _ => SyncKind::Unknown,
        },
        context: ContextId(sync.context_id()),
        stream: StreamId(sync.stream_id()),
        correlation: CorrelationId(sync.correlation_id()),
        event_id: sync.event_id(),
        event_sync_id: sync.event_sync_id().unwrap_or(0),
    }
}

fn event(event: &CudaEventRecord<'_>) -> CudaEvent {
    CudaEvent {
        correlation: CorrelationId(event.correlation_id()),
        context: ContextId(event.context_id()),
        stream: StreamId(event.stream_id()),
        event_id: event.event_id(),
        event_sync_id: event.event_sync_id().unwrap_or(0),
    }
}

fn overhead(overhead: &OverheadRecord<'_>) -> Overhead {
    Overhead {
        start: Timestamp::from_nanos(overhead.start()),
        end: Timestamp::from_nanos(overhead.end()),
        kind: match overhead.kind() {
            abi::OverheadKind::DRIVER_COMPILER => OverheadKind::DriverCompiler,
            abi::OverheadKind::CUPTI_BUFFER_FLUSH => OverheadKind::BufferFlush,
            abi::OverheadKind::CUPTI_INSTRUMENTATION => OverheadKind::Instrumentation,
            abi::OverheadKind::CUPTI_RESOURCE => OverheadKind::Resource,
            abi::OverheadKind::RUNTIME_TRIGGERED_MODULE_LOADING => OverheadKind::RuntimeModuleLoading,
            abi::OverheadKind::LAZY_FUNCTION_LOADING => OverheadKind::LazyFunctionLoading,
            abi::OverheadKind::COMMAND_BUFFER_FULL => OverheadKind::CommandBufferFull,
            abi::OverheadKind::ACTIVITY_BUFFER_REQUEST => OverheadKind::ActivityBufferRequest,
            abi::OverheadKind::UVM_ACTIVITY_INIT => OverheadKind::UnifiedMemoryInit,
            _ => OverheadKind::Unknown,
        },
        thread: ThreadId(overhead.thread_id().unwrap_or(0)),
        correlation: CorrelationId(overhead.correlation_id().unwrap_or(0)),
    }
}

fn device(device: &DeviceRecord<'_>) -> Device {
    Device {
        id: DeviceId(device.id()),
        name: device.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        compute_capability: device.compute_capability(),
        multiprocessors: device.multiprocessors(),
        threads_per_multiprocessor: device.max_warps_per_multiprocessor().saturating_mul(device.threads_per_warp()),
        blocks_per_multiprocessor: device.max_blocks_per_multiprocessor(),
        registers_per_multiprocessor: device.max_registers_per_multiprocessor(),
        shared_bytes_per_multiprocessor: device.max_shared_memory_per_multiprocessor(),
        core_clock_khz: device.core_clock_rate(),
        memory_bytes: device.global_memory_size(),
        memory_bandwidth_kbps: device.global_memory_bandwidth(),
        uuid: device.uuid(),
    }
}

fn driver_device(device: DriverDevice) -> Device {
    // Two transfers a clock, as in CUDA's own sample `deviceQuery`.
    let bandwidth = 2 * u64::from(device.memory_clock_khz) * u64::from(device.memory_bus_bits / 8);
    Device {
        id: DeviceId(device.ordinal),
        name: device.name,
        compute_capability: device.compute_capability,
        multiprocessors: device.multiprocessors,
        threads_per_multiprocessor: device.threads_per_multiprocessor,
        blocks_per_multiprocessor: device.blocks_per_multiprocessor,
        registers_per_multiprocessor: device.registers_per_multiprocessor,
        shared_bytes_per_multiprocessor: device.shared_bytes_per_multiprocessor,
        core_clock_khz: device.core_clock_khz,
        memory_bytes: device.memory_bytes,
        memory_bandwidth_kbps: bandwidth,
        uuid: device.uuid,
    }
}

fn context(context: &ContextRecord<'_>) -> Context {
    Context {
        id: ContextId(context.context_id()),
        device: DeviceId(context.device_id()),
        null_stream: StreamId(context.null_stream_id().into()),
    }
}

fn copy_kind(kind: abi::MemcpyKind) -> CopyKind {
    match kind {
        abi::MemcpyKind::HTOD | abi::MemcpyKind::HTOA => CopyKind::HostToDevice,
        abi::MemcpyKind::DTOH | abi::MemcpyKind::ATOH => CopyKind::DeviceToHost,
        abi::MemcpyKind::DTOD | abi::MemcpyKind::ATOA | abi::MemcpyKind::ATOD | abi::MemcpyKind::DTOA => {
            CopyKind::DeviceToDevice
        }
        abi::MemcpyKind::HTOH => CopyKind::HostToHost,
        abi::MemcpyKind::PTOP => CopyKind::PeerToPeer,
        _ => CopyKind::Unknown,
    }
}

fn memory_kind(kind: abi::MemoryKind) -> MemoryKind {
    match kind {
        abi::MemoryKind::PAGEABLE => MemoryKind::Pageable,
        abi::MemoryKind::PINNED => MemoryKind::Pinned,
        abi::MemoryKind::DEVICE | abi::MemoryKind::DEVICE_STATIC => MemoryKind::Device,
        abi::MemoryKind::ARRAY => MemoryKind::Array,
        abi::MemoryKind::MANAGED | abi::MemoryKind::MANAGED_STATIC => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}
