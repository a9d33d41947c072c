//! Memory allocations and releases of the program.

use super::{ContextId, CorrelationId, DeviceId, MemoryKind, NameId, StreamId, Timestamp};
use crate::named;

named! {
    /// Operation on memory or on a memory pool.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum MemoryOperation: name {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "unknown",
        /// Memory was allocated.
        Allocation "allocation",
        /// Memory was released.
        Release "release",
        /// A pool was created.
        PoolCreated "pool_created",
        /// A pool was destroyed.
        PoolDestroyed "pool_destroyed",
        /// A pool released memory.
        PoolTrimmed "pool_trimmed",
    }
}

/// An allocation, a release or a change of a memory pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Time of the operation.
    pub at: Timestamp,
    /// Kind of operation.
    pub operation: MemoryOperation,
    /// Kind of memory. Static memory of a module has its actual kind and a [`name`](Self::name).
    pub kind: MemoryKind,
    /// Device; for host memory, the device of the calling context.
    pub device: DeviceId,
    /// Context.
    pub context: ContextId,
    /// Stream that orders the operation, or `u32::MAX`.
    pub stream: StreamId,
    /// The call; 0 for memory allocated with a module.
    pub correlation: CorrelationId,
    /// Start address; 0 for an operation on a pool.
    pub address: u64,
    /// Size in bytes, also for a release.
    pub bytes: u64,
    /// Name of the variable for static memory, else [`NameId::UNKNOWN`].
    pub name: NameId,
    /// Address of the affected pool of this process, or 0. Pools of other processes are not recorded.
    pub pool: u64,
    /// Bytes held by the pool.
    pub pool_bytes: u64,
    /// Bytes of the pool in use.
    pub pool_used: u64,
    /// Release threshold of the pool: bytes that it keeps instead of releasing them.
    pub pool_threshold: u64,
}

impl Default for MemoryEvent {
    fn default() -> Self {
        Self {
            at: Timestamp::ZERO,
            operation: MemoryOperation::Unknown,
            kind: MemoryKind::Unknown,
            device: DeviceId(0),
            context: ContextId(0),
            stream: StreamId(u32::MAX),
            correlation: CorrelationId(0),
            address: 0,
            bytes: 0,
            name: NameId::UNKNOWN,
            pool: 0,
            pool_bytes: 0,
            pool_used: 0,
            pool_threshold: 0,
        }
    }
}
