//! The event stream between sources and sinks, both live and from a file.
//!
//! A source produces events: CUPTI's buffers, NVTX, NCCL, samplers, a trace file, a file of another profiler.
//! A sink consumes them in order: the trace writer, the analysis engine, the data of a page, an exporter. A
//! new kind of data is a new variant here; code between its source and its sinks does not change.

use std::sync::Arc;

use crate::collective::CollectiveEvent;
use crate::cost::Cost;
use crate::counters::CounterEvent;
use crate::dictionary::Dictionary;
use crate::graph_node::GraphNode;
use crate::kernels::KernelProfile;
use crate::memory_call::MemoryCall;
use crate::process_info::End;
use crate::record::{CaptureMark, Loss, Record, Timestamp};
use crate::utilization::UtilizationReading;

/// An element of a run, apart from its process description and dictionary.
///
/// Records of one kind are in the order of recording. Between two flush marks, the order across kinds has no
/// meaning. Payloads larger than a record are rare and therefore boxed: readers hold millions of records as
/// events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A record of host or device activity.
    Record(Record),
    /// Samples of hardware counters and NVML readings.
    Counters(Box<CounterEvent>),
    /// Communicators and queued operations reported by NCCL.
    Collective(CollectiveEvent),
    /// A node of a CUDA graph was added or copied; precedes the records that name it.
    GraphNode(GraphNode),
    /// A call that took or gave device memory.
    MemoryCall(Box<MemoryCall>),
    /// Utilization of devices since the start. Totals; the last event of a device counts.
    Utilization {
        /// Time up to which the totals count.
        at: Timestamp,
        /// The totals.
        reading: Box<UtilizationReading>,
    },
    /// Measurements of one kernel.
    KernelProfile(Arc<KernelProfile>),
    /// Boundary of a capture, for runs that are recorded in parts: it starts or ends, or records of another
    /// capture follow.
    Capture(CaptureMark),
    /// Everything that completed before this time and could be delivered precedes this event.
    Flush(Timestamp),
    /// Losses since the start. Counters only grow; the last event counts. Precedes the flush mark that it
    /// belongs to.
    Loss(Box<Loss>),
    /// Overhead of tracing since the start. Totals; the last event counts.
    Cost {
        /// Time up to which the totals count.
        at: Timestamp,
        /// The totals.
        cost: Box<Cost>,
    },
    /// Reason and time of the end of the run. A trace without this event ended [abruptly](End::Abrupt).
    End(End, Timestamp),
}

const _: () = assert!(size_of::<Event>() == size_of::<Record>());

/// Part of a run that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventScope {
    /// The capture that was selected last.
    Capture,
    /// All captures. Those that start later get what they need of it from the [`Preamble`](crate::preamble::Preamble).
    AllCaptures,
    /// The run.
    Run,
}

impl Event {
    /// Part of the run that the event is about: decides which captures and sessions receive it.
    #[inline]
    pub fn scope(&self) -> EventScope {
        match self {
            Self::Record(_) => EventScope::Capture,
            Self::Counters(_) | Self::Collective(_) | Self::GraphNode(_) | Self::MemoryCall(_) => {
                EventScope::AllCaptures
            }
            Self::Utilization { .. }
            | Self::KernelProfile(_)
            | Self::Capture(_)
            | Self::Flush(_)
            | Self::Loss(_)
            | Self::Cost { .. }
            | Self::End(..) => EventScope::Run,
        }
    }
}

impl From<CounterEvent> for Event {
    fn from(event: CounterEvent) -> Self {
        Self::Counters(Box::new(event))
    }
}

impl From<Loss> for Event {
    fn from(loss: Loss) -> Self {
        Self::Loss(Box::new(loss))
    }
}

impl From<(Timestamp, UtilizationReading)> for Event {
    fn from((at, reading): (Timestamp, UtilizationReading)) -> Self {
        Self::Utilization { at, reading: Box::new(reading) }
    }
}

impl From<(Timestamp, Cost)> for Event {
    fn from((at, cost): (Timestamp, Cost)) -> Self {
        Self::Cost { at, cost: Box::new(cost) }
    }
}

/// Consumes events in order.
pub trait Sink {
    /// Consumes an event; `dictionary` contains everything that it refers to.
    fn event(&mut self, event: &Event, dictionary: &Dictionary);
}
