//! Types of the functions that are called and that CUPTI calls, and what is passed by address.

#![expect(
    missing_docs,
    reason = "a type without a comment is of the function cupti... or cuptiActivity... of its name"
)]

use std::ffi::{c_char, c_void};

use super::{Attribute, CallbackSite, CuptiResult, Domain, Kind, ThreadIdType};

/// The opaque `CUcontext`.
pub type Context = *mut c_void;
/// The opaque `CUgraphExec`.
pub type GraphExec = *mut c_void;
/// The opaque subscriber handle.
pub type SubscriberHandle = *mut c_void;
/// CUPTI wants memory: the client stores address, size in bytes and the largest number of records (0: no limit).
pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// CUPTI hands memory back: context, stream, address, size, and how many bytes hold records.
pub type BufferCompleted = unsafe extern "C" fn(Context, u32, *mut u8, usize, usize);
/// A subscribed event: the client's pointer, domain, callback id, data of the callback.
pub type Callback = unsafe extern "C" fn(*mut c_void, Domain, u32, *const c_void);

pub type GetVersion = unsafe extern "C" fn(*mut u32) -> CuptiResult;
pub type GetTimestamp = unsafe extern "C" fn(*mut u64) -> CuptiResult;
pub type GetCallbackName = unsafe extern "C" fn(Domain, u32, *mut *const c_char) -> CuptiResult;
pub type Subscribe = unsafe extern "C" fn(*mut SubscriberHandle, Option<Callback>, *mut c_void) -> CuptiResult;
pub type Unsubscribe = unsafe extern "C" fn(SubscriberHandle) -> CuptiResult;
pub type EnableCallback = unsafe extern "C" fn(u32, SubscriberHandle, Domain, u32) -> CuptiResult;
pub type EnableDomain = unsafe extern "C" fn(u32, SubscriberHandle, Domain) -> CuptiResult;
pub type GetGraphExecId = unsafe extern "C" fn(GraphExec, *mut u32) -> CuptiResult;
pub type RegisterCallbacks = unsafe extern "C" fn(Option<BufferRequested>, Option<BufferCompleted>) -> CuptiResult;
/// `cuptiActivityEnable` and `cuptiActivityDisable`
pub type SetKind = unsafe extern "C" fn(Kind) -> CuptiResult;
/// `cuptiActivityEnableRuntimeApi` and `cuptiActivityEnableDriverApi`
pub type EnableApi = unsafe extern "C" fn(u32, u8) -> CuptiResult;
pub type EnableAllSyncRecords = unsafe extern "C" fn(u8) -> CuptiResult;
/// `cuptiActivityFlushAll` and `cuptiActivityFlushPeriod`
pub type Flush = unsafe extern "C" fn(u32) -> CuptiResult;
pub type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiResult;
pub type GetNumDroppedRecords = unsafe extern "C" fn(Context, u32, *mut usize) -> CuptiResult;
pub type SetAttribute = unsafe extern "C" fn(Attribute, *mut usize, *mut c_void) -> CuptiResult;
pub type SetThreadIdType = unsafe extern "C" fn(ThreadIdType) -> CuptiResult;
pub type GetDeviceId = unsafe extern "C" fn(Context, *mut u32) -> CuptiResult;
pub type GetStructSize = unsafe extern "C" fn(Kind, u32, *mut usize) -> CuptiResult;
/// `cuDriverGetVersion` of libcuda
pub type DriverGetVersion = unsafe extern "C" fn(*mut i32) -> i32;
/// `cuInit` of libcuda
pub type DriverInitialize = unsafe extern "C" fn(u32) -> i32;

/// What an API callback gets to see (`CUpti_CallbackData`).
#[derive(Debug)]
#[repr(C)]
pub struct ApiCallbackData {
    /// Which side.
    pub site: CallbackSite,
    /// Name of the function.
    pub function: *const c_char,
    /// Its parameters: a struct of their own for each function.
    pub parameters: *const c_void,
    /// What it returns.
    pub result: *mut c_void,
    /// Name of the kernel, for functions that launch one; else NULL.
    pub symbol: *const c_char,
    /// The context of the call.
    pub context: Context,
    /// Its number, as records have it.
    pub context_id: u32,
    /// Room for the client's own.
    pub correlation_data: *mut u64,
    /// Number of the call.
    pub correlation: u32,
}

/// What a resource callback gets to see (`CUpti_ResourceData`).
#[derive(Debug)]
#[repr(C)]
pub struct ResourceData {
    /// The context.
    pub context: Context,
    /// The stream.
    pub stream: *mut c_void,
    /// What it is about; for graphs a [`GraphData`], for modules a [`ModuleData`].
    pub descriptor: *const c_void,
}

/// What a callback about modules gets to see (`CUpti_ModuleResourceData`).
#[derive(Debug)]
#[repr(C)]
pub struct ModuleData {
    /// Its number.
    pub id: u32,
    /// Bytes of it.
    pub size: usize,
    /// The cubin; valid until the callback returns.
    pub cubin: *const u8,
}

/// What a callback about graphs gets to see (`CUpti_GraphData`).
#[derive(Debug)]
#[repr(C)]
pub struct GraphData {
    /// Graph, the one it was copied from, node, the one it was copied from.
    pub made_of: [*mut c_void; 4],
    /// Its type; not set when it is copied (CUPTI 13.0).
    pub node_type: u32,
    /// The node it depends on.
    pub dependency: *mut c_void,
    /// The graph that can run.
    pub exec: GraphExec,
}
