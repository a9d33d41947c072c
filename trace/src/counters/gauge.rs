//! Readings of a device's gauges: power, temperature, clocks, why they are lowered, traffic.

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

/// A reason for a lowered clock: bits of `nvmlClocksEventReasons` (nvml.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Throttle {
    /// Nothing runs: not a limit.
    Idle = 0x1,
    /// Somebody set application clocks.
    ApplicationClocks = 0x2,
    /// The power limit, by software.
    PowerCap = 0x4,
    /// The hardware slows down: power supply or temperature.
    Hardware = 0x8,
    /// Kept in step with other devices.
    SyncBoost = 0x10,
    /// The temperature limit, by software.
    Thermal = 0x20,
    /// The temperature limit, by the hardware.
    HardwareThermal = 0x40,
    /// The power supply asks for it.
    PowerBrake = 0x80,
    /// The clock of the display decides.
    DisplayClock = 0x100,
}

impl Throttle {
    /// All, in the order of their bits.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::ApplicationClocks,
        Self::PowerCap,
        Self::Hardware,
        Self::SyncBoost,
        Self::Thermal,
        Self::HardwareThermal,
        Self::PowerBrake,
        Self::DisplayClock,
    ];

    /// Its bit in a mask.
    #[must_use]
    pub const fn bit(self) -> u64 {
        self as u64
    }

    /// Stable name in reports and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::ApplicationClocks => "application_clocks",
            Self::PowerCap => "power_cap",
            Self::Hardware => "hardware_slowdown",
            Self::SyncBoost => "sync_boost",
            Self::Thermal => "thermal",
            Self::HardwareThermal => "hardware_thermal",
            Self::PowerBrake => "power_brake",
            Self::DisplayClock => "display_clock",
        }
    }

    /// Words for a sentence: "the clock was lowered by ...".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Idle => "idleness",
            Self::ApplicationClocks => "application clocks that somebody set",
            Self::PowerCap => "the power limit",
            Self::Hardware => "a slowdown of the hardware",
            Self::SyncBoost => "sync boost with other GPUs",
            Self::Thermal => "the temperature limit",
            Self::HardwareThermal => "the temperature limit of the hardware",
            Self::PowerBrake => "the power supply",
            Self::DisplayClock => "the clock of the display",
        }
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
