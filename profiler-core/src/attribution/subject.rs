//! What idle time is blamed on, and how much of it there is.

use super::host_cause::HostCause;
use super::leaf::Work;
use super::stacks::LineId;
use crate::record::{ApiFunctionId, NameId};

/// What an idle segment is blamed on, where that says more than the leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Nothing in particular.
    #[default]
    None,
    /// The call that the host was in.
    Call(ApiFunctionId),
    /// The kernel that came next.
    Kernel(NameId),
    /// A copy from host to device came next.
    HostToDevice,
    /// Another copy or a memset came next.
    OtherTransfer,
    /// The operation that an event made the stream wait for.
    Awaited(Producer),
    /// What the launching thread was seen to do, and at which line.
    Host(HostCause, LineId),
}

/// How often and how long a cause kept the device idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GapTotals {
    /// Gaps of the device that it had a part in.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub total_ns: u64,
    /// The most that it had of one gap, nanoseconds.
    pub longest_ns: u64,
}

impl GapTotals {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// What a gap waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Producer {
    /// What it did.
    pub work: Work,
    /// It ran on another device than the one that waited.
    pub other_device: bool,
}
