//! Classifies functions of CUDA and HIP by name.
//!
//! Names are used rather than callback numbers because a recorded name stays readable when a newer CUDA adds
//! a variant (`cudaLaunchKernelExC`), and most variants differ only in a suffix. A function that no rule
//! knows is [`ApiClass::Other`]: it still counts as time inside CUDA. The class is cached by function id, so
//! the string work happens once per function and not once per call.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::ApiFunctionId;

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiClass {
    /// Launches a kernel. Exactly one kernel record follows, or more for a launch on several devices.
    KernelLaunch,
    /// Launches a graph. Any number of records follows.
    GraphLaunch,
    /// Issues a copy and may return before it is done. A zero-byte copy leaves no record.
    Copy,
    /// Copies, and generally returns when the copy is done.
    BlockingCopy,
    /// Issues a memset. A zero-byte memset leaves no record.
    Memset,
    /// Waits for device work.
    Synchronize,
    /// Checks whether device work is done, without waiting. A polling loop is a wait all the same.
    Query,
    /// Allocates, frees, maps or registers memory.
    Memory,
    /// Loads or links kernels, which may have been built right before.
    LoadCode,
    /// Looks up or unloads code, or creates a context: start-up work.
    Load,
    /// Builds, instantiates or uploads a graph.
    GraphBuild,
    /// Starts capturing launches into a graph: from here on, launches run nothing.
    CaptureBegin,
    /// Ends a capture.
    CaptureEnd,
    /// Anything else.
    Other,
}

impl ApiClass {
    /// Classifies a function by its name, with or without version suffix.
    pub fn of(name: &str) -> Self {
        let name = without_suffix(name);
        let stem = ["cuda", "cu", "hip"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        // Launches of HIP: `ExtLaunchKernel`, `ModuleLaunchKernel`, `ExtModuleLaunchKernel`.
        let launch = stem.trim_start_matches("Ext").trim_start_matches("Module");
        let stem = if launch.starts_with("Launch") { launch } else { stem };
        // Order matters: `GraphAddMemcpyNode` copies nothing, and only the suffix of `MemcpyAsync` makes it
        // asynchronous.
        if stem == "GraphLaunch" {
            Self::GraphLaunch
        } else if stem.starts_with("Graph") {
            Self::GraphBuild
        } else if stem.starts_with("LaunchHostFunc") {
            Self::Other
        } else if stem.starts_with("Launch") {
            Self::KernelLaunch
        } else if stem.starts_with("Memcpy") {
            if stem.contains("Async") { Self::Copy } else { Self::BlockingCopy }
        } else if stem.starts_with("Memset") {
            Self::Memset
        } else if stem.ends_with("Synchronize") {
            Self::Synchronize
        } else if matches!(stem, "EventQuery" | "StreamQuery") {
            Self::Query
        } else if stem.starts_with("StreamBeginCapture") {
            Self::CaptureBegin
        } else if stem == "StreamEndCapture" {
            Self::CaptureEnd
        } else if starts_with_any(stem, &MEMORY) {
            Self::Memory
        } else if starts_with_any(stem, &LOAD_CODE) {
            Self::LoadCode
        } else if starts_with_any(stem, &LOAD) {
            Self::Load
        } else {
            Self::Other
        }
    }

    /// True if a function of this name initializes CUDA in its process: a recording with a call of it began with the
    /// process.
    pub fn initializes(name: &str) -> bool {
        matches!(
            without_suffix(name),
            "cuInit" | "cuCtxCreate" | "cuDevicePrimaryCtxRetain" | "hipInit" | "hipCtxCreate"
        )
    }

    /// True if such a call launches device work.
    pub const fn launches(self) -> bool {
        matches!(self, Self::KernelLaunch | Self::GraphLaunch | Self::Copy | Self::BlockingCopy | Self::Memset)
    }

    /// True if such a call, having taken `nanos`, kept the host waiting for the device.
    ///
    /// An asynchronous copy blocks if one end is pageable. The call's record does not show this, but its
    /// duration does: issuing takes 2 to 10 us, so [`BLOCKING_COPY_NANOS`] separates the two.
    pub const fn waits(self, nanos: u64) -> bool {
        match self {
            Self::Synchronize | Self::Query | Self::BlockingCopy => true,
            Self::Copy => nanos > BLOCKING_COPY_NANOS,
            _ => false,
        }
    }
}

/// An asynchronous copy call longer than this blocked: five times the slowest median of issuing one (10 us).
pub const BLOCKING_COPY_NANOS: u64 = 50_000;

const MEMORY: [&str; 19] = [
    "Malloc",
    "Free",
    "HostAlloc",
    "HostMalloc",
    "HostFree",
    "HostRegister",
    "HostUnregister",
    "MemAlloc",
    "MemFree",
    "MemHost",
    "MemCreate",
    "MemRelease",
    "MemMap",
    "MemUnmap",
    "MemSetAccess",
    "MemAddress",
    "MemPool",
    "ArrayCreate",
    "ArrayDestroy",
];

const LOAD_CODE: [&str; 4] = ["ModuleLoad", "LibraryLoad", "Link", "FuncLoad"];

const LOAD: [&str; 6] = ["ModuleUnload", "ModuleGet", "Library", "CtxCreate", "DevicePrimaryCtx", "Init"];

fn starts_with_any(stem: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| stem.starts_with(prefix))
}

/// `cudaLaunchKernel_ptsz_v7000` -> `cudaLaunchKernel`: versions and per-thread-stream variants behave alike.
#[must_use]
pub fn without_suffix(name: &str) -> &str {
    let mut name = name;
    while let Some((stem, suffix)) = name.rsplit_once('_') {
        let version = suffix
            .strip_prefix('v')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
        if !version && suffix != "ptsz" && suffix != "ptds" {
            break;
        }
        name = stem;
    }
    name
}

/// Prefixes of the functions that allocate, without `cuda` or `cu`. Registering host memory costs as much as
/// allocating pinned memory.
const ALLOCATIONS: [&str; 6] = ["Malloc", "MemAlloc", "HostAlloc", "MemHostAlloc", "HostRegister", "MemHostRegister"];
/// Functions of virtual memory management, to be matched exactly.
const MAPPINGS: [&str; 1] = ["MemCreate"];

/// Functions that release memory of a device, likewise.
const RELEASES: [&str; 7] = ["Free", "FreeAsync", "FreeArray", "MemFree", "MemFreeAsync", "MemRelease", "ArrayDestroy"];

/// True if a function of this name allocates device or pinned memory.
pub fn allocates(function: &str) -> bool {
    let name = without_suffix(function);
    let stem = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).unwrap_or(name);
    ALLOCATIONS.iter().any(|beginning| stem.starts_with(beginning)) || MAPPINGS.contains(&stem)
}

/// True if a function of this name allocates memory of a device.
pub(crate) fn allocates_on_device(function: &str) -> bool {
    (allocates(function) || function.contains("ArrayCreate")) && !function.contains("Host")
}

/// True if a function of this name releases memory of a device.
pub(crate) fn releases_on_device(function: &str) -> bool {
    let name = without_suffix(function);
    let stem = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).unwrap_or(name);
    RELEASES.contains(&stem)
}

/// Classes by function id.
#[derive(Debug, Default)]
pub(crate) struct ApiClasses(Vec<Option<ApiClass>>);

impl ApiClasses {
    /// Class of `function`. A function that is not in the dictionary yet is not cached.
    pub(crate) fn get(&mut self, function: ApiFunctionId, dictionary: &Dictionary) -> ApiClass {
        let index = function.0 as usize;
        if let Some(&Some(class)) = self.0.get(index) {
            return class;
        }
        let Some(known) = dictionary.api_function(function) else {
            return ApiClass::Other;
        };
        let class = ApiClass::of(dictionary.name(known.name));
        // The id is an index into the dictionary, so this never outgrows the dictionary.
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(class);
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_name() {
        use ApiClass::*;
        for (name, class) in [
            ("cudaLaunchKernel_v7000", KernelLaunch),
            ("cudaLaunchKernel_ptsz_v7000", KernelLaunch),
            ("cudaLaunchKernelExC_v11060", KernelLaunch),
            ("cuLaunchKernel", KernelLaunch),
            ("cuLaunchCooperativeKernel_ptsz", KernelLaunch),
            ("cudaLaunchHostFunc_v10000", Other),
            ("cudaGraphLaunch_v10000", GraphLaunch),
            ("cuGraphLaunch_ptsz", GraphLaunch),
            ("cudaGraphInstantiate_v12000", GraphBuild),
            ("cudaGraphAddMemcpyNode_v10000", GraphBuild),
            ("cudaMemcpyAsync_v3020", Copy),
            ("cuMemcpyHtoDAsync_v2", Copy),
            ("cudaMemcpy_v3020", BlockingCopy),
            ("cuMemcpyDtoH_v2", BlockingCopy),
            ("cudaMemsetAsync_v3020", Memset),
            ("cuMemsetD8_v2", Memset),
            ("cudaDeviceSynchronize_v3020", Synchronize),
            ("cuCtxSynchronize", Synchronize),
            ("cudaEventSynchronize_v3020", Synchronize),
            ("cudaEventQuery_v3020", Query),
            ("cudaMalloc_v3020", Memory),
            ("cudaFreeAsync_v11020", Memory),
            ("cudaFree_v3020", Memory),
            ("cuMemAlloc_v2", Memory),
            ("cudaHostAlloc_v3020", Memory),
            ("cuMemHostRegister_v2", Memory),
            ("cuModuleLoadData", LoadCode),
            ("cuLibraryLoadData", LoadCode),
            ("cuLinkComplete", LoadCode),
            ("cuLibraryGetKernel", Load),
            ("cuModuleUnload", Load),
            ("cuDevicePrimaryCtxRetain", Load),
            ("cudaStreamBeginCapture_v10000", CaptureBegin),
            ("cuStreamEndCapture", CaptureEnd),
            ("hipLaunchKernel", KernelLaunch),
            ("hipExtLaunchKernel", KernelLaunch),
            ("hipExtModuleLaunchKernel", KernelLaunch),
            ("hipModuleLaunchKernel", KernelLaunch),
            ("hipModuleLoadData", LoadCode),
            ("hipGraphLaunch", GraphLaunch),
            ("hipMemcpyAsync", Copy),
            ("hipMemcpyWithStream", BlockingCopy),
            ("hipMemcpy", BlockingCopy),
            ("hipMemsetAsync", Memset),
            ("hipStreamSynchronize", Synchronize),
            ("hipEventQuery", Query),
            ("hipHostMalloc", Memory),
            ("hipMalloc", Memory),
            ("cudaStreamWaitEvent_v3020", Other),
            ("cudaEventRecord_v3020", Other),
            ("", Other),
        ] {
            assert_eq!(ApiClass::of(name), class, "{name}");
        }
    }

    #[test]
    fn suffixes_are_removed_and_names_with_underscores_kept() {
        assert_eq!(without_suffix("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
        assert_eq!(without_suffix("some_value"), "some_value");
        assert_eq!(without_suffix("_v"), "_v");
    }

    #[test]
    fn allocations_are_reported_by_name() {
        for name in
            ["cudaMalloc", "cudaMallocAsync_ptsz", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemCreate", "cudaHostAlloc"]
        {
            assert!(allocates(name) && ApiClass::of(name) == ApiClass::Memory, "{name}");
        }
        for name in ["cudaFree", "cuMemFree_v2", "cudaMemcpy", "cuMemMap", "cudaLaunchKernel", "cudaMemset"] {
            assert!(!allocates(name), "{name}");
        }
        for (name, allocated, released) in [
            ("cudaMalloc", true, false),
            ("cudaMallocAsync_ptsz_v11020", true, false),
            ("cuMemAllocHost_v2", false, false),
            ("cudaHostAlloc", false, false),
            ("cuMemCreate", true, false),
            ("cudaFree_v3020", false, true),
            ("cudaFreeHost", false, false),
            ("cuMemFreeAsync_ptsz", false, true),
        ] {
            assert_eq!((allocates_on_device(name), releases_on_device(name)), (allocated, released), "{name}");
        }
    }
}
