//! What sampling the program counters of a device came to.

use crate::kernels::Outcome;
use crate::record::{DeviceId, Timestamp};

/// How much is kept of one window. What exceeds a limit is counted in [`PcWindow::overflow`].
pub mod limit {
    /// Stall reasons; CUPTI of CUDA 13.0 has 40.
    pub const REASONS: usize = 256;
    /// Functions.
    pub const FUNCTIONS: usize = 4_096;
    /// Counts: a busy GPU gives some 30,000 in a second.
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

/// How often warps were seen at one instruction for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PcCount {
    /// Place in [`PcWindow::functions`].
    pub function: u32,
    /// Bytes from the start of the function.
    pub offset: u64,
    /// Place in [`PcWindow::reasons`].
    pub reason: u32,
    /// Samples.
    pub samples: u64,
}

/// The program counters of one device, sampled for a while.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PcWindow {
    /// Which device.
    pub device: DeviceId,
    /// How it ended. [`NotLaunched`](Outcome::NotLaunched): nothing ran.
    pub outcome: Outcome,
    /// When opening began. Until [`begin`](Self::begin) launches may have waited.
    pub opened: Timestamp,
    /// When sampling began.
    pub begin: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// When it was closed.
    pub closed: Timestamp,
    /// Cycles from one sample of a multiprocessor to the next.
    pub period_cycles: u64,
    /// Names of stall reasons, as CUPTI has them.
    pub reasons: Vec<String>,
    /// Functions that were seen.
    pub functions: Vec<PcFunction>,
    /// What was seen, sorted, one for each function, offset and reason.
    pub counts: Vec<PcCount>,
    /// Samples that the hardware took, those of the two fields that follow included.
    pub samples: u64,
    /// Of those, samples that it dropped.
    pub dropped: u64,
    /// Of those, samples in kernels that are not the program's.
    pub foreign: u64,
    /// Samples that were delivered and not kept, because a limit was reached.
    pub overflow: u64,
    /// How often the buffer of the hardware ran full; what it lost then is not known.
    pub full: u64,
    /// Modules of these functions that could not be kept, so that their lines cannot be told.
    pub modules_lost: u64,
}
