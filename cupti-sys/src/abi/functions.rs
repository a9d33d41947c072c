//! Types of the functions that this crate calls and that CUPTI calls, and of the structs passed by address.

#![expect(
    missing_docs,
    reason = "a type without a comment is of the function cupti... or cuptiActivity... of its name"
)]

use std::ffi::{c_char, c_void};

use super::{Attribute, CallbackSite, CuptiResult, Domain, Kind, ThreadIdType, UnifiedMemoryCounter};

/// The opaque `CUcontext`.
pub type Context = *mut c_void;
/// The opaque `CUgraphNode`.
pub type GraphNode = *mut c_void;
/// The opaque `CUgraphExec`.
pub type GraphExec = *mut c_void;
/// The opaque subscriber handle.
pub type SubscriberHandle = *mut c_void;
/// CUPTI requests memory: the client stores the address, the size in bytes and the maximum number of records
/// (0: no limit).
pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// CUPTI returns memory: context, stream, address, size, and number of bytes that hold records.
pub type BufferCompleted = unsafe extern "C" fn(Context, u32, *mut u8, usize, usize);
/// A subscribed event: the client's pointer, domain, callback id, callback data.
pub type Callback = unsafe extern "C" fn(*mut c_void, Domain, u32, *const c_void);

pub type GetVersion = unsafe extern "C" fn(*mut u32) -> CuptiResult;
pub type GetTimestamp = unsafe extern "C" fn(*mut u64) -> CuptiResult;
pub type GetCallbackName = unsafe extern "C" fn(Domain, u32, *mut *const c_char) -> CuptiResult;
pub type Subscribe = unsafe extern "C" fn(*mut SubscriberHandle, Option<Callback>, *mut c_void) -> CuptiResult;
pub type Unsubscribe = unsafe extern "C" fn(SubscriberHandle) -> CuptiResult;
pub type EnableCallback = unsafe extern "C" fn(u32, SubscriberHandle, Domain, u32) -> CuptiResult;
pub type GetGraphNodeId = unsafe extern "C" fn(GraphNode, *mut u64) -> CuptiResult;
pub type GetGraphExecId = unsafe extern "C" fn(GraphExec, *mut u32) -> CuptiResult;
pub type RegisterCallbacks = unsafe extern "C" fn(Option<BufferRequested>, Option<BufferCompleted>) -> CuptiResult;
/// `cuptiActivityEnable` and `cuptiActivityDisable`
pub type SetKind = unsafe extern "C" fn(Kind) -> CuptiResult;
/// `cuptiActivityEnableRuntimeApi` and `cuptiActivityEnableDriverApi`
pub type EnableApi = unsafe extern "C" fn(u32, u8) -> CuptiResult;
/// `CUpti_ActivityUnifiedMemoryCounterConfig`. Scope and device are ignored since CUDA 7.0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UnifiedMemoryConfig {
    /// 2: the process on all devices.
    pub scope: u32,
    /// What is recorded.
    pub kind: UnifiedMemoryCounter,
    /// Device of a scope of one device.
    pub device: u32,
    /// 1 records, 0 stops.
    pub enable: u32,
}
/// `cuptiActivityConfigureUnifiedMemoryCounter`
pub type ConfigureUnifiedMemory = unsafe extern "C" fn(*mut UnifiedMemoryConfig, u32) -> CuptiResult;
/// `cuptiActivityFlushAll`
pub type Flush = unsafe extern "C" fn(u32) -> CuptiResult;
pub type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiResult;
pub type GetNumDroppedRecords = unsafe extern "C" fn(Context, u32, *mut usize) -> CuptiResult;
pub type SetAttribute = unsafe extern "C" fn(Attribute, *mut usize, *mut c_void) -> CuptiResult;
pub type SetThreadIdType = unsafe extern "C" fn(ThreadIdType) -> CuptiResult;
pub type GetStructSize = unsafe extern "C" fn(Kind, u32, *mut usize) -> CuptiResult;
/// `cuDriverGetVersion` of libcuda
pub type DriverGetVersion = unsafe extern "C" fn(*mut i32) -> i32;
/// `cuInit` of libcuda
pub type DriverInitialize = unsafe extern "C" fn(u32) -> i32;

/// Data of an API callback (`CUpti_CallbackData`).
#[derive(Debug)]
#[repr(C)]
pub struct ApiCallbackData {
    /// Entry or exit of the call.
    pub site: CallbackSite,
    /// Name of the function.
    pub function: *const c_char,
    /// Parameters of the function: each function has its own struct.
    pub parameters: *const c_void,
    /// Return value of the function.
    pub result: *mut c_void,
    /// Name of the kernel for functions that launch one, else NULL.
    pub symbol: *const c_char,
    /// Context of the call.
    pub context: Context,
    /// Id of the context, as in records.
    pub context_id: u32,
    /// Storage for the client, shared by entry and exit of a call.
    pub correlation_data: *mut u64,
    /// Correlation id of the call.
    pub correlation: u32,
}

/// Data of a resource callback (`CUpti_ResourceData`).
#[derive(Debug)]
#[repr(C)]
pub struct ResourceData {
    /// The context.
    pub context: Context,
    /// The stream.
    pub stream: *mut c_void,
    /// Description of the resource: a [`GraphData`] for graphs.
    pub descriptor: *const c_void,
}

/// Data of a callback about graphs (`CUpti_GraphData`).
#[derive(Debug)]
#[repr(C)]
pub struct GraphData {
    /// Graph, and the graph it was cloned from.
    pub graphs: [*mut c_void; 2],
    /// Node.
    pub node: GraphNode,
    /// The node it was cloned from.
    pub original: GraphNode,
    /// Type of the node; not set when the node is cloned (CUPTI 13.0).
    pub node_type: u32,
    /// The node that it depends on.
    pub dependency: *mut c_void,
    /// The executable graph.
    pub exec: GraphExec,
}
