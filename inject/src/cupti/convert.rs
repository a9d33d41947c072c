//! Converts CUPTI's records field by field, where no lookup is needed.

use cupti_sys::DriverDevice;
use cupti_sys::abi;
use cupti_sys::record::{
    ContextRecord, CudaEventRecord, DeviceRecord, MemcpyP2pRecord, MemcpyRecord, MemoryPoolRecord, MemsetRecord,
    OverheadRecord, SyncRecord, UnifiedMemoryRecord,
};
use gpuwhy_trace::record::{
    Context, ContextId, Copy, CopyKind, CorrelationId, CudaEvent, Device, DeviceId, ManagedEvent, ManagedKind,
    MemoryEvent, MemoryKind, MemoryOperation, Memset, Overhead, OverheadKind, StreamId, Sync, SyncKind, ThreadId,
    Timestamp,
};

/// Converts either kind of copy record; they have these fields in common.
macro_rules! copy {
    ($copy:ident, $peers:expr) => {
        Copy {
            start: Timestamp::from_nanos($copy.start()),
            end: Timestamp::from_nanos($copy.end()),
            device: DeviceId($copy.device_id()),
            context: ContextId($copy.context_id()),
            stream: StreamId($copy.stream_id()),
            correlation: CorrelationId($copy.correlation_id()),
            kind: copy_kind($copy.kind()),
            source: memory_kind($copy.source()),
            destination: memory_kind($copy.destination()),
            is_async: $copy.is_async(),
            bytes: $copy.byte_count(),
            peers: $peers.map(DeviceId),
            graph_id: $copy.graph_id(),
            graph_node_id: $copy.graph_node_id(),
        }
    };
}

pub(super) fn memcpy(copy: &MemcpyRecord<'_>) -> Copy {
    copy!(copy, [copy.device_id(); 2])
}

pub(super) fn peer_memcpy(copy: &MemcpyP2pRecord<'_>) -> Copy {
    copy!(copy, [copy.source_device_id(), copy.destination_device_id()])
}

pub(super) fn memset(memset: &MemsetRecord<'_>) -> Memset {
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

pub(super) fn memory_pool(event: &MemoryPoolRecord<'_>) -> MemoryEvent {
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

pub(super) fn sync(sync: &SyncRecord<'_>) -> Sync {
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

pub(super) fn event(event: &CudaEventRecord<'_>) -> CudaEvent {
    CudaEvent {
        correlation: CorrelationId(event.correlation_id()),
        context: ContextId(event.context_id()),
        stream: StreamId(event.stream_id()),
        event_id: event.event_id(),
        event_sync_id: event.event_sync_id().unwrap_or(0),
    }
}

pub(super) fn overhead(overhead: &OverheadRecord<'_>) -> Overhead {
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

pub(super) fn device(device: &DeviceRecord<'_>) -> Device {
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

pub(super) fn driver_device(device: DriverDevice) -> Device {
    // Two transfers per clock, as in CUDA's sample `deviceQuery`.
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

pub(super) fn unified_memory(event: &UnifiedMemoryRecord<'_>) -> ManagedEvent {
    ManagedEvent {
        start: Timestamp::from_nanos(event.start()),
        end: Timestamp::from_nanos(event.end()),
        kind: match event.counter() {
            abi::UnifiedMemoryCounter::GPU_PAGE_FAULT => ManagedKind::DeviceFault,
            // Enabled by another tool.
            _ => ManagedKind::Unknown,
        },
        source: DeviceId(event.source_id()),
        destination: ManagedEvent::HOST,
        address: event.address(),
        value: event.value(),
        cause: event.flags(),
    }
}

pub(super) fn context(context: &ContextRecord<'_>) -> Context {
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

pub(super) fn memory_kind(kind: abi::MemoryKind) -> MemoryKind {
    match kind {
        abi::MemoryKind::PAGEABLE => MemoryKind::Pageable,
        abi::MemoryKind::PINNED => MemoryKind::Pinned,
        abi::MemoryKind::DEVICE | abi::MemoryKind::DEVICE_STATIC => MemoryKind::Device,
        abi::MemoryKind::ARRAY => MemoryKind::Array,
        abi::MemoryKind::MANAGED | abi::MemoryKind::MANAGED_STATIC => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}
