//! What was observed: one struct for each kind of activity.
//!
//! Records are small, `Copy`, and free of strings: names, launch configurations and API functions repeat, so a
//! record holds an id into the [`Dictionary`](crate::dictionary::Dictionary) instead.
//!
//! All times of one trace are on one clock, nanoseconds since the Unix epoch as the tracing library reports them
//! (device times are already mapped to it by that library).

mod capture_mark;
mod device_work;
mod host;
mod id;
mod machine;
mod managed;
mod memory;
mod range;
mod sample;

pub use capture_mark::{CaptureMark, Trigger};
pub use device_work::{Copy, CopyKind, Kernel, LaunchConfig, MemoryKind, Memset};
pub use host::{ApiCall, ApiDomain, ApiFunction, CudaEvent, Overhead, OverheadKind, Sync, SyncKind};
pub use id::{
    ApiFunctionId, ContextId, CorrelationId, DeviceId, LaunchConfigId, NameId, StackId, StreamId, ThreadId, Timestamp,
};
pub use machine::{Context, Device, PcieLink, ThreadName};
pub use managed::{ManagedEvent, ManagedKind};
pub use memory::{MemoryEvent, MemoryOperation};
pub use range::{Payload, RangeEvent, RangeEventKind};
pub use sample::{Frame, HostSample, InterpreterLock, ThreadState};

/// Any record of the hot path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    /// A kernel ran.
    Kernel(Kernel),
    /// A copy ran.
    Copy(Copy),
    /// A memset ran.
    Memset(Memset),
    /// An API function was called.
    Api(ApiCall),
    /// Something was waited for.
    Sync(Sync),
    /// An event was recorded.
    Event(CudaEvent),
    /// Tracing or the driver took time.
    Overhead(Overhead),
    /// The program said what it is doing.
    Range(RangeEvent),
    /// A host thread was looked at.
    Sample(HostSample),
    /// Memory was allocated or released.
    Memory(MemoryEvent),
    /// Pages of managed memory moved or were missed.
    Managed(ManagedEvent),
}

/// What did not become a record. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Records that the tracing library says it dropped.
    pub dropped_by_cupti: u64,
    /// Records that gpuwhy received and threw away because it could not keep up.
    pub dropped_by_gpuwhy: u64,
    /// Records of a kind that this version does not know.
    pub unknown_kinds: u64,
    /// Activity buffers whose walk stopped before their end.
    pub broken_buffers: u64,
    /// Bytes in those buffers behind the point where the walk stopped.
    pub broken_bytes: u64,
    /// Buffers still with the tracing library when the wait at exit ended; their records are unknown in number.
    pub undelivered_buffers: u64,
    /// Range events of the program that were thrown away because there were too many at once.
    pub dropped_ranges: u64,
    /// HostSamples at host threads that gave nothing: torn reads, threads that were gone.
    pub failed_samples: u64,
    /// How often a name, launch configuration, function, frame, device or context found its table full and became
    /// one with others (see [`Dictionary`](crate::dictionary::Dictionary)).
    pub dictionary_overflow: u64,
    /// Time of captures in which nothing could be recorded, because another tool held the tracing library or because that
    /// refused; nanoseconds.
    pub unobserved_ns: u64,
}

impl Loss {
    /// Records that were dropped, by whomever.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped_by_cupti.saturating_add(self.dropped_by_gpuwhy)
    }

    /// What was lost since the counters stood at `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            dropped_by_cupti: self.dropped_by_cupti.saturating_sub(earlier.dropped_by_cupti),
            dropped_by_gpuwhy: self.dropped_by_gpuwhy.saturating_sub(earlier.dropped_by_gpuwhy),
            unknown_kinds: self.unknown_kinds.saturating_sub(earlier.unknown_kinds),
            broken_buffers: self.broken_buffers.saturating_sub(earlier.broken_buffers),
            broken_bytes: self.broken_bytes.saturating_sub(earlier.broken_bytes),
            undelivered_buffers: self.undelivered_buffers.saturating_sub(earlier.undelivered_buffers),
            dropped_ranges: self.dropped_ranges.saturating_sub(earlier.dropped_ranges),
            failed_samples: self.failed_samples.saturating_sub(earlier.failed_samples),
            dictionary_overflow: self.dictionary_overflow.saturating_sub(earlier.dictionary_overflow),
            unobserved_ns: self.unobserved_ns.saturating_sub(earlier.unobserved_ns),
        }
    }
}
