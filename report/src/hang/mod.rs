//! Jobs that stand still: which rank did not come to a collective, or came with another one.
//!
//! Each rank tells what it has queued and finished in each communicator ([`Witness`]). The operations of a communicator
//! are numbered in the order in which they were queued, which is the same on all of its ranks in a correct program. So
//! the first operation that some rank has not finished says what the communicator waits for: a rank that never queued
//! it, ranks that queued something else, a kernel that does not run yet, or, where it runs on all, the network or a
//! device. A rank that never came because it waits in another communicator is not the reason; that communicator is.
//! Runs are judged apart: a node may have several jobs.
//!
//! Reading order: here, `judge`, `text`.

use gpuwhy_trace::named;

#[cfg(feature = "serde")]
mod json;
mod judge;
mod text;

pub use judge::{SUSPECT_NANOS, judge};

/// What one rank says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// The name of its run; empty when unknown.
    pub run: String,
    /// Its rank in the job.
    pub rank: u32,
    /// Ranks of the job; 0 when unknown.
    pub world_size: u32,
    /// Host and process, or the file.
    pub place: String,
    /// Where its program is, as `file:line function`.
    pub line: Option<String>,
    /// Communicators in which it waits or has worked.
    pub communicators: Vec<CommunicatorState>,
}

/// What a rank says of one of its communicators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunicatorState {
    /// Equal on all of its ranks.
    pub id: String,
    /// What the program calls it; may be empty.
    pub name: String,
    /// Its ranks by their number in the job; empty when unknown.
    pub ranks: Vec<u32>,
    /// How many ranks it has; 0 when unknown.
    pub size: u32,
    /// Operations that were queued: the next one gets this number.
    pub queued: u64,
    /// Operations that are finished, all before the first outstanding one.
    pub finished: u64,
    /// Operations that were queued and are not finished, the oldest first; perhaps not all.
    pub outstanding: Vec<Outstanding>,
}

/// An operation that is queued and not finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Its number in its communicator.
    pub number: u64,
    /// What it does, as `all_reduce`; empty when unknown.
    pub function: String,
    /// Elements, as a count or a list of shapes; empty when unknown.
    pub elements: String,
    /// Type of the elements; empty when unknown.
    pub data_type: String,
    /// Whether its kernel runs; `None` when unknown.
    pub runs: Option<bool>,
    /// How long ago it was queued, nanoseconds; `None` when unknown.
    pub age_ns: Option<u64>,
    /// Where the program queued it.
    pub line: Option<String>,
}

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HangReport {
    /// Runs of which somebody said something, by name.
    pub runs: Vec<RunAnswers>,
    /// Communicators that wait, those that explain others first.
    pub findings: Vec<Finding>,
    /// Processes and hosts that were asked and do not answer: sentences. Where a job stands still, they may be why.
    pub silent: Vec<String>,
    /// What cannot be told, and why: sentences.
    pub doubts: Vec<String>,
}

/// Who said something of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RunAnswers {
    /// Its name; empty when unknown.
    pub run: String,
    /// Ranks that said something.
    pub ranks: u32,
    /// Ranks of the job that said nothing.
    pub silent: Vec<u32>,
}

/// A communicator that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Finding {
    /// The name of its run; empty when unknown.
    pub run: String,
    /// Its identity.
    pub communicator: String,
    /// What the program calls it; may be empty.
    pub name: String,
    /// The number of the first operation that some rank has not finished.
    pub number: u64,
    /// What it does on most ranks; empty when unknown.
    pub function: String,
    /// How long the first rank has waited, nanoseconds; `None` when unknown.
    pub age_ns: Option<u64>,
    /// What is wrong.
    pub kind: HangKind,
    /// Whether culprits wait themselves in other communicators, which are the reason then. The others of them are
    /// culprits there.
    #[cfg_attr(feature = "serde", serde(rename = "passed_on"))]
    pub is_passed_on: bool,
    /// The ranks that are the reason.
    pub culprits: Vec<Culprit>,
    /// Ranks that wait.
    pub waiting: Vec<u32>,
}

named! {
    /// Why a communicator waits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum HangKind: name {
        /// Ranks queued something else, or other sizes or types.
        Mismatch "mismatch",
        /// Ranks never queued the operation.
        NeverCame "never_came",
        /// Ranks of the communicator say nothing: their process has ended, or was not asked.
        Silent "silent",
        /// All queued it, and on some ranks its kernel does not run.
        NotRunning "not_running",
        /// It runs on all ranks: network or device.
        Running "running",
    }
}

/// A rank that others wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Culprit {
    /// Its rank in the job.
    pub rank: u32,
    /// Host and process, or the file; empty when it said nothing.
    pub place: String,
    /// Where its program is, or where it queued what it queued.
    pub line: Option<String>,
    /// What it queued, where that is the matter.
    pub queued: Option<String>,
    /// The communicator in which it waits itself.
    pub waits_in: Option<String>,
}
