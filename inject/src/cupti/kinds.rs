//! Activity kinds and API calls that are recorded.
//!
//! API calls are chosen by name, not by number: so the numbers of a newer CUDA are right without a new
//! release, and the choice is readable. Only calls that launch, move, wait, allocate, load or record an event
//! show where time went. In a PyTorch training step, nine of ten calls are others (`cudaGetDevice`,
//! `cudaGetLastError`, `cuDevicePrimaryCtxGetState`), so leaving them out is the largest possible saving
//! (docs/design/overhead.md).

use cupti_sys::Kind;

/// Kinds that describe devices and contexts: one record each, made when CUPTI or the context starts. They are
/// on if a program is measured from its start; for a capture in mid-run, the driver is queried instead.
/// `PCIE` is never on (`pcie_links` in `decode.rs`): it makes threads that launch at the same time wait for
/// each other, 8 threads five times as long (docs/design/overhead.md).
pub const DESCRIPTIONS: &[Kind] = &[Kind::DEVICE, Kind::CONTEXT];

/// Activity kinds, in the order in which they are enabled. `MEMCPY2` needs `MEMCPY`.
pub const KINDS: &[Kind] = &[Kind::MEMCPY, Kind::MEMCPY2, Kind::MEMSET, Kind::OVERHEAD, Kind::CONCURRENT_KERNEL];

/// Dependencies between streams through events. Only on request: enabling `SYNCHRONIZATION` alone made a
/// launch-bound PyTorch step twice as costly to trace (docs/design/overhead.md), and host waits are known
/// from the API calls. `CUDA_EVENT` needs `SYNCHRONIZATION`.
pub const DEPENDENCY_KINDS: &[Kind] = &[Kind::SYNCHRONIZATION, Kind::CUDA_EVENT];

/// Allocations and releases of memory. Only on request: they do not show where time went.
pub const MEMORY_KINDS: &[Kind] = &[Kind::MEMORY2, Kind::MEMORY_POOL];

/// Highest callback id that is queried for its name. CUDA 13.4 ends at 870 (driver); ids are append-only and
/// dense.
pub const LAST_CALLBACK_ID: u32 = 1200;

/// Name prefixes of recorded functions, after `cu` or `cuda`.
const BEGINNINGS: &[&str] = &[
    "Launch",
    "GraphLaunch",
    "GraphInstantiate",
    "GraphUpload",
    "GraphExecUpdate",
    "Memcpy",
    "Memset",
    "MemPrefetch",
    "EventRecord",
    "StreamWaitEvent",
    "StreamBeginCapture",
    "StreamEndCapture",
    "Malloc",
    "Free",
    "MemAlloc",
    "MemFree",
    "MemHost",
    "HostAlloc",
    "HostRegister",
    "HostUnregister",
    "MemCreate",
    "MemMap",
    "MemUnmap",
    "MemRelease",
    "ModuleLoad",
    "LibraryLoad",
    "LinkComplete",
    "DeviceReset",
    "CtxCreate",
    "CtxDestroy",
];

/// True if calls of this function are recorded. `name` may have a version suffix (`cudaLaunchKernel_v7000`).
pub fn wants(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")) else { return false };
    if rest.starts_with("MemcpyBatch") {
        return true;
    }
    // Address lookups and node construction only prepare work; they are frequent and cheap.
    if rest.starts_with("MemHostGetDevicePointer") || rest.starts_with("MemHostGetFlags") {
        return false;
    }
    rest.contains("Synchronize") || BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning))
}

/// True if the function launches a CUDA graph.
pub fn launches_graph(name: &str) -> bool {
    name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).is_some_and(|rest| rest.starts_with("GraphLaunch"))
}

/// True if the function allocates managed memory, so that page faults are recorded from then on: never otherwise,
/// because of their cost (docs/design/overhead.md).
pub fn allocates_managed(name: &str) -> bool {
    // cudaMallocManaged calls it.
    name.split("_v").next() == Some("cuMemAllocManaged")
}

#[cfg(test)]
mod tests {
    use crate::cupti::kinds::wants;

    #[test]
    fn calls_that_carry_information_are_wanted() {
        for name in [
            "cudaLaunchKernel_v7000",
            "cudaLaunchKernelExC_v11060",
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cudaMemcpyAsync_v3020",
            "cuMemcpyHtoDAsync_v2",
            "cudaStreamSynchronize_v3020",
            "cuCtxSynchronize",
            "cudaEventSynchronize_v3020",
            "cudaGraphLaunch_v10000",
            "cudaMalloc_v3020",
            "cudaFree_v3020",
            "cudaFreeAsync_v11020",
            "cuMemAlloc_v2",
            "cudaEventRecord_v3020",
            "cudaStreamWaitEvent_v3020",
            "cuModuleLoadDataEx",
            "cuLibraryLoadData",
            "cudaHostAlloc_v3020",
            "cudaStreamBeginCapture_v10000",
            "cuMemHostAlloc",
            "cudaDeviceSynchronize_v3020",
            "cudaLaunchHostFunc_v10000",
        ] {
            assert!(wants(name), "{name}");
        }
    }

    #[test]
    fn floods_are_not() {
        for name in [
            "cudaGetDevice_v3020",
            "cudaGetLastError_v3020",
            "cuDevicePrimaryCtxGetState",
            "cudaEventQuery_v3020",
            "cudaPeekAtLastError_v3020",
            "cudaStreamIsCapturing_v10000",
            "cudaFuncGetAttributes_v3020",
            "cuMemHostGetDevicePointer_v2",
            "cudaSetDevice_v3020",
            "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000",
            "INVALID",
            "",
        ] {
            assert!(!wants(name), "{name}");
        }
    }
}
