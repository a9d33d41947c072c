//! Utilization of devices by NVML, for runs without records of device work.
//!
//! NVML reports rates (percent of the time in which kernels or copies ran, on any device) and averages of
//! hardware counters (Hopper and later). They cover the whole device, including other processes, and have no
//! position on a timeline. gpuwhy stores totals: nanoseconds for shares, bytes for traffic, each with the
//! time that it covers. Two states of a run can therefore be subtracted, averages need no list of readings,
//! and a missing reading differs from a reading of 0. docs/reference/report.md defines the fields.

use crate::named;
use crate::record::DeviceId;

/// Maximum number of devices; no process is known to use more.
pub const DEVICE_LIMIT: usize = 64;

/// Why a value was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// libnvidia-ml.so.1 was not found.
    NoLibrary,
    /// The process has no device, according to its driver.
    NoDevice,
    /// The device is divided into MIG instances: readings of the entire device do not describe this process's
    /// part.
    Divided,
    /// The device does not support it (GPM requires Hopper or later).
    NotSupported,
    /// The library is too old for it.
    NoFunction,
    /// The library returned this `nvmlReturn_t`.
    Refused(u32),
    /// A reason of a newer version.
    Unknown,
}

impl Absence {
    /// Words for a report.
    pub fn words(self) -> String {
        match self {
            Self::NoLibrary => "there is no libnvidia-ml.so.1".to_owned(),
            Self::NoDevice => "the driver reported no device of this process".to_owned(),
            Self::Divided => "the device is divided into MIG instances".to_owned(),
            Self::NotSupported => "this device does not have it".to_owned(),
            Self::NoFunction => "the driver is too old for it".to_owned(),
            Self::Refused(code) => format!("NVML refused (error {code})"),
            Self::Unknown => "for a reason that this version does not know".to_owned(),
        }
    }
}

named! {
    /// An average of hardware counters. Shares are of the time and of the device; traffic is between this
    /// device and all others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Counter: name {
        /// Share of time in which kernels ran.
        Active "active",
        /// Share of the SMs that were busy.
        Multiprocessors "sm_active",
        /// Share of the maximum of resident warps.
        Occupancy "sm_occupancy",
        /// Share of time in which tensor pipes were active.
        Tensor "tensor_active",
        /// Share of the peak bandwidth of device memory.
        DeviceMemory "dram_bandwidth",
        /// Bytes sent by the device over PCI Express.
        PcieSent "pcie_sent",
        /// Bytes received by the device over PCI Express.
        PcieReceived "pcie_received",
        /// Bytes sent by the device over NVLink.
        NvlinkSent "nvlink_sent",
        /// Bytes received by the device over NVLink.
        NvlinkReceived "nvlink_received",
    }
}

impl Counter {
    /// True if the total is in bytes, false if it is in nanoseconds.
    pub const fn is_traffic(self) -> bool {
        matches!(self, Self::PcieSent | Self::PcieReceived | Self::NvlinkSent | Self::NvlinkReceived)
    }
}

/// A total and the time that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Total {
    /// Nanoseconds in which a reading was available.
    pub over_ns: u64,
    /// Sum of the values times their duration: nanoseconds for a share, else bytes.
    pub sum: u64,
}

impl Total {
    /// Adds `rate`, a share or bytes per nanosecond, over `nanos`. Negative and non-finite rates count as not
    /// read.
    pub fn add(&mut self, nanos: u64, rate: f64) {
        if rate.is_finite() && rate >= 0.0 {
            self.over_ns = self.over_ns.saturating_add(nanos);
            self.sum = self.sum.saturating_add((rate * nanos as f64).round() as u64);
        }
    }

    /// Limits a total of shares to the time that it covers. Returns true if the excess was larger than
    /// rounding explains.
    fn bound(&mut self) -> bool {
        let impossible = self.sum > self.over_ns.saturating_add(self.over_ns / 100);
        self.sum = self.sum.min(self.over_ns);
        impossible
    }

    /// Average: a share, or bytes per nanosecond (10^9 bytes per second). `None` if it was never read.
    pub fn mean(self) -> Option<f64> {
        (self.over_ns > 0).then(|| self.sum as f64 / self.over_ns as f64)
    }
}

/// Utilization totals of one device since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUtilization {
    /// The device.
    pub device: DeviceId,
    /// Share of time in which kernels or copies ran.
    pub busy: Total,
    /// Share of time in which device memory was read or written.
    pub memory: Total,
    /// Hardware counters by `Counter as usize`.
    pub counters: [Total; Counter::ALL.len()],
    /// Readings after the first that failed or returned impossible values.
    pub failed: u64,
    /// Why rates are missing.
    pub no_rates: Option<Absence>,
    /// Why counters are missing.
    pub no_counters: Option<Absence>,
}

impl DeviceUtilization {
    /// Limits shares to 1. A larger total, which only a damaged record has, counts as a failed reading.
    #[must_use]
    fn bounded(mut self) -> Self {
        let counters = self.counters.iter_mut().zip(Counter::ALL).filter(|(_, counter)| !counter.is_traffic());
        let shares = [&mut self.busy, &mut self.memory].into_iter().chain(counters.map(|(total, _)| total));
        let impossible: u64 = shares.map(|total| u64::from(total.bound())).sum();
        self.failed = self.failed.saturating_add(impossible);
        self
    }

    /// Average of a counter; see [`Total::mean`].
    pub fn counter(&self, counter: Counter) -> Option<f64> {
        self.counters[counter as usize].mean()
    }
}

/// Utilization totals; the last reading of a device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtilizationReading {
    /// No device has readings.
    Absent(Absence),
    /// Totals of one device.
    Device(DeviceUtilization),
}

/// The utilization of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utilization {
    /// Why readings are missing; `None` also if none were attempted.
    pub absence: Option<Absence>,
    /// Totals by device, in the order of their first reading.
    pub devices: Vec<DeviceUtilization>,
}

impl Utilization {
    /// Replaces the state with a newer one.
    pub fn take(&mut self, reading: UtilizationReading) {
        match reading {
            UtilizationReading::Absent(why) => self.absence = Some(why),
            UtilizationReading::Device(newer) => {
                let newer = newer.bounded();
                let known = self.devices.iter().position(|known| known.device == newer.device);
                match known {
                    Some(index) => self.devices[index] = newer,
                    None if self.devices.len() < DEVICE_LIMIT => self.devices.push(newer),
                    None => {}
                }
            }
        }
    }

    /// True if there is neither a reading nor a reason for its absence.
    pub fn is_empty(&self) -> bool {
        self.absence.is_none() && self.devices.is_empty()
    }

    /// Average share of time in which kernels or copies ran, over the devices that report it.
    pub fn busy(&self) -> Option<f64> {
        mean(self.devices.iter().filter_map(|device| device.busy.mean()))
    }

    /// Average of a counter over the devices that report it.
    pub fn counter(&self, counter: Counter) -> Option<f64> {
        mean(self.devices.iter().filter_map(|device| device.counter(counter)))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_that_reads_nothing_is_distinguished_from_one_that_is_not_there() {
        let mut total = Total::default();
        assert_eq!(total.mean(), None);
        total.add(1_000, f64::NAN);
        total.add(1_000, -0.5);
        assert_eq!(total.mean(), None, "no amounts");
        total.add(1_000, 0.0);
        assert_eq!(total.mean(), Some(0.0));
        total.add(3_000, 0.5);
        assert_eq!(total.mean(), Some(0.375));
    }

    #[test]
    fn the_newest_state_of_a_device_counts_and_devices_are_bounded() {
        let mut utilization = Utilization::default();
        assert!(utilization.is_empty() && utilization.busy().is_none());
        let reading = |device, share| {
            let mut busy = Total::default();
            busy.add(100, share);
            UtilizationReading::Device(DeviceUtilization {
                device: DeviceId(device),
                busy,
                ..DeviceUtilization::default()
            })
        };
        utilization.take(reading(0, 0.9));
        utilization.take(reading(0, 0.2));
        utilization.take(reading(1, 0.6));
        assert_eq!(utilization.busy(), Some(0.4));
        (0..100).for_each(|device| utilization.take(reading(device, 1.0)));
        assert_eq!(utilization.devices.len(), DEVICE_LIMIT);
    }

    #[test]
    fn a_share_of_more_than_all_is_bounded_and_counted() {
        let mut device = DeviceUtilization { busy: Total { over_ns: 100, sum: 900 }, ..DeviceUtilization::default() };
        device.counters[Counter::Tensor as usize] = Total { over_ns: 1_000, sum: 1_001 };
        device.counters[Counter::PcieSent as usize] = Total { over_ns: 100, sum: 900 };
        let mut utilization = Utilization::default();
        utilization.take(UtilizationReading::Device(device));
        let seen = &utilization.devices[0];
        assert_eq!((seen.busy.mean(), seen.counter(Counter::Tensor), seen.failed), (Some(1.0), Some(1.0), 1));
        assert_eq!(seen.counter(Counter::PcieSent), Some(9.0), "bytes a nanosecond");
    }

    #[test]
    fn discriminants_follow_the_list() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, index);
        }
    }
}
