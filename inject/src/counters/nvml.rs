//! NVML, loaded once, and its handle of each device, for readings and utilization.

use cupti_sys::{DriverDevice, driver_devices};
use gpuwhy_trace::record::DeviceId;
use gpuwhy_trace::utilization::Absence;
use nvml_sys::{Device, LoadError, Nvml, Status};

/// Devices that the driver shows, and their handles.
#[derive(Debug)]
pub struct Devices {
    /// Devices that the driver shows.
    pub driver: Vec<DriverDevice>,
    /// The library, or the reason for its absence.
    pub nvml: Result<&'static Nvml, Absence>,
    handles: Vec<(DeviceId, Result<Device, Absence>)>,
}

impl Devices {
    /// Loads the library at the first call; `None` while the driver shows no device. Call it only once the
    /// program has a context: `libprof.so` is loaded in the middle of `cuInit`, when the driver is busy.
    pub fn find(found: &mut Option<Self>) -> Option<&mut Self> {
        if found.is_none() {
            let driver = driver_devices();
            if driver.is_empty() {
                return None;
            }
            let nvml = Nvml::load().map_err(|error| match error {
                LoadError::Absent => Absence::NoLibrary,
                LoadError::Refused(status) => Absence::Refused(status.0),
            });
            *found = Some(Self { driver, nvml, handles: Vec::new() });
        }
        found.as_mut()
    }

    /// Returns the handle of a device. The first call for each takes milliseconds. Fails if there is no
    /// library, or if it refuses.
    pub fn handle(&mut self, device: &DriverDevice) -> Result<Device, Absence> {
        let id = DeviceId(device.ordinal);
        if let Some(&(_, handle)) = self.handles.iter().find(|&&(known, _)| known == id) {
            return handle;
        }
        let handle = self.nvml.and_then(|nvml| nvml.device(device.uuid).map_err(absence));
        self.handles.push((id, handle));
        handle
    }
}

/// Maps the status of a call to the reason why readings of a device are absent.
pub fn absence(status: Status) -> Absence {
    match status {
        Status::NOT_SUPPORTED => Absence::NotSupported,
        Status::FUNCTION_NOT_FOUND => Absence::NoFunction,
        Status(code) => Absence::Refused(code),
    }
}
