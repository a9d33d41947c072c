//! What the stages of the engine hand to each other: an operation of a device, and what is found out about it on the
//! way.

use super::join::Launch;
use super::leaf::Leaf;
use super::subject::Subject;
use crate::record::{CorrelationId, DeviceId, StreamId, Timestamp};

/// A kernel, copy or memset on its way to the timeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) launch: Option<Launch>,
    pub(super) device: DeviceId,
    pub(super) stream: StreamId,
    pub(super) correlation: CorrelationId,
    pub(super) subject: Subject,
    pub(super) leaf: Leaf,
    pub(super) graph: bool,
    /// A copy from the host that is large enough to be an input batch.
    pub(super) input: bool,
    /// An optimizer's kernel, by its name.
    pub(super) optimizer: bool,
    /// CUPTI's id of the graph that it is a node of; 0 outside graphs, or when the record does not say.
    pub(super) graph_id: u32,
    /// Number of the flush during which it came.
    pub(super) flush: u64,
    /// Equal for operations that do the same: kernel and grid, direction of a copy, graph.
    pub(super) symbol: u32,
    pub(super) status: LaunchStatus,
    /// It came when its begin was entered already.
    pub(super) late: bool,
    /// How many kernels with its grid run at once with a block to each multiprocessor; 0 for less than two.
    pub(super) fit: u16,
    /// How long a copy between host and device needs the link at least, nanoseconds, at most what it took; 0 when that
    /// is not known.
    pub(super) link: u32,
    /// How long a kernel takes at what can be reached of its nearest roof, nanoseconds; 0 when that is not known.
    pub(super) at_roof: u32,
    /// The number of a kernel's launch configuration.
    pub(super) kernel: u32,
    /// How much a copy moves, bytes, at most [`MOST_BYTES`](crate::whatif::MOST_BYTES); 0 for what is no copy.
    pub(super) bytes: u16,
}

impl Operation {
    /// An operation of which no more is known than when and where it ran.
    #[inline]
    pub(super) fn new(
        start: Timestamp,
        end: Timestamp,
        device: DeviceId,
        stream: StreamId,
        correlation: CorrelationId,
    ) -> Self {
        Self {
            start: start.nanos(),
            end: end.nanos(),
            launch: None,
            device,
            stream,
            correlation,
            subject: Subject::None,
            leaf: Leaf::CopyOther,
            graph: false,
            graph_id: 0,
            input: false,
            optimizer: false,
            flush: 0,
            symbol: 0,
            status: LaunchStatus::default(),
            late: false,
            fit: 0,
            link: 0,
            at_roof: 0,
            kernel: 0,
            bytes: 0,
        }
    }

    /// What a copy from or to ordinary memory takes longer than it would from page-locked memory, nanoseconds; 0 when
    /// that is not known.
    ///
    /// For a kernel, what it takes longer than at its nearest roof.
    pub(super) fn excess(&self) -> u32 {
        if self.leaf == Leaf::Compute && self.at_roof != 0 {
            return u32::try_from((self.end - self.start).saturating_sub(self.at_roof.into())).unwrap_or(u32::MAX);
        }
        if self.link == 0 || !self.leaf.is_pageable() {
            return 0;
        }
        u32::try_from((self.end - self.start).saturating_sub(self.link.into())).unwrap_or(u32::MAX)
    }
}

/// Operations that came since the last flush before those whose launch is known go on to their timeline.
const ARRIVALS: usize = 1 << 14;

/// Operations whose launch is not known yet.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Where they lie.
    pub(super) places: Vec<u32>,
    /// So many are looked through for those whose launch is known by now.
    due: usize,
}

impl Arrivals {
    /// Where they lie.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.places.iter().copied()
    }

    /// Whether so many wait that they should be looked through.
    pub(super) fn is_due(&self) -> bool {
        self.places.len() >= self.due.max(ARRIVALS)
    }

    /// What is left is looked at again when as much has come.
    pub(super) fn looked_through(&mut self) {
        self.due = ARRIVALS.max(self.places.len() * 2);
        if self.places.capacity() > 4 * self.due {
            self.places.shrink_to(self.due);
        }
    }
}

/// Whether and how an operation begins a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaunchStatus {
    /// It was shown to the detector, or is past it.
    pub(super) shown: bool,
    /// It is the first that was launched in a named step.
    pub(super) marked: bool,
    /// It is the first operation of its launch; those behind it in a graph are not.
    pub(super) first: bool,
    /// A step begins with it or breaks off: `LaunchOrder::take_cut` knows which.
    pub(super) cuts: bool,
}

/// A host thread waited for an input batch, nanoseconds on the clock of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputWait {
    /// Index of the thread.
    pub(super) thread: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}
