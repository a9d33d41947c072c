//! Records: one struct for each kind of activity.
//!
//! Records are small, `Copy`, and free of strings: names, launch configurations and API functions repeat, so
//! a record contains an id into the [`Dictionary`](crate::dictionary::Dictionary) instead.
//!
//! All times of a trace are on one clock, in nanoseconds since the Unix epoch as reported by the tracing
//! library, which has already mapped device times to it.

mod capture_mark;
mod device_work;
mod host;
mod id;
mod machine;
mod managed;
mod memory;
mod range;
mod sample;

pub use crate::loss::Loss;
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
pub use sample::{Frame, HostSample, InterpreterLock, MAX_FRAMES, ThreadState};

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
    /// A synchronization.
    Sync(Sync),
    /// An event was recorded.
    Event(CudaEvent),
    /// Overhead of tracing or the driver.
    Overhead(Overhead),
    /// An NVTX range or mark of the program.
    Range(RangeEvent),
    /// A sample of a host thread.
    Sample(HostSample),
    /// Memory was allocated or released.
    Memory(MemoryEvent),
    /// A migration or page fault of managed memory.
    Managed(ManagedEvent),
}

impl Record {
    /// Names of the kinds, in the plural.
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

    /// Index of its kind in [`KINDS`](Self::KINDS).
    #[inline]
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

    /// Start and end, which are equal for events at a single point in time; `None` for a record without
    /// times.
    #[inline]
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

    /// The API call that the record is or was caused by; `None` for kinds without a call. An id of 0 is
    /// unknown.
    #[inline]
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

    /// Common properties of kernels, copies and memsets; `None` for other kinds.
    #[inline]
    pub fn device_work(&self) -> Option<DeviceWork> {
        match self {
            Self::Kernel(row) => Some(row.into()),
            Self::Copy(row) => Some(row.into()),
            Self::Memset(row) => Some(row.into()),
            _ => None,
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
