//! What a comparison of ranks holds.

use super::clocks::HostClock;
use super::collectives::Collectives;
use crate::attribution::leaf::{Group, Leaf, Leaves};
use crate::counters::roofs::LimitTimes;
use crate::report::Report;

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
    /// Collectives that were found on all ranks and that all took part in.
    pub collectives: u64,
    /// Their time, summed over the ranks, nanoseconds.
    pub collective_ns: u64,
    /// `[waiting rank][last rank]`, by place in `rows`: what the one waited for the other in collectives, nanoseconds.
    pub waits: Vec<Vec<u64>>,
    /// The rank that the others wait for, if there is one.
    pub straggler: Option<Straggler>,
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
    /// What others waited for it, nanoseconds, summed over them.
    pub awaited_ns: u64,
    /// Collectives that it was the last to begin.
    pub last: u64,
    /// How much later than the first rank it began, the median over collectives, nanoseconds.
    pub late_ns: u64,
}

impl RankRow {
    /// The least that is left of its window if it waited for nobody, nanoseconds: waiting goes, as far as nothing but
    /// communication ran meanwhile. An additive bound, and one for this rank alone: a job becomes as fast only if its
    /// slowest rank does.
    #[must_use]
    pub fn without_waiting_ns(&self) -> u64 {
        self.window_ns.saturating_sub(self.waited_ns.min(self.leaves[Leaf::Communication as usize]))
    }
}

/// The rank that the others wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straggler {
    /// Its place in the rows.
    pub row: usize,
    /// The share of all waiting that was for it, 0 to 1.
    pub share: f64,
    /// The cause of which it has most more than the median of the others, and how much, nanoseconds. Communication is
    /// left out, since the others' waiting is in theirs.
    pub excess: Option<(Leaf, u64)>,
}
