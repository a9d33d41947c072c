//! Comparison of several ranks of one job: which rank waits for which, and why.
//!
//! A rank that reaches a collective early waits in it for the last one, and its trace alone shows a long
//! kernel. With the traces of the other ranks, the kernel divides into waiting (until the last rank has
//! started) and moving data. Waiting is attributed to the rank that started last, or to the rank that this
//! one had waited for in another communicator. The rank that causes most of the waiting is the straggler; the
//! reason is what it does longer than ranks with the same role.
//!
//! The rows are read one rank after the other, several times; memory holds some kilobytes per rank and some
//! 130 bytes per collective of the job.
//!
//! Unresolved parts are reported: operations between only some of the ranks, clocks that cannot be aligned,
//! ranks without a trace.
//!
//! Reading order: `rows`, `collectives` (rows of a rank from its records), `summary` (data kept per rank),
//! `instances` (the same collective on all ranks), `clocks`, `root_cause`, `straggler`, `path`, here, `text`.

mod clocks;
mod collectives;
mod instances;
mod json;
mod model;
mod path;
mod root_cause;
mod rows;
mod straggler;
mod summary;
mod text;

use profiler_core::collective::Basis;

pub use clocks::HostClock;
pub use collectives::Collectives;
pub use instances::RowSource;
pub use model::{CriticalPath, ExcessEvidence, RankRow, RanksReport, Straggler};
pub use rows::{CollectiveRow, LeafTime, RankRows, RowGroup};
pub use summary::{KernelTime, LineTime, RankSummary};

use gpuwhy_report::text_format::Style;

use self::instances::{Instances, Judgment};
use self::root_cause::{Compared, RootCause, culprits};
use self::straggler::Search;

/// Maximum number of ranks for which every pair is listed; beyond it, each rank lists the 16 that it waited
/// for longest.
pub const WAITS_SHOWN: usize = 64;

impl RanksReport {
    /// Compares `ranks`, with their rows from `source`.
    ///
    /// # Errors
    /// Those of the source.
    pub fn compare<S: RowSource>(ranks: &[RankSummary], source: &mut S) -> Result<Self, S::Error> {
        let (hosts, of_ranks) = hosts(ranks);
        let mut instances = Instances::new(ranks, of_ranks);
        let clocks = instances.gather_ends(source)?.clocks(&hosts);
        let is_alone = ranks.len() < 2;
        if !is_alone {
            instances.add_all(source, &clocks)?;
        }
        let compared = Compared::new(ranks, &instances, &clocks);
        let mut report = Self {
            world_size: ranks.iter().find_map(|rank| rank.world_size),
            rows: ranks.iter().map(RankRow::new).collect(),
            basis: ranks.iter().flat_map(|rank| &rank.groups).map(|group| group.basis).min().unwrap_or_default(),
            collectives: instances.count(Judgment::Resolved),
            collective_ns: 0,
            missing: instances.count(Judgment::Missing),
            too_close: instances.count(Judgment::TooClose),
            waits: if ranks.len() <= WAITS_SHOWN { vec![vec![0; ranks.len()]; ranks.len()] } else { Vec::new() },
            straggler: None,
            slow_host: None,
            critical_path: None,
            doubts: Vec::new(),
            clocks: Vec::new(),
        };
        let waits = &mut report.waits;
        let mut root_cause = RootCause { instances: &mut instances, clocks: &clocks, compared };
        let (own, collective_ns) = root_cause.pass(source, ranks, &mut report.rows, |who, whom, nanos| {
            if let Some(cell) = waits.get_mut(who).and_then(|row| row.get_mut(whom)) {
                *cell += nanos;
            }
        })?;
        report.collective_ns = collective_ns;
        for (culprit, instance) in culprits(&instances) {
            report.rows[culprit].awaited_ns += instance.waited;
        }
        let search = Search { ranks, rows: &report.rows, own: &own, collective_ns };
        report.straggler = search.straggler(&instances, compared);
        report.slow_host = if report.straggler.is_none() { search.slow_host() } else { None };
        report.critical_path = path::critical_path(source, &instances, &clocks, compared, report.straggler.as_ref())?;
        report.clocks = clocks;
        report.doubt(ranks, &instances);
        Ok(report)
    }

    fn doubt(&mut self, ranks: &[RankSummary], instances: &Instances) {
        let count = self.rows.len();
        self.doubts.extend(one_job(ranks));
        if self.clocks.iter().any(|clock| clock.offset_ns.is_none()) {
            self.doubts.push(
                "Clocks of different hosts cannot be brought together: too few collectives that they share, or they \
                 do not end at once."
                    .to_owned(),
            );
        }
        let apart = instances.count(Judgment::NotSynchronized);
        match self.basis {
            _ if apart == 0 => {}
            Basis::KernelName => self.doubts.push(format!(
                "{apart} collectives do not overlap on all ranks: those of groups of ranks. CUPTI does not name the \
                 group, so who waits in them cannot be told."
            )),
            Basis::Plugin | Basis::Order | Basis::Range => self.doubts.push(format!(
                "{apart} collectives ended on a rank before another one began: not everybody waits for everybody in \
                 them (send, receive, broadcast)."
            )),
        }
        if self.missing > 0 && count > 1 {
            self.doubts.push(format!(
                "{} collectives lack ranks of their communicator: a trace is missing, or begins or ends in between.",
                self.missing
            ));
        }
        if self.too_close > 0 {
            self.doubts.push(format!(
                "{} collectives begin on all ranks within three times the error of the clocks: too close to tell who \
                 was last.",
                self.too_close
            ));
        }
        if let Some(world) = self.world_size.filter(|&world| world as usize != count) {
            self.doubts
                .push(format!("The job has {world} ranks and here are {count} traces: others may be waited for."));
        }
        let rows = |rank: &RankSummary| rank.groups.iter().map(|group| group.count).sum::<u64>() + rank.others;
        let paired: u64 = instances.all.iter().map(|instance| u64::from(instance.ranks)).sum();
        let unpaired = ranks.iter().map(rows).sum::<u64>().saturating_sub(paired);
        if count > 1 && unpaired > 0 {
            self.doubts.push(format!(
                "{unpaired} kernels that communicate are not compared: not run equally often by all ranks, more than \
                 there is room for, or of a kind in which not everybody waits for everybody (send, receive, broadcast)."
            ));
        }
        let lost: u64 = ranks.iter().map(|rank| rank.lost_times).sum();
        if lost > 0 {
            self.doubts.push(format!("{lost} times by cause had no room: the causes of late ranks are told in part."));
        }
        if count > 1 && instances.all.is_empty() {
            self.doubts.push(
                "There is no collective that all ranks took part in: who waits for whom is not known.".to_owned(),
            );
        }
    }

    /// Formats the comparison with at most 100 columns.
    pub fn text(&self) -> String {
        self.text_within(Style::default())
    }

    /// Like [`text`](Self::text), in this style; the table has a fixed width.
    pub fn text_within(&self, style: Style) -> String {
        text::text(self, style)
    }

    /// Offset to add to the times of each rank, nanoseconds, to convert them to the clock of the first in the
    /// middle of the run; 0 if unknown.
    pub fn shifts(&self) -> Vec<i64> {
        let shift = |row: &RankRow| self.clocks.iter().find(|clock| clock.host == row.host)?.offset_ns;
        self.rows.iter().map(|row| shift(row).unwrap_or_default()).collect()
    }
}

/// Doubt that the traces are of one job: its ranks run at the same time, and a rank shares kernels with another one.
fn one_job(ranks: &[RankSummary]) -> Option<String> {
    let others = |own: u32| ranks.iter().filter(move |other| other.rank != own);
    let known = |rank: &&RankSummary| rank.ran.0 > 0;
    let apart = |rank: &RankSummary| {
        let mut times = others(rank.rank).filter(known).map(|other| other.ran).peekable();
        times.peek().is_some() && times.all(|(start, end)| end < rank.ran.0 || rank.ran.1 < start)
    };
    let shares = |rank: &RankSummary| {
        let mut all = others(rank.rank).flat_map(|other| &other.kernels);
        all.any(|kernel| rank.kernels.iter().any(|own| own.name == kernel.name))
    };
    let alone = |rank: &&RankSummary| ranks.len() > 1 && !rank.kernels.is_empty() && !shares(rank);
    let mut reasons = Vec::new();
    if let Some(rank) = ranks.iter().filter(known).find(|rank| apart(rank)) {
        reasons.push(format!("rank {} ran at another time than the others", rank.rank));
    }
    if let Some(rank) = ranks.iter().find(alone) {
        reasons.push(format!("none of the largest kernels of rank {} is one of another rank", rank.rank));
    }
    let mut models = ranks.iter().map(|rank| rank.gpu.as_str()).filter(|model| !model.is_empty());
    if let Some(first) = models.next()
        && let Some(other) = models.find(|model| *model != first)
    {
        reasons.push(format!("the GPUs differ ({first}, {other})"));
    }
    (!reasons.is_empty()).then(|| format!("These traces may not be of one job: {}.", reasons.join("; ")))
}

/// Hosts in order of first appearance, and the index of the host of each rank.
fn hosts(ranks: &[RankSummary]) -> (Vec<String>, Vec<usize>) {
    let mut places = rustc_hash::FxHashMap::default();
    let mut hosts = Vec::new();
    let of_ranks = ranks.iter().map(|rank| {
        *places.entry(rank.host.as_str()).or_insert_with(|| {
            hosts.push(rank.host.clone());
            hosts.len() - 1
        })
    });
    let of_ranks = of_ranks.collect();
    (hosts, of_ranks)
}
