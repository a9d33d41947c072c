//! The functions and fields of the readings that `gauges.rs` provides.

use std::ffi::c_uint;

use libloading::os::unix::Library;

use crate::abi::{GetFieldValues, GetLong, GetMemoryInfo, GetNumber, GetOfKind, GetProcessSamples, GetProcesses};
use crate::loading::function;

/// `UINT_MAX` as a scope: all NVLinks together (nvml.h, at `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`).
const ALL_LINKS: c_uint = c_uint::MAX;

/// Number of a field value, `NVML_FI_DEV_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub u32);

impl Field {
    /// Temperature of the memory in degrees Celsius.
    pub const MEMORY_TEMPERATURE: Self = Self(82);
    /// Cumulative data sent over NVLink in KiB.
    pub const NVLINK_SENT: Self = Self(138);
    /// Cumulative data received over NVLink in KiB.
    pub const NVLINK_RECEIVED: Self = Self(139);
    /// Cumulative bytes sent over PCI Express. 32 bits (driver 580), so it wraps every 4 GiB.
    pub const PCIE_SENT: Self = Self(197);
    /// Cumulative bytes received over PCI Express, like [`Self::PCIE_SENT`].
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
    /// True if it has 32 bits: a counter then restarts at 0 after `u32::MAX`.
    pub is_narrow: bool,
}

/// Pointers to the functions; each may be missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmlFunctions {
    pub power: Option<GetNumber>,
    pub temperature: Option<GetOfKind>,
    pub clock: Option<GetOfKind>,
    pub highest_clock: Option<GetOfKind>,
    pub reasons: Option<GetLong>,
    pub energy: Option<GetLong>,
    pub memory: Option<GetMemoryInfo>,
    pub fields: Option<GetFieldValues>,
    pub processes: Option<GetProcesses>,
    pub process_samples: Option<GetProcessSamples>,
}

impl NvmlFunctions {
    pub(crate) fn of(library: &Library) -> Self {
        Self {
            power: function(library, "nvmlDeviceGetPowerUsage"),
            temperature: function(library, "nvmlDeviceGetTemperature"),
            clock: function(library, "nvmlDeviceGetClockInfo"),
            highest_clock: function(library, "nvmlDeviceGetMaxClockInfo"),
            // The same function; the second name is its name up to driver 535.
            reasons: function(library, "nvmlDeviceGetCurrentClocksEventReasons")
                .or_else(|| function(library, "nvmlDeviceGetCurrentClocksThrottleReasons")),
            energy: function(library, "nvmlDeviceGetTotalEnergyConsumption"),
            memory: function(library, "nvmlDeviceGetMemoryInfo"),
            fields: function(library, "nvmlDeviceGetFieldValues"),
            // Not version 3, whose rows have 32 bytes in drivers 535.43 to 535.86 and 24 in all others.
            processes: function(library, "nvmlDeviceGetComputeRunningProcesses_v2"),
            process_samples: function(library, "nvmlDeviceGetProcessUtilization"),
        }
    }
}
