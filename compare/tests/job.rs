// A synthetic job of many ranks with known truth: tensor parallel groups within a host, data parallel groups
// across hosts, clocks that are off and drift, and one rank that computes longer.
//
// Rows of a rank are generated on request, so that a test can measure the memory of the comparison itself.

use gpuwhy_compare::ranks::{CollectiveRow, KernelTime, LeafTime, RankRows, RankSummary, RowGroup, RowSource};
use gpuwhy_trace::collective::Function;
use profiler_core::collective::Basis;
use profiler_core::leaf::{LEAF_COUNT, Leaf};

/// Start of the job, nanoseconds.
const BEGIN: i64 = 1_700_000_000_000_000_000;
/// Duration of data movement in a collective.
pub const MOVE: i64 = 200_000;
/// Number of ranks of a tensor parallel group, which is a host.
pub const GROUP: u32 = 8;

/// A synthetic job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Number of ranks; a multiple of [`GROUP`].
    pub ranks: u32,
    pub steps: u64,
    /// Number of tensor parallel collectives per step, each after a part of the computation.
    pub layers: u64,
    /// Duration of each part, nanoseconds.
    pub compute: i64,
    /// The late rank, the cause of its lateness, and the additional time per step, before the first
    /// collective.
    pub late: u32,
    pub leaf: Leaf,
    pub excess: i64,
    /// True if clocks of hosts differ.
    pub clocks: bool,
}

/// Expected results for a job.
#[derive(Debug, Default)]
pub struct Truth {
    /// Waiting of each rank, nanoseconds.
    pub waited: Vec<u64>,
    pub collectives: u64,
}

impl Job {
    fn groups(&self) -> u32 {
        self.ranks / GROUP
    }

    /// Lead of the clock of a host: offset in nanoseconds, and drift.
    pub fn clock(&self, host: u32) -> (i64, f64) {
        match host {
            _ if !self.clocks => (0, 0.0),
            0 => (0, 0.0),
            // Up to 40 ms off and 20 ppm fast or slow, unordered.
            host => {
                let mixed = u64::from(host).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                ((mixed % 80_000_000) as i64 - 40_000_000, (mixed % 41) as f64 * 1e-6 - 20e-6)
            }
        }
    }

    /// Length of the run, nanoseconds.
    pub fn length(&self) -> i64 {
        self.steps as i64 * self.step()
    }

    /// Start of one step and start of another one.
    pub fn steps_at(&self, from: i64, to: i64) -> (i64, i64) {
        (BEGIN + from * self.step(), BEGIN + to * self.step())
    }

    fn middle(&self) -> i64 {
        BEGIN + self.length() / 2
    }

    fn step(&self) -> i64 {
        self.layers as i64 * (self.compute + MOVE) + self.excess + self.compute + MOVE
    }

    /// Scatter of the end of a collective on a rank, nanoseconds.
    fn jitter(rank: u32, number: u64) -> i64 {
        let mixed = (u64::from(rank) << 32 ^ number).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 40) as i64 % 1_000
    }

    /// Rows and times by leaf of a rank on the true clock.
    ///
    /// In a step a rank computes (the late one for longer), reduces with its tensor parallel group, and so
    /// on; then it computes and reduces with the same rank of all other groups. Because the late group is
    /// late there, all others wait for it: eight ranks are last in their data parallel groups, because of
    /// one.
    fn spans(&self, rank: u32) -> (Vec<CollectiveRow>, Vec<LeafTime>) {
        let (mut rows, mut times) = (Vec::new(), Vec::new());
        let is_late_group = rank / GROUP == self.late / GROUP;
        for step in 0..self.steps {
            let begin = BEGIN + step as i64 * self.step();
            let mut at = begin + if step == 0 { 0 } else { Self::jitter(rank, step * (self.layers + 1) - 1) };
            let mut due = begin;
            let mut run = |leaf: Leaf, from: i64, to: i64| times.push(LeafTime { from, to, leaf, taken: false });
            for layer in 0..self.layers {
                let excess = if layer == 0 { self.excess } else { 0 };
                let begins = begin.max(due) + self.compute + if rank == self.late { excess } else { 0 };
                run(Leaf::Compute, at, begins - if rank == self.late { excess } else { 0 });
                if rank == self.late && excess > 0 {
                    run(self.leaf, begins - excess, begins);
                }
                due = begin.max(due) + self.compute + if is_late_group { excess } else { 0 } + MOVE;
                let end = due + Self::jitter(rank, step * (self.layers + 1) + layer);
                run(Leaf::Communication, begins, end);
                rows.push(CollectiveRow { group: 0, sequence: step * self.layers + layer, start: begins, end });
                at = end;
            }
            let begins = due + self.compute;
            run(Leaf::Compute, at, begins);
            let end = begin + self.step() + Self::jitter(rank, step * (self.layers + 1) + self.layers);
            run(Leaf::Communication, begins, end);
            rows.push(CollectiveRow { group: 1, sequence: step, start: begins, end });
        }
        (rows, times)
    }

    /// Returns the expected results.
    pub fn truth(&self) -> Truth {
        let waits = |rank: u32| match (rank / GROUP == self.late / GROUP, rank == self.late) {
            (true, true) => 0,
            (true, false) | (false, _) => self.excess.unsigned_abs() * self.steps,
        };
        let collectives = u64::from(self.groups()) * self.layers * self.steps + u64::from(GROUP) * self.steps;
        Truth { waited: (0..self.ranks).map(waits).collect(), collectives }
    }

    fn row_groups(&self, rank: u32) -> Vec<RowGroup> {
        let group = |communicator, size| RowGroup {
            communicator,
            function: Function::AllReduce,
            size,
            count: 0,
            basis: Basis::Plugin,
        };
        vec![group(1_000_000 + u64::from(rank / GROUP), GROUP), group(u64::from(rank % GROUP) + 1, self.groups())]
    }

    /// Returns the summaries that a comparison keeps of the ranks.
    pub fn summaries(&self) -> Vec<RankSummary> {
        let of_rank = |rank| {
            let mut leaves = [0; LEAF_COUNT];
            let kernels = self.steps * (self.layers + 1);
            leaves[Leaf::Compute as usize] = kernels * self.compute.unsigned_abs();
            let extra = if rank == self.late && self.leaf == Leaf::Compute { self.steps } else { 0 };
            RankSummary {
                rank,
                host: format!("node{:04}", rank / GROUP),
                process_id: 1_000 + rank,
                world_size: Some(self.ranks),
                window_ns: self.length().unsigned_abs(),
                leaves,
                kernels: vec![KernelTime {
                    name: "gemm".to_owned(),
                    count: kernels + extra,
                    total_ns: leaves[0] + extra * self.excess.unsigned_abs(),
                }],
                groups: self.rows_of(rank).groups,
                ..RankSummary::default()
            }
        };
        (0..self.ranks).map(of_rank).collect()
    }

    /// Rows of a rank on the clock of its host.
    fn rows_of(&self, rank: u32) -> RankRows {
        let (mut rows, mut times) = self.spans(rank);
        let (offset, drift) = self.clock(rank / GROUP);
        let middle = self.middle();
        let shown = |at: i64| at + offset + ((at - middle) as f64 * drift).round() as i64;
        for row in &mut rows {
            (row.start, row.end) = (shown(row.start), shown(row.end));
        }
        for time in &mut times {
            (time.from, time.to) = (shown(time.from), shown(time.to));
        }
        RankRows::new(self.row_groups(rank), rows, &times)
    }
}

impl RowSource for Job {
    type Error = std::convert::Infallible;

    fn rows(&mut self, place: usize, visit: &mut dyn FnMut(&RankRows)) -> Result<(), Self::Error> {
        visit(&self.rows_of(place as u32));
        Ok(())
    }
}
