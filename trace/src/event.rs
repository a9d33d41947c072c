//! The one stream: what sources give and sinks take, live and from a file.
//!
//! A source makes events: CUPTI's buffers, NVTX, NCCL, samplers, a trace file, a file of another profiler. A sink takes
//! them in their order: the writer of a trace, the engine, the data of a page, an exporter. A new kind of data is a
//! variant here, and nobody between its source and its sinks has to know it.

use std::sync::Arc;

use crate::collective::CollectiveEvent;
use crate::cost::Cost;
use crate::counters::CounterEvent;
use crate::dictionary::Dictionary;
use crate::kernels::{KernelProfile, PcWindow};
use crate::process_info::End;
use crate::record::{CaptureMark, Loss, Record, Timestamp};
use crate::utilization::UtilizationReading;

/// What a run consists of, apart from its process and its dictionary.
///
/// Records of one kind come in the order in which they were recorded. Across kinds the order between two flush marks
/// means nothing. What is larger than a record is rare, and boxed: readers hold millions of records as events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Something was observed.
    Record(Record),
    /// Samples of hardware counters and readings of gauges.
    Counters(Box<CounterEvent>),
    /// Communicators and the operations that were queued, as NCCL told them.
    Collective(CollectiveEvent),
    /// How busy devices were so far. Totals; the last one of a device counts.
    Utilization {
        /// As of when.
        at: Timestamp,
        /// How busy.
        reading: Box<UtilizationReading>,
    },
    /// What measuring one kernel came to.
    KernelProfile(Arc<KernelProfile>),
    /// What sampling the program counters of a device came to.
    ProgramCounters(Arc<PcWindow>),
    /// The run is measured in pieces: a piece begins or ends, or records of another one follow.
    Capture(CaptureMark),
    /// Everything that completed before this time, and that could be delivered, has come before this event.
    Flush(Timestamp),
    /// What was lost so far. Counters only grow; the last one counts. Before the flush mark that it stands for.
    Loss(Box<Loss>),
    /// What tracing itself took so far. Totals; the last one counts.
    Cost {
        /// As of when.
        at: Timestamp,
        /// How much.
        cost: Box<Cost>,
    },
    /// How the run ended, and when. A trace without this event ended [abruptly](End::Abrupt).
    End(End, Timestamp),
}

const _: () = assert!(size_of::<Event>() == size_of::<Record>());

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

/// Takes events, in their order.
pub trait Sink {
    /// Takes an event; `dictionary` has what it refers to.
    fn event(&mut self, event: &Event, dictionary: &Dictionary);
}
