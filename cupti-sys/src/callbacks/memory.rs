//! Contents of a callback about a call of the driver that takes or gives device memory.
//!
//! Callback ids are those of `cupti_driver_cbid.h`, parameters the structs `..._params` of `generated_cuda_meta.h`
//! (nvidia-cuda-cupti 11.8 to 13.5, in which they are the same); descriptors are those of `cuda.h`. Runtime functions
//! call these driver functions, so none is reported twice.

use std::ffi::c_void;

use crate::abi::{ApiCallbackData, CallbackSite};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryFunction {
    /// `cuMemAlloc`, `cuMemAllocPitch`
    Allocate = 1,
    /// `cuMemAllocManaged`
    AllocateManaged = 2,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`
    AllocateAsync = 3,
    /// `cuMemFree`
    Free = 4,
    /// `cuMemFreeAsync`
    FreeAsync = 5,
    /// `cuMemCreate`
    Create = 6,
    /// `cuMemImportFromShareableHandle`, `cuMulticastCreate`: a handle without memory of its own
    Import = 7,
    /// `cuMemRetainAllocationHandle`
    Retain = 8,
    /// `cuMemRelease`
    Release = 9,
    /// `cuMemMap`
    Map = 10,
    /// `cuMemUnmap`
    Unmap = 11,
    /// `cuArrayCreate`, `cuArray3DCreate`, `cuMipmappedArrayCreate`
    CreateArray = 12,
    /// `cuArrayDestroy`, `cuMipmappedArrayDestroy`
    DestroyArray = 13,
    /// `cuModuleLoad...`, `cuLibraryLoad...`
    LoadModule = 14,
    /// `cuModuleUnload`, `cuLibraryUnload`
    UnloadModule = 15,
    /// `cuCtxCreate`
    CreateContext = 16,
    /// `cuCtxDestroy`
    DestroyContext = 17,
    /// `cuDevicePrimaryCtxRetain`
    RetainContext = 18,
    /// `cuDevicePrimaryCtxRelease`
    ReleaseContext = 19,
    /// `cuDevicePrimaryCtxReset`
    ResetContext = 20,
    /// `cuGraphInstantiate`, `cuGraphUpload`, `cuDeviceGraphMemTrim`
    GraphMemory = 21,
    /// `cuMemPoolCreate`, `cuMemPoolTrimTo`, `cuMemPoolDestroy`
    Pool = 22,
    /// `cuStreamBeginCapture`
    BeginCapture = 23,
    /// `cuStreamEndCapture`
    EndCapture = 24,
}

/// A successful or failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCall {
    /// What it does.
    pub function: MemoryFunction,
    /// Device address that it is about; 0 if none.
    pub address: u64,
    /// Handle of memory, array, module, context or captured stream that it is about; 0 if none. For an allocation the
    /// context.
    pub handle: u64,
    /// Bytes that were requested, or mapped; 0 if none.
    pub bytes: u64,
    /// Return value: a `CUresult`.
    pub result: u32,
    /// Ordinal of the device, if the parameters name it. [`HOST`](Self::HOST): memory of the host.
    pub device: Option<u32>,
    /// Id of the current context, as in records.
    pub context_id: u32,
}

impl MemoryCall {
    /// [`device`](Self::device) of memory that is none of a device.
    pub const HOST: u32 = u32::MAX;
}

use MemoryFunction as F;

/// Functions of the driver that take or give memory: callback id, name, and what they do.
pub const MEMORY_CALLS: [(u32, &str, MemoryFunction); 57] = [
    (10, "cuCtxCreate", F::CreateContext),
    (18, "cuModuleLoad", F::LoadModule),
    (19, "cuModuleLoadData", F::LoadModule),
    (20, "cuModuleLoadDataEx", F::LoadModule),
    (21, "cuModuleLoadFatBinary", F::LoadModule),
    (22, "cuModuleUnload", F::UnloadModule),
    (89, "cuArrayDestroy", F::DestroyArray),
    (235, "cuCtxCreate_v2", F::CreateContext),
    (243, "cuMemAlloc_v2", F::Allocate),
    (244, "cuMemAllocPitch_v2", F::Allocate),
    (245, "cuMemFree_v2", F::Free),
    (272, "cuArrayCreate_v2", F::CreateArray),
    (274, "cuArray3DCreate_v2", F::CreateArray),
    (322, "cuCtxDestroy_v2", F::DestroyContext),
    (347, "cuMipmappedArrayCreate", F::CreateArray),
    (349, "cuMipmappedArrayDestroy", F::DestroyArray),
    (371, "cuMemAllocManaged", F::AllocateManaged),
    (386, "cuDevicePrimaryCtxRetain", F::RetainContext),
    (495, "cuStreamBeginCapture", F::BeginCapture),
    (496, "cuStreamBeginCapture_ptsz", F::BeginCapture),
    (497, "cuStreamEndCapture", F::EndCapture),
    (498, "cuStreamEndCapture_ptsz", F::EndCapture),
    (513, "cuGraphInstantiate", F::GraphMemory),
    (539, "cuStreamBeginCapture_v2", F::BeginCapture),
    (540, "cuStreamBeginCapture_v2_ptsz", F::BeginCapture),
    (544, "cuDevicePrimaryCtxRelease_v2", F::ReleaseContext),
    (545, "cuDevicePrimaryCtxReset_v2", F::ResetContext),
    (549, "cuMemCreate", F::Create),
    (550, "cuMemRelease", F::Release),
    (551, "cuMemMap", F::Map),
    (552, "cuMemUnmap", F::Unmap),
    (555, "cuMemImportFromShareableHandle", F::Import),
    (565, "cuMemRetainAllocationHandle", F::Retain),
    (578, "cuGraphInstantiate_v2", F::GraphMemory),
    (580, "cuGraphUpload", F::GraphMemory),
    (581, "cuGraphUpload_ptsz", F::GraphMemory),
    (598, "cuMemAllocAsync", F::AllocateAsync),
    (599, "cuMemAllocAsync_ptsz", F::AllocateAsync),
    (600, "cuMemFreeAsync", F::FreeAsync),
    (601, "cuMemFreeAsync_ptsz", F::FreeAsync),
    (602, "cuMemPoolTrimTo", F::Pool),
    (607, "cuMemPoolCreate", F::Pool),
    (608, "cuMemPoolDestroy", F::Pool),
    (611, "cuMemAllocFromPoolAsync", F::AllocateAsync),
    (612, "cuMemAllocFromPoolAsync_ptsz", F::AllocateAsync),
    (640, "cuDeviceGraphMemTrim", F::GraphMemory),
    (643, "cuGraphInstantiateWithFlags", F::GraphMemory),
    (645, "cuCtxCreate_v3", F::CreateContext),
    (656, "cuGraphInstantiateWithParams", F::GraphMemory),
    (657, "cuGraphInstantiateWithParams_ptsz", F::GraphMemory),
    (678, "cuLibraryLoadData", F::LoadModule),
    (679, "cuLibraryLoadFromFile", F::LoadModule),
    (680, "cuLibraryUnload", F::UnloadModule),
    (706, "cuMulticastCreate", F::Import),
    (720, "cuStreamBeginCaptureToGraph", F::BeginCapture),
    (721, "cuStreamBeginCaptureToGraph_ptsz", F::BeginCapture),
    (757, "cuCtxCreate_v4", F::CreateContext),
];

/// What a function of the driver does.
pub(super) fn function(callback: u32) -> Option<MemoryFunction> {
    let row = MEMORY_CALLS.binary_search_by_key(&callback, |row| row.0).ok()?;
    MEMORY_CALLS.get(row).map(|row| row.2)
}

/// The call that this callback reports at its exit.
///
/// # Safety
/// `data` is what CUPTI passes to this callback of the driver's domain, and lives until the callback returns.
pub(super) unsafe fn call(callback: u32, data: &ApiCallbackData) -> Option<MemoryCall> {
    let function = function(callback)?;
    if data.site != CallbackSite::EXIT || data.parameters.is_null() || data.result.is_null() {
        return None;
    }
    // SAFETY: at the exit from a driver function CUPTI passes the address of its `CUresult`.
    let result = unsafe { data.result.cast::<u32>().read_unaligned() };
    let parameters = Parameters { base: data.parameters, succeeded: result == 0 };
    let context = data.context.addr() as u64;
    let mut call =
        MemoryCall { function, address: 0, handle: 0, bytes: 0, result, device: None, context_id: data.context_id };
    // SAFETY: the offsets are those of the function's parameters. Output parameters are only read after success, when
    // the driver has written them; they and the descriptors live as long as the call.
    unsafe {
        match function {
            F::Allocate | F::AllocateManaged | F::AllocateAsync => {
                (call.address, call.handle) = (parameters.output(0), context);
                call.bytes = match callback {
                    // cuMemAllocPitch_v2: pitch in bytes, height.
                    244 => parameters.output(8).saturating_mul(parameters.word(24)),
                    _ => parameters.word(8),
                };
            }
            F::Free | F::FreeAsync => call.address = parameters.word(0),
            F::Create => {
                (call.handle, call.bytes) = (parameters.output(0), parameters.word(8));
                // The location follows the type and the kinds of handles: CU_MEM_LOCATION_TYPE_DEVICE, ordinal.
                let location = parameters.behind(16, 8);
                call.device = Some(if location as u32 == 1 { (location >> 32) as u32 } else { MemoryCall::HOST });
            }
            F::Retain => (call.handle, call.address) = (parameters.output(0), parameters.word(8)),
            F::Map => {
                (call.address, call.bytes, call.handle) = (parameters.word(0), parameters.word(8), parameters.word(24));
            }
            F::Unmap => (call.address, call.bytes) = (parameters.word(0), parameters.word(8)),
            F::CreateArray => {
                (call.handle, call.bytes) = (parameters.output(0), parameters.array(callback));
            }
            F::Import | F::LoadModule => call.handle = parameters.output(0),
            F::CreateContext => {
                call.handle = parameters.output(0);
                // Behind flags, or an array of affinities or other parameters.
                let device = match callback {
                    645 => parameters.number(24),
                    757 => parameters.number(20),
                    _ => parameters.number(12),
                };
                call.device = Some(device);
            }
            F::RetainContext => {
                (call.handle, call.device) = (parameters.output(0), Some(parameters.number(8)));
            }
            F::ReleaseContext | F::ResetContext => call.device = Some(parameters.number(0)),
            F::Release | F::DestroyArray | F::UnloadModule | F::DestroyContext | F::BeginCapture | F::EndCapture => {
                call.handle = parameters.word(0)
            }
            F::GraphMemory | F::Pool => {}
        }
    }
    Some(call)
}

/// The parameters of a call.
#[derive(Clone, Copy)]
struct Parameters {
    base: *const c_void,
    succeeded: bool,
}

/// Each is unsafe because the caller names the offset of a parameter of this type.
impl Parameters {
    unsafe fn word(self, offset: usize) -> u64 {
        // SAFETY: guaranteed by the caller; `read_unaligned` needs no alignment.
        unsafe { self.base.byte_add(offset).cast::<u64>().read_unaligned() }
    }

    unsafe fn number(self, offset: usize) -> u32 {
        // SAFETY: as above.
        unsafe { self.base.byte_add(offset).cast::<u32>().read_unaligned() }
    }

    /// The word at `inner` behind a pointer; 0 for NULL.
    unsafe fn behind(self, offset: usize, inner: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let pointer = self.base.byte_add(offset).cast::<*const c_void>().read_unaligned();
            if pointer.is_null() { 0 } else { pointer.byte_add(inner).cast::<u64>().read_unaligned() }
        }
    }

    /// The word that the driver wrote behind a pointer; 0 after a failure.
    unsafe fn output(self, offset: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        if self.succeeded { unsafe { self.behind(offset, 0) } } else { 0 }
    }

    /// Bytes of an array by its descriptor, without the driver's padding; 0 for a format without a size of its own.
    unsafe fn array(self, callback: u32) -> u64 {
        // SAFETY: guaranteed by the caller: `CUDA_ARRAY_DESCRIPTOR`, or `CUDA_ARRAY3D_DESCRIPTOR` with a depth.
        let (mut sizes, format, levels) = unsafe {
            let is_flat = callback == 272;
            let depth = if is_flat { 1 } else { self.behind(8, 16) };
            let format = self.behind(8, if is_flat { 16 } else { 24 });
            let levels = if callback == 347 { self.number(16) } else { 1 };
            ([self.behind(8, 0), self.behind(8, 8), depth], format, levels)
        };
        let element = match format as u32 {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => 0,
        };
        let channels = format >> 32;
        let mut bytes = 0_u64;
        for _ in 0..levels.min(64) {
            let elements = sizes.iter().fold(1_u64, |product, &size| product.saturating_mul(size.max(1)));
            bytes = bytes.saturating_add(elements.saturating_mul(channels).saturating_mul(element));
            sizes = sizes.map(|size| size / 2);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn address<T>(of: &T) -> u64 {
        ptr::from_ref(of).expose_provenance() as u64
    }

    /// The call with these parameters, at its exit with this result.
    fn read(name: &str, parameters: &[u64], mut result: u32) -> MemoryCall {
        let data = ApiCallbackData {
            site: CallbackSite::EXIT,
            function: ptr::null(),
            parameters: parameters.as_ptr().cast(),
            result: (&raw mut result).cast(),
            symbol: ptr::null(),
            context: ptr::without_provenance_mut(0x70),
            context_id: 3,
            correlation_data: ptr::null_mut(),
            correlation: 99,
        };
        let row = MEMORY_CALLS.iter().find(|row| row.1 == name).unwrap();
        // SAFETY: the data belongs to this call, and its parameters to this function.
        let call = unsafe { call(row.0, &data) }.unwrap();
        assert_eq!((call.function, call.result, call.context_id), (row.2, result, 3));
        call
    }

    #[test]
    fn the_table_is_in_order_and_names_functions_of_the_driver() {
        assert!(MEMORY_CALLS.is_sorted_by_key(|row| row.0));
        assert!(MEMORY_CALLS.iter().all(|row| row.1.starts_with("cu") && !row.1.starts_with("cuda")));
        assert_eq!([function(243), function(244), function(1)], [Some(F::Allocate), Some(F::Allocate), None]);
    }

    #[test]
    fn address_handle_bytes_and_device_are_those_of_the_parameters() {
        let (given, pitch) = (0x7000_u64, 512_u64);
        let out = address(&given);
        let device = [1_u64 | 1 << 32, 1 | 2 << 32, 0];
        let host = [1_u64 | 1 << 32, 2, 0];
        let flat = [100_u64, 10, 0x20 | 4 << 32];
        let solid = [64_u64, 64, 8, 0x10 | 1 << 32, 0];
        let expect = |name, parameters: &[u64], expected| {
            let call = read(name, parameters, 0);
            assert_eq!((call.address, call.handle, call.bytes, call.device), expected, "{name}");
        };
        expect("cuMemAlloc_v2", &[out, 4096], (0x7000, 0x70, 4096, None));
        expect("cuMemAllocPitch_v2", &[out, address(&pitch), 100, 8, 4], (0x7000, 0x70, 4096, None));
        expect("cuMemAllocFromPoolAsync_ptsz", &[out, 77, 1, 2], (0x7000, 0x70, 77, None));
        expect("cuMemFree_v2", &[0x7000], (0x7000, 0, 0, None));
        expect("cuMemCreate", &[out, 2 << 20, address(&device), 0], (0, 0x7000, 2 << 20, Some(2)));
        expect("cuMemCreate", &[out, 2 << 20, address(&host), 0], (0, 0x7000, 2 << 20, Some(MemoryCall::HOST)));
        expect("cuMemMap", &[0x9000, 4096, 0, 0x7000, 0], (0x9000, 0x7000, 4096, None));
        expect("cuMemUnmap", &[0x9000, 4096], (0x9000, 0, 4096, None));
        expect("cuMemRetainAllocationHandle", &[out, 0x9000], (0x9000, 0x7000, 0, None));
        expect("cuMemRelease", &[0x7000], (0, 0x7000, 0, None));
        expect("cuArrayCreate_v2", &[out, address(&flat)], (0, 0x7000, 16_000, None));
        expect("cuArray3DCreate_v2", &[out, address(&solid)], (0, 0x7000, 65_536, None));
        expect("cuMipmappedArrayCreate", &[out, address(&solid), 2], (0, 0x7000, 73_728, None));
        expect("cuStreamBeginCapture_v2", &[0x5000, 1], (0, 0x5000, 0, None));
        expect("cuStreamEndCapture", &[0x5000, out], (0, 0x5000, 0, None));
        expect("cuLibraryLoadData", &[out, 0], (0, 0x7000, 0, None));
        expect("cuCtxCreate_v2", &[out, 5 | 3 << 32], (0, 0x7000, 0, Some(3)));
        expect("cuCtxCreate_v3", &[out, 0, 5 << 32, 3], (0, 0x7000, 0, Some(3)));
        expect("cuCtxCreate_v4", &[out, 0, 5 | 3 << 32], (0, 0x7000, 0, Some(3)));
        expect("cuDevicePrimaryCtxRetain", &[out, 3], (0, 0x7000, 0, Some(3)));
        expect("cuDevicePrimaryCtxReset_v2", &[3], (0, 0, 0, Some(3)));
    }

    #[test]
    fn what_a_failed_call_did_not_write_is_not_read() {
        for name in ["cuMemAlloc_v2", "cuMemCreate", "cuModuleLoadData"] {
            // An address that no process has.
            let call = read(name, &[8, 4096, 0, 0], 2);
            assert_eq!((call.address | call.handle & !0x70, call.result), (0, 2), "{name}");
        }
    }
}
