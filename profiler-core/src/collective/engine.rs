//! Collectives of one capture: rows from events and records, added up.

use std::collections::BTreeMap;

use gpuwhy_trace::collective::{CollectiveEvent, Function};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{DeviceId, Record, Timestamp};

use super::{CollectiveRow, CollectiveTable, FunctionTotal, Joiner, Pending, Unjoined};

/// What collectives of a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectivesReport {
    /// By communicator, function and algorithm, those with the most time first.
    pub rows: Vec<NamedRow>,
    /// Kernels that found no row.
    pub beyond: u64,
    /// Communicators that NCCL told; 0 when its profiler plugin was not heard.
    pub communicators: u64,
    /// What did not become a row, or only half of one.
    pub unjoined: Unjoined,
}

/// A row with the name of its communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRow {
    /// What the program calls the communicator; empty without a name.
    pub name: String,
    /// Numbers.
    pub row: CollectiveRow,
}

/// Takes the events and records of one capture.
#[derive(Debug, Default)]
pub struct CollectiveEngine {
    joiner: Joiner,
    table: CollectiveTable,
    pending: Pending,
    begin: Timestamp,
}

impl CollectiveEngine {
    /// Of a capture that begins at `begin`; zero when it begins with the run.
    pub fn new(begin: Timestamp) -> Self {
        Self { begin, ..Self::default() }
    }

    /// Takes an event. Operations from before the capture are none of it.
    pub fn event(&mut self, event: &CollectiveEvent) {
        if !matches!(event, CollectiveEvent::Operation(operation) if operation.at < self.begin) {
            self.joiner.event(event);
            self.pending.event(event);
        }
    }

    /// So many events of communicators were lost before they came here.
    pub fn add_dropped(&mut self, events: u64) {
        self.joiner.add_dropped(events);
    }

    /// Takes a record.
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

    /// Nothing more will come of the capture, which ended at `end`.
    pub fn finish(&mut self, end: Timestamp) {
        let Self { joiner, table, .. } = self;
        joiner.finish(end, |row| table.add(row));
    }

    /// What was queued and is not finished.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Totals of each device and function so far.
    pub fn totals(&self) -> BTreeMap<(DeviceId, Function), FunctionTotal> {
        self.table.totals()
    }

    /// What it came to; `None` when nothing communicated.
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
