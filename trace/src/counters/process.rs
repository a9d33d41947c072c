//! Another process that uses a device, according to the driver.

use crate::record::{DeviceId, Timestamp};
use crate::short_text::short_text;

short_text! {
    /// Name of a program, at most 47 bytes.
    ProgramName, 47
}

/// One reading of another process with a context on a device, or one piece of its work there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessReading {
    /// The device.
    pub device: DeviceId,
    /// Time of the reading on the clock of the trace; start of the work.
    pub at: Timestamp,
    /// End of the work, in a trace made of a file that has the work of several processes; `None` for a reading of the
    /// driver. Work comes in the order of its starts.
    pub until: Option<Timestamp>,
    /// Process id, as the traced process sees it.
    pub pid: u32,
    /// Name of its program; empty if unknown. Old traces add its script.
    pub name: ProgramName,
    /// Time in which it used multiprocessors since the reading before, percent. 0 once it has ended; `None` if
    /// the device does not report it.
    pub busy_percent: Option<u32>,
    /// Device memory that it uses, bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
}
