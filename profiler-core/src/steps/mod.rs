//! Steps: what a program repeats, and how long each repetition took by cause.
//!
//! Boundaries are on the device: a step begins when the first operation that was launched in it begins there. Host
//! marks carry run-ahead and would blur what the device did.
//!
//! Reading order: [`StepDetector`] (from launches to boundaries; `sequence`, `epoch`, `beats` and `inside` are its
//! parts), `ledger` (from boundaries to steps), `steady` (which of them are typical, with `kinds`), `time_share` (what
//! those say about all steps).

use gpuwhy_trace::named;

mod beats;
mod detector;
mod epoch;
mod inside;
mod kinds;
pub(crate) mod ledger;
mod sequence;
mod steady;
mod time_share;

pub use detector::StepDetector;
pub use inside::Inside;
pub use kinds::StepKinds;
pub use ledger::{LoggedStep, OverflowSeries, OverflowStep, REMEMBERED, WINDOW_NANOS};
pub use steady::{FEWEST_STEADY, Interval, Steady, UNUSUAL, WARM_UP_STEPS};
pub use time_share::TimeShare;

use gpuwhy_trace::record::Timestamp;

use crate::attribution::leaf::Leaves;

named! {
    /// How step boundaries were found, the most trustworthy first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum StepSource: name {
        /// Ranges that the program or its framework named.
        Annotated "annotated",
        /// A period in the sequence of launches.
        Period "period",
        /// An operation that comes once a step.
        Anchor "anchor",
        /// Nothing repeats: windows of a fixed length.
        Window "window",
    }
}

/// Steps that are alike: found in one way and, by period, of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepSeries {
    /// How they were found.
    pub source: StepSource,
    /// Launches of a step; 0 unless it is a period.
    pub period: u32,
}

/// A step begins with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// How it was found.
    pub source: StepSource,
    /// Launches of a step; 0 unless it is a period.
    pub period: u32,
    /// Launches of the step that ends; 0 for the first boundary.
    pub launches: u32,
    /// How many of them do the same as the one a period before.
    pub matched: u32,
}

/// What a launch says about steps beyond what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchKind {
    /// It launches a CUDA graph: somebody captured it to be repeated.
    Graph,
    /// It copies between host and device: hardly once a layer.
    HostCopy,
    /// As [`HostCopy`](Self::HostCopy), from the host: what is repeated around it is a step and no layer.
    Input,
    /// An optimizer's kernel: what is repeated around it is a step and no layer.
    Optimizer,
    /// Nothing.
    Other,
}

named! {
    /// What tells that the operations that a step repeats are one, and not a part of one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ToldBy: name {
        /// A range that the program or its framework named.
        Range "range",
        /// An optimizer's kernel.
        Optimizer "optimizer",
        /// A copy from the host.
        Input "input_copy",
        Graph "cuda_graph",
        /// A copy to the host.
        Readback "readback",
        /// The host waits for the device once.
        Wait "synchronization",
        /// An operation that comes once, around others that repeat.
        Rare "rare_operation",
    }
}

/// What the launches say of steps of one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodFacts {
    /// Launches of a step.
    pub period: u32,
    /// Whether the host waits for the device once in each.
    pub waits: bool,
    /// What repeats within a step.
    pub inside: Option<Inside>,
}

/// What a launch means for the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A step begins with it, and the open one ends.
    Begin(Boundary),
    /// The open step is not one after all.
    Lost,
}

/// One step on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Begin on the device.
    pub start: Timestamp,
    /// End: the begin of the next one.
    pub end: Timestamp,
    /// Device operations in it.
    pub operations: u64,
    /// Its time by cause; sums to `end - start` exactly.
    pub leaves: Leaves,
}

/// The steps of one device that are still remembered, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How they were found.
    pub source: StepSource,
    /// Device operations of one step, when a period was found.
    pub period: Option<u64>,
    /// Steps found so far, those included that are not remembered any more.
    pub seen: u64,
    /// The newest ones, bounded in number.
    pub rows: Vec<Step>,
}
