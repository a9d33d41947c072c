//! Idle time of a device by what it is blamed on, and what it waited for.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::leaf::Leaf;
use profiler_core::attribution::{GapTotals, Producer};

/// Idle time of one leaf that was blamed on one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GapRow {
    /// The kind of cause.
    pub leaf: Leaf,
    /// What it is blamed on.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub subject: GapSubject,
    /// How often and how long.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub tally: GapTotals,
}

/// What idle time is blamed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapSubject {
    /// More than one thing: the table was full.
    None,
    /// The API function that the launching thread was in, or had left.
    Call(String),
    /// The kernel that came next, demangled.
    Kernel(String),
    /// A copy from the host came next.
    HostToDevice,
    /// Another copy or a memset came next.
    OtherTransfer,
    /// Work before an event that the stream waited for.
    Awaited(Producer),
    /// What the launching thread was seen to do; the lines are in the report's `host`.
    Host(HostCause),
}

impl GapSubject {
    /// The word for what it is.
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

    /// Its name, where it has one: function, kernel, work before the event, or what the host did.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Call(name) | Self::Kernel(name) => Some(name),
            Self::Awaited(producer) => Some(producer.work.name()),
            Self::Host(cause) => Some(cause.name()),
            Self::None | Self::HostToDevice | Self::OtherTransfer => None,
        }
    }
}

/// Idle time behind events of one kind, after start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Awaited {
    /// What was waited for.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub producer: Producer,
    /// How often and how long.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub tally: GapTotals,
}
