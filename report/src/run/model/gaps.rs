//! Idle time of a device by attributed subject, and by the work it waited for.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::{GapTotals, Producer};
use profiler_core::leaf::Leaf;

/// Idle time of one leaf attributed to one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GapRow {
    /// Leaf cause.
    pub leaf: Leaf,
    /// Subject to which it is attributed.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub subject: GapSubject,
    /// Count and duration.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub totals: GapTotals,
}

/// Subject to which idle time is attributed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapSubject {
    /// Several subjects: the table was full.
    None,
    /// The API function that the launching thread was in or had just left.
    Call(String),
    /// The next kernel, demangled.
    Kernel(String),
    /// The next operation was a copy from the host.
    HostToDevice,
    /// The next operation was another copy or a memset.
    OtherTransfer,
    /// Work before an event that the stream waited for.
    Awaited(Producer),
    /// Sampled activity of the launching thread; the lines are in the report's `host`.
    Host(HostCause),
}

impl GapSubject {
    /// Word for the kind of subject.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Call(_) => "call",
            Self::Kernel(_) => "kernel",
            Self::HostToDevice => "copy_from_host",
            Self::OtherTransfer => "other_transfer",
            Self::Awaited(_) => "event",
            Self::Host(_) => "host",
        }
    }

    /// Name of the function, kernel, work before the event, or host activity, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Call(name) | Self::Kernel(name) => Some(name),
            Self::Awaited(producer) => Some(producer.work.name()),
            Self::Host(cause) => Some(cause.name()),
            Self::None | Self::HostToDevice | Self::OtherTransfer => None,
        }
    }
}

/// Idle time after start-up that waited for events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Awaited {
    /// Work that was awaited.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub producer: Producer,
    /// Count and duration.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub totals: GapTotals,
}
