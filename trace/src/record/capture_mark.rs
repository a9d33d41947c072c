//! Where captures begin and end among the records.

use super::Timestamp;
use crate::named;

named! {
    /// Why a capture began.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Trigger: name {
        /// The program began: nobody chose.
        #[default]
        Start "start",
        /// `cudaProfilerStart` or `cuProfilerStart`.
        ProfilerApi "cudaProfilerApi",
        /// A range of the program began.
        Range "nvtx",
        /// A delay was over.
        Delay "delay",
        /// The schedule of steps.
        Steps "steps",
        /// A command came from outside.
        Command "command",
        /// Mode auto: samples left the bottleneck open.
        Open "open",
        /// Mode auto: the step time drifted.
        Drift "drift",
    }
}

impl Trigger {
    /// Whether mode auto began it: a burst.
    pub const fn is_burst(self) -> bool {
        matches!(self, Self::Open | Self::Drift)
    }
}

/// Where captures begin and end in a trace, and to which of them the records belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMark {
    /// A capture begins; what follows belongs to it.
    Begin {
        /// Counts from 1 within the trace. 0 is the whole run as mode auto monitors it, beside the others.
        number: u32,
        /// When.
        at: Timestamp,
        /// Why.
        trigger: Trigger,
    },
    /// What follows belongs to this capture, which has begun before.
    Select {
        /// Its number.
        number: u32,
    },
    /// Everything of a capture has come.
    End {
        /// Its number.
        number: u32,
        /// When its range ended.
        at: Timestamp,
    },
}
