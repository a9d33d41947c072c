//! CUDA driver functions that the calibration program calls, from the library that is loaded.
//!
//! All calls use one context and one stream. The resources are released when the process ends.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use anyhow::{Context, Result, anyhow, bail};
use libloading::os::unix::{Library, Symbol};

/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE` of `cuda.h`, in kHz.
const CLOCK_RATE: c_int = 13;
/// Clock that is assumed when the driver does not report one, kHz. Only the durations of kernels depend on
/// it.
const USUAL_CLOCK: c_int = 1_500_000;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const CAPTURE_RELAXED: c_int = 2;

/// An empty kernel, and one that spins for a number of SM clock cycles.
const KERNELS: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry gpuwhy_empty()
{
    ret;
}
.visible .entry gpuwhy_spin(.param .u64 cycles)
{
    .reg .pred %p<2>;
    .reg .b64 %r<5>;
    ld.param.u64 %r1, [cycles];
    mov.u64 %r2, %clock64;
again:
    mov.u64 %r3, %clock64;
    sub.s64 %r4, %r3, %r2;
    setp.lt.u64 %p1, %r4, %r1;
    @%p1 bra again;
    ret;
}
";

type Handle = *mut c_void;
type LaunchFunction = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// A device with a context and a stream.
pub struct Driver {
    launch: LaunchFunction,
    synchronize: unsafe extern "C" fn(Handle) -> c_int,
    copy: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int,
    set: unsafe extern "C" fn(u64, c_uint, usize, Handle) -> c_int,
    begin_capture: unsafe extern "C" fn(Handle, c_int) -> c_int,
    end_capture: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    instantiate: unsafe extern "C" fn(*mut Handle, Handle, u64) -> c_int,
    launch_graph: unsafe extern "C" fn(Handle, Handle) -> c_int,
    stream: Handle,
    empty: Handle,
    spin: Handle,
    memory: u64,
    host: *mut c_void,
    kilohertz: u64,
    pub name: String,
}

/// A graph that can be launched.
pub struct Graph(Handle);

impl Driver {
    /// Opens the first visible device. Fails when there is no driver, no device, or a call fails.
    pub fn open() -> Result<Self> {
        let library = cupti_sys::load_driver()
            .ok_or_else(|| anyhow!("libcuda.so.1 cannot be loaded: there is no NVIDIA driver"))?;
        let (mut ordinal, mut clock, mut context, mut module) = (0, 0, null_mut(), null_mut());
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: functions with these names have had these types since CUDA 12.0 or earlier. The library
        // stays loaded. All pointers are to live locals and fields of the sizes that are passed; handles come
        // from the previous calls, each of which has succeeded.
        unsafe {
            let initialize: unsafe extern "C" fn(c_uint) -> c_int = function(&library, "cuInit")?;
            let device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = function(&library, "cuDeviceGet")?;
            let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int = function(&library, "cuDeviceGetName")?;
            let attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
                function(&library, "cuDeviceGetAttribute")?;
            let retain: unsafe extern "C" fn(*mut Handle, c_int) -> c_int =
                function(&library, "cuDevicePrimaryCtxRetain")?;
            let make_current: unsafe extern "C" fn(Handle) -> c_int = function(&library, "cuCtxSetCurrent")?;
            let load: unsafe extern "C" fn(*mut Handle, *const c_void) -> c_int =
                function(&library, "cuModuleLoadData")?;
            let kernel: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int =
                function(&library, "cuModuleGetFunction")?;
            let make_stream: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int = function(&library, "cuStreamCreate")?;
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int = function(&library, "cuMemAlloc_v2")?;
            let allocate_host: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int =
                function(&library, "cuMemHostAlloc")?;
            let mut driver = Self {
                launch: function(&library, "cuLaunchKernel")?,
                synchronize: function(&library, "cuStreamSynchronize")?,
                copy: function(&library, "cuMemcpyHtoDAsync_v2")?,
                set: function(&library, "cuMemsetD32Async")?,
                begin_capture: function(&library, "cuStreamBeginCapture_v2")?,
                end_capture: function(&library, "cuStreamEndCapture")?,
                instantiate: function(&library, "cuGraphInstantiateWithFlags")?,
                launch_graph: function(&library, "cuGraphLaunch")?,
                stream: null_mut(),
                empty: null_mut(),
                spin: null_mut(),
                memory: 0,
                host: null_mut(),
                kilohertz: 0,
                name: String::new(),
            };
            succeeded("cuInit", initialize(0))?;
            succeeded("cuDeviceGet", device(&raw mut ordinal, 0))?;
            succeeded("cuDeviceGetName", name(text.as_mut_ptr(), 255, ordinal))?;
            if attribute(&raw mut clock, CLOCK_RATE, ordinal) != 0 || clock <= 0 {
                clock = USUAL_CLOCK;
            }
            succeeded("cuDevicePrimaryCtxRetain", retain(&raw mut context, ordinal))?;
            succeeded("cuCtxSetCurrent", make_current(context))?;
            succeeded("cuModuleLoadData", load(&raw mut module, KERNELS.as_ptr().cast()))?;
            succeeded("cuModuleGetFunction", kernel(&raw mut driver.empty, module, c"gpuwhy_empty".as_ptr()))?;
            succeeded("cuModuleGetFunction", kernel(&raw mut driver.spin, module, c"gpuwhy_spin".as_ptr()))?;
            succeeded("cuStreamCreate", make_stream(&raw mut driver.stream, 1))?;
            succeeded("cuMemAlloc", allocate(&raw mut driver.memory, 4096))?;
            succeeded("cuMemHostAlloc", allocate_host(&raw mut driver.host, 4096, 0))?;
            driver.name = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
            driver.kilohertz = u64::try_from(clock).unwrap_or(1);
            Ok(driver)
        }
    }

    /// Launches the empty kernel. Fails when the driver refuses, as do all functions below.
    pub fn empty(&self) -> Result<()> {
        self.kernel(self.empty, &mut [])
    }

    /// Launches a kernel that runs for about `nanos` nanoseconds.
    pub fn spin(&self, nanos: u64) -> Result<()> {
        let mut cycles = nanos.saturating_mul(self.kilohertz) / 1_000_000;
        self.kernel(self.spin, &mut [(&raw mut cycles).cast()])
    }

    fn kernel(&self, kernel: Handle, parameters: &mut [*mut c_void]) -> Result<()> {
        let (stream, parameters) = (self.stream, parameters.as_mut_ptr());
        // SAFETY: the kernel is of this module and gets the parameters that it takes, which the driver copies
        // before it returns.
        succeeded("cuLaunchKernel", unsafe {
            (self.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, null_mut())
        })
    }

    /// Copies 4 bytes from pinned memory.
    pub fn copy(&self) -> Result<()> {
        // SAFETY: both allocations have 4096 bytes and are never freed.
        succeeded("cuMemcpyHtoDAsync", unsafe { (self.copy)(self.memory, self.host, 4, self.stream) })
    }

    /// Sets 4 bytes.
    pub fn memset(&self) -> Result<()> {
        // SAFETY: as above.
        succeeded("cuMemsetD32Async", unsafe { (self.set)(self.memory, 0, 1, self.stream) })
    }

    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        succeeded("cuStreamSynchronize", unsafe { (self.synchronize)(self.stream) })
    }

    /// Captures the launches of `work` into a graph.
    pub fn graph(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: as above.
        succeeded("cuStreamBeginCapture", unsafe { (self.begin_capture)(self.stream, CAPTURE_RELAXED) })?;
        work(self)?;
        // SAFETY: the pointers are to live locals; the graph comes from the first of the two calls.
        unsafe {
            succeeded("cuStreamEndCapture", (self.end_capture)(self.stream, &raw mut graph))?;
            succeeded("cuGraphInstantiate", (self.instantiate)(&raw mut executable, graph, 0))?;
        }
        Ok(Graph(executable))
    }

    /// Launches a graph.
    pub fn launch(&self, graph: &Graph) -> Result<()> {
        // SAFETY: graphs come only from `graph` and are never destroyed.
        succeeded("cuGraphLaunch", unsafe { (self.launch_graph)(graph.0, self.stream) })
    }
}

/// # Safety
/// `T` is the type of the function called `name`, and the library stays loaded.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: the caller guarantees the type.
    let symbol: Symbol<T> = unsafe { library.get(name) }.with_context(|| format!("{name}: not in libcuda.so.1"))?;
    Ok(*symbol)
}

fn succeeded(function: &str, answer: c_int) -> Result<()> {
    match answer {
        0 => Ok(()),
        100 => bail!("{function}: there is no GPU (CUDA_ERROR_NO_DEVICE)"),
        error => bail!("{function} answered {error}"),
    }
}
