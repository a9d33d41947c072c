//! Memory in the JSON report.

use serde::Serialize;

use crate::report::{MemoryReport, MemoryRow};

/// Memory that was allocated while measuring.
#[derive(Debug, Serialize)]
pub(super) struct MemoryJson {
    places: Vec<PlaceJson>,
    unknown_releases: u64,
    table_overflow: u64,
}

#[derive(Debug, Serialize)]
struct PlaceJson {
    device: u32,
    kind: &'static str,
    peak_bytes: u64,
    peak_unix_ns: u64,
    peak_by: Option<PeakByJson>,
    current_bytes: u64,
    allocations: u64,
    releases: u64,
    allocated_bytes: u64,
    largest_bytes: u64,
    pool_peak_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PeakByJson {
    thread: u32,
    function: String,
    range: Option<String>,
}

impl MemoryJson {
    pub(super) fn new(report: &MemoryReport) -> Self {
        Self {
            places: report.rows.iter().map(place).collect(),
            unknown_releases: report.unknown_releases,
            table_overflow: report.table_overflow,
        }
    }
}

fn place(row: &MemoryRow) -> PlaceJson {
    let holding = &row.holding;
    PlaceJson {
        device: row.device.0,
        kind: row.kind.name(),
        peak_bytes: holding.peak,
        peak_unix_ns: holding.peak_at.nanos(),
        peak_by: row.peak_by.as_ref().map(|by| PeakByJson {
            thread: by.thread.0,
            function: by.function.clone(),
            range: by.range.clone(),
        }),
        current_bytes: holding.current,
        allocations: holding.allocations,
        releases: holding.releases,
        allocated_bytes: holding.allocated,
        largest_bytes: holding.largest,
        pool_peak_bytes: holding.pool_peak,
    }
}
