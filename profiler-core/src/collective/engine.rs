//! Collectives of one capture: rows from events and records, summed.

use std::collections::BTreeMap;

use gpuwhy_trace::collective::{CollectiveEvent, Function};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{DeviceId, Record, Timestamp};

use super::{CollectiveRow, CollectiveTable, FunctionTotal, Joiner, Pending, Unjoined};

/// Collectives of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectivesReport {
    /// By communicator, function and algorithm, most time first.
    pub rows: Vec<NamedRow>,
    /// Kernels that did not fit into a row.
    pub beyond: u64,
    /// Communicators reported by NCCL; 0 if its profiler plugin reported none.
    pub communicators: u64,
    /// Operations and kernels that did not become a complete row.
    pub unjoined: Unjoined,
}

/// A row with the name of its communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedRow {
    /// The program's name for the communicator; empty without a name.
    pub name: String,
    /// Totals of the row.
    pub row: CollectiveRow,
}

/// Processes the events and records of one capture.
#[derive(Debug, Default)]
pub struct CollectiveEngine {
    joiner: Joiner,
    table: CollectiveTable,
    pending: Pending,
    begin: Timestamp,
}

impl CollectiveEngine {
    /// For a capture that starts at `begin`; zero if it starts with the run.
    pub fn new(begin: Timestamp) -> Self {
        Self { begin, ..Self::default() }
    }

    /// Processes an event. Operations from before the capture are ignored.
    pub fn event(&mut self, event: &CollectiveEvent) {
        if !matches!(event, CollectiveEvent::Operation(operation) if operation.at < self.begin) {
            self.joiner.event(event);
            self.pending.event(event);
        }
    }

    /// Counts `events` events of communicators that were lost before they arrived here.
    pub fn add_dropped(&mut self, events: u64) {
        self.joiner.add_dropped(events);
    }

    /// Processes a record.
    #[inline]
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        self.joiner.push(record, dictionary);
        self.pending.push(record);
    }

    /// Everything that completed before `at` has been pushed.
    pub fn flushed(&mut self, at: Timestamp) {
        let Self { joiner, table, pending, .. } = self;
        joiner.flushed(at, |row| {
            pending.done(row);
            table.add(row);
        });
    }

    /// The capture ended at `end`; no more records will come.
    pub fn finish(&mut self, end: Timestamp) {
        let Self { joiner, table, .. } = self;
        joiner.finish(end, |row| table.add(row));
    }

    /// Operations that are queued and not finished.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Current totals of each device and function.
    pub fn totals(&self) -> BTreeMap<(DeviceId, Function), FunctionTotal> {
        self.table.totals()
    }

    /// Summary of the capture; `None` without communication.
    pub fn report(&self, dictionary: &Dictionary) -> Option<CollectivesReport> {
        if !self.joiner.is_active() {
            return None;
        }
        let communicators = self.joiner.communicators();
        let name = |row: &CollectiveRow| {
            let known = communicators.iter().find(|known| known.id == row.communicator && row.ranks > 0);
            known.map_or_else(String::new, |known| dictionary.name(known.name).to_owned())
        };
        let rows: Vec<_> = self.table.rows().into_iter().map(|row| NamedRow { name: name(&row), row }).collect();
        let unjoined = self.joiner.unjoined();
        if rows.is_empty() && unjoined == Unjoined::default() {
            return None;
        }
        let communicators = communicators.len() as u64;
        Some(CollectivesReport { rows, beyond: self.table.beyond(), communicators, unjoined })
    }
}
