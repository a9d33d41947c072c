//! Records of memory that was allocated and released, of the pools that it came from, and of pages of managed memory
//! that moved.
//!
//! Nothing in them names a thread: the correlation id leads to the call. Times are nanoseconds on CUPTI's clock.

use super::view::layout;
use crate::abi::{MemoryKind, MemoryOperation, MemoryPoolOperation, MemoryPoolType};
use std::ffi::CStr;

layout! {
    /// An allocation or a release, `MEMORY2`.
    MemoryRecord, at least 120 bytes
    always {
        /// Which of the two, as a number; see [`operation`](Self::operation).
        operation_type: u32 = "memoryOperationType" @ 4;
        /// What kind of memory, as a number; see [`memory`](Self::memory).
        memory_kind: u32 = "memoryKind" @ 8;
        /// Joins to the call; 0 for memory that a module brings along.
        correlation_id: u32 = "correlationId" @ 12;
        /// Where the memory begins, in the address space of the process.
        address: u64 = "address" @ 16;
        /// Bytes, also in a release.
        byte_count: u64 = "bytes" @ 24;
        /// When.
        timestamp: u64 = "timestamp" @ 32;
        /// Device.
        device_id: u32 = "deviceId" @ 52;
        /// Context.
        context_id: u32 = "contextId" @ 56;
        /// Stream of an asynchronous operation, else `u32::MAX`.
        stream_id: u32 = "streamId" @ 60;
        /// Address of the variable's name, for static memory; 0 when there is none.
        name_address: u64 = "name" @ 64;
        /// 1 when the operation is ordered by a stream.
        async_flag: u32 = "isAsync" @ 72;
        /// Whose pool, as a number; see [`pool_type`](Self::pool_type).
        pool_type_number: u32 = "memoryPoolConfig.memoryPoolType" @ 80;
        /// Address of the pool; 0 without.
        pool_address: u64 = "memoryPoolConfig.address" @ 88;
        /// Bytes that the pool keeps at most when it could give them back.
        pool_release_threshold: u64 = "memoryPoolConfig.releaseThreshold" @ 96;
        /// Bytes of a local pool, or the process that an imported one belongs to.
        pool_size_or_process: u64 = "memoryPoolConfig.pool" @ 104;
        /// Bytes of the pool that are in use.
        pool_utilized: u64 = "memoryPoolConfig.utilizedSize" @ 112;
    }
    since {}
}

impl<'a> MemoryRecord<'a> {
    /// Where the record holds the address of the name.
    pub const NAME_OFFSET: usize = 64;

    /// Allocation or release.
    #[must_use]
    pub fn operation(&self) -> MemoryOperation {
        MemoryOperation(self.operation_type())
    }

    /// What kind of memory.
    #[must_use]
    pub fn memory(&self) -> MemoryKind {
        MemoryKind(self.memory_kind())
    }

    /// Whether a stream orders it.
    #[must_use]
    pub fn is_async(&self) -> bool {
        self.async_flag() != 0
    }

    /// Whose pool it came from.
    #[must_use]
    pub fn pool_type(&self) -> MemoryPoolType {
        MemoryPoolType(self.pool_type_number())
    }

    /// The variable, for static memory; see [`Record::string`](super::Record::string) for how long it lives.
    #[must_use]
    pub fn name(&self) -> Option<&'a CStr> {
        self.record().string(Self::NAME_OFFSET)
    }
}

layout! {
    /// A pool was made, destroyed or trimmed, `MEMORY_POOL`.
    MemoryPoolRecord, at least 72 bytes
    always {
        /// Which of them, as a number; see [`operation`](Self::operation).
        operation_type: u32 = "memoryPoolOperationType" @ 4;
        /// Whose pool, as a number; see [`pool_type`](Self::pool_type).
        pool_type_number: u32 = "memoryPoolType" @ 8;
        /// Joins to the call.
        correlation_id: u32 = "correlationId" @ 12;
        /// Device.
        device_id: u32 = "deviceId" @ 20;
        /// Address of the pool.
        address: u64 = "address" @ 32;
        /// Bytes of the pool; only of a local one.
        size: u64 = "size" @ 40;
        /// Bytes that the pool keeps at most when it could give them back; only of a local one.
        release_threshold: u64 = "releaseThreshold" @ 48;
        /// When.
        timestamp: u64 = "timestamp" @ 56;
        /// Bytes of the pool that are in use; only of a local one.
        utilized: u64 = "utilizedSize" @ 64;
    }
    since {}
}

impl MemoryPoolRecord<'_> {
    /// What happened to it.
    #[must_use]
    pub fn operation(&self) -> MemoryPoolOperation {
        MemoryPoolOperation(self.operation_type())
    }

    /// Whose pool it is.
    #[must_use]
    pub fn pool_type(&self) -> MemoryPoolType {
        MemoryPoolType(self.pool_type_number())
    }
}
