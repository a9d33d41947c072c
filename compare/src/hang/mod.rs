//! Hanging jobs: finds the rank that did not reach a collective, or reached it with a different one.
//!
//! Each rank reports the operations that it queued and finished in each communicator ([`RankReport`]). The
//! operations of a communicator are numbered in queue order, which is the same on all of its ranks in a
//! correct program. So the first operation that some rank has not finished shows what the communicator waits
//! for: a rank that never queued it, ranks that queued something else, a kernel that is not running yet, or,
//! if it runs on all ranks, the network or a device. If a rank never reached it because it waits in another
//! communicator, the cause is in that communicator. Runs are diagnosed separately: a node may have several
//! jobs.
//!
//! Reading order: here, `judge`, `text`.

use gpuwhy_trace::named;

mod json;
mod judge;
mod text;

pub use judge::{SUSPECT_NANOS, judge};

/// Hang report of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankReport {
    /// Name of its run; empty when unknown.
    pub run: String,
    /// Its rank in the job.
    pub rank: u32,
    /// Number of ranks in the job; 0 when unknown.
    pub world_size: u32,
    /// Host and process, or the file.
    pub place: String,
    /// Current position of its program, as `file:line function`.
    pub line: Option<String>,
    /// Communicators in which it waits or has done work.
    pub communicators: Vec<CommunicatorState>,
}

/// A rank's state of one of its communicators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunicatorState {
    /// Identity, equal on all of its ranks.
    pub id: String,
    /// Name given by the program; may be empty.
    pub name: String,
    /// Its members by their rank in the job; empty when unknown.
    pub ranks: Vec<u32>,
    /// Number of its ranks; 0 when unknown.
    pub size: u32,
    /// Number of queued operations: the next one gets this number.
    pub queued: u64,
    /// Number of finished operations, all before the first outstanding one.
    pub finished: u64,
    /// Operations that were queued and are not finished, the oldest first; possibly not all.
    pub outstanding: Vec<Outstanding>,
}

/// An operation that is queued and not finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Its number in its communicator.
    pub number: u64,
    /// Its function, as `all_reduce`; empty when unknown.
    pub function: String,
    /// Number of elements, or a list of shapes; empty when unknown.
    pub elements: String,
    /// Data type of the elements; empty when unknown.
    pub data_type: String,
    /// True if its kernel is running; `None` when unknown.
    pub runs: Option<bool>,
    /// Time since it was queued, nanoseconds; `None` when unknown.
    pub age_ns: Option<u64>,
    /// Source line that queued it.
    pub line: Option<String>,
}

/// Diagnosis of a hang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HangReport {
    /// Runs with at least one reply, by name.
    pub runs: Vec<RunAnswers>,
    /// Waiting communicators, those that explain others first.
    pub findings: Vec<WaitingCommunicator>,
    /// Sentences about processes and hosts that were queried and did not reply. They may be the cause of a
    /// hang.
    pub silent: Vec<String>,
    /// Sentences about unknown facts and the reason.
    pub doubts: Vec<String>,
}

/// Replies from one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RunAnswers {
    /// Name of the run; empty when unknown.
    pub run: String,
    /// Number of ranks that replied.
    pub ranks: u32,
    /// Ranks of the job that did not reply.
    pub silent: Vec<u32>,
    /// Ranks that replied without any communicator: what they wait for is unknown.
    pub without_collectives: Vec<u32>,
}

impl RunAnswers {
    /// No rank reported a communicator.
    pub fn has_no_collective(&self) -> bool {
        self.ranks > 0 && self.without_collectives.len() == self.ranks as usize
    }
}

/// A waiting communicator.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WaitingCommunicator {
    /// Name of its run; empty when unknown.
    pub run: String,
    /// Its identity.
    pub communicator: String,
    /// Name given by the program; may be empty.
    pub name: String,
    /// Number of the first operation that some rank has not finished.
    pub number: u64,
    /// Function of this operation on most ranks; empty when unknown.
    pub function: String,
    /// Longest wait of a rank, nanoseconds; `None` when unknown.
    pub age_ns: Option<u64>,
    /// Kind of problem.
    pub kind: HangKind,
    /// True if culprits wait in other communicators, which are then the cause. Their other ranks are culprits
    /// there.
    #[serde(rename = "passed_on")]
    pub is_passed_on: bool,
    /// The ranks that cause the wait.
    pub culprits: Vec<Culprit>,
    /// The waiting ranks.
    pub waiting: Vec<u32>,
}

named! {
    /// Reason why a communicator waits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum HangKind: name {
        /// Ranks queued a different function, size or type.
        Mismatch "mismatch",
        /// Ranks never queued the operation.
        NeverCame "never_came",
        /// Ranks of the communicator did not reply: their process has ended, or was not queried.
        Silent "silent",
        /// All queued it, but its kernel is not running on some ranks.
        NotRunning "not_running",
        /// It runs on all ranks: the network or a device is the cause.
        Running "running",
    }
}

/// A rank that others wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Culprit {
    /// Its rank in the job.
    pub rank: u32,
    /// Host and process, or the file; empty without a reply.
    pub place: String,
    /// Current position of its program, or the line that queued the operation.
    pub line: Option<String>,
    /// Operation that it queued, if that is the problem.
    pub queued: Option<String>,
    /// Communicator in which it waits itself.
    pub waits_in: Option<String>,
}
