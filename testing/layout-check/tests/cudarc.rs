//! Offsets and widths of cupti-sys equal those of cudarc, which generates its bindings from the headers.
//!
//! cudarc's structs are those of CUDA 13.4. As layouts only grow, a field that has the same offset there and
//! lies within an older measured size has the same offset everywhere.

use cudarc::cupti::sys;
use cupti_sys::abi::{GraphData, ResourceData};
use cupti_sys::record::{
    ApiRecord, ContextRecord, CudaEventRecord, DeviceRecord, Field, GraphTraceRecord, KernelRecord, MemcpyP2pRecord,
    MemcpyRecord, MemoryPoolRecord, MemoryRecord, MemsetRecord, OverheadRecord, SyncRecord, UnifiedMemoryRecord,
};
use std::mem::offset_of;

/// Width of the field that a function takes out of a struct, without a value of either.
fn width<S, T>(_: impl FnOnce(S) -> T) -> usize {
    size_of::<T>()
}

/// Compares all fields that a view reads with the named fields of cudarc's struct; an unnamed field fails.
macro_rules! same_fields {
    ($view:ident, $theirs:ident: $($field:ident $(. $inner:ident)?)*) => {{
        let theirs = [$(Field {
            name: concat!(stringify!($field), $(".", stringify!($inner))?).trim_end_matches('_'),
            offset: offset_of!(sys::$theirs, $field $(. $inner)?),
            width: width(|record: sys::$theirs| record.$field $(. $inner)?),
        }),*];
        assert!(!$view::FIELDS.is_empty());
        for ours in $view::FIELDS {
            assert!(theirs.contains(ours), "{}: {ours:?} is not among {theirs:#?}", stringify!($theirs));
        }
        assert_eq!($view::FIELDS.len(), theirs.len(), "{}", stringify!($theirs));
        assert!($view::LEAST_BYTES <= size_of::<sys::$theirs>());
    }};
}

#[test]
fn records_of_device_work() {
    same_fields!(KernelRecord, CUpti_ActivityKernel13: registersPerThread start end deviceId contextId streamId gridX
        gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread correlationId name
        launchType sharedMemoryExecuted graphNodeId graphId clusterX clusterY clusterZ priority);
    same_fields!(MemcpyRecord, CUpti_ActivityMemcpy7: copyKind srcKind dstKind flags bytes start end deviceId contextId
        streamId correlationId graphNodeId graphId copyCount);
    same_fields!(MemcpyP2pRecord, CUpti_ActivityMemcpyPtoP4: copyKind srcKind dstKind flags bytes start end deviceId
        contextId streamId srcDeviceId dstDeviceId correlationId graphNodeId graphId);
    same_fields!(MemsetRecord, CUpti_ActivityMemset5: value bytes start end deviceId contextId streamId correlationId
        flags memoryKind graphNodeId graphId);
    same_fields!(GraphTraceRecord, CUpti_ActivityGraphTrace2: correlationId start end deviceId graphId contextId streamId
        endDeviceId);
}

#[test]
fn records_of_memory() {
    same_fields!(MemoryRecord, CUpti_ActivityMemory4: memoryOperationType memoryKind correlationId address bytes timestamp
        deviceId contextId streamId name isAsync memoryPoolConfig.memoryPoolType memoryPoolConfig.address
        memoryPoolConfig.releaseThreshold memoryPoolConfig.pool memoryPoolConfig.utilizedSize);
    same_fields!(MemoryPoolRecord, CUpti_ActivityMemoryPool3: memoryPoolOperationType memoryPoolType correlationId deviceId
        address size releaseThreshold timestamp utilizedSize);
    same_fields!(UnifiedMemoryRecord, CUpti_ActivityUnifiedMemoryCounter3: counterKind value start end address srcId flags);
}

#[test]
fn records_of_the_host() {
    same_fields!(ApiRecord, CUpti_ActivityAPI: cbid start end threadId correlationId returnValue);
    same_fields!(SyncRecord, CUpti_ActivitySynchronization2: type_ start end correlationId contextId streamId
        cudaEventId cudaEventSyncId);
    same_fields!(CudaEventRecord, CUpti_ActivityCudaEvent2: correlationId contextId streamId eventId cudaEventSyncId);
    same_fields!(OverheadRecord, CUpti_ActivityOverhead3: overheadKind objectKind objectId start end correlationId);
}

#[test]
fn records_of_objects() {
    same_fields!(DeviceRecord, CUpti_ActivityDevice6: globalMemoryBandwidth globalMemorySize numThreadsPerWarp
        coreClockRate numMultiprocessors maxWarpsPerMultiprocessor maxBlocksPerMultiprocessor
        maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor computeCapabilityMajor computeCapabilityMinor id
        uuid name);
    same_fields!(ContextRecord, CUpti_ActivityContext4: contextId deviceId nullStreamId parentContextId);
}

/// String offsets have no accessor.
#[test]
fn offsets_of_strings() {
    assert_eq!(KernelRecord::NAME_OFFSET, offset_of!(sys::CUpti_ActivityKernel13, name));
    assert_eq!(DeviceRecord::NAME_OFFSET, offset_of!(sys::CUpti_ActivityDevice6, name));
}

/// Data of callbacks, whose structs are read directly.
#[test]
fn callbacks_about_graphs() {
    assert_eq!(offset_of!(ResourceData, descriptor), offset_of!(sys::CUpti_ResourceData, resourceDescriptor));
    assert_eq!(offset_of!(GraphData, node), offset_of!(sys::CUpti_GraphData, node));
    assert_eq!(offset_of!(GraphData, original), offset_of!(sys::CUpti_GraphData, originalNode));
    assert_eq!(offset_of!(GraphData, node_type), offset_of!(sys::CUpti_GraphData, nodeType));
    assert_eq!(offset_of!(GraphData, exec), offset_of!(sys::CUpti_GraphData, graphExec));
}
