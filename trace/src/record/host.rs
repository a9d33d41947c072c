//! Activity of host threads: API calls, synchronizations, events, and overhead of tracing.

use super::{ApiFunctionId, ContextId, CorrelationId, NameId, StreamId, ThreadId, Timestamp};
use crate::named;

/// The CUDA API that a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiDomain {
    /// `cu...`
    Driver,
    /// `cuda...`
    Runtime,
}

/// A function of the CUDA driver or runtime API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApiFunction {
    /// Driver or runtime.
    pub domain: ApiDomain,
    /// CUPTI's callback id, unique within the domain.
    pub callback_id: u32,
    /// Name with the version suffix, for example `cudaLaunchKernel_v7000`.
    pub name: NameId,
}

/// A call of the CUDA driver or runtime API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// Entry.
    pub start: Timestamp,
    /// Return.
    pub end: Timestamp,
    /// Calling thread.
    pub thread: ThreadId,
    /// Links the call to the device work it caused, and to nested calls.
    pub correlation: CorrelationId,
    /// The called function.
    pub function: ApiFunctionId,
    /// `CUresult` or `cudaError_t`; 0 is success.
    pub return_value: u32,
}

named! {
    /// Kind of synchronization; `words` are Kineto's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum SyncKind: name words {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "unknown" "Unknown Sync",
        /// The host waited for an event.
        Event "event" "Event Sync",
        /// A stream was made to wait for an event; the host did not wait.
        StreamWaitEvent "stream_wait_event" "Stream Wait Event",
        /// The host waited for a stream.
        Stream "stream" "Stream Sync",
        /// The host waited for an entire context.
        Context "context" "Context Sync",
    }
}

/// A synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// Start on the host.
    pub start: Timestamp,
    /// End on the host.
    pub end: Timestamp,
    /// Kind of synchronization.
    pub kind: SyncKind,
    /// Context.
    pub context: ContextId,
    /// The stream that was waited for or that has to wait; `u32::MAX` if there is none.
    pub stream: StreamId,
    /// The call that synchronized.
    pub correlation: CorrelationId,
    /// Event id, or `u32::MAX`. Ids are reused: prefer `event_sync_id` when it is not 0.
    pub event_id: u32,
    /// Pairs with [`CudaEvent::event_sync_id`]; 0 if the library does not report it.
    pub event_sync_id: u64,
}

/// A CUDA event was recorded on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaEvent {
    /// The call that recorded it.
    pub correlation: CorrelationId,
    /// Context.
    pub context: ContextId,
    /// Stream it was recorded on.
    pub stream: StreamId,
    /// Event id; ids are reused.
    pub event_id: u32,
    /// Unique id of this recording; 0 if the library does not report it.
    pub event_sync_id: u64,
}

named! {
    /// Activity that caused the overhead, named as by Kineto.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum OverheadKind: name {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "Unknown Overhead",
        /// The driver's just-in-time compiler.
        DriverCompiler "Driver Compiler",
        /// The tracing library flushed a buffer.
        BufferFlush "Buffer Flush",
        /// The tracing library instrumented code.
        Instrumentation "Instrumentation",
        /// The tracing library allocated or freed its own resources.
        Resource "Resource",
        /// The runtime loaded a module.
        RuntimeModuleLoading "Runtime Triggered Module Loading",
        /// The driver loaded a function at first use.
        LazyFunctionLoading "Lazy Function Loading",
        /// A command buffer was full: the host had run ahead as far as possible.
        CommandBufferFull "Command Buffer Full",
        /// The tracing library requested a buffer.
        ActivityBufferRequest "Activity Buffer Request",
        /// Unified-memory tracing was set up.
        UnifiedMemoryInit "UVM Activity Init",
    }
}

/// Overhead of tracing or the driver on a host thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Start on the host.
    pub start: Timestamp,
    /// End on the host.
    pub end: Timestamp,
    /// Activity that caused the overhead, named as by Kineto.
    pub kind: OverheadKind,
    /// Affected thread, or 0 if the record belongs to no thread.
    pub thread: ThreadId,
    /// The call during which it happened, or 0.
    pub correlation: CorrelationId,
}
