//! Records of memory that was allocated and released, of its pools, and of pages of managed memory that
//! moved.
//!
//! They name no thread: the correlation id leads to the call. Times are nanoseconds on CUPTI's clock.

use super::view::layout;
use crate::abi::{MemoryKind, MemoryOperation, MemoryPoolOperation, MemoryPoolType, UnifiedMemoryCounter};
use std::ffi::CStr;

layout! {
    /// An allocation or a release, `MEMORY2`.
    MemoryRecord, at least 120 bytes
    always {
        operation_type: u32 = "memoryOperationType" @ 4,
            "Which of the two, as a number; see [`operation`](Self::operation).";
        memory_kind: u32 = "memoryKind" @ 8, "What kind of memory, as a number; see [`memory`](Self::memory).";
        correlation_id: u32 = "correlationId" @ 12, "Joins to the call; 0 for memory that a module brings along.";
        address: u64 = "address" @ 16, "Where the memory begins, in the address space of the process.";
        byte_count: u64 = "bytes" @ 24, "Bytes, also in a release.";
        timestamp: u64 = "timestamp" @ 32, "When.";
        device_id: u32 = "deviceId" @ 52, "Device.";
        context_id: u32 = "contextId" @ 56, "Context.";
        stream_id: u32 = "streamId" @ 60, "Stream of an asynchronous operation, else `u32::MAX`.";
        name_address: u64 = "name" @ 64, "Address of the variable's name, for static memory; 0 when there is none.";
        async_flag: u32 = "isAsync" @ 72, "1 when the operation is ordered by a stream.";
        pool_type_number: u32 = "memoryPoolConfig.memoryPoolType" @ 80,
            "Whose pool, as a number; see [`pool_type`](Self::pool_type).";
        pool_address: u64 = "memoryPoolConfig.address" @ 88, "Address of the pool; 0 without.";
        pool_release_threshold: u64 = "memoryPoolConfig.releaseThreshold" @ 96,
            "Bytes that the pool keeps at most when it could give them back.";
        pool_size_or_process: u64 = "memoryPoolConfig.pool" @ 104,
            "Bytes of a local pool, or the process that an imported one belongs to.";
        pool_utilized: u64 = "memoryPoolConfig.utilizedSize" @ 112, "Bytes of the pool that are in use.";
    }
    since {}
    as {
        operation: MemoryOperation = operation_type, "Allocation or release.";
        memory: MemoryKind = memory_kind, "What kind of memory.";
        pool_type: MemoryPoolType = pool_type_number, "Whose pool it came from.";
    }
}

impl<'a> MemoryRecord<'a> {
    /// Offset of the address of the name.
    pub const NAME_OFFSET: usize = 64;

    /// True if the operation is ordered by a stream.
    pub fn is_async(&self) -> bool {
        self.async_flag() != 0
    }

    /// Name of the variable, for static memory; see [`Record::string`](super::Record::string) for its
    /// lifetime.
    pub fn name(&self) -> Option<&'a CStr> {
        self.record().string(Self::NAME_OFFSET)
    }
}

layout! {
    /// Creation, destruction or trimming of a pool, `MEMORY_POOL`.
    MemoryPoolRecord, at least 72 bytes
    always {
        operation_type: u32 = "memoryPoolOperationType" @ 4,
            "Which of them, as a number; see [`operation`](Self::operation).";
        pool_type_number: u32 = "memoryPoolType" @ 8, "Whose pool, as a number; see [`pool_type`](Self::pool_type).";
        correlation_id: u32 = "correlationId" @ 12, "Joins to the call.";
        device_id: u32 = "deviceId" @ 20, "Device.";
        address: u64 = "address" @ 32, "Address of the pool.";
        size: u64 = "size" @ 40, "Bytes of the pool; only of a local one.";
        release_threshold: u64 = "releaseThreshold" @ 48,
            "Bytes that the pool keeps at most when it could give them back; only of a local one.";
        timestamp: u64 = "timestamp" @ 56, "When.";
        utilized: u64 = "utilizedSize" @ 64, "Bytes of the pool that are in use; only of a local one.";
    }
    since {}
    as {
        operation: MemoryPoolOperation = operation_type, "What happened to it.";
        pool_type: MemoryPoolType = pool_type_number, "Whose pool it is.";
    }
}

layout! {
    /// A page fault of managed memory, `UNIFIED_MEMORY_COUNTER`.
    UnifiedMemoryRecord, at least 64 bytes
    always {
        counter_kind: u32 = "counterKind" @ 4, "Event, as a number; see [`counter`](Self::counter).";
        value: u64 = "value" @ 8, "Number of fault groups for the page.";
        start: u64 = "start" @ 16, "When the fault was recorded.";
        end: u64 = "end" @ 24, "When it was resolved.";
        address: u64 = "address" @ 32, "Where the pages begin.";
        source_id: u32 = "srcId" @ 40, "Device that faulted.";
        flags: u32 = "flags" @ 56, "Kind of access.";
    }
    since {}
    as {
        counter: UnifiedMemoryCounter = counter_kind, "Event.";
    }
}
