//! Totals of collectives by communicator, function and algorithm.

use std::collections::BTreeMap;

use gpuwhy_trace::collective::{Algorithm, Function};
use gpuwhy_trace::record::{DeviceId, StreamId, Timestamp};
use rustc_hash::FxHashMap;

use super::{Basis, Collective, arithmetic};
use crate::sorting::SortRows as _;

/// Maximum rows of a table; kernels beyond are counted.
pub const ROW_LIMIT: usize = 256;

/// Totals of the kernels of one communicator, function and algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveRow {
    /// [`Collective::communicator`].
    pub communicator: u64,
    /// Number of ranks of the communicator; 0 if unknown.
    pub ranks: u32,
    /// Operation performed; for kernels that send and receive, both.
    pub function: Function,
    /// Algorithm used.
    pub algorithm: Algorithm,
    /// Number of kernels.
    pub kernels: u64,
    /// Number of kernels that performed several operations at once. Their size is the sum of all their
    /// operations.
    pub grouped: u64,
    /// Number of operations in kernels for which that is known.
    pub operations: u64,
    /// Their size as nccl-tests counts it, bytes.
    pub bytes: u64,
    /// Smallest kernel of known size, bytes.
    pub min_bytes: u64,
    /// Largest kernel of known size, bytes.
    pub max_bytes: u64,
    /// Time in the kernels, nanoseconds: waiting for other ranks and moving data.
    pub time_ns: u64,
    /// Part of this in kernels of known size, nanoseconds.
    pub sized_ns: u64,
    /// Time in the kernels during which no kernel computed on the device, nanoseconds.
    pub exposed_ns: u64,
    /// Longest kernel, nanoseconds.
    pub longest_ns: u64,
    /// Number of kernels by their basis, in the order of [`Basis`].
    pub bases: [u64; Basis::ALL.len()],
}

impl CollectiveRow {
    /// Bytes per second on this rank: a lower bound, since the time includes waiting for other ranks. `None`
    /// without sizes.
    pub fn algorithm_bandwidth(&self) -> Option<f64> {
        arithmetic::algorithm_bandwidth(self.bytes, self.sized_ns)
    }

    /// [`algorithm_bandwidth`](Self::algorithm_bandwidth) as bandwidth on the links.
    pub fn bus_bandwidth(&self) -> Option<f64> {
        arithmetic::bus_bandwidth(self.function, self.ranks, self.bytes, self.sized_ns)
    }

    /// Time in which computation ran in parallel, nanoseconds.
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

/// Totals of one function on one device, over all communicators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionTotal {
    /// Operations reported by NCCL whose kernel has run.
    pub operations: u64,
    /// Their size as nccl-tests counts it, bytes.
    pub bytes: u64,
    /// Time in kernels during which no kernel computed on the device, nanoseconds; includes kernels known
    /// only by name.
    pub exposed_ns: u64,
}

/// Sums rows of one process in the order in which a [`Joiner`](super::Joiner) emits them.
#[derive(Clone, Debug, Default)]
pub struct CollectiveTable {
    rows: FxHashMap<(u64, Function, Algorithm), CollectiveRow>,
    /// Rows of the newest kernel.
    newest: Vec<Collective>,
    beyond: u64,
    /// At most one per device and function, regardless of the number of rows.
    totals: BTreeMap<(DeviceId, Function), FunctionTotal>,
}

impl CollectiveTable {
    /// Adds a row. Rows of one kernel must be consecutive.
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
            // Both directions run at once: the size is that of the larger one.
            (Function::SendReceive, of(Function::Send).max(of(Function::Receive)))
        } else {
            // Different functions in one kernel: only the time is meaningful, not the size.
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

    /// Rows, most time first.
    pub fn rows(&self) -> Vec<CollectiveRow> {
        let mut all = self.clone();
        all.complete_newest();
        let mut rows: Vec<_> = all.rows.into_values().collect();
        rows.sort_rows_by_key(|row| (std::cmp::Reverse(row.time_ns), row.communicator, row.function, row.algorithm));
        rows
    }

    /// Totals of each device and function.
    pub fn totals(&self) -> BTreeMap<(DeviceId, Function), FunctionTotal> {
        let mut all = Self { newest: self.newest.clone(), totals: self.totals.clone(), ..Self::default() };
        all.complete_newest();
        all.totals
    }

    /// Kernels that did not fit into a row.
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }
}
