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
pub use device_work::{Copy, CopyKind, DeviceWork, Kernel, LaunchConfig, MemoryKind, Memset};
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

impl Record {
    /// The kinds, in the plural.
    pub const KINDS: [&'static str; 11] = [
        "kernels",
        "copies",
        "memsets",
        "API calls",
        "synchronizations",
        "events",
        "overheads",
        "range events",
        "host samples",
        "memory events",
        "events of managed memory",
    ];

    /// Place of its kind in [`KINDS`](Self::KINDS).
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> usize {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Memset(_) => 2,
            Self::Api(_) => 3,
            Self::Sync(_) => 4,
            Self::Event(_) => 5,
            Self::Overhead(_) => 6,
            Self::Range(_) => 7,
            Self::Sample(_) => 8,
            Self::Memory(_) => 9,
            Self::Managed(_) => 10,
        }
    }

    /// Begin and end, which are the same for what happens at one moment; `None` for a record without times.
    #[inline]
    #[must_use]
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        Some(match self {
            Self::Kernel(row) => (row.start, row.end),
            Self::Copy(row) => (row.start, row.end),
            Self::Memset(row) => (row.start, row.end),
            Self::Api(row) => (row.start, row.end),
            Self::Sync(row) => (row.start, row.end),
            Self::Overhead(row) => (row.start, row.end),
            Self::Range(row) => (row.at, row.at),
            Self::Sample(row) => (row.since, row.at),
            Self::Memory(row) => (row.at, row.at),
            Self::Managed(row) => (row.start, row.end),
            Self::Event(_) => return None,
        })
    }

    /// The API call that it is, or that it comes from; `None` for kinds that come from no call. The id may be 0: not
    /// known.
    #[inline]
    #[must_use]
    pub const fn correlation(&self) -> Option<CorrelationId> {
        Some(match self {
            Self::Kernel(row) => row.correlation,
            Self::Copy(row) => row.correlation,
            Self::Memset(row) => row.correlation,
            Self::Api(row) => row.correlation,
            Self::Sync(row) => row.correlation,
            Self::Event(row) => row.correlation,
            Self::Overhead(row) => row.correlation,
            Self::Memory(row) => row.correlation,
            Self::Range(_) | Self::Sample(_) | Self::Managed(_) => return None,
        })
    }

    /// What kernels, copies and memsets have in common; `None` for what ran on no device.
    #[inline]
    #[must_use]
    pub fn device_work(&self) -> Option<DeviceWork> {
        match self {
            Self::Kernel(row) => Some(row.into()),
            Self::Copy(row) => Some(row.into()),
            Self::Memset(row) => Some(row.into()),
            _ => None,
        }
    }
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
    /// Host samples at host threads that gave nothing: torn reads, threads that were gone.
    pub failed_samples: u64,
    /// How often a name, launch configuration, function, frame, device or context found its table full and became
    /// one with others (see [`Dictionary`](crate::dictionary::Dictionary)).
    pub dictionary_overflow: u64,
    /// Time of captures in which nothing could be recorded, because another tool held the tracing library or because
    /// that refused; nanoseconds.
    pub unobserved_ns: u64,
    /// Kernels that the tracing library launched itself while kernels were measured; they are none of the program's.
    pub own_kernels: u64,
    /// Events of communicators that were thrown away because there were too many at once.
    pub dropped_collectives: u64,
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
            own_kernels: self.own_kernels.saturating_sub(earlier.own_kernels),
            dropped_collectives: self.dropped_collectives.saturating_sub(earlier.dropped_collectives),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_record_is_asked_of_it() {
        let (start, end, correlation) = (Timestamp::from_nanos(3), Timestamp::from_nanos(7), CorrelationId(9));
        let copy = Record::Copy(Copy { start, end, correlation, bytes: 64, ..Copy::default() });
        assert_eq!((copy.span(), copy.correlation()), (Some((start, end)), Some(correlation)));
        assert_eq!(copy.device_work().map(|work| (work.start, work.end, work.bytes)), Some((start, end, 64)));

        let sample = Record::Sample(HostSample { since: start, at: end, ..HostSample::default() });
        assert_eq!((sample.span(), sample.correlation(), sample.device_work()), (Some((start, end)), None, None));
        let event = Record::Event(CudaEvent { correlation, ..CudaEvent::default() });
        assert_eq!((event.span(), event.correlation()), (None, Some(correlation)));
    }
}
