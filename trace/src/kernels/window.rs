//! Result of PC sampling on a device.

use crate::kernels::Outcome;
use crate::record::{DeviceId, Timestamp};

/// Limits of one window. Data beyond a limit is counted in [`PcWindow::overflow`].
pub mod limit {
    /// Number of stall reasons; CUPTI of CUDA 13.0 has 40.
    pub const REASONS: usize = 256;
    /// Number of functions.
    pub const FUNCTIONS: usize = 4_096;
    /// Number of counts; a busy GPU produces some 30,000 per second.
    pub const COUNTS: usize = 1 << 18;
}

/// A function of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcFunction {
    /// Checksum of the module (cubin), as CUPTI computes it.
    pub module: u64,
    /// Mangled name.
    pub symbol: String,
}

/// Number of samples at one instruction with one stall reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PcCount {
    /// Index in [`PcWindow::functions`].
    pub function: u32,
    /// Bytes from the start of the function.
    pub offset: u64,
    /// Index in [`PcWindow::reasons`].
    pub reason: u32,
    /// Number of samples.
    pub samples: u64,
}

/// PC samples of one device over an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PcWindow {
    /// Sampled device.
    pub device: DeviceId,
    /// Outcome of sampling. [`NotLaunched`](Outcome::NotLaunched) means that no kernel ran.
    pub outcome: Outcome,
    /// Time at which opening the sampler started. Launches may have been delayed until
    /// [`begin`](Self::begin).
    pub opened: Timestamp,
    /// Start of sampling.
    pub begin: Timestamp,
    /// End of sampling.
    pub end: Timestamp,
    /// Time at which the sampler was closed.
    pub closed: Timestamp,
    /// Cycles between two samples of an SM.
    pub period_cycles: u64,
    /// Names of stall reasons in CUPTI.
    pub reasons: Vec<String>,
    /// Functions that were sampled.
    pub functions: Vec<PcFunction>,
    /// Sorted counts, one for each function, offset and reason.
    pub counts: Vec<PcCount>,
    /// Samples taken by the hardware, including `dropped` and `foreign`.
    pub samples: u64,
    /// Samples dropped by the hardware.
    pub dropped: u64,
    /// Samples in kernels that do not belong to the program.
    pub foreign: u64,
    /// Samples delivered but discarded because a limit was reached.
    pub overflow: u64,
    /// Number of times the hardware buffer ran full; the resulting loss is unknown.
    pub full: u64,
    /// Modules of these functions that could not be stored, so that their source lines are unknown.
    pub modules_lost: u64,
}
