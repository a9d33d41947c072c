//! Several ranks of one job beside each other: who waits for whom.
//!
//! A rank that reaches a collective early waits in it for the last one, and its trace alone shows a long kernel. Beside
//! the traces of the others the kernel divides into waiting (until the last rank has begun) and moving data. The rank
//! that begins last most often, at the cost of the others, is the straggler; what it did meanwhile is in its own
//! leaves.
//!
//! What cannot be told is said: operations between some of the ranks only, clocks that nothing brings together, ranks
//! without a trace.
//!
//! Reading order: `collectives` (the same operation on all ranks), `clocks`, here, `text`.

mod clocks;
mod collectives;
#[cfg(feature = "serde")]
pub mod json;
mod model;
mod text;

pub use clocks::HostClock;
pub use collectives::Collectives;
pub use model::{RankRow, RankTrace, RanksReport, Straggler};

use crate::attribution::leaf::Leaf;
use crate::text_format::Style;
use crate::thresholds::CLOCK_SLACK_NANOS;

use self::clocks::{clocks, quantile};
use self::collectives::{Operation, Paired, paired};

/// Operations of a name whose times show that all ranks take part, at least: below, they are taken to be those of
/// groups of ranks. Not all, since a clock may be stepped in between.
const TOGETHER_SHARE: f64 = 0.9;
/// The share of all waiting that makes a rank the straggler: more than all others together.
const STRAGGLER_SHARE: f64 = 0.5;
/// The share of the collectives' time that waiting must be for a straggler to matter.
const WORTH_SHARE: f64 = 0.05;

impl RanksReport {
    /// Compares `ranks`.
    #[must_use]
    pub fn of(ranks: &[RankTrace<'_>]) -> Self {
        let collectives: Vec<&Collectives> = ranks.iter().map(|rank| rank.collectives).collect();
        let hosts: Vec<&str> = ranks.iter().map(|rank| rank.report.process.host.as_str()).collect();
        let mut paired = if ranks.len() > 1 { paired(&collectives) } else { Paired::default() };
        let (clocks, of_ranks) = clocks(&hosts, &paired);
        let mut report = Self {
            world_size: ranks.iter().find_map(|rank| rank.report.process.world_size()),
            rows: ranks.iter().map(row).collect(),
            waits: vec![vec![0; ranks.len()]; ranks.len()],
            clocks,
            collectives: 0,
            collective_ns: 0,
            straggler: None,
            doubts: Vec::new(),
        };
        let offsets: Option<Vec<i64>> = of_ranks.iter().map(|&host| report.clocks[host].offset_ns).collect();
        match offsets {
            None => report.doubts.push(
                "Clocks of different hosts cannot be brought together: too few collectives of all ranks, or they do \
                 not end at once."
                    .to_owned(),
            ),
            Some(offsets) => {
                for operation in paired.names.iter_mut().flatten() {
                    for (span, offset) in operation.iter_mut().zip(&offsets) {
                        span.start += offset;
                        span.end += offset;
                    }
                }
                report.waiting(&paired);
            }
        }
        report.missing(&paired);
        report.straggler = report.find_straggler();
        report
    }

    /// Divides the collectives into waiting and moving data.
    fn waiting(&mut self, paired: &Paired) {
        let mut late: Vec<Vec<i64>> = vec![Vec::new(); self.rows.len()];
        let mut apart = 0;
        for operations in &paired.names {
            let together: Vec<&Operation> = operations.iter().filter(|operation| is_together(operation)).collect();
            if (together.len() as f64) < operations.len() as f64 * TOGETHER_SHARE {
                apart += operations.len();
                continue;
            }
            apart += operations.len() - together.len();
            for operation in together {
                self.wait(operation, &mut late);
            }
        }
        for (row, late) in self.rows.iter_mut().zip(&mut late) {
            row.late_ns = quantile(late, 0.5).unwrap_or_default().unsigned_abs();
        }
        if apart > 0 {
            self.doubts.push(format!(
                "{apart} collectives do not overlap on all ranks: those of groups of ranks. CUPTI does not name the \
                 group, so who waits in them cannot be told."
            ));
        }
    }

    fn wait(&mut self, operation: &Operation, late: &mut [Vec<i64>]) {
        let starts = || operation.iter().map(|span| span.start);
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else { return };
        let Some(who) = starts().position(|start| start == last) else { return };
        self.collectives += 1;
        self.rows[who].last += 1;
        for (place, span) in operation.iter().enumerate() {
            let waited = (last.min(span.end) - span.start).max(0).unsigned_abs();
            self.waits[place][who] += waited;
            self.rows[place].waited_ns += waited;
            self.rows[who].awaited_ns += waited;
            self.collective_ns += (span.end - span.start).max(0).unsigned_abs();
            late[place].push(span.start - first);
        }
    }

    /// What is not there to compare.
    fn missing(&mut self, paired: &Paired) {
        let ranks = self.rows.len();
        if let Some(world) = self.world_size.filter(|&world| world as usize != ranks) {
            self.doubts
                .push(format!("The job has {world} ranks and here are {ranks} traces: others may be waited for."));
        }
        if self.rows.len() > 1 && paired.unpaired > 0 {
            self.doubts.push(format!(
                "{} kernels that communicate are not compared: not run equally often by all ranks, or of a kind in \
                 which not everybody waits for everybody (send, receive, broadcast).",
                paired.unpaired
            ));
        }
        if self.rows.len() > 1 && paired.names.is_empty() {
            self.doubts.push(
                "There is no collective that all ranks took part in: who waits for whom is not known.".to_owned(),
            );
        }
    }

    fn find_straggler(&self) -> Option<Straggler> {
        let total: u64 = self.rows.iter().map(|row| row.awaited_ns).sum();
        if (total as f64) < self.collective_ns as f64 * WORTH_SHARE || total == 0 {
            return None;
        }
        let (place, row) = self.rows.iter().enumerate().max_by_key(|(_, row)| row.awaited_ns)?;
        let share = row.awaited_ns as f64 / total as f64;
        (share > STRAGGLER_SHARE).then(|| Straggler { row: place, share, excess: self.excess(place) })
    }

    fn excess(&self, place: usize) -> Option<(Leaf, u64)> {
        let of = |row: &RankRow, leaf: Leaf| i64::try_from(row.leaves[leaf as usize]).unwrap_or(i64::MAX);
        let leaves = Leaf::ALL.into_iter().filter(|&leaf| leaf != Leaf::Communication);
        let excess = leaves.filter_map(|leaf| {
            let others = self.rows.iter().enumerate().filter(|(other, _)| *other != place);
            let mut others: Vec<i64> = others.map(|(_, row)| of(row, leaf)).collect();
            let more = of(&self.rows[place], leaf) - quantile(&mut others, 0.5)?;
            (more > 0).then_some((leaf, more.unsigned_abs()))
        });
        excess.max_by_key(|&(_, more)| more)
    }

    /// The comparison as text, at most 100 columns.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_within(Style::default())
    }

    /// As [`text`](Self::text), in this style; the table has a fixed width.
    #[must_use]
    pub fn text_within(&self, style: Style) -> String {
        text::text(self, style)
    }

    /// What to add to the times of each rank, nanoseconds, to bring them to the clock of the first; 0 where nothing is
    /// known.
    #[must_use]
    pub fn shifts(&self) -> Vec<i64> {
        let shift = |row: &RankRow| self.clocks.iter().find(|clock| clock.host == row.host)?.offset_ns;
        self.rows.iter().map(|row| shift(row).unwrap_or_default()).collect()
    }
}

/// Whether nobody finished before everybody had begun, as exactly as clocks are mapped to each other.
fn is_together(operation: &Operation) -> bool {
    let last = operation.iter().map(|span| span.start).max();
    let first = operation.iter().map(|span| span.end).min();
    last.zip(first).is_some_and(|(start, end)| start <= end.saturating_add(CLOCK_SLACK_NANOS.cast_signed()))
}

fn row(rank: &RankTrace<'_>) -> RankRow {
    let devices = rank.report.devices.iter();
    let device = devices.max_by_key(|device| device.leaves[Leaf::Communication as usize]);
    RankRow {
        rank: rank.rank,
        host: rank.report.process.host.clone(),
        process_id: rank.report.process.process_id,
        window_ns: device.map_or(0, |device| device.window_ns),
        leaves: device.map_or_else(|| [0; Leaf::ALL.len()], |device| device.leaves),
        limits: device.and_then(|device| {
            Some(device.limits.as_ref()?.division().of(device.leaves[Leaf::Compute as usize]).times)
        }),
        verdict: (rank.report.verdict.group, rank.report.verdict.share),
        waited_ns: 0,
        awaited_ns: 0,
        last: 0,
        late_ns: 0,
    }
}
