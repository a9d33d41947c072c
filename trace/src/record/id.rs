//! Timestamps, and the ids by which records refer to each other and to the dictionary.

use std::fmt;

/// A point in time: nanoseconds since the Unix epoch on the clock of the trace. Zero means "not recorded".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Timestamp(u64);

impl Timestamp {
    /// Value written by the tracing library if it has no time.
    pub const ZERO: Self = Self(0);

    /// Creates a timestamp from nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`, or 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// Device ordinal in this process, as numbered by the driver.
    DeviceId(u32);
    /// Context id, unique in the process.
    ContextId(u32);
    /// Stream id, unique in the process. The null stream of the first context is usually 7.
    StreamId(u32);
    /// Links an API call to the device work it caused. Unique in the process until it wraps at 2^32.
    CorrelationId(u32);
    /// Kernel thread id (`gettid`).
    ThreadId(u32);
    /// Index of a string in the dictionary.
    NameId(u32);
    /// Index of a [`LaunchConfig`](crate::record::LaunchConfig) in the dictionary.
    LaunchConfigId(u32);
    /// Index of an [`ApiFunction`](crate::record::ApiFunction) in the dictionary.
    ApiFunctionId(u32);
    /// Index of the innermost [`Frame`](crate::record::Frame) of a stack in the dictionary.
    StackId(u32);
}

impl StackId {
    /// No stack.
    pub const NONE: Self = Self(u32::MAX);
}

impl NameId {
    /// A lost name: no dictionary contains this id.
    pub const UNKNOWN: Self = Self(u32::MAX);
}
