//! How the devices are attached to the host. Not from CUPTI: while its PCIE records are on, threads that launch at the
//! same time wait for one lock (docs/design/overhead.md). Linux tells in `/sys`, without a library, and is asked first;
//! most virtual machines leave that empty, and NVML is asked then.

use cupti_sys::{DeviceLink, DriverDevice};
use nvml_sys::Nvml;
use profiler_core::record::{DeviceId, PcieLink};

/// The links of these devices, as far as they are told. Loading NVML takes milliseconds, so not on a thread of the
/// program.
pub fn of(devices: &[DriverDevice]) -> impl Iterator<Item = PcieLink> {
    let is_told = devices.iter().all(|device| device.link.is_some());
    let nvml = if is_told { None } else { Nvml::load().ok() };
    devices.iter().filter_map(move |device| {
        let by_nvml = || {
            let (generation, lanes) = nvml?.device(device.uuid).ok()?.best_link()?;
            DeviceLink::of_generation(generation, lanes)
        };
        let link = device.link.or_else(by_nvml);
        if link.is_none() {
            tracing::info!(
                "the PCI Express link of device {} is unknown: neither /sys nor NVML reports it",
                device.ordinal
            );
        }
        let DeviceLink { generation, megatransfers, lanes } = link?;
        Some(PcieLink { device: DeviceId(device.ordinal), generation, megatransfers, lanes })
    })
}
