//! How busy devices were by NVML: what is known of a run in which no device work was recorded.
//!
//! The driver's management library tells rates (percent of the time in which kernels or copies ran, on any device) and
//! means of hardware counters (Hopper and later). They are about the device, whichever process used it, and have no
//! place on a timeline. What is kept are totals: nanoseconds for shares, bytes for traffic, and beside each the time
//! that it covers. So two states of the same run can be subtracted, means need no list of readings, and a reading that
//! is not there is told from one of 0. docs/reference/report.md defines the fields.

use crate::named;
use crate::record::DeviceId;

/// Devices that are remembered; a process that uses more is not known.
pub const DEVICE_LIMIT: usize = 64;

/// Why something was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no libnvidia-ml.so.1.
    NoLibrary,
    /// The process has no device, as far as its driver tells.
    NoDevice,
    /// The device is divided into MIG instances: readings of the whole say nothing of this process's part.
    Divided,
    /// The device does not have it (GPM: before Hopper).
    NotSupported,
    /// The library is too old for it.
    NoFunction,
    /// The library refused: a number of `nvmlReturn_t`.
    Refused(u32),
    /// For a reason that a newer version knows.
    Unknown,
}

impl Absence {
    /// Words for a report.
    pub fn words(self) -> String {
        match self {
            Self::NoLibrary => "there is no libnvidia-ml.so.1".to_owned(),
            Self::NoDevice => "the driver told of no device of this process".to_owned(),
            Self::Divided => "the device is divided into MIG instances".to_owned(),
            Self::NotSupported => "this device does not have it".to_owned(),
            Self::NoFunction => "the driver is too old for it".to_owned(),
            Self::Refused(code) => format!("NVML refused (error {code})"),
            Self::Unknown => "for a reason that this version does not know".to_owned(),
        }
    }
}

named! {
    /// A mean of hardware counters: shares are of the time and of the device, traffic is of this device with all
    /// others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Counter: name {
        /// Share of time in which kernels ran on the device.
        Active "active",
        /// Share of the multiprocessors that were busy.
        Multiprocessors "sm_active",
        /// Share of the warps that could be resident.
        Occupancy "sm_occupancy",
        /// Share of time in which tensor pipes worked.
        Tensor "tensor_active",
        /// Share of the peak bandwidth of device memory.
        DeviceMemory "dram_bandwidth",
        /// Bytes from the device over PCI Express.
        PcieSent "pcie_sent",
        /// Bytes to the device over PCI Express.
        PcieReceived "pcie_received",
        /// Bytes from the device over NVLink.
        NvlinkSent "nvlink_sent",
        /// Bytes to the device over NVLink.
        NvlinkReceived "nvlink_received",
    }
}

impl Counter {
    /// Whether its total is in bytes, and not in nanoseconds.
    pub const fn is_traffic(self) -> bool {
        matches!(self, Self::PcieSent | Self::PcieReceived | Self::NvlinkSent | Self::NvlinkReceived)
    }
}

/// A total and the time that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Nanoseconds in which the gauge could be read.
    pub over_ns: u64,
    /// Its value times that: nanoseconds of a share, or bytes.
    pub sum: u64,
}

impl Total {
    /// Adds `rate`, a share or bytes a nanosecond, over `nanos`. What is no amount counts as not read.
    pub fn add(&mut self, nanos: u64, rate: f64) {
        if rate.is_finite() && rate >= 0.0 {
            self.over_ns = self.over_ns.saturating_add(nanos);
            self.sum = self.sum.saturating_add((rate * nanos as f64).round() as u64);
        }
    }

    /// Bounds a total of shares to the time that it covers; whether it was more than rounding explains.
    fn bound(&mut self) -> bool {
        let impossible = self.sum > self.over_ns.saturating_add(self.over_ns / 100);
        self.sum = self.sum.min(self.over_ns);
        impossible
    }

    /// The mean: a share, or bytes a nanosecond (10^9 bytes a second). `None` when it was never read.
    pub fn mean(self) -> Option<f64> {
        (self.over_ns > 0).then(|| self.sum as f64 / self.over_ns as f64)
    }
}

/// How busy one device was so far.
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
    /// Readings that failed after the first, or told what cannot be.
    pub failed: u64,
    /// Why there are no rates.
    pub no_rates: Option<Absence>,
    /// Why there are no counters.
    pub no_counters: Option<Absence>,
}

impl DeviceUtilization {
    /// With shares of at most 1. A total of more, which only a damaged record has, counts as a failed reading.
    #[must_use]
    fn bounded(mut self) -> Self {
        let counters = self.counters.iter_mut().zip(Counter::ALL).filter(|(_, counter)| !counter.is_traffic());
        let shares = [&mut self.busy, &mut self.memory].into_iter().chain(counters.map(|(total, _)| total));
        let impossible: u64 = shares.map(|total| u64::from(total.bound())).sum();
        self.failed = self.failed.saturating_add(impossible);
        self
    }

    /// The mean of a counter; see [`Total::mean`].
    pub fn counter(&self, counter: Counter) -> Option<f64> {
        self.counters[counter as usize].mean()
    }
}

/// What a reader tells: totals, of which the last of a device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtilizationReading {
    /// There are none of any device.
    Absent(Absence),
    /// Those of one device.
    Device(DeviceUtilization),
}

/// The utilization of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utilization {
    /// Why there are none; `None` also when nobody looked.
    pub absence: Option<Absence>,
    /// By device, in the order in which they were first read.
    pub devices: Vec<DeviceUtilization>,
}

impl Utilization {
    /// Takes a newer state.
    pub fn take(&mut self, reading: UtilizationReading) {
        match reading {
            UtilizationReading::Absent(why) => self.absence = Some(why),
            UtilizationReading::Device(newer) => {
                let newer = newer.bounded();
                let known = self.devices.iter().position(|known| known.device == newer.device);
                match known {
                    Some(place) => self.devices[place] = newer,
                    None if self.devices.len() < DEVICE_LIMIT => self.devices.push(newer),
                    None => {}
                }
            }
        }
    }

    /// Whether there is neither a reading nor a reason for none.
    pub fn is_empty(&self) -> bool {
        self.absence.is_none() && self.devices.is_empty()
    }

    /// The mean share of time in which kernels or copies ran, over the devices that have that gauge.
    pub fn busy(&self) -> Option<f64> {
        mean(self.devices.iter().filter_map(|device| device.busy.mean()))
    }

    /// The mean of a counter over the devices that have it.
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
    fn a_gauge_that_reads_nothing_is_told_from_one_that_is_not_there() {
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
