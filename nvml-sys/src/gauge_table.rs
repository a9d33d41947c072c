//! The functions and fields of gauges; they are called in `gauges.rs`.

use std::ffi::c_uint;

use libloading::os::unix::Library;

use crate::abi::{GetFieldValues, GetLong, GetMemoryInfo, GetNumber, GetOfKind};
use crate::loading::function;

/// `UINT_MAX` as a scope: all NVLinks together (nvml.h, at `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`).
const ALL_LINKS: c_uint = c_uint::MAX;

/// A value that is asked for by its number, `NVML_FI_DEV_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub u32);

impl Field {
    /// Temperature of the memory, degrees Celsius.
    pub const MEMORY_TEMPERATURE: Self = Self(82);
    /// Data sent over NVLink so far, KiB.
    pub const NVLINK_SENT: Self = Self(138);
    /// Data received over NVLink so far, KiB.
    pub const NVLINK_RECEIVED: Self = Self(139);
    /// Bytes sent over PCI Express so far. 32 bits (driver 580), so it wraps every 4 GiB.
    pub const PCIE_SENT: Self = Self(197);
    /// Bytes received over PCI Express so far, as [`Self::PCIE_SENT`].
    pub const PCIE_RECEIVED: Self = Self(198);

    pub(crate) const fn scope(self) -> c_uint {
        match self {
            Self::NVLINK_SENT | Self::NVLINK_RECEIVED => ALL_LINKS,
            _ => 0,
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldReading {
    /// The number.
    pub value: u64,
    /// Whether it has 32 bits: a counter then begins again at 0 after `u32::MAX`.
    pub is_narrow: bool,
}

/// The functions, each of which may be missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions {
    pub power: Option<GetNumber>,
    pub temperature: Option<GetOfKind>,
    pub clock: Option<GetOfKind>,
    pub highest_clock: Option<GetOfKind>,
    pub reasons: Option<GetLong>,
    pub energy: Option<GetLong>,
    pub memory: Option<GetMemoryInfo>,
    pub fields: Option<GetFieldValues>,
}

impl Functions {
    pub(crate) fn of(library: &Library) -> Self {
        Self {
            power: function(library, "nvmlDeviceGetPowerUsage"),
            temperature: function(library, "nvmlDeviceGetTemperature"),
            clock: function(library, "nvmlDeviceGetClockInfo"),
            highest_clock: function(library, "nvmlDeviceGetMaxClockInfo"),
            // The same function; its name until driver 535 comes second.
            reasons: function(library, "nvmlDeviceGetCurrentClocksEventReasons")
                .or_else(|| function(library, "nvmlDeviceGetCurrentClocksThrottleReasons")),
            energy: function(library, "nvmlDeviceGetTotalEnergyConsumption"),
            memory: function(library, "nvmlDeviceGetMemoryInfo"),
            fields: function(library, "nvmlDeviceGetFieldValues"),
        }
    }
}
