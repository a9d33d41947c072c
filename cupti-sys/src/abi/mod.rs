//! Names for CUPTI's numbers; the types of its functions are in `abi/functions.rs`.
//!
//! A C enum of a newer library may hold a value that no header of ours knew, which would be undefined behavior
//! in a Rust enum: hence `u32` newtypes. CUPTI has never changed or reused a number between 11.7 and 13.4, only
//! added. Only what the safe floors use is named; this is not a full binding.

mod functions;

use std::fmt;

pub use functions::*;

/// Defines a `u32` newtype with named values, and a `Display` that prints the name, or the number when it has none.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $number:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)*

            /// Every value that has a name here.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The name of this value, if this version knows it.
            #[must_use]
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
    /// What an activity record describes; the first four bytes of every record.
    Kind {
        /// A copy within a device, or between device and host.
        MEMCPY = 1;
        /// A memset.
        MEMSET = 2;
        /// A kernel, traced one at a time: enabling this serializes the program. Named to be recognized, not to be
        /// enabled.
        KERNEL = 3;
        /// A call of the driver API.
        DRIVER = 4;
        /// A call of the runtime API.
        RUNTIME = 5;
        /// A device's properties.
        DEVICE = 8;
        /// A context.
        CONTEXT = 9;
        /// A kernel, traced without changing how kernels overlap.
        CONCURRENT_KERNEL = 10;
        /// A name given to an object.
        NAME = 11;
        /// An NVTX mark or range end.
        MARKER = 12;
        /// Extra data of an NVTX marker.
        MARKER_DATA = 13;
        /// Time taken by CUPTI or the driver.
        OVERHEAD = 17;
        /// Clocks, temperature, power.
        ENVIRONMENT = 20;
        /// A copy between two devices.
        MEMCPY2 = 22;
        /// Unified-memory events.
        UNIFIED_MEMORY_COUNTER = 25;
        /// A loaded module.
        MODULE = 27;
        /// A CUDA event was recorded.
        CUDA_EVENT = 36;
        /// A stream.
        STREAM = 37;
        /// A synchronization.
        SYNCHRONIZATION = 38;
        /// An id that a client attached to API calls.
        EXTERNAL_CORRELATION = 39;
        /// NVLink topology; its layout is not append-only.
        NVLINK = 40;
        /// A device's or bridge's place on PCI Express.
        PCIE = 46;
        /// A launch call inside the driver that no API call of the program made.
        INTERNAL_LAUNCH_API = 48;
        /// An allocation or release.
        MEMORY2 = 49;
        /// A memory-pool operation.
        MEMORY_POOL = 50;
        /// One launch of a whole graph.
        GRAPH_TRACE = 51;
        /// Just-in-time compilation.
        JIT = 52;
    }
}

numbers! {
    /// `CUptiResult`: what a CUPTI function answers.
    CuptiResult {
        /// Done.
        SUCCESS = 0;
        /// An argument was NULL or out of range.
        INVALID_PARAMETER = 1;
        /// No such device.
        INVALID_DEVICE = 2;
        /// No such context, or it is gone.
        INVALID_CONTEXT = 3;
        /// The call is not allowed now.
        INVALID_OPERATION = 7;
        /// No memory.
        OUT_OF_MEMORY = 8;
        /// Hardware error.
        HARDWARE = 9;
        /// The buffer for an answer is too small.
        PARAMETER_SIZE_NOT_SUFFICIENT = 10;
        /// The function does not exist in this library. This crate also answers it for a symbol that is missing.
        API_NOT_IMPLEMENTED = 11;
        /// End of the buffer, or a limit.
        MAX_LIMIT_REACHED = 12;
        /// Not ready.
        NOT_READY = 13;
        /// Not together with what is already on.
        NOT_COMPATIBLE = 14;
        /// CUPTI could not initialize: often a library newer than the driver, or no driver.
        NOT_INITIALIZED = 15;
        /// Nothing queued.
        QUEUE_EMPTY = 18;
        /// A bad handle.
        INVALID_HANDLE = 19;
        /// A bad stream.
        INVALID_STREAM = 20;
        /// Unknown record kind.
        INVALID_KIND = 21;
        /// Disabled.
        DISABLED = 23;
        /// A bad module.
        INVALID_MODULE = 24;
        /// Another tool holds the hardware.
        HARDWARE_BUSY = 26;
        /// Not on this system.
        NOT_SUPPORTED = 27;
        /// Not on this virtual device.
        VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33;
        /// Administrator rights are needed.
        INSUFFICIENT_PRIVILEGES = 35;
        /// Conflicts with the old profiler API.
        OLD_PROFILER_API_INITIALIZED = 36;
        /// A kind that was removed.
        LEGACY_PROFILER_NOT_SUPPORTED = 38;
        /// Another profiler holds the one subscriber slot of this process.
        MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39;
        /// The virtual machine does not allow it.
        VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40;
        /// Not with confidential computing.
        CONFIDENTIAL_COMPUTING_NOT_SUPPORTED = 41;
        /// Not on a mining card.
        CMP_DEVICE_NOT_SUPPORTED = 42;
        /// Not on a MIG slice.
        MIG_DEVICE_NOT_SUPPORTED = 43;
        /// Not with SLI.
        SLI_DEVICE_NOT_SUPPORTED = 44;
        /// Not on WSL.
        WSL_DEVICE_NOT_SUPPORTED = 45;
        /// Anything else; since 13.0 also "there is no driver".
        UNKNOWN = 999;
    }
}

numbers! {
    /// What an overhead record's time was spent on.
    OverheadKind {
        /// Not reported.
        UNKNOWN = 0;
        /// The driver's just-in-time compiler.
        DRIVER_COMPILER = 1;
        /// CUPTI flushed a buffer.
        CUPTI_BUFFER_FLUSH = 65_536;
        /// CUPTI instrumented code.
        CUPTI_INSTRUMENTATION = 131_072;
        /// CUPTI allocated or freed its own resources.
        CUPTI_RESOURCE = 196_608;
        /// The runtime loaded a module.
        RUNTIME_TRIGGERED_MODULE_LOADING = 262_144;
        /// The driver loaded a function at first use.
        LAZY_FUNCTION_LOADING = 327_680;
        /// A command buffer was full.
        COMMAND_BUFFER_FULL = 393_216;
        /// CUPTI asked its client for a buffer.
        ACTIVITY_BUFFER_REQUEST = 458_752;
        /// Unified-memory tracing was set up.
        UVM_ACTIVITY_INIT = 524_288;
    }
}

numbers! {
    /// What a synchronization waited for.
    SyncType {
        /// Not reported.
        UNKNOWN = 0;
        /// The host waited for an event.
        EVENT_SYNCHRONIZE = 1;
        /// A stream was told to wait for an event.
        STREAM_WAIT_EVENT = 2;
        /// The host waited for a stream.
        STREAM_SYNCHRONIZE = 3;
        /// The host waited for a context.
        CONTEXT_SYNCHRONIZE = 4;
    }
}

numbers! {
    /// Direction of a copy.
    MemcpyKind {
        /// Not reported.
        UNKNOWN = 0;
        /// Host to device.
        HTOD = 1;
        /// Device to host.
        DTOH = 2;
        /// Host to array.
        HTOA = 3;
        /// Array to host.
        ATOH = 4;
        /// Array to array.
        ATOA = 5;
        /// Array to device.
        ATOD = 6;
        /// Device to array.
        DTOA = 7;
        /// Device to device.
        DTOD = 8;
        /// Host to host.
        HTOH = 9;
        /// Device to another device.
        PTOP = 10;
    }
}

numbers! {
    /// What kind of memory one end of a copy is.
    MemoryKind {
        /// Not reported.
        UNKNOWN = 0;
        /// Ordinary host memory.
        PAGEABLE = 1;
        /// Page-locked host memory.
        PINNED = 2;
        /// Device memory.
        DEVICE = 3;
        /// CUDA array.
        ARRAY = 4;
        /// Managed memory.
        MANAGED = 5;
        /// A `__device__` variable.
        DEVICE_STATIC = 6;
        /// A `__managed__` variable.
        MANAGED_STATIC = 7;
    }
}

numbers! {
    /// `CUpti_ActivityMemoryOperationType`: what happened to memory.
    MemoryOperation {
        /// It was allocated.
        ALLOCATION = 1;
        /// It was released.
        RELEASE = 2;
    }
}

numbers! {
    /// `CUpti_ActivityMemoryPoolOperationType`: what happened to a pool.
    MemoryPoolOperation {
        /// It was made.
        CREATED = 1;
        /// It was destroyed.
        DESTROYED = 2;
        /// It gave memory back.
        TRIMMED = 3;
    }
}

numbers! {
    /// `CUpti_ActivityMemoryPoolType`: whose pool memory came from.
    MemoryPoolType {
        /// None.
        INVALID = 0;
        /// This process's.
        LOCAL = 1;
        /// Another process's.
        IMPORTED = 2;
    }
}

numbers! {
    /// What an overhead or marker record's object id names.
    ObjectKind {
        /// Nothing.
        UNKNOWN = 0;
        /// A process.
        PROCESS = 1;
        /// A thread.
        THREAD = 2;
        /// A device.
        DEVICE = 3;
        /// A context.
        CONTEXT = 4;
        /// A stream.
        STREAM = 5;
    }
}

numbers! {
    /// Settings of the activity API. The value's width differs: see [`Cupti`](crate::Cupti)'s setters.
    Attribute {
        /// Bytes of a device-side buffer (`usize`; default 3.2 MB, about 100,000 records).
        DEVICE_BUFFER_SIZE = 0;
        /// How many device-side buffers may exist (`usize`; default 250).
        DEVICE_BUFFER_POOL_LIMIT = 2;
        /// 1: the client zeroes buffers, CUPTI does not (`u8`).
        ZEROED_OUT_ACTIVITY_BUFFER = 5;
        /// How many device-side buffers exist from the start (`usize`; default 3).
        DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6;
        /// 1: device-side buffers live in pinned host memory (`u8`).
        MEM_ALLOCATION_TYPE_HOST_PINNED = 8;
        /// 1: one activity buffer a thread (`u8`; since 12.3, on by default since 13.0). Before the callbacks are
        /// registered.
        PER_THREAD_ACTIVITY_BUFFER = 9;
    }
}

numbers! {
    /// Which family a callback id belongs to.
    Domain {
        /// The driver API.
        DRIVER = 1;
        /// The runtime API.
        RUNTIME = 2;
        /// Contexts, streams, modules, graphs.
        RESOURCE = 3;
        /// Synchronizations.
        SYNCHRONIZE = 4;
        /// NVTX.
        NVTX = 5;
        /// Errors of CUPTI itself.
        STATE = 6;
    }
}

numbers! {
    /// Callback ids of [`Domain::RESOURCE`].
    ResourceCallback {
        /// A context was created.
        CONTEXT_CREATED = 1;
        /// A context is about to go.
        CONTEXT_DESTROY_STARTING = 2;
        /// A module was loaded into a context.
        MODULE_LOADED = 6;
        /// A graph was made ready to run.
        GRAPHEXEC_CREATED = 18;
        /// A node of a graph was copied, which is how a graph that can run gets its own.
        GRAPHNODE_CLONED = 20;
    }
}

numbers! {
    /// On which side of an API call a callback comes.
    CallbackSite {
        /// Before the call does anything.
        ENTER = 0;
        /// When the call is about to return.
        EXIT = 1;
    }
}

numbers! {
    /// What the thread id of an API record is.
    ThreadIdType {
        /// `pthread_self()` squeezed into 32 bits.
        DEFAULT = 0;
        /// The kernel's thread id.
        SYSTEM = 1;
    }
}

/// Bit 0 of the flags of a copy or a memset: issued as asynchronous.
pub const FLAG_ASYNC: u32 = 1;
/// Flag of `cuptiActivityFlushAll`: also hand over buffers that hold unfinished records.
pub const FLUSH_FORCED: u32 = 1;
/// The first `cuptiGetVersion` (CUDA 12.9) whose library survives a buffer request answered by NULL.
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
