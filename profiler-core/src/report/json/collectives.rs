//! Collectives in the JSON report.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collective::{Basis, CollectivesReport, NamedRow};

/// Collectives of the run.
#[derive(Debug, Serialize)]
pub(super) struct CollectivesJson {
    rows: Vec<RowJson>,
    communicators: u64,
    operations_without_kernel: u64,
    operations_captured: u64,
    operations_of_copy_engines: u64,
    kernels_without_operation: u64,
    graph_kernels_without_operation: u64,
    dropped: u64,
    table_overflow: u64,
}

#[derive(Debug, Serialize)]
struct RowJson {
    /// 16 hexadecimal digits; null when it is not known.
    communicator: Option<String>,
    name: Option<String>,
    ranks: Option<u32>,
    function: &'static str,
    algorithm: &'static str,
    kernels: u64,
    grouped_kernels: u64,
    operations: u64,
    bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
    time_ns: u64,
    exposed_ns: u64,
    longest_ns: u64,
    algorithm_bytes_per_second: Option<f64>,
    bus_bytes_per_second: Option<f64>,
    basis: BTreeMap<&'static str, u64>,
}

impl CollectivesJson {
    pub(super) fn new(report: &CollectivesReport) -> Self {
        Self {
            rows: report.rows.iter().map(row).collect(),
            communicators: report.communicators,
            operations_without_kernel: report.unjoined.operations,
            operations_captured: report.unjoined.captured,
            operations_of_copy_engines: report.unjoined.copy_engine,
            kernels_without_operation: report.unjoined.kernels,
            graph_kernels_without_operation: report.unjoined.graph_kernels,
            dropped: report.unjoined.dropped,
            table_overflow: report.beyond,
        }
    }
}

fn row(named: &NamedRow) -> RowJson {
    let row = &named.row;
    RowJson {
        communicator: (row.communicator != 0).then(|| format!("{:016x}", row.communicator)),
        name: Some(&named.name).filter(|name| !name.is_empty()).cloned(),
        ranks: (row.ranks > 0).then_some(row.ranks),
        function: row.function.name(),
        algorithm: row.algorithm.name(),
        kernels: row.kernels,
        grouped_kernels: row.grouped,
        operations: row.operations,
        bytes: row.bytes,
        min_bytes: row.min_bytes,
        max_bytes: row.max_bytes,
        time_ns: row.time_ns,
        exposed_ns: row.exposed_ns,
        longest_ns: row.longest_ns,
        algorithm_bytes_per_second: row.algorithm_bandwidth(),
        bus_bytes_per_second: row.bus_bandwidth(),
        basis: Basis::ALL.into_iter().map(|basis| (basis.name(), row.bases[basis as usize])).collect(),
    }
}
