//! Adds traces to a lake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::part::{PendingFiles, plain};
use super::place::{Lake, date};
use crate::error::ExportError;
use crate::tables::{Cell, Label, STEPS_LEFT_OUT, Sink, Table, produce};
use gpuwhy_import::{Progress, TraceFile};

/// Selection of tables to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// Processes, causes, steps, collectives, completeness: stored for every run.
    #[default]
    Summary,
    /// Additionally every record: for captures and for ranks that need closer analysis.
    Full,
}

impl Tier {
    /// True if it includes this table.
    #[must_use]
    pub fn has(self, table: Table) -> bool {
        match self {
            Self::Full => !table.is_of_queries(),
            Self::Summary => table.is_reported() || matches!(table, Table::Collectives | Table::Communicators),
        }
    }
}

/// Options for adding traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddOptions {
    /// Tables to write.
    pub tier: Tier,
    /// True if the command lines of processes are written. Arguments may contain secrets; otherwise, only the
    /// program name is written.
    pub with_command: bool,
}

/// Result of adding traces.
#[derive(Clone, Debug, Default)]
pub struct LakeOutcome {
    /// Number of rows.
    pub rows: u64,
    /// Number of steps with a row.
    pub steps: u64,
    /// Number of steps that were found but have no row because the engine had dropped them.
    pub steps_left_out: u64,
    /// Files written.
    pub files: Vec<PathBuf>,
    /// Describes missing data in the traces, for the user.
    pub notes: Vec<String>,
}

/// Adds `traces`, one part for each run. A run becomes visible in the lake only when all of it is complete.
///
/// # Errors
/// If a trace cannot be read, a file cannot be written, the lake already has the run and rank, or `progress`
/// ends the work.
pub fn add(
    traces: &[(TraceFile, Label)],
    lake: &Lake,
    options: AddOptions,
    progress: &mut Progress<'_>,
) -> Result<LakeOutcome, ExportError> {
    let mut runs: BTreeMap<&str, Vec<(&TraceFile, u32)>> = BTreeMap::new();
    for (trace, label) in traces {
        runs.entry(&label.run).or_default().push((trace, label.rank));
    }
    for (run, ranks) in &runs {
        refuse_known(lake, run, ranks)?;
    }
    let mut outcome = LakeOutcome::default();
    let (mut number, count) = (0, traces.len().max(1) as u64);
    for (run, ranks) in runs {
        let Some((first, _)) = ranks.iter().min_by_key(|(trace, _)| trace.session().start) else { continue };
        let start = first.session().start.nanos();
        let mut part = PendingFiles::new(lake, &date(start), run, part_name(&first.session().host, start));
        for (trace, rank) in ranks {
            let mut rows = RowWriter::new(&mut part, rank, options);
            let mut progress = |done, total| progress(total / count * number + done / count, total);
            let notes = produce(trace, &mut rows, &mut progress)?;
            outcome.steps += rows.steps;
            outcome.steps_left_out += rows.steps_left_out;
            outcome.notes.extend(notes.into_iter().map(|note| format!("{}: {note}", trace.path().display())));
            number += 1;
        }
        outcome.rows += part.written();
        outcome.files.extend(part.finish()?);
    }
    Ok(outcome)
}

/// A rank that exists twice would count twice in every sum.
fn refuse_known(lake: &Lake, run: &str, ranks: &[(&TraceFile, u32)]) -> Result<(), ExportError> {
    let known = lake.ranks(run)?;
    match ranks.iter().find(|(_, rank)| known.contains(&i64::from(*rank))) {
        None => Ok(()),
        Some((trace, rank)) => Err(ExportError::refused(
            trace.path(),
            format!(
                "the lake {} has rank {rank} of the run {run} already; name another run with --run, or remove the \
                 folders run={run} first",
                lake.root().display()
            ),
        )),
    }
}

/// `part-HOST-N`: N is the start time of the first process in milliseconds, so that the parts of a host sort
/// by time.
fn part_name(host: &str, start: u64) -> String {
    format!("part-{}-{}", plain(host), start / 1_000_000)
}

/// Writes the rows of a trace to a part.
struct RowWriter<'p> {
    part: &'p mut PendingFiles,
    rank: u32,
    options: AddOptions,
    steps: u64,
    steps_left_out: u64,
}

impl<'p> RowWriter<'p> {
    fn new(part: &'p mut PendingFiles, rank: u32, options: AddOptions) -> Self {
        Self { part, rank, options, steps: 0, steps_left_out: 0 }
    }
}

impl Sink for RowWriter<'_> {
    fn wants(&self, table: Table) -> bool {
        self.options.tier.has(table)
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        match (table, cells) {
            (Table::Steps, _) => self.steps += 1,
            (Table::Completeness, [Cell::Text(name), Cell::Integer(count)]) if *name == STEPS_LEFT_OUT => {
                self.steps_left_out += u64::try_from(*count).unwrap_or(0);
            }
            _ => {}
        }
        if table != Table::Processes {
            return self.part.row(table, self.rank, cells);
        }
        let shown = table.columns().iter().zip(cells).map(|(column, cell)| match (column.name, cell) {
            ("command", _) if !self.options.with_command => Cell::Empty,
            // Folder names may contain names of users and projects.
            ("file", Cell::Text(path)) => {
                Cell::Text(Path::new(*path).file_name().and_then(|name| name.to_str()).unwrap_or(""))
            }
            _ => *cell,
        });
        self.part.row(table, self.rank, &shown.collect::<Vec<_>>())
    }
}
