//! What of a device's samples is missing, and why.

use crate::record::DeviceId;

/// Why hardware counters were not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another tool, or another process, uses the counters of the device (CUPTI error 26).
    Busy,
    /// The driver keeps counters for administrators (CUPTI error 35).
    NotPermitted,
    /// The libraries of CUPTI for counters were not found.
    NoLibrary,
    /// The CUPTI or the driver is too old.
    TooOld,
    /// No set of metrics is known for the chip.
    UnknownChip,
    /// The device does not allow it: MIG, vGPU or confidential computing.
    NotSupported,
    /// The counters were given to kernel or source line profiling.
    GivenAway,
    /// Samples never completed.
    Incomplete,
    /// CUPTI refused: a number of `CUptiResult`.
    Failed(u32),
    /// For a reason that a newer version knows.
    Unknown,
}

/// What of a device's samples was lost so far. Counters only grow; the last of a device counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterLoss {
    /// The device.
    pub device: DeviceId,
    /// Samples that the hardware overwrote before they were read, or that gpuwhy dropped.
    pub lost: u64,
    /// Samples that never completed, or whose values were no numbers.
    pub incomplete: u64,
    /// First samples of a session, which start before it: left out on purpose.
    pub first_dropped: u64,
    /// How often the rate was lowered to stay within the cost limit.
    pub slowed: u64,
    /// Why nothing is sampled any more, or never was.
    pub refused: Option<Refusal>,
}

impl CounterLoss {
    /// Whether anything was lost that should not have been.
    pub const fn is_empty(&self) -> bool {
        self.lost == 0 && self.incomplete == 0 && self.refused.is_none()
    }
}
