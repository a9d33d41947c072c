//! Memory that the program took and gave back.

use super::{ContextId, CorrelationId, DeviceId, MemoryKind, NameId, StreamId, Timestamp};
use crate::named;

named! {
    /// What happened to memory, or to a pool of memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum MemoryOperation: name {
        /// Not reported, or a value this version does not know.
        #[default]
        Unknown "unknown",
        /// Memory was allocated.
        Allocation "allocation",
        /// Memory was released.
        Release "release",
        /// A pool was made.
        PoolCreated "pool_created",
        /// A pool was destroyed.
        PoolDestroyed "pool_destroyed",
        /// A pool gave memory back.
        PoolTrimmed "pool_trimmed",
    }
}

/// Memory was allocated or released, or a pool changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub operation: MemoryOperation,
    /// What kind of memory. Static memory of a module counts as what it is, and has a [`name`](Self::name).
    pub kind: MemoryKind,
    /// Device; also that of the calling context for host memory.
    pub device: DeviceId,
    /// Context.
    pub context: ContextId,
    /// Stream that orders the operation, or `u32::MAX`.
    pub stream: StreamId,
    /// The call; 0 for memory that came with a module.
    pub correlation: CorrelationId,
    /// Where the memory begins; 0 for an operation on a pool.
    pub address: u64,
    /// Bytes, also of a release.
    pub bytes: u64,
    /// The variable, for static memory, else [`NameId::UNKNOWN`].
    pub name: NameId,
    /// Address of this process's pool that is concerned, or 0. Pools of other processes are left out.
    pub pool: u64,
    /// Bytes that the pool holds.
    pub pool_bytes: u64,
    /// Bytes of them that are in use.
    pub pool_used: u64,
    /// Bytes that the pool keeps rather than give back.
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
