//! Steps: repeated units of a program, and the time of each repetition by cause.
//!
//! Boundaries are on the device: a step starts when the first operation launched in it starts there. Host
//! timestamps are unsuitable: the CPU runs ahead of the GPU by a varying time.
//!
//! Reading order: [`StepDetector`] (from launches to boundaries; `sequence`, `epoch`, `beats` and `inside`
//! are its parts), [`Iterations`] (those of a server), `step_table` (from boundaries to steps), `steady` (typical
//! steps, with `kinds`), `time_share` (inference from those to all steps).

use gpuwhy_trace::named;

mod beats;
mod detector;
mod epoch;
mod inside;
mod iterations;
mod kinds;
mod sequence;
mod steady;
pub(crate) mod step_table;
mod time_share;

pub use detector::StepDetector;
pub use inside::Inside;
pub use iterations::{IterationLaunch, Iterations, LONGEST_INPUT, LONGEST_READ, TokenKernel};
pub use kinds::{KindsDifference, StepKind};
pub use steady::{FEWEST_STEADY, Interval, Steady, UNUSUAL, WARM_UP_STEPS};
pub use step_table::{LoggedStep, OverflowSeries, OverflowStep, REMEMBERED, WINDOW_NANOS};
pub use time_share::TimeShare;

use gpuwhy_trace::record::Timestamp;

use crate::leaf::Leaves;

named! {
    /// How step boundaries were found, most reliable first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum StepSource: name {
        /// Ranges that the program or its framework named.
        Annotated "annotated",
        /// Copies of sampled tokens to the host: the iterations of an LLM server.
        Iteration "iteration",
        /// A period in the sequence of launches.
        Period "period",
        /// An operation that occurs once per step.
        Anchor "anchor",
        /// No repetition: windows of a fixed length.
        Window "window",
    }
}

named! {
    /// Work of an iteration of a server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum IterationKind: name {
        /// One token, or the few of a draft, for each running sequence.
        Decode "decode",
        /// Prompts only.
        Prefill "prefill",
        /// Prompts; it is unknown whether other sequences run with them.
        PrefillOrMixed "prefill or mixed",
    }
}

/// What an iteration of a server processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Its kind.
    pub kind: IterationKind,
    /// Sequences that got a token; 0 if unknown.
    pub sequences: u32,
    /// Tokens that went through the model, those of prompts included; 0 if unknown.
    pub tokens: u32,
}

/// Steps of one kind: found in the same way and, by period, with the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepSeries {
    /// How they were found.
    pub source: StepSource,
    /// Launches per step; 0 unless `source` is [`StepSource::Period`].
    pub period: u32,
}

/// Start of a step at a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// How it was found.
    pub source: StepSource,
    /// Launches per step; 0 unless `source` is [`StepSource::Period`].
    pub period: u32,
    /// Launches of the step that ends; 0 for the first boundary.
    pub launches: u32,
    /// Number of these with the same symbol as the launch one period before.
    pub matched: u32,
}

/// Significance of a launch for steps, in addition to its symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchKind {
    /// It launches a CUDA graph, which is captured to be repeated.
    Graph,
    /// It copies between host and device, which rarely occurs once per layer.
    HostCopy,
    /// Like [`HostCopy`](Self::HostCopy), from the host: the repeated sequence around it is a step and not a
    /// layer.
    Input,
    /// An optimizer's kernel: the repeated sequence around it is a step and not a layer.
    Optimizer,
    /// No significance.
    Other,
}

named! {
    /// Evidence that the operations that repeat are a complete step, and not a part of one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecognizedBy: name {
        /// A range that the program or its framework named.
        Range "range",
        /// A copy of sampled tokens to the host.
        Tokens "sampled_tokens",
        /// An optimizer's kernel.
        Optimizer "optimizer",
        /// A copy from the host.
        Input "input_copy",
        Graph "cuda_graph",
        /// A copy to the host.
        Readback "readback",
        /// The host waits for the device once.
        Wait "synchronization",
        /// An operation that occurs once, around others that repeat.
        Rare "rare_operation",
    }
}

/// Facts about steps of one period, derived from the launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodFacts {
    /// Launches per step.
    pub period: u32,
    /// True if the host waits for the device once per step.
    pub waits: bool,
    /// Repetition within a step.
    pub inside: Option<Inside>,
}

/// Effect of a launch on the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A step starts with it, and the open one ends.
    Begin(Boundary),
    /// The launches no longer repeat, or repeat in another way: the open step is discarded.
    Lost,
}

/// Start of an iteration of a server at a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationCut {
    /// The iteration that ends; `None` if what comes before it is none.
    pub ended: Option<Iteration>,
    /// True if the iterations up to now are those of a server.
    pub serves: bool,
    /// True if its tokens have 8 bytes, so that its numbers, which assume 4, are twice as large.
    pub wide: bool,
}

/// Effects of a launch on the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// On the steps that repeat.
    pub step: Option<Cut>,
    /// On the iterations.
    pub iteration: Option<IterationCut>,
}

/// One step on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Start on the device.
    pub start: Timestamp,
    /// End: the start of the next one.
    pub end: Timestamp,
    /// Number of device operations in it.
    pub operations: u64,
    /// Time by cause; sums to `end - start` exactly.
    pub leaves: Leaves,
    /// What it processed, if it is an iteration of a server.
    pub iteration: Option<Iteration>,
}

/// Remembered steps of one device, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How they were found.
    pub source: StepSource,
    /// Device operations per step, if a period was found.
    pub period: Option<u64>,
    /// Number of steps found, including those that are no longer remembered.
    pub seen: u64,
    /// Newest steps, bounded in number.
    pub rows: Vec<Step>,
}
