//! Boundaries of captures among the records.

use super::Timestamp;
use crate::named;

named! {
    /// Reason for the start of a capture.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Trigger: name {
        /// The program started; no other trigger was chosen.
        #[default]
        Start "start",
        /// `cudaProfilerStart` or `cuProfilerStart`.
        ProfilerApi "cudaProfilerApi",
        /// An NVTX range of the program started.
        Range "nvtx",
        /// A delay elapsed.
        Delay "delay",
        /// The schedule of steps.
        Steps "steps",
        /// An external command.
        Command "command",
        /// A burst: samples left the bottleneck open, or there are none.
        Open "open",
        /// A burst: the step time drifted.
        Drift "drift",
        /// A burst: a new CUDA graph was captured.
        Graph "graph",
    }
}

impl Trigger {
    /// True for a burst: gpuwhy itself started the capture, of a run that is otherwise not recorded.
    pub const fn is_burst(self) -> bool {
        matches!(self, Self::Open | Self::Drift | Self::Graph)
    }
}

/// Boundary of a capture, or the capture that the following records belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMark {
    /// A capture starts; the following events belong to it.
    Begin {
        /// Number within the trace, starting at 1. 0 is the whole run as monitored in mode auto, in parallel
        /// with the others.
        number: u32,
        /// Time of the start.
        at: Timestamp,
        /// Reason for the start.
        trigger: Trigger,
    },
    /// The following events belong to this capture, which started earlier.
    Select {
        /// Number of the capture.
        number: u32,
    },
    /// All events of a capture have been written.
    End {
        /// Number of the capture.
        number: u32,
        /// End of the captured interval.
        at: Timestamp,
    },
}
