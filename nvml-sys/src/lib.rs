//! Devices as described by NVIDIA's management library (NVML): utilization as whole-number percentages on
//! every GPU and as GPM metrics, read from hardware counters, on Hopper and later; readings of power,
//! temperature, clocks, memory and traffic; processes; and the link to the host.
//!
//! The library belongs to the driver. It may be absent, may lack a newer function, or may refuse: each of
//! these is a value, never a failure to load the program. It is loaded at run time, initialized once, and
//! neither shut down nor unloaded: the program may use it too. A call may take milliseconds and may wait for
//! the kernel driver, so no call belongs on a thread of the program. No type here is `Send`: the same thread
//! opens, queries and keeps it.
//!
//! Not included: MIG instances.
#![expect(unsafe_code, reason = "calls a C library")]

mod abi;
mod gauge_table;
mod gauges;
mod gpm;
mod loading;

use std::ffi::{CString, c_void};
use std::fmt;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use loading::function;

pub use abi::{
    FieldValue, GpmMetric, GpmMetricsGet, GpmSupport, METRIC_CAPACITY, Memory, ProcessInfo, ProcessSample, Utilization,
};
pub use gauge_table::{Field, FieldReading};
pub use gpm::{Metric, Sample};

/// The library, under the name that the driver installs.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Return code of a failed call: a number of `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// `NVML_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: Self = Self(3);
    /// `NVML_ERROR_NOT_FOUND`
    pub const NOT_FOUND: Self = Self(6);
    /// `NVML_ERROR_INSUFFICIENT_SIZE`
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`; also used if the library does not have the function.
    pub const FUNCTION_NOT_FOUND: Self = Self(13);

    const fn of(code: u32) -> Result<(), Self> {
        if code == abi::SUCCESS { Ok(()) } else { Err(Self(code)) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            1 => "not initialized",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            9 => "driver not loaded",
            13 => "no such function",
            15 => "the GPU is lost",
            18 => "library and driver differ in version",
            _ => return write!(f, "NVML error {}", self.0),
        };
        write!(f, "{words} (NVML error {})", self.0)
    }
}

impl std::error::Error for Status {}

/// Why NVML is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// There is no library with that name, or it lacks a function that every version has.
    Absent,
    /// Initialization failed.
    Refused(Status),
}

/// The library, loaded and initialized.
#[derive(Debug)]
pub struct Nvml {
    handle_by_uuid: abi::GetHandleByUuid,
    utilization: abi::GetUtilization,
    mig_mode: Option<abi::GetMigMode>,
    link_generation: Option<abi::GetNumber>,
    link_lanes: Option<abi::GetNumber>,
    gpm: Option<gpm::GpmFunctions>,
    gauges: gauge_table::NvmlFunctions,
}

impl Nvml {
    /// Loads and initializes the library, for good.
    ///
    /// # Errors
    /// If there is no library, or it refuses.
    pub fn load() -> Result<&'static Self, LoadError> {
        // SAFETY: the driver's own library, by its name; its initializers may run in any process.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) }.map_err(|_| LoadError::Absent)?;
        let init = function::<abi::Init>(&library, "nvmlInit_v2").ok_or(LoadError::Absent)?;
        let nvml = Self {
            handle_by_uuid: function(&library, "nvmlDeviceGetHandleByUUID").ok_or(LoadError::Absent)?,
            utilization: function(&library, "nvmlDeviceGetUtilizationRates").ok_or(LoadError::Absent)?,
            mig_mode: function(&library, "nvmlDeviceGetMigMode"),
            link_generation: function(&library, "nvmlDeviceGetMaxPcieLinkGeneration"),
            link_lanes: function(&library, "nvmlDeviceGetMaxPcieLinkWidth"),
            gpm: gpm::GpmFunctions::of(&library),
            gauges: gauge_table::NvmlFunctions::of(&library),
        };
        // The function pointers are valid as long as the library is loaded.
        std::mem::forget(library);
        // SAFETY: takes no argument, is reference-counted, and may be called from any thread.
        Status::of(unsafe { init() }).map_err(LoadError::Refused)?;
        Ok(Box::leak(Box::new(nvml)))
    }

    /// The device with this UUID, as reported by the CUDA driver.
    ///
    /// # Errors
    /// If NVML does not know it, or may not show it.
    pub fn device(&'static self, uuid: [u8; 16]) -> Result<Device, Status> {
        // Hexadecimal digits and hyphens contain no NUL.
        let name = CString::new(uuid_text(uuid)).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a NUL-terminated string and a pointer to a local.
        Status::of(unsafe { (self.handle_by_uuid)(name.as_ptr(), &raw mut handle) })?;
        Ok(Device { nvml: self, handle })
    }
}

/// One device, valid for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    nvml: &'static Nvml,
    handle: *mut c_void,
}

impl Device {
    /// Utilization by all processes in the driver's last sample period, which lasts a sixth of a second to
    /// one second (NVML reference, `nvmlUtilization_t`).
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] while the device is partitioned into MIG instances, and other codes of the
    /// driver.
    pub fn utilization(&self) -> Result<Utilization, Status> {
        let mut utilization = Utilization::default();
        // SAFETY: a handle of this library, and a pointer to a local of the struct that it fills in.
        Status::of(unsafe { (self.nvml.utilization)(self.handle, &raw mut utilization) })?;
        Ok(utilization)
    }

    /// True if it is partitioned into MIG instances: NVML's values then do not describe this process's part.
    /// False for devices and libraries that do not know MIG.
    pub fn is_divided(&self) -> bool {
        let Some(mig_mode) = self.nvml.mig_mode else { return false };
        let (mut current, mut pending) = (0, 0);
        // SAFETY: a handle of this library and pointers to locals.
        let status = unsafe { mig_mode(self.handle, &raw mut current, &raw mut pending) };
        Status::of(status).is_ok() && current != 0
    }

    /// Generation and lanes of the best PCI Express link that "is possible with this device and system" (NVML
    /// reference), not of the current link, which drops to a lower generation when idle. `None` if either is
    /// not reported.
    pub fn best_link(&self) -> Option<(u32, u32)> {
        let ask = |question: Option<abi::GetNumber>| {
            let mut answer = 0;
            // SAFETY: a handle of this library and a pointer to a local.
            let status = unsafe { question?(self.handle, &raw mut answer) };
            Status::of(status).ok().map(|()| answer).filter(|&number| number > 0)
        };
        Some((ask(self.nvml.link_generation)?, ask(self.nvml.link_lanes)?))
    }
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (index, byte) in uuid.into_iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_smi_does() {
        let uuid = std::array::from_fn(|index| index as u8 * 0x11);
        assert_eq!(uuid_text(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn refusals_are_reported_in_words_where_they_are_known() {
        assert_eq!(Status::NOT_SUPPORTED.to_string(), "not supported (NVML error 3)");
        assert_eq!(Status(999).to_string(), "NVML error 999");
    }
}
