//! Collectives added up by communicator, function and algorithm.

use std::collections::BTreeMap;

use gpuwhy_trace::collective::{Algorithm, Function};
use gpuwhy_trace::record::{DeviceId, StreamId, Timestamp};
use rustc_hash::FxHashMap;

use super::{Basis, Collective, arithmetic};

/// Rows of a table; kernels beyond are counted.
pub const ROW_LIMIT: usize = 256;

/// Kernels of one communicator, function and algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveRow {
    /// [`Collective::communicator`].
    pub communicator: u64,
    /// Ranks of the communicator; 0 when they are not known.
    pub ranks: u32,
    /// What was done; of kernels that send and receive, both.
    pub function: Function,
    /// How it was done.
    pub algorithm: Algorithm,
    /// Kernels.
    pub kernels: u64,
    /// Kernels that did several operations at once. Their size is that of all of them.
    pub grouped: u64,
    /// Operations in kernels of which they are known.
    pub operations: u64,
    /// Their size as nccl-tests counts it, bytes.
    pub bytes: u64,
    /// The smallest kernel of known size, bytes.
    pub min_bytes: u64,
    /// The largest, bytes.
    pub max_bytes: u64,
    /// Time in the kernels, nanoseconds: waiting for other ranks and moving data.
    pub time_ns: u64,
    /// Of this, in kernels of known size, nanoseconds.
    pub sized_ns: u64,
    /// Time in the kernels in which nothing computed on the device, nanoseconds.
    pub exposed_ns: u64,
    /// The longest kernel, nanoseconds.
    pub longest_ns: u64,
    /// Kernels by what they rest on, in the order of [`Basis`].
    pub bases: [u64; Basis::ALL.len()],
}

impl CollectiveRow {
    /// Size by time, bytes a second, of this rank alone: a lower bound, since waiting for other ranks is in the time.
    /// `None` without sizes.
    pub fn algorithm_bandwidth(&self) -> Option<f64> {
        arithmetic::algorithm_bandwidth(self.bytes, self.sized_ns)
    }

    /// As [`algorithm_bandwidth`](Self::algorithm_bandwidth), as the links see it.
    pub fn bus_bandwidth(&self) -> Option<f64> {
        arithmetic::bus_bandwidth(self.function, self.ranks, self.bytes, self.sized_ns)
    }

    /// Time in which computation ran beside it, nanoseconds.
    pub const fn hidden_ns(&self) -> u64 {
        self.time_ns.saturating_sub(self.exposed_ns)
    }

    fn add(&mut self, bytes: u64, rows: &[Collective]) {
        let Some(first) = rows.first() else { return };
        let length = first.duration_ns();
        self.kernels += 1;
        self.grouped += u64::from(rows.len() > 1);
        self.operations += if first.basis == Basis::KernelName { 0 } else { rows.len() as u64 };
        self.time_ns += length;
        self.exposed_ns += first.exposed_ns;
        self.longest_ns = self.longest_ns.max(length);
        self.bases[first.basis as usize] += 1;
        if bytes > 0 {
            self.min_bytes = if self.bytes == 0 { bytes } else { self.min_bytes.min(bytes) };
            self.max_bytes = self.max_bytes.max(bytes);
            self.bytes = self.bytes.saturating_add(bytes);
            self.sized_ns += length;
        }
    }
}

/// Operations of one function on one device, of all communicators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionTotal {
    /// Operations that NCCL told and whose kernel has run.
    pub operations: u64,
    /// Their size as nccl-tests counts it, bytes.
    pub bytes: u64,
    /// Time in kernels in which nothing computed on the device, nanoseconds; also of kernels that rest on their names.
    pub exposed_ns: u64,
}

/// Takes rows of one process in the order in which a [`Joiner`](super::Joiner) gives them.
#[derive(Clone, Debug, Default)]
pub struct CollectiveTable {
    rows: FxHashMap<(u64, Function, Algorithm), CollectiveRow>,
    /// Rows of the newest kernel.
    newest: Vec<Collective>,
    beyond: u64,
    /// At most one for each device and function, whatever the number of rows.
    totals: BTreeMap<(DeviceId, Function), FunctionTotal>,
}

impl CollectiveTable {
    /// Takes a row. Rows of one kernel come one after the other.
    pub fn add(&mut self, row: &Collective) {
        let kernel = |row: &Collective| -> (DeviceId, StreamId, Timestamp, Timestamp, u64) {
            (row.device, row.stream, row.start, row.end, row.graph_node)
        };
        if self.newest.first().is_some_and(|first| kernel(first) != kernel(row)) {
            self.complete_newest();
        }
        self.newest.push(*row);
    }

    fn complete_newest(&mut self) {
        let rows = std::mem::take(&mut self.newest);
        let Some(first) = rows.first() else { return };
        let is_one_sided = |function| matches!(function, Function::Send | Function::Receive);
        let of = |function| -> u64 {
            rows.iter().filter(|row| row.function == function).map(|row| row.bytes).fold(0, u64::saturating_add)
        };
        let (function, bytes) = if rows.iter().all(|row| row.function == first.function) {
            (first.function, of(first.function))
        } else if rows.iter().all(|row| is_one_sided(row.function)) {
            // Both directions at once: the size is that of the larger one.
            (Function::SendReceive, of(Function::Send).max(of(Function::Receive)))
        } else {
            // Different functions in one kernel: a time, and no size that would mean anything.
            (Function::Unknown, 0)
        };
        let total = self.totals.entry((first.device, function)).or_default();
        total.operations += if first.basis == Basis::KernelName { 0 } else { rows.len() as u64 };
        total.bytes = total.bytes.saturating_add(bytes);
        total.exposed_ns = total.exposed_ns.saturating_add(first.exposed_ns);
        let known = self.rows.len();
        let key = (first.communicator, function, first.algorithm);
        if known >= ROW_LIMIT && !self.rows.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        let row = self.rows.entry(key).or_insert_with(|| CollectiveRow {
            communicator: first.communicator,
            ranks: first.ranks,
            function,
            algorithm: first.algorithm,
            ..CollectiveRow::default()
        });
        row.add(bytes, &rows);
    }

    /// Rows, those with the most time first.
    pub fn rows(&self) -> Vec<CollectiveRow> {
        let mut all = self.clone();
        all.complete_newest();
        let mut rows: Vec<_> = all.rows.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.time_ns), row.communicator, row.function, row.algorithm));
        rows
    }

    /// Totals of each device and function.
    pub fn totals(&self) -> BTreeMap<(DeviceId, Function), FunctionTotal> {
        let mut all = Self { newest: self.newest.clone(), totals: self.totals.clone(), ..Self::default() };
        all.complete_newest();
        all.totals
    }

    /// Kernels that found no row.
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }
}
