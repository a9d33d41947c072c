//! What a benchmark asks of the CUDA driver: to overwrite the L2 cache, so that a repetition finds none of its data
//! there, and to wait for the last repetition.
//!
//! Through the driver that the program has loaded: no CUDA crate is needed, and handles are plain pointers, so that any
//! CUDA crate will do. The cache is overwritten by a memset of twice its size. No context is made or made current here.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::error::BenchError;

/// `CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE` of `cuda.h`.
const L2_CACHE_SIZE: c_int = 38;
/// Overwritten for each byte of the cache: what replaces a line need not be the next to come.
const TIMES: usize = 2;

/// Of `dlopen` on Linux, which libloading does not name: only what is loaded already.
const RTLD_NOLOAD: c_int = 4;
/// The driver's library.
const DRIVER: &str = "libcuda.so.1";

type Context = *mut c_void;
type CurrentContext = unsafe extern "C" fn(*mut Context) -> c_int;
type Stream = *mut c_void;
type MemsetAsync = unsafe extern "C" fn(address: u64, value: u8, bytes: usize, stream: Stream) -> c_int;
type Free = unsafe extern "C" fn(address: u64) -> c_int;

/// Memory of the current context that is overwritten.
#[derive(Debug)]
pub struct L2Flush {
    address: u64,
    bytes: usize,
    memset: MemsetAsync,
    free: Free,
}

impl L2Flush {
    /// Takes memory in the context that is current on this thread, which must be current wherever it is used and
    /// dropped.
    ///
    /// # Errors
    /// When there is no driver, no current context or no memory.
    pub fn of_current_context() -> Result<Self, BenchError> {
        let failed = |what: &str| BenchError::Flush(what.to_owned());
        // SAFETY: every CUDA program has loaded this library; loading it initializes nothing.
        let driver = unsafe { Library::open(Some(DRIVER), RTLD_LAZY | RTLD_LOCAL) }
            .map_err(|_| failed("libcuda.so.1 was not found: there is no NVIDIA driver"))?;
        let missing = |error: libloading::Error| BenchError::Flush(error.to_string());
        // SAFETY: each name stands for a function of this type since CUDA 4; the library stays loaded (below).
        let (current, device, attribute, allocate, memset, free) = unsafe {
            (
                *driver.get::<CurrentContext>("cuCtxGetCurrent").map_err(missing)?,
                *driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>("cuCtxGetDevice").map_err(missing)?,
                *driver
                    .get::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>("cuDeviceGetAttribute")
                    .map_err(missing)?,
                *driver.get::<unsafe extern "C" fn(*mut u64, usize) -> c_int>("cuMemAlloc_v2").map_err(missing)?,
                *driver.get::<MemsetAsync>("cuMemsetD8Async").map_err(missing)?,
                *driver.get::<Free>("cuMemFree_v2").map_err(missing)?,
            )
        };
        // The driver cannot be unloaded safely.
        std::mem::forget(driver);
        let mut context = std::ptr::null_mut();
        let (mut ordinal, mut cache, mut address) = (0, 0, 0);
        // SAFETY: the pointers are to live locals.
        if unsafe { current(&raw mut context) } != 0 || context.is_null() {
            return Err(failed("no CUDA context is current on this thread; make one current first"));
        }
        // SAFETY: as above.
        if unsafe { device(&raw mut ordinal) } != 0 || unsafe { attribute(&raw mut cache, L2_CACHE_SIZE, ordinal) } != 0
        {
            return Err(failed("the driver does not tell the size of the cache"));
        }
        let bytes = usize::try_from(cache).unwrap_or(0).saturating_mul(TIMES);
        // SAFETY: as above.
        if bytes == 0 || unsafe { allocate(&raw mut address, bytes) } != 0 {
            return Err(BenchError::Flush(format!("{bytes} bytes of device memory cannot be had")));
        }
        Ok(Self { address, bytes, memset, free })
    }

    /// Overwrites the cache in the order of the default stream, without waiting.
    pub fn on_default_stream(&self) {
        // SAFETY: the default stream always exists.
        unsafe { self.on(std::ptr::null_mut()) };
    }

    /// Overwrites the cache in the order of `stream`, a `CUstream` or `cudaStream_t`, without waiting.
    ///
    /// # Safety
    /// `stream` is a stream of the context that this was made in.
    pub unsafe fn on(&self, stream: *mut c_void) {
        // SAFETY: our own memory of this size; the caller vouches for the stream. A failure shows in the program's next
        // call.
        unsafe { (self.memset)(self.address, 0, self.bytes, stream) };
    }
}

impl Drop for L2Flush {
    fn drop(&mut self) {
        // SAFETY: allocated above and freed once; freeing waits for what still uses it.
        unsafe { (self.free)(self.address) };
    }
}

/// Waits until the device has finished what was launched in the current context. Without a driver or a context there is
/// nothing to wait for.
///
/// # Errors
/// When a kernel failed: the number of the CUDA error.
pub(super) fn synchronize() -> Result<(), c_int> {
    // SAFETY: only looks at what the program has loaded; no code runs.
    let Ok(driver) = (unsafe { Library::open(Some(DRIVER), RTLD_LAZY | RTLD_NOLOAD) }) else { return Ok(()) };
    // SAFETY: each name stands for a function of this type since CUDA 4.
    let found = unsafe {
        (
            driver.get::<CurrentContext>("cuCtxGetCurrent"),
            driver.get::<unsafe extern "C" fn() -> c_int>("cuCtxSynchronize"),
        )
    };
    let (Ok(current), Ok(synchronize)) = found else { return Ok(()) };
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is to a live local.
    if unsafe { current(&raw mut context) } != 0 || context.is_null() {
        return Ok(());
    }
    // SAFETY: takes nothing; a context is current.
    match unsafe { synchronize() } {
        0 => Ok(()),
        error => Err(error),
    }
}
