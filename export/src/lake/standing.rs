//! What a lake has of a process already, for whoever goes on with it.

use std::collections::BTreeMap;
use std::fs;

use super::part::plain;
use super::place::Lake;
use super::read::visit;
use crate::error::ExportError;
use crate::tables::{Cell, Label, STEPS_LEFT_OUT, Table};
use profiler_core::process_info::ProcessInfo;

/// Files of rows that are replaced while their process runs begin so; `lake compact` leaves them alone.
pub(super) const LIVE: &str = "live-";

/// Counter of time in steps that came to another cause after their rows were written.
pub(super) const STEPS_CHANGED: &str = "steps_changed_ns";

/// Rows of a process in a lake.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Of each device: the end of its newest step, nanoseconds, and the number of the one after it.
    pub(super) steps: BTreeMap<i64, (u64, u64)>,
    /// Operations of communicators.
    pub(super) collectives: u64,
    /// Counters of steps without a row, and of their time that changed, nanoseconds.
    pub(super) left_out: u64,
    pub(super) changed_ns: u64,
}

/// Whose the rows of a run and rank are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// There are none.
    Nobody,
    /// This process, which goes on.
    Unfinished,
    /// This process, to its end.
    Complete,
    /// Another one.
    Other,
}

/// The name of the files of a process, without `live-` or `part-` and the ending: its host, begin in milliseconds, id.
pub(super) fn name(session: &ProcessInfo) -> String {
    format!("{}-{}-{}", plain(&session.host), session.start.nanos() / 1_000_000, session.process_id)
}

/// Whose the rows of `label` are.
pub(super) fn owner(lake: &Lake, label: &Label, session: &ProcessInfo) -> Result<Owner, ExportError> {
    let start = i64::try_from(session.start.nanos()).unwrap_or(i64::MAX);
    let mut owner = Owner::Nobody;
    for file in lake.files(Table::Processes)?.iter().filter(|file| file.run == label.run) {
        let is_live = file.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LIVE));
        visit(&file.path, &["rank", "process", "start_ns", "host"], &mut |cells| {
            if cells.first() == Some(&Cell::Integer(label.rank.into())) {
                let id = Cell::Integer(session.process_id.into());
                let is_own = cells[1..] == [id, Cell::Integer(start), Cell::Text(&session.host)];
                owner = match (is_own, is_live) {
                    (true, true) => Owner::Unfinished,
                    (true, false) => Owner::Complete,
                    (false, _) => Owner::Other,
                };
            }
            Ok(())
        })?;
    }
    Ok(owner)
}

/// What is there of an unfinished process.
pub(super) fn standing(lake: &Lake, label: &Label) -> Result<Standing, ExportError> {
    let mut standing = Standing::default();
    let is_own = |cells: &[Cell<'_>]| cells.first() == Some(&Cell::Integer(label.rank.into()));
    for file in lake.files(Table::Steps)?.iter().filter(|file| file.run == label.run) {
        visit(&file.path, &["rank", "device", "end_ns", "step"], &mut |cells| {
            if let (true, [_, Cell::Integer(device), Cell::Integer(end), Cell::Integer(step)]) = (is_own(cells), cells)
            {
                let (until, next) = standing.steps.entry(*device).or_default();
                *until = (*until).max(end.unsigned_abs());
                *next = (*next).max(step.unsigned_abs() + 1);
            }
            Ok(())
        })?;
    }
    for file in lake.files(Table::Completeness)?.iter().filter(|file| file.run == label.run) {
        visit(&file.path, &["rank", "counter", "value"], &mut |cells| {
            if let (true, [_, Cell::Text(name), Cell::Integer(value)]) = (is_own(cells), cells) {
                match *name {
                    STEPS_LEFT_OUT => standing.left_out = value.unsigned_abs(),
                    STEPS_CHANGED => standing.changed_ns = value.unsigned_abs(),
                    _ => {}
                }
            }
            Ok(())
        })?;
    }
    for file in lake.files(Table::Collectives)?.iter().filter(|file| file.run == label.run) {
        visit(&file.path, &["rank"], &mut |cells| {
            standing.collectives += u64::from(is_own(cells));
            Ok(())
        })?;
    }
    Ok(standing)
}

/// Gives the files of a process that has ended their last names, that of the processes last: until then the process
/// counts as unfinished.
pub(super) fn complete(lake: &Lake, date: &str, run: &str, name: &str) -> Result<(), ExportError> {
    let others = Table::ALL.iter().filter(|&&table| table != Table::Processes);
    for &table in others.chain([&Table::Processes]) {
        let folder = lake.partition(table, date, run);
        let from = folder.join(format!("{LIVE}{name}.parquet"));
        if from.exists() {
            let to = folder.join(format!("part-{name}.parquet"));
            fs::rename(&from, to).map_err(|error| ExportError::io(&from, error))?;
        }
    }
    Ok(())
}

/// Takes back what [`complete`] did when it was interrupted: the files would be beside new ones.
pub(super) fn reopen(lake: &Lake, date: &str, run: &str, name: &str) -> Result<(), ExportError> {
    for &table in Table::ALL {
        let path = lake.partition(table, date, run).join(format!("part-{name}.parquet"));
        if path.exists() {
            fs::remove_file(&path).map_err(|error| ExportError::io(&path, error))?;
        }
    }
    Ok(())
}
