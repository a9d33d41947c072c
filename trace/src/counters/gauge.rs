//! Readings of a device's gauges: power, temperature, clocks, why they are lowered, traffic.

use crate::named;
use crate::record::{DeviceId, Timestamp};

/// One reading of the gauges of a device. `None`: the device does not have the gauge, or it was not read this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GaugeReading {
    /// The device.
    pub device: DeviceId,
    /// When it was read, on the clock of the trace.
    pub at: Timestamp,
    /// Power of the whole board, milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Temperature of the memory, degrees Celsius.
    pub memory_temperature_c: Option<u32>,
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Why clocks are lowered: the bits of [`Throttle`], which are those of `nvmlClocksEventReasons`.
    pub throttle: Option<u64>,
    /// Device memory in use by all processes, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Bytes that the device received over PCI Express so far. A total that may start anywhere; only differences mean
    /// something.
    pub pcie_received_bytes: Option<u64>,
    /// Bytes that the device sent over PCI Express so far; as [`Self::pcie_received_bytes`].
    pub pcie_sent_bytes: Option<u64>,
    /// Bytes that the device received over NVLink so far; as [`Self::pcie_received_bytes`].
    pub nvlink_received_bytes: Option<u64>,
    /// Bytes that the device sent over NVLink so far; as [`Self::pcie_received_bytes`].
    pub nvlink_sent_bytes: Option<u64>,
    /// Energy of the board so far, millijoules; as [`Self::pcie_received_bytes`].
    pub energy_mj: Option<u64>,
}

named! {
    /// A reason for a lowered clock: bits of `nvmlClocksEventReasons` (nvml.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u64)]
    pub enum Throttle: name words {
        /// Nothing runs: not a limit.
        Idle = 0x1 "idle" "idleness",
        /// Somebody set application clocks.
        ApplicationClocks = 0x2 "application_clocks" "application clocks that somebody set",
        /// The power limit, by software.
        PowerCap = 0x4 "power_cap" "the power limit",
        /// The hardware slows down: power supply or temperature.
        Hardware = 0x8 "hardware_slowdown" "a slowdown of the hardware",
        /// Kept in step with other devices.
        SyncBoost = 0x10 "sync_boost" "sync boost with other GPUs",
        /// The temperature limit, by software.
        Thermal = 0x20 "thermal" "the temperature limit",
        /// The temperature limit, by the hardware.
        HardwareThermal = 0x40 "hardware_thermal" "the temperature limit of the hardware",
        /// The power supply asks for it.
        PowerBrake = 0x80 "power_brake" "the power supply",
        /// The clock of the display decides.
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
