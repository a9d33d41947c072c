//! Hardware counters: the metrics of a chip, samples of the whole device, ranges.
//!
//! The interfaces came with CUDA 12.6. Each needs `libnvperf_host.so` from the folder of libcupti. CUPTI
//! finds it by name alone, so it is loaded here first, by an absolute path next to the libcupti in use. No
//! libcupti of CUDA 12.4 to 13.4 names `libnvperf_target.so`, whose tables would take another 101 MB.
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | parameter structs and functions, any of which may be missing |
//! | [`host`] | metrics and passes of a chip, and values from counters; needs no GPU |
//! | [`names`] | names of metrics: suffixes, nearest names |
//! | [`sets`] | the metrics that are sampled on a chip |
//! | [`sampling`] | samples of a whole device at a fixed interval |
//! | [`range`] | counters of one launch at a time |
//! | [`refusal`] | why the hardware counters are unavailable, in words |
//!
//! The counters of a device have one owner at a time: PM sampling, ranges and other processes exclude each
//! other. [`Counters::sampling_availability`] checks that they are free.

pub mod abi;
pub mod host;
pub mod names;
pub mod range;
pub mod refusal;
pub mod sampling;
pub mod sets;

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::cupti::{Cupti, Error};
use abi::{DeviceGetChipName, Functions, HostGetSupportedChips, PmGetCounterAvailability, ProfilerInitialize};

/// The library with which CUPTI computes metrics. Its tables take 101 MB (CUPTI 13.0).
const METRIC_LIBRARY: &str = "libnvperf_host.so";

/// The counter interfaces of the libcupti in use.
#[derive(Debug)]
pub struct Counters {
    functions: Functions,
    metric_library: PathBuf,
    /// Why the metric library could not be loaded.
    missing: Option<String>,
    /// True once CUPTI's profiler is initialized: once per process, and never undone, because CUPTI does not
    /// count.
    initialized: Mutex<bool>,
}

static COUNTERS: OnceLock<Counters> = OnceLock::new();

impl Counters {
    /// The counter interfaces of this library: loads the metric library, once. Calls no CUPTI function.
    pub fn of(cupti: &'static Cupti) -> &'static Self {
        COUNTERS.get_or_init(|| {
            let metric_library = cupti.path().with_file_name(METRIC_LIBRARY);
            let missing = keep_loaded(&metric_library).err();
            Self { functions: Functions::of(&cupti.library), metric_library, missing, initialized: Mutex::new(false) }
        })
    }

    /// Its functions.
    pub const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The library next to libcupti that metrics need, and the reason, if it could not be loaded.
    pub fn missing_library(&self) -> Option<(&Path, &str)> {
        Some((&self.metric_library, self.missing.as_deref()?))
    }

    /// True if the library is new enough for sampling: CUDA 12.6 and later.
    pub const fn can_sample(&self) -> bool {
        self.functions.pm_enable.exists() && self.functions.host_initialize.exists()
    }

    /// Initializes CUPTI's profiler, once per process. After `cuInit`; takes some 10 ms. Not in a callback.
    ///
    /// # Errors
    /// If CUPTI refuses; see [`refusal::CounterError`].
    pub fn initialize(&self) -> Result<(), Error> {
        let mut initialized = self.initialized.lock().unwrap_or_else(PoisonError::into_inner);
        if !*initialized {
            // SAFETY: the struct holds no pointers.
            unsafe { self.functions.profiler_initialize.call(&mut ProfilerInitialize::new()) }?;
            *initialized = true;
        }
        Ok(())
    }

    /// NVIDIA's name of this device's chip, such as `GH100`. After [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// If there is no such device.
    pub fn chip_name(&self, device: u32) -> Result<String, Error> {
        let mut parameters = DeviceGetChipName { device: device as usize, ..DeviceGetChipName::new() };
        // SAFETY: the struct holds no pointers.
        unsafe { self.functions.chip_name.call(&mut parameters) }?;
        Ok(text(parameters.chip))
    }

    /// Chips for which the library has metrics. Needs no GPU up to CUDA 13.1.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn supported_chips(&self) -> Result<Vec<String>, Error> {
        let mut parameters = HostGetSupportedChips::new();
        // SAFETY: the struct holds no pointers.
        unsafe { self.functions.host_chips.call(&mut parameters) }?;
        // SAFETY: on success `chips` points to `count` strings of the library.
        Ok(unsafe { texts(parameters.chips, parameters.count) })
    }

    /// Checks that the counters of a device are available for sampling, without taking them. The result also
    /// holds for ranges, which exclude PM sampling. After [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// [`HARDWARE_BUSY`](crate::CuptiResult::HARDWARE_BUSY) while any process on this host has them,
    /// [`INSUFFICIENT_PRIVILEGES`](crate::CuptiResult::INSUFFICIENT_PRIVILEGES) if only administrators may
    /// use them, and others; see [`refusal::CounterError`].
    pub fn sampling_availability(&self, device: u32) -> Result<(), Error> {
        let mut parameters = PmGetCounterAvailability { device: device as usize, ..PmGetCounterAvailability::new() };
        // SAFETY: without an image the struct holds no pointer to follow, and CUPTI returns only the size.
        unsafe { self.functions.pm_availability.call(&mut parameters) }
    }
}

/// Loads a library for good; on failure returns the dynamic linker's message.
fn keep_loaded(path: &Path) -> Result<(), String> {
    if !path.is_file() {
        return Err("there is no such file".to_owned());
    }
    // SAFETY: NVIDIA's own library from the folder of the libcupti that is in use; its initializers run in
    // any process.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => {
            std::mem::forget(library);
            Ok(())
        }
        Err(error) => Err(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

/// A string of the library; empty for NULL.
fn text(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so a NUL-terminated string of the library, which is never unloaded.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

/// Strings of the library.
///
/// # Safety
/// `addresses` is NULL or the address of `count` strings.
unsafe fn texts(addresses: *const *const c_char, count: usize) -> Vec<String> {
    if addresses.is_null() {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    (0..count).map(|index| text(unsafe { addresses.add(index).read() })).collect()
}
