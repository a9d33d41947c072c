//! What a comparison of ranks holds.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::leaf::{Group, Leaf, Leaves};
use profiler_core::collective::Basis;
use profiler_core::counters::roofs::LimitTimes;

use super::clocks::HostClock;
use super::collectives::Collectives;
use super::summary::RankSummary;
use crate::run::Report;

/// What one rank brings.
#[derive(Clone, Copy, Debug)]
pub struct RankTrace<'a> {
    /// Its rank.
    pub rank: u32,
    /// What its trace says.
    pub report: &'a Report,
    /// Its collective operations.
    pub collectives: &'a Collectives,
}

/// The ranks beside each other.
#[derive(Clone, Debug)]
pub struct RanksReport {
    /// Ranks of the job, if a trace says so.
    pub world_size: Option<u32>,
    /// In the order in which they were given.
    pub rows: Vec<RankRow>,
    /// Clocks of the hosts, the first one that to which the others are brought.
    pub clocks: Vec<HostClock>,
    /// What tells that collectives of several ranks are one; the best of all rows.
    pub basis: Basis,
    /// Collectives in which it can be told who waited for whom.
    pub collectives: u64,
    /// Their time, summed over the ranks, nanoseconds.
    pub collective_ns: u64,
    /// Collectives that some ranks of their communicator lack.
    pub missing: u64,
    /// Collectives whose begins differ by less than three times the error of the clocks.
    pub too_close: u64,
    /// `[waiting rank][last rank]`, by place in `rows`: what the one waited for the other in collectives, nanoseconds.
    /// Empty with more than [`WAITS_SHOWN`](super::WAITS_SHOWN) ranks.
    pub waits: Vec<Vec<u64>>,
    /// The rank that the others wait for, if there is one.
    pub straggler: Option<Straggler>,
    /// The host that causes over half of the waiting while none of its ranks does, and its share, 0 to 1.
    pub slow_host: Option<(String, f64)>,
    /// What the duration of the compared time consists of.
    pub critical_path: Option<CriticalPath>,
    /// What cannot be told, and why: sentences.
    pub doubts: Vec<String>,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct RankRow {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub process_id: u32,
    /// Window of the device that communicates most, nanoseconds.
    pub window_ns: u64,
    /// That window by cause.
    pub leaves: Leaves,
    /// The computation of that window by what limits it, nanoseconds, in the proportions of its typical steps; `None`
    /// without samples of hardware counters. Sums to the leaf `compute` exactly.
    pub limits: Option<LimitTimes>,
    /// Its verdict by itself, and the share, 0 to 1.
    pub verdict: (Group, f64),
    /// What it waited in collectives for a later rank, nanoseconds. Computation may have run beside it.
    pub waited_ns: u64,
    /// What others waited because of it, nanoseconds, summed over them. Waiting for a rank that was late only because
    /// it had waited in another communicator counts for the rank that this one waited for.
    pub awaited_ns: u64,
    /// Ranks that it waited for in collectives, by place in `rows`, with nanoseconds, the longest first; at most 16.
    pub waited_for: Vec<(u32, u64)>,
    /// Collectives that it was the last to begin.
    pub last: u64,
    /// How much later than the first rank it began, the median over collectives, nanoseconds.
    pub late_ns: u64,
}

impl RankRow {
    pub(super) fn new(summary: &RankSummary) -> Self {
        Self {
            rank: summary.rank,
            host: summary.host.clone(),
            process_id: summary.process_id,
            window_ns: summary.window_ns,
            leaves: summary.leaves,
            limits: summary.limits,
            verdict: summary.verdict.unwrap_or((Group::CannotTell, 0.0)),
            waited_ns: 0,
            awaited_ns: 0,
            waited_for: Vec::new(),
            last: 0,
            late_ns: 0,
        }
    }

    /// The least that is left of its window if it waited for nobody, nanoseconds: waiting goes, as far as nothing but
    /// communication ran meanwhile. An additive bound, and one for this rank alone: a job becomes as fast only if its
    /// slowest rank does.
    #[must_use]
    pub fn without_waiting_ns(&self) -> u64 {
        self.window_ns.saturating_sub(self.waited_ns.min(self.leaves[Leaf::Communication as usize]))
    }
}

/// The rank that the others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// Its place in the rows.
    pub row: usize,
    /// Its communication and the median of the ranks with the same part in the job, each a share of the device time, 0
    /// to 1, where these tell, since groups of ranks are not known: who arrives last communicates least.
    pub communication: Option<(f64, f64)>,
    /// The share of all waiting that was for it, 0 to 1; in part where groups are not known.
    pub share: f64,
    /// Tenths of the compared time in which most of the waiting was for it, of those in which anybody waited.
    pub tenths: (u32, u32),
    /// Ranks with the same part in the job that it is compared with.
    pub role: u32,
    /// The cause of which it has most more than the median of these, and how much of the compared time, nanoseconds.
    /// Communication is left out, since the others' waiting is in theirs.
    pub excess: Option<(Leaf, u64)>,
    /// Its steady steps in the compared time; 0 when unknown.
    pub steps: u64,
    /// What the excess was, where records tell.
    pub evidence: Option<ExcessEvidence>,
}

/// What took the time that a straggler has more than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExcessEvidence {
    /// A kernel.
    Kernel {
        /// Demangled name.
        name: String,
        /// How many ran on the straggler, and in the median of the others.
        counts: (u64, u64),
        /// Their time there, nanoseconds.
        times: (u64, u64),
    },
    /// A line of the program at which the host kept the device waiting.
    Line {
        /// What the launching thread did there.
        cause: HostCause,
        /// File.
        file: String,
        /// Line number, from 1; 0 when unknown.
        line: u32,
        /// Function.
        function: String,
        /// Idle device time, nanoseconds.
        total_ns: u64,
    },
}

/// The chain of work that decides how long the compared time took: from the last end back, inside a collective to the
/// rank that began it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// Its length, nanoseconds: from the begin of the first collective on it to the end of the last.
    pub total_ns: u64,
    /// By cause; data in motion is `communication`. Sums to `total_ns` exactly.
    pub leaves: Leaves,
    /// By rank: place in the rows and nanoseconds, the longest first; at most 16.
    pub ranks: Vec<(u32, u64)>,
    /// Collectives on it.
    pub collectives: u64,
    /// What is left of `total_ns` without the straggler's excess, as far as the path has it; `None` without a
    /// straggler. A bound: another rank may be the next one that is waited for.
    pub without_excess_ns: Option<u64>,
}
