//! Another process that uses a device, according to the driver.

use std::fmt;

use crate::record::{DeviceId, Timestamp};

/// Longest name that is kept, in bytes.
const LONGEST: usize = 47;

/// Name of a program, at most 47 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProgramName([u8; LONGEST], u8);

impl Default for ProgramName {
    fn default() -> Self {
        Self([0; LONGEST], 0)
    }
}

impl ProgramName {
    /// First 47 bytes of `name`, or fewer so that no character is split.
    pub fn new(name: &str) -> Self {
        let length = (0..=name.len().min(LONGEST)).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        let mut bytes = [0; LONGEST];
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        Self(bytes, length as u8)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0[..self.1 as usize]).unwrap_or_default()
    }
}

impl fmt::Debug for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(ProgramName::new("python3 server.py").as_str(), "python3 server.py");
        assert_eq!(ProgramName::new(&"é".repeat(40)).as_str(), "é".repeat(23));
    }
}
