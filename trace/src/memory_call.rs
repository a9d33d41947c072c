//! Calls of the driver that take or give device memory.
//!
//! Recorded on request, by callbacks. Calls come in the order of their ends only between two flush marks.

use crate::named;
use crate::record::{ContextId, DeviceId, NameId, StackId, ThreadId, Timestamp};

named! {
    /// What a call does. Numbers are those of the trace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MemoryFunction: name {
        /// Allocates device memory.
        Allocate = 1 "cuMemAlloc",
        /// Allocates managed memory, whose pages are on the device only at times.
        AllocateManaged = 2 "cuMemAllocManaged",
        /// Allocates from a pool, in stream order.
        AllocateAsync = 3 "cuMemAllocAsync",
        /// Releases memory of these three.
        Free = 4 "cuMemFree",
        /// Returns memory to its pool, in stream order.
        FreeAsync = 5 "cuMemFreeAsync",
        /// Allocates physical memory without an address.
        Create = 6 "cuMemCreate",
        /// Makes a handle to physical memory that is counted elsewhere.
        Import = 7 "cuMemImportFromShareableHandle",
        /// Makes a further reference to the physical memory behind an address.
        Retain = 8 "cuMemRetainAllocationHandle",
        /// Gives up a reference to physical memory.
        Release = 9 "cuMemRelease",
        /// Maps physical memory to an address.
        Map = 10 "cuMemMap",
        /// Ends mappings.
        Unmap = 11 "cuMemUnmap",
        /// Allocates an array.
        CreateArray = 12 "cuArrayCreate",
        /// Releases an array.
        DestroyArray = 13 "cuArrayDestroy",
        /// Loads code and static variables.
        LoadModule = 14 "cuModuleLoad",
        /// Unloads them.
        UnloadModule = 15 "cuModuleUnload",
        /// Creates a context.
        CreateContext = 16 "cuCtxCreate",
        /// Destroys a context and its memory.
        DestroyContext = 17 "cuCtxDestroy",
        /// Refers to the primary context of a device; the first call creates it.
        RetainContext = 18 "cuDevicePrimaryCtxRetain",
        /// The opposite; the last call destroys it.
        ReleaseContext = 19 "cuDevicePrimaryCtxRelease",
        /// Destroys the primary context and its memory.
        ResetContext = 20 "cuDevicePrimaryCtxReset",
        /// Instantiates a CUDA graph, prepares it for launch, or gives back memory of graphs.
        GraphMemory = 21 "cuGraphUpload",
        /// Creates, destroys or shrinks a pool.
        Pool = 22 "cuMemPoolTrimTo",
    }
}

impl MemoryFunction {
    /// The function of this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|function| *function as u8 == number)
    }
}

/// A call that takes or gives device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCall {
    /// What it does.
    pub function: MemoryFunction,
    /// Start of the call.
    pub start: Timestamp,
    /// End of the call.
    pub end: Timestamp,
    /// Thread that called.
    pub thread: ThreadId,
    /// Device, if the call names it; else that of the [context](Self::context). [`HOST`](Self::HOST): none.
    pub device: Option<DeviceId>,
    /// Current context; 0 if none.
    pub context: ContextId,
    /// Device address that it is about; 0 if none.
    pub address: u64,
    /// Handle of memory, array, module or context that it is about; 0 if none. For an allocation the context.
    pub handle: u64,
    /// Bytes asked for, or mapped; 0 if none.
    pub bytes: u64,
    /// Return value: a `CUresult`, 0 after success.
    pub result: u32,
    /// True while the thread captured a CUDA graph.
    pub captures: bool,
    /// Python stack of the thread; [`StackId::NONE`] if unknown, and for a call that gives memory.
    pub stack: StackId,
    /// File of the innermost function outside the driver and the CUDA runtime, from its package's folder on.
    pub library: Option<NameId>,
}

impl MemoryCall {
    /// [`device`](Self::device) of memory of the host.
    pub const HOST: DeviceId = DeviceId(u32::MAX);
}

impl Default for MemoryCall {
    fn default() -> Self {
        Self {
            function: MemoryFunction::Allocate,
            start: Timestamp::ZERO,
            end: Timestamp::ZERO,
            thread: ThreadId(0),
            device: None,
            context: ContextId(0),
            address: 0,
            handle: 0,
            bytes: 0,
            result: 0,
            captures: false,
            stack: StackId::NONE,
            library: None,
        }
    }
}
