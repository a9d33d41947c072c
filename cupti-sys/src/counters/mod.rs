//! Hardware counters: which metrics a chip has, samples of the whole device, ranges, program counters.
//!
//! The interfaces came with CUDA 12.6. Each needs `libnvperf_host.so` beside libcupti, which CUPTI finds by name alone,
//! so it is loaded here by the absolute path of the libcupti in use, before CUPTI asks for it. No libcupti of CUDA 12.4
//! to 13.4 names `libnvperf_target.so`, whose tables would take another 101 MB.
//!
//! | module | what it promises |
//! |---|---|
//! | [`abi`] | parameter structs and functions, all of which may be missing |
//! | [`host`] | metrics and passes of a chip, and values from counters; needs no GPU |
//! | [`sets`] | which metrics are sampled on a chip |
//! | [`sampling`] | samples of a whole device at a fixed interval |
//! | [`range`] | counters of one launch at a time |
//! | [`pc`] | where in kernels warps wait |
//! | [`refusal`] | why the hardware is not to be had, in words |
//!
//! The counters of a device belong to one owner at a time: sampling, ranges, program counters, and other processes
//! exclude each other. [`Counters::sampling_availability`] asks whether they are free; PC sampling must never be tried
//! without asking, because it crashes the process later (H200, CUPTI 13.0).

pub mod abi;
pub mod host;
pub mod pc;
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

/// The library that CUPTI computes metrics with. Its tables take 101 MB (CUPTI 13.0).
const METRIC_LIBRARY: &str = "libnvperf_host.so";

/// The counter interfaces of the libcupti in use.
#[derive(Debug)]
pub struct Counters {
    functions: Functions,
    metric_library: PathBuf,
    /// Why it could not be loaded.
    missing: Option<String>,
    /// Whether CUPTI's profiler was initialized: once in a process, and never undone, because CUPTI does not count.
    initialized: Mutex<bool>,
}

static COUNTERS: OnceLock<Counters> = OnceLock::new();

impl Counters {
    /// Those of this library: loads what belongs to it, once. Calls no CUPTI function.
    #[must_use]
    pub fn of(cupti: &'static Cupti) -> &'static Self {
        COUNTERS.get_or_init(|| {
            let metric_library = cupti.path().with_file_name(METRIC_LIBRARY);
            let missing = keep_loaded(&metric_library).err();
            Self { functions: Functions::of(&cupti.library), metric_library, missing, initialized: Mutex::new(false) }
        })
    }

    /// Its functions.
    #[must_use]
    pub const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The library beside libcupti that metrics need, and why, if it could not be loaded.
    #[must_use]
    pub fn missing_library(&self) -> Option<(&Path, &str)> {
        Some((&self.metric_library, self.missing.as_deref()?))
    }

    /// Whether the library is new enough to sample: CUDA 12.6 and later.
    #[must_use]
    pub const fn can_sample(&self) -> bool {
        self.functions.pm_enable.exists() && self.functions.host_initialize.exists()
    }

    /// Makes CUPTI's profiler usable, once in a process. After `cuInit`; takes some 10 ms. Not in a callback.
    ///
    /// # Errors
    /// When CUPTI refuses; see [`refusal::Refusal`].
    pub fn initialize(&self) -> Result<(), Error> {
        let mut initialized = self.initialized.lock().unwrap_or_else(PoisonError::into_inner);
        if !*initialized {
            // SAFETY: the struct points to nothing.
            unsafe { self.functions.profiler_initialize.call(&mut ProfilerInitialize::new()) }?;
            *initialized = true;
        }
        Ok(())
    }

    /// What NVIDIA calls the chip of this device, such as `GH100`. After [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// When there is no such device.
    pub fn chip_name(&self, device: u32) -> Result<String, Error> {
        let mut parameters = DeviceGetChipName { device: device as usize, ..DeviceGetChipName::new() };
        // SAFETY: the struct points to nothing.
        unsafe { self.functions.chip_name.call(&mut parameters) }?;
        Ok(text(parameters.chip))
    }

    /// Chips that the library knows metrics of. Needs no GPU up to CUDA 13.1.
    ///
    /// # Errors
    /// When CUPTI refuses.
    pub fn supported_chips(&self) -> Result<Vec<String>, Error> {
        let mut parameters = HostGetSupportedChips::new();
        // SAFETY: the struct points to nothing.
        unsafe { self.functions.host_chips.call(&mut parameters) }?;
        // SAFETY: on success the answer is that many texts of the library.
        Ok(unsafe { texts(parameters.chips, parameters.count) })
    }

    /// Asks whether the counters of a device can be had for sampling, and takes nothing. It answers as well for ranges
    /// and program counters, which exclude sampling. After [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// [`HARDWARE_BUSY`](crate::CuptiResult::HARDWARE_BUSY) while anybody on this machine has them,
    /// [`INSUFFICIENT_PRIVILEGES`](crate::CuptiResult::INSUFFICIENT_PRIVILEGES) where only administrators may, and others;
    /// see [`refusal::Refusal`].
    pub fn sampling_availability(&self, device: u32) -> Result<(), Error> {
        let mut parameters = PmGetCounterAvailability { device: device as usize, ..PmGetCounterAvailability::new() };
        // SAFETY: without an image the struct points to nothing, and only the size is asked for.
        unsafe { self.functions.pm_availability.call(&mut parameters) }
    }
}

/// Loads a library for good; on failure the dynamic linker's words.
fn keep_loaded(path: &Path) -> Result<(), String> {
    if !path.is_file() {
        return Err("there is no such file".to_owned());
    }
    // SAFETY: NVIDIA's own library from the folder of the libcupti that is in use; its initialisers run in any process.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => {
            std::mem::forget(library);
            Ok(())
        }
        Err(error) => Err(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

/// A text of the library; empty for NULL.
fn text(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, and then a NUL-terminated text of the library, which is never unloaded.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

/// Texts of the library.
///
/// # Safety
/// NULL, or the address of `count` texts.
unsafe fn texts(addresses: *const *const c_char, count: usize) -> Vec<String> {
    if addresses.is_null() {
        return Vec::new();
    }
    // SAFETY: as promised by the caller.
    (0..count).map(|index| text(unsafe { addresses.add(index).read() })).collect()
}
