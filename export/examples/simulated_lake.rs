//! Writes simulated jobs with a known culprit to a lake, and prints the ground truth as JSON: `cargo run -p
//! gpuwhy-export --example simulated_lake -- LAKE RANKS STEPS [RUNS]`.
//!
//! Ranks compute, meet in collectives of their group of eight and of all ranks, and vary a little. One rank
//! computes longer on its host in every step, so the others wait for it. Times are computed, not drawn: equal
//! numbers give an equal lake.

use std::path::{Path, PathBuf};

use gpuwhy_export::ExportError;
use gpuwhy_export::lake::{Lake, PendingFiles, date};
use gpuwhy_export::tables::{Cell, Table};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lake, ranks, steps, rest @ ..] = arguments.as_slice() else { panic!("LAKE RANKS STEPS [RUNS] are expected") };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let (ranks, runs) = (number(ranks), rest.first().map_or(1, number));
    for run in 0..runs {
        let job = Job {
            run: format!("simulated-{run}"),
            ranks,
            steps: number(steps),
            collectives: 52,
            culprit: (ranks / 3 + run) % ranks,
            late_ns: 2_000_000,
        };
        let (truth, files) = job.write(&Lake::new(Path::new(lake))).expect("a lake");
        let bytes: u64 = files.iter().map(|file| file.metadata().expect("a file").len()).sum();
        println!(
            r#"{{"run": "{}", "culprit": {}, "waited_ns": {}, "awaited_ns": {}, "rows": {}, "files": {}, "bytes": {bytes}}}"#,
            job.run,
            job.culprit,
            truth.waited_ns,
            truth.awaited_ns,
            truth.rows,
            files.len()
        );
    }
}

/// Number of ranks per node, and per group.
const NODE: u32 = 8;
/// Start of the job, nanoseconds since the Unix epoch.
const START: u64 = 1_790_000_000_000_000_000;
/// Computation between two collectives, nanoseconds.
const COMPUTE_NS: u64 = 400_000;
/// Time that a collective takes to move its data, nanoseconds.
const MOVING_NS: u64 = 120_000;
/// Maximum variation of the computation, nanoseconds.
const JITTER_NS: u64 = 4_000;

/// A simulated job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the run.
    pub run: String,
    /// Number of ranks, a multiple of eight.
    pub ranks: u32,
    /// Number of steps per rank.
    pub steps: u32,
    /// Number of collectives per step; all but the last are within a group.
    pub collectives: u32,
    /// The late rank.
    pub culprit: u32,
    /// Its delay in each step, nanoseconds.
    pub late_ns: u64,
}

/// Amount of data written, and the ground truth about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Number of rows in all tables.
    pub rows: u64,
    /// Time that ranks waited in collectives for the rank that started last.
    pub waited_ns: u64,
    /// The part of `waited_ns` spent waiting for the culprit.
    pub awaited_ns: u64,
}

/// A collective of one rank.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Job {
    /// Writes the job, one part for each node.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, lake: &Lake) -> Result<(Truth, Vec<PathBuf>), ExportError> {
        let mut truth = Truth::default();
        let spans = self.spans(&mut truth);
        let mut files = Vec::new();
        for node in 0..self.ranks.div_ceil(NODE) {
            let name = format!("part-node{node}-{}", START / 1_000_000);
            let mut part = PendingFiles::new(lake, &date(START), &self.run, name);
            for rank in node * NODE..(node * NODE + NODE).min(self.ranks) {
                self.rank(rank, node, &spans[rank as usize], &mut part)?;
            }
            truth.rows += part.written();
            files.extend(part.finish()?);
        }
        Ok((truth, files))
    }

    /// Collectives of every rank, in order.
    fn spans(&self, truth: &mut Truth) -> Vec<Vec<Span>> {
        let count = self.ranks as usize;
        let mut now = vec![START; count];
        let mut spans: Vec<Vec<Span>> = vec![Vec::with_capacity((self.steps * self.collectives) as usize); count];
        for number in 0..self.steps * self.collectives {
            let (place, is_last) = (number % self.collectives, (number + 1) % self.collectives == 0);
            for (rank, now) in (0..).zip(&mut now) {
                *now += COMPUTE_NS + scatter(rank, number) % JITTER_NS;
                if rank == self.culprit && place == 0 {
                    *now += self.late_ns;
                }
            }
            let group = if is_last { count } else { NODE as usize };
            for (first, members) in (0..).step_by(group).zip(now.chunks_mut(group)) {
                let latest = members.iter().copied().max().unwrap_or(START);
                let waited: u64 = members.iter().map(|begin| latest - *begin).sum();
                truth.waited_ns += waited;
                if members.iter().position(|begin| *begin == latest) == (self.culprit as usize).checked_sub(first) {
                    truth.awaited_ns += waited;
                }
                for (rank, begin) in (first..).zip(members) {
                    spans[rank].push(Span { start: *begin, end: latest + MOVING_NS });
                    *begin = latest + MOVING_NS;
                }
            }
        }
        spans
    }

    fn rank(&self, rank: u32, node: u32, spans: &[Span], part: &mut PendingFiles) -> Result<(), ExportError> {
        let mut row = |table: Table, values: &[(&str, Cell<'_>)]| {
            let cell = |name: &str| values.iter().find(|(of, _)| *of == name).map_or(Cell::Empty, |&(_, cell)| cell);
            let cells: Vec<Cell<'_>> = table.columns().iter().map(|column| cell(column.name)).collect();
            part.row(table, rank, &cells)
        };
        let (group, everybody) = (format!("{:016x}", 0x1000 + u64::from(rank / NODE)), format!("{:016x}", 1));
        let (mut begin, mut sums) = (START, [0_u64; 3]);
        for (step, spans) in (0_u64..).zip(spans.chunks(self.collectives as usize)) {
            let end = spans.last().map_or(begin, |span| span.end);
            let communication: u64 = spans.iter().map(|span| span.end - span.start).sum();
            let host_cpu = if rank == self.culprit { self.late_ns } else { 0 };
            let leaves = [end - begin - communication - host_cpu, communication, host_cpu];
            let step_cells = [("device", Cell::Integer(0)), ("step", step.into())];
            let mut cells = step_cells.to_vec();
            cells.extend([("source", Cell::Text("period")), ("start_ns", begin.into()), ("end_ns", end.into())]);
            cells.extend([("duration_ns", (end - begin).into()), ("operations", (100 + spans.len() as u64).into())]);
            row(Table::Steps, &cells)?;
            for ((leaf, _), nanos) in LEAVES.iter().zip(leaves).filter(|(_, nanos)| *nanos > 0) {
                let mut cells = step_cells.to_vec();
                cells.extend([("leaf", Cell::Text(leaf)), ("duration_ns", nanos.into())]);
                row(Table::StepLeaves, &cells)?;
            }
            for (place, span) in (0_u64..).zip(spans) {
                let is_last = place + 1 == u64::from(self.collectives);
                let (communicator, function, sequence) = match is_last {
                    true => (everybody.as_str(), "all_reduce", step),
                    false => (group.as_str(), "all_gather", step * u64::from(self.collectives - 1) + place),
                };
                row(
                    Table::Collectives,
                    &[
                        ("communicator", communicator.into()),
                        ("function", function.into()),
                        ("sequence", sequence.into()),
                        ("ordinal", sequence.into()),
                        ("ranks", Cell::Integer(if is_last { self.ranks.into() } else { NODE.into() })),
                        ("bytes", Cell::Integer(if is_last { 64 << 20 } else { 8 << 20 })),
                        ("start_ns", span.start.into()),
                        ("end_ns", span.end.into()),
                        ("exposed_ns", (span.end - span.start).into()),
                        ("device", Cell::Integer(0)),
                        ("stream", Cell::Integer(20)),
                        ("basis", "plugin".into()),
                    ],
                )?;
            }
            sums.iter_mut().zip(leaves).for_each(|(sum, nanos)| *sum += nanos);
            begin = end;
        }
        for ((leaf, cause), nanos) in LEAVES.iter().zip(sums) {
            let cells = [("device", Cell::Integer(0)), ("leaf", Cell::Text(leaf)), ("cause", Cell::Text(cause))];
            let busy = [("busy", Cell::Flag(*leaf != "host_cpu")), ("duration_ns", nanos.into())];
            row(Table::Leaves, &[&cells[..], &busy[..], &[("steady_ns", nanos.into())]].concat())?;
        }
        row(
            Table::Completeness,
            &[("counter", "dropped_by_cupti".into()), ("value", u64::from(rank % 97 == 5).into())],
        )?;
        row(
            Table::Processes,
            &[
                ("program", "train.py".into()),
                ("process", (1_000 + rank).into()),
                ("host", Cell::Text(&format!("node{node}"))),
                ("world_size", self.ranks.into()),
                ("start_ns", START.into()),
                ("observed_ns", (begin - START).into()),
                ("ending", "clean".into()),
                ("driver_version", "580.159.04".into()),
                ("gpuwhy_version", env!("CARGO_PKG_VERSION").into()),
            ],
        )
    }
}

/// Leaves of a step with their causes.
const LEAVES: [(&str, &str); 3] =
    [("compute", "gpu_compute"), ("communication", "communication"), ("host_cpu", "host_cpu")];

/// Fibonacci hashing: scattered, but the same in every run.
fn scatter(rank: u32, number: u32) -> u64 {
    ((u64::from(rank) << 32) | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

#[cfg(test)]
mod tests {
    use gpuwhy_export::named::NamedQuery;
    use gpuwhy_export::stats::{StatsOptions, TableFormat};
    use gpuwhy_export::unwatched;

    use super::*;

    #[test]
    fn stragglers_names_the_rank_that_is_late_and_not_the_others_of_its_group() {
        for (ranks, culprit) in [(16, 5), (64, 21)] {
            let folder = tempfile::tempdir().unwrap();
            let run = format!("job-{ranks}");
            let job = Job { run, ranks, steps: 4, collectives: 6, culprit, late_ns: 2_000_000 };
            job.write(&Lake::new(folder.path())).unwrap();
            let query = NamedQuery::named("stragglers").unwrap().query().unwrap();
            let options = StatsOptions { format: TableFormat::Csv, ..StatsOptions::default() };
            let mut text = Vec::new();
            query.answer_lake(&Lake::new(folder.path()), &options, &mut text, &mut unwatched).unwrap();
            let text = String::from_utf8(text).unwrap();
            let first: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
            assert_eq!(first[1], culprit.to_string(), "{text}");
        }
    }
}
