//! Missing samples of a device, and the reasons.

use crate::record::DeviceId;

/// Why hardware counters were not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnavailableReason {
    /// Another tool or process uses the counters of the device (CUPTI error 26).
    Busy,
    /// The driver restricts counters to administrators (CUPTI error 35).
    NotPermitted,
    /// CUPTI's libraries for counters were not found.
    NoLibrary,
    /// CUPTI or the driver is too old.
    TooOld,
    /// No set of metrics is known for the chip.
    UnknownChip,
    /// The device does not allow it: MIG, vGPU or confidential computing.
    NotSupported,
    /// The counters were released to kernel profiling.
    GivenAway,
    /// Samples never completed.
    Incomplete,
    /// CUPTI returned this `CUptiResult`.
    Failed(u32),
    /// A reason of a newer version.
    Unknown,
}

/// Lost samples of a device since the start. Totals only grow; the last event of a device counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterLoss {
    /// The device.
    pub device: DeviceId,
    /// Samples that the hardware overwrote before they were read, or that gpuwhy dropped.
    pub lost: u64,
    /// Samples that never completed, or whose values were not numbers.
    pub incomplete: u64,
    /// First samples of sessions, which start before their session; dropped on purpose.
    pub first_dropped: u64,
    /// Number of times the rate was lowered to stay within the cost limit.
    pub slowed: u64,
    /// Why sampling stopped or never started.
    pub refused: Option<UnavailableReason>,
}
