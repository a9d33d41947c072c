//! Contents of a comparison of ranks.

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::collective::Basis;
use profiler_core::counters::roofs::LimitTimes;
use profiler_core::leaf::{Cause, Leaf, Leaves};

use super::clocks::HostClock;
use super::summary::RankSummary;

/// Comparison of ranks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RanksReport {
    /// Number of ranks of the job, if recorded in a trace.
    pub world_size: Option<u32>,
    /// Rows in the order of the input.
    pub rows: Vec<RankRow>,
    /// Clocks of the hosts; the first one is the reference.
    pub clocks: Vec<HostClock>,
    /// How collectives of several ranks are matched; the best basis of all rows.
    pub basis: Basis,
    /// Number of collectives with resolved waiting.
    pub collectives: u64,
    /// Their time, summed over the ranks, nanoseconds.
    pub collective_ns: u64,
    /// Number of collectives that are missing on some ranks of their communicator.
    pub missing: u64,
    /// Number of collectives whose starts differ by less than three times the error of the clocks.
    pub too_close: u64,
    /// `[waiting rank][last rank]`, by index in `rows`: time that the first waited for the second in
    /// collectives, nanoseconds. Empty with more than [`WAITS_SHOWN`](super::WAITS_SHOWN) ranks.
    pub waits: Vec<Vec<u64>>,
    /// The straggler, if there is one.
    pub straggler: Option<Straggler>,
    /// A host that causes over half of the waiting although none of its ranks does, and its share, 0 to 1.
    pub slow_host: Option<(String, f64)>,
    /// Composition of the duration of the compared time.
    pub critical_path: Option<CriticalPath>,
    /// Sentences about unresolved facts and the reason.
    pub doubts: Vec<String>,
}

/// One rank.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RankRow {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub process_id: u32,
    /// Window of the device with the most communication, nanoseconds.
    pub window_ns: u64,
    /// That window by leaf.
    pub leaves: Leaves,
    /// Computation of that window by limit, nanoseconds, in the proportions of its typical steps; `None`
    /// without hardware counter samples. Sums to the leaf `compute` exactly.
    pub limits: Option<LimitTimes>,
    /// Its bottleneck without the other ranks, and the share, 0 to 1.
    pub bottleneck: (Cause, f64),
    /// Time that it waited in collectives for a later rank, nanoseconds. Computation may have overlapped it.
    pub waited_ns: u64,
    /// Time that others waited because of this rank, nanoseconds, summed over them. If a rank was late only
    /// because it had waited in another communicator, the waiting counts for the rank that it waited for.
    pub awaited_ns: u64,
    /// Ranks that it waited for in collectives, by index in `rows`, with nanoseconds, the longest first; at
    /// most 16.
    pub waited_for: Vec<(u32, u64)>,
    /// Number of collectives that it was the last to start.
    pub last: u64,
    /// Delay of its start relative to the first rank, the median over collectives, nanoseconds.
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
            bottleneck: summary.bottleneck.unwrap_or((Cause::CannotTell, 0.0)),
            waited_ns: 0,
            awaited_ns: 0,
            waited_for: Vec::new(),
            last: 0,
            late_ns: 0,
        }
    }

    /// Minimum window of this rank without waiting for others, nanoseconds: waiting is removed where only
    /// communication ran at that time. An additive bound for this rank alone: a job becomes that fast only if
    /// its slowest rank does.
    #[must_use]
    pub fn without_waiting_ns(&self) -> u64 {
        self.window_ns.saturating_sub(self.waited_ns.min(self.leaves[Leaf::Communication as usize]))
    }
}

/// The rank that the others wait for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Straggler {
    /// Index in the rows.
    pub row: usize,
    /// Its communication and the median of the ranks with the same role, each a share of the device time, 0
    /// to 1. Set if the straggler was identified by these, because groups of ranks are unknown: the rank that
    /// arrives last communicates least.
    pub communication: Option<(f64, f64)>,
    /// Its share of all waiting, 0 to 1; incomplete if groups are unknown.
    pub share: f64,
    /// Number of tenths of the compared time in which most of the waiting was for it, and number of tenths
    /// with any waiting.
    pub tenths: (u32, u32),
    /// Number of ranks with the same role that it is compared with.
    pub role: u32,
    /// The leaf with the largest excess over the median of these, and the excess in the compared time,
    /// nanoseconds. Communication is excluded, since the others' waiting is in theirs.
    pub excess: Option<(Leaf, u64)>,
    /// Number of its steady steps in the compared time; 0 when unknown.
    pub steps: u64,
    /// Kernel or line responsible for the excess, if records show it.
    pub evidence: Option<ExcessEvidence>,
}

/// Source of a straggler's excess time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExcessEvidence {
    /// A kernel.
    Kernel {
        /// Demangled name.
        name: String,
        /// Number of executions on the straggler, and in the median of the others.
        counts: (u64, u64),
        /// Their total time, nanoseconds.
        times: (u64, u64),
    },
    /// A source line at which the host delayed the device.
    Line {
        /// Activity of the launching thread there.
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

/// The chain of work that determines the length of the compared time: from the last end backwards, inside a
/// collective to the rank that started it last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CriticalPath {
    /// Its length, nanoseconds: from the start of its first collective to the end of its last.
    pub total_ns: u64,
    /// Length by leaf; data movement is `communication`. Sums to `total_ns` exactly.
    pub leaves: Leaves,
    /// Length by rank: index in the rows and nanoseconds, the longest first; at most 16.
    pub ranks: Vec<(u32, u64)>,
    /// Number of collectives.
    pub collectives: u64,
    /// Remainder of `total_ns` without the straggler's excess on the path; `None` without a straggler. A
    /// bound: another rank may be the next one that is waited for.
    pub without_excess_ns: Option<u64>,
}
