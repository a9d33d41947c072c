//! Names for CUPTI's numbers; the types of its functions are in `abi/functions.rs`.
//!
//! A C enum of a newer library may hold a value that our headers did not know. In a Rust enum that would be
//! undefined behavior, hence `u32` newtypes. Between 11.7 and 13.4 CUPTI has only added numbers, never
//! changed or reused one. Only the numbers that the safe layers use have names; this is not a full binding.

mod functions;

use std::fmt;

pub use functions::*;

/// Defines a `u32` newtype with named values, and a `Display` that prints the name, or the number of an
/// unnamed value.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($value:ident = $number:expr, $value_doc:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $(#[doc = $value_doc] pub const $value: Self = Self($number);)*

            /// Every value that has a name here.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Name of this value, or `None` if this version does not know it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }
    };
}

numbers! {
    /// Kind of an activity record: the first four bytes of every record.
    Kind {
        MEMCPY = 1, "A copy within a device, or between device and host.";
        MEMSET = 2, "A memset.";
        KERNEL = 3,
            "A kernel, traced one at a time: enabling this serializes the program. Named to be recognized, not to be \
             enabled.";
        DRIVER = 4, "A call of the driver API.";
        RUNTIME = 5, "A call of the runtime API.";
        DEVICE = 8, "A device's properties.";
        CONTEXT = 9, "A context.";
        CONCURRENT_KERNEL = 10, "A kernel, traced without changing how kernels overlap.";
        NAME = 11, "A name given to an object.";
        MARKER = 12, "An NVTX mark or range end.";
        MARKER_DATA = 13, "Extra data of an NVTX marker.";
        OVERHEAD = 17, "Time taken by CUPTI or the driver.";
        ENVIRONMENT = 20, "Clocks, temperature, power.";
        MEMCPY2 = 22, "A copy between two devices.";
        UNIFIED_MEMORY_COUNTER = 25, "Unified-memory events.";
        MODULE = 27, "A loaded module.";
        CUDA_EVENT = 36, "A CUDA event was recorded.";
        STREAM = 37, "A stream.";
        SYNCHRONIZATION = 38, "A synchronization.";
        EXTERNAL_CORRELATION = 39, "An id that a client attached to API calls.";
        NVLINK = 40, "NVLink topology; its layout is not append-only.";
        PCIE = 46, "A device's or bridge's place on PCI Express.";
        INTERNAL_LAUNCH_API = 48, "A launch call inside the driver that no API call of the program made.";
        MEMORY2 = 49, "An allocation or release.";
        MEMORY_POOL = 50, "A memory-pool operation.";
        GRAPH_TRACE = 51, "One launch of a whole graph.";
        JIT = 52, "Just-in-time compilation.";
    }
}

numbers! {
    /// `CUptiResult`: the return code of a CUPTI function.
    CuptiResult {
        SUCCESS = 0, "Done.";
        INVALID_PARAMETER = 1, "An argument was NULL or out of range.";
        INVALID_DEVICE = 2, "No such device.";
        INVALID_CONTEXT = 3, "No such context, or it is gone.";
        INVALID_OPERATION = 7, "The call is not allowed now.";
        OUT_OF_MEMORY = 8, "No memory.";
        HARDWARE = 9, "Hardware error.";
        PARAMETER_SIZE_NOT_SUFFICIENT = 10, "The buffer for an answer is too small.";
        API_NOT_IMPLEMENTED = 11,
            "The function does not exist in this library. This crate also answers it for a symbol that is missing.";
        MAX_LIMIT_REACHED = 12, "End of the buffer, or a limit.";
        NOT_READY = 13, "Not ready.";
        NOT_COMPATIBLE = 14, "Not together with what is already on.";
        NOT_INITIALIZED = 15, "CUPTI could not initialize: often a library newer than the driver, or no driver.";
        QUEUE_EMPTY = 18, "Nothing queued.";
        INVALID_HANDLE = 19, "A bad handle.";
        INVALID_STREAM = 20, "A bad stream.";
        INVALID_KIND = 21, "Unknown record kind.";
        DISABLED = 23, "Disabled.";
        INVALID_MODULE = 24, "A bad module.";
        HARDWARE_BUSY = 26, "Another tool holds the hardware.";
        NOT_SUPPORTED = 27, "Not on this system.";
        VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33, "Not on this virtual device.";
        INSUFFICIENT_PRIVILEGES = 35, "Administrator rights are needed.";
        OLD_PROFILER_API_INITIALIZED = 36, "Conflicts with the old profiler API.";
        LEGACY_PROFILER_NOT_SUPPORTED = 38, "A kind that was removed.";
        MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39, "Another profiler holds the one subscriber slot of this process.";
        VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40, "The virtual machine does not allow it.";
        CONFIDENTIAL_COMPUTING_NOT_SUPPORTED = 41, "Not with confidential computing.";
        CMP_DEVICE_NOT_SUPPORTED = 42, "Not on a mining card.";
        MIG_DEVICE_NOT_SUPPORTED = 43, "Not on a MIG slice.";
        SLI_DEVICE_NOT_SUPPORTED = 44, "Not with SLI.";
        WSL_DEVICE_NOT_SUPPORTED = 45, "Not on WSL.";
        UNKNOWN = 999, "Anything else; since 13.0 also \"there is no driver\".";
    }
}

numbers! {
    /// Reason for the time in an overhead record.
    OverheadKind {
        UNKNOWN = 0, "Not reported.";
        DRIVER_COMPILER = 1, "The driver's just-in-time compiler.";
        CUPTI_BUFFER_FLUSH = 65_536, "CUPTI flushed a buffer.";
        CUPTI_INSTRUMENTATION = 131_072, "CUPTI instrumented code.";
        CUPTI_RESOURCE = 196_608, "CUPTI allocated or freed its own resources.";
        RUNTIME_TRIGGERED_MODULE_LOADING = 262_144, "The runtime loaded a module.";
        LAZY_FUNCTION_LOADING = 327_680, "The driver loaded a function at first use.";
        COMMAND_BUFFER_FULL = 393_216, "A command buffer was full.";
        ACTIVITY_BUFFER_REQUEST = 458_752, "CUPTI asked its client for a buffer.";
        UVM_ACTIVITY_INIT = 524_288, "Unified-memory tracing was set up.";
    }
}

numbers! {
    /// Object that a synchronization waited for.
    SyncType {
        UNKNOWN = 0, "Not reported.";
        EVENT_SYNCHRONIZE = 1, "The host waited for an event.";
        STREAM_WAIT_EVENT = 2, "A stream was told to wait for an event.";
        STREAM_SYNCHRONIZE = 3, "The host waited for a stream.";
        CONTEXT_SYNCHRONIZE = 4, "The host waited for a context.";
    }
}

numbers! {
    /// Direction of a copy.
    MemcpyKind {
        UNKNOWN = 0, "Not reported.";
        HTOD = 1, "Host to device.";
        DTOH = 2, "Device to host.";
        HTOA = 3, "Host to array.";
        ATOH = 4, "Array to host.";
        ATOA = 5, "Array to array.";
        ATOD = 6, "Array to device.";
        DTOA = 7, "Device to array.";
        DTOD = 8, "Device to device.";
        HTOH = 9, "Host to host.";
        PTOP = 10, "Device to another device.";
    }
}

numbers! {
    /// Kind of memory at one end of a copy.
    MemoryKind {
        UNKNOWN = 0, "Not reported.";
        PAGEABLE = 1, "Ordinary host memory.";
        PINNED = 2, "Page-locked host memory.";
        DEVICE = 3, "Device memory.";
        ARRAY = 4, "CUDA array.";
        MANAGED = 5, "Managed memory.";
        DEVICE_STATIC = 6, "A `__device__` variable.";
        MANAGED_STATIC = 7, "A `__managed__` variable.";
    }
}

numbers! {
    /// `CUpti_ActivityMemoryOperationType`: allocation or release.
    MemoryOperation {
        ALLOCATION = 1, "It was allocated.";
        RELEASE = 2, "It was released.";
    }
}

numbers! {
    /// `CUpti_ActivityMemoryPoolOperationType`: creation, destruction or trimming of a pool.
    MemoryPoolOperation {
        CREATED = 1, "It was made.";
        DESTROYED = 2, "It was destroyed.";
        TRIMMED = 3, "It gave memory back.";
    }
}

numbers! {
    /// `CUpti_ActivityMemoryPoolType`: pool of this process or imported pool.
    MemoryPoolType {
        INVALID = 0, "None.";
        LOCAL = 1, "This process's.";
        IMPORTED = 2, "Another process's.";
    }
}

numbers! {
    /// `CUpti_ActivityUnifiedMemoryCounterKind`: event of managed memory.
    UnifiedMemoryCounter {
        GPU_PAGE_FAULT = 4, "A device accessed pages that were elsewhere.";
    }
}

numbers! {
    /// Type of the object that an overhead or marker record names.
    ObjectKind {
        UNKNOWN = 0, "Nothing.";
        PROCESS = 1, "A process.";
        THREAD = 2, "A thread.";
        DEVICE = 3, "A device.";
        CONTEXT = 4, "A context.";
        STREAM = 5, "A stream.";
    }
}

numbers! {
    /// Attributes of the activity API. The width of the value differs: see [`Cupti`](crate::Cupti)'s setters.
    Attribute {
        DEVICE_BUFFER_SIZE = 0, "Bytes of a device-side buffer (`usize`; default 3.2 MB, about 100,000 records).";
        DEVICE_BUFFER_POOL_LIMIT = 2, "How many device-side buffers may exist (`usize`; default 250).";
        ZEROED_OUT_ACTIVITY_BUFFER = 5, "1: the client zeroes buffers, CUPTI does not (`u8`).";
        DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6, "How many device-side buffers exist from the start (`usize`; default 3).";
        MEM_ALLOCATION_TYPE_HOST_PINNED = 8, "1: device-side buffers live in pinned host memory (`u8`).";
        PER_THREAD_ACTIVITY_BUFFER = 9,
            "1: one activity buffer a thread (`u8`; since 12.3, on by default since 13.0). Before the callbacks are \
             registered.";
    }
}

numbers! {
    /// Family that a callback id belongs to.
    Domain {
        DRIVER = 1, "The driver API.";
        RUNTIME = 2, "The runtime API.";
        RESOURCE = 3, "Contexts, streams, modules, graphs.";
        SYNCHRONIZE = 4, "Synchronizations.";
        NVTX = 5, "NVTX.";
        STATE = 6, "Errors of CUPTI itself.";
    }
}

numbers! {
    /// Callback ids of [`Domain::RESOURCE`].
    ResourceCallback {
        CONTEXT_CREATED = 1, "A context was created.";
        GRAPHNODE_CREATED = 13, "A node was added to a graph, by the program or by a capture.";
        GRAPHEXEC_CREATED = 18, "A graph was made ready to run.";
        GRAPHNODE_CLONED = 20, "A node of a graph was copied, which is how a graph that can run gets its own.";
    }
}

numbers! {
    /// Side of an API call that a callback reports: entry or exit.
    CallbackSite {
        ENTER = 0, "Before the call does anything.";
        EXIT = 1, "When the call is about to return.";
    }
}

numbers! {
    /// Kind of thread id in API records.
    ThreadIdType {
        DEFAULT = 0, "`pthread_self()` squeezed into 32 bits.";
        SYSTEM = 1, "The kernel's thread id.";
    }
}

/// Bit 0 of the flags of a copy or a memset: issued asynchronously.
pub const FLAG_ASYNC: u32 = 1;
/// Flag of `cuptiActivityFlushAll`: also return buffers that hold incomplete records.
pub const FLUSH_FORCED: u32 = 1;
/// The first `cuptiGetVersion` (CUDA 12.9) whose library survives a NULL buffer in reply to a request.
pub const NULL_BUFFER_TOLERATED_SINCE: u32 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_print_name_and_number() {
        assert_eq!(
            CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.to_string(),
            "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"
        );
        assert_eq!(CuptiResult(1234).to_string(), "1234");
    }

    #[test]
    fn newtypes_cross_the_border_as_plain_u32() {
        assert_eq!(size_of::<Kind>(), 4);
        assert_eq!(size_of::<CuptiResult>(), 4);
        assert_eq!(align_of::<Domain>(), 4);
    }
}
