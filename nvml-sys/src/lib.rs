//! Devices as NVIDIA's management library (NVML) tells of them: utilization as whole-percent rates on every GPU and as
//! GPM metrics, read from hardware counters, on Hopper and later; gauges of power, temperature, clocks, memory and
//! traffic; and the link to the host.
//!
//! The library belongs to the driver and may be absent, older than a function, or refuse: each of these is a value,
//! never a failure to load the program. It is loaded at run time, initialized once, and neither shut down nor unloaded:
//! the program may use it too. A call may take milliseconds and may wait for the kernel driver, so none belongs on a
//! thread that works for the program. No type here is `Send`: one thread opens, asks and keeps.
//!
//! Not here: processes, MIG instances.
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

pub use abi::{FieldValue, GpmMetric, GpmMetricsGet, GpmSupport, METRIC_CAPACITY, Memory, Utilization};
pub use gauge_table::{Field, FieldReading};
pub use gpm::{Metric, Sample};

/// The library, by the name under which the driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What a call answered instead of success: a number of `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// `NVML_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: Self = Self(3);
    /// `NVML_ERROR_NOT_FOUND`
    pub const NOT_FOUND: Self = Self(6);
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`; also said of a function that the library does not have.
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

/// Why NVML cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// There is no library of that name, or it lacks a function that every version has.
    Absent,
    /// It does not want to be initialized.
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
    gpm: Option<gpm::Functions>,
    gauges: gauge_table::Functions,
}

impl Nvml {
    /// Loads and initializes the library, for good.
    ///
    /// # Errors
    /// When there is none, or when it refuses.
    pub fn load() -> Result<&'static Self, LoadError> {
        // SAFETY: the driver's own library, by its name; its initialisers may run in any process.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) }.map_err(|_| LoadError::Absent)?;
        let init = function::<abi::Init>(&library, "nvmlInit_v2").ok_or(LoadError::Absent)?;
        let nvml = Self {
            handle_by_uuid: function(&library, "nvmlDeviceGetHandleByUUID").ok_or(LoadError::Absent)?,
            utilization: function(&library, "nvmlDeviceGetUtilizationRates").ok_or(LoadError::Absent)?,
            mig_mode: function(&library, "nvmlDeviceGetMigMode"),
            link_generation: function(&library, "nvmlDeviceGetMaxPcieLinkGeneration"),
            link_lanes: function(&library, "nvmlDeviceGetMaxPcieLinkWidth"),
            gpm: gpm::Functions::of(&library),
            gauges: gauge_table::Functions::of(&library),
        };
        // The functions live as long as the library does.
        std::mem::forget(library);
        // SAFETY: takes no argument, counts its callers, and may be called from any thread.
        Status::of(unsafe { init() }).map_err(LoadError::Refused)?;
        Ok(Box::leak(Box::new(nvml)))
    }

    /// The device with this UUID, as the CUDA driver tells it.
    ///
    /// # Errors
    /// When NVML does not know it, or may not show it.
    pub fn device(&'static self, uuid: [u8; 16]) -> Result<Device, Status> {
        // Hexadecimal digits and hyphens have no NUL between them.
        let name = CString::new(uuid_text(uuid)).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a terminated text and a pointer to a local.
        Status::of(unsafe { (self.handle_by_uuid)(name.as_ptr(), &raw mut handle) })?;
        Ok(Device { nvml: self, handle })
    }
}

/// One device, as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    nvml: &'static Nvml,
    handle: *mut c_void,
}

impl Device {
    /// How busy it was in the driver's last sample period, which is a sixth of a second to one second long
    /// (NVML reference, `nvmlUtilization_t`); by whichever process.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] while the device is divided into MIG instances, and what the driver else says.
    pub fn utilization(&self) -> Result<Utilization, Status> {
        let mut utilization = Utilization::default();
        // SAFETY: a handle of this library, and a pointer to a local of the struct that it fills in.
        Status::of(unsafe { (self.nvml.utilization)(self.handle, &raw mut utilization) })?;
        Ok(utilization)
    }

    /// Whether it is divided into MIG instances: what NVML tells of it then is not about this process's part. Devices
    /// and libraries that know nothing of that are not divided.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        let Some(mig_mode) = self.nvml.mig_mode else { return false };
        let (mut current, mut pending) = (0, 0);
        // SAFETY: a handle of this library and pointers to locals.
        let status = unsafe { mig_mode(self.handle, &raw mut current, &raw mut pending) };
        Status::of(status).is_ok() && current != 0
    }

    /// Generation and lanes of the best PCI Express link that "is possible with this device and system" (NVML
    /// reference): not of the link as it is now, which sleeps at a lower generation. `None` where either is not told.
    #[must_use]
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
    fn refusals_are_told_in_words_where_they_are_known() {
        assert_eq!(Status::NOT_SUPPORTED.to_string(), "not supported (NVML error 3)");
        assert_eq!(Status(999).to_string(), "NVML error 999");
    }
}
