//! Readings of a device: power, temperature, clocks and throttle reasons, traffic.

use crate::named;
use crate::record::{DeviceId, Timestamp};

/// One reading of a device. A field is `None` if the device does not support it or it was not read this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GaugeReading {
    /// The device.
    pub device: DeviceId,
    /// Time of the reading on the clock of the trace.
    pub at: Timestamp,
    /// Power of the entire board, milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Temperature of the memory, degrees Celsius.
    pub memory_temperature_c: Option<u32>,
    /// SM clock, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Reasons for lowered clocks: the bits of [`Throttle`], which are those of `nvmlClocksEventReasons`.
    pub throttle: Option<u64>,
    /// Device memory in use by all processes, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Total bytes received by the device over PCI Express. The start value is arbitrary; only differences
    /// are meaningful.
    pub pcie_received_bytes: Option<u64>,
    /// Total bytes sent by the device over PCI Express; as [`Self::pcie_received_bytes`].
    pub pcie_sent_bytes: Option<u64>,
    /// Total bytes received by the device over NVLink; as [`Self::pcie_received_bytes`].
    pub nvlink_received_bytes: Option<u64>,
    /// Total bytes sent by the device over NVLink; as [`Self::pcie_received_bytes`].
    pub nvlink_sent_bytes: Option<u64>,
    /// Total energy of the board, millijoules; as [`Self::pcie_received_bytes`].
    pub energy_mj: Option<u64>,
    /// Time in which the device ran anything, of any process, in the driver's last sample period, percent.
    pub busy_percent: Option<u32>,
}

named! {
    /// A reason for a lowered clock: bits of `nvmlClocksEventReasons` (nvml.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u64)]
    pub enum Throttle: name words {
        /// The GPU is idle; not a limit.
        Idle = 0x1 "idle" "idleness",
        /// Application clocks were set.
        ApplicationClocks = 0x2 "application_clocks" "user-set application clocks",
        /// Power limit, enforced by software.
        PowerCap = 0x4 "power_cap" "the power limit",
        /// Hardware slowdown: power supply or temperature.
        Hardware = 0x8 "hardware_slowdown" "a slowdown of the hardware",
        /// Synchronized with other devices.
        SyncBoost = 0x10 "sync_boost" "sync boost with other GPUs",
        /// Temperature limit, enforced by software.
        Thermal = 0x20 "thermal" "the temperature limit",
        /// Temperature limit, enforced by hardware.
        HardwareThermal = 0x40 "hardware_thermal" "the temperature limit of the hardware",
        /// Requested by the power supply.
        PowerBrake = 0x80 "power_brake" "the power supply",
        /// Determined by the display clock.
        DisplayClock = 0x100 "display_clock" "the clock of the display",
    }
}

impl Throttle {
    /// Its bit in a mask.
    pub const fn bit(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_bits_of_nvml() {
        for (index, reason) in Throttle::ALL.into_iter().enumerate() {
            assert_eq!(reason.bit(), 1 << index, "{reason:?}");
        }
    }
}
