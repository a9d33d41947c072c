//! The section of the JSON report about the ranges that the program named.

use std::collections::BTreeMap;

use serde::Serialize;

use super::limits::{LimitsJson, times};
use crate::attribution::Spread;
use crate::report::ranges::style_name;
use crate::report::{RangeRow, RangesReport};

/// Kernels listed for a range, the largest.
const KERNELS: usize = 16;

#[derive(Debug, Serialize)]
pub(super) struct RangesJson {
    open: u64,
    unmatched: u64,
    table_overflow: u64,
    kernel_overflow: u64,
    evicted: u64,
    rows: Vec<RowJson>,
}

#[derive(Debug, Serialize)]
struct RowJson {
    domain: String,
    message: String,
    style: &'static str,
    host: SpreadJson,
    projected: SpreadJson,
    operations: u64,
    mean_level: f64,
    mean_children: f64,
    device_ns: u64,
    idle: BTreeMap<&'static str, u64>,
    kernels: Vec<KernelJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits_ns: Option<LimitsJson>,
}

#[derive(Debug, Serialize)]
struct SpreadJson {
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    median_ns: u64,
    min_ns: u64,
    max_ns: u64,
    deviation_ns: f64,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    count: u64,
    total_ns: u64,
    median_ns: u64,
}

impl RangesJson {
    pub(super) fn new(from: &RangesReport) -> Self {
        Self {
            open: from.open,
            unmatched: from.counts.unmatched,
            table_overflow: from.counts.table_overflow,
            kernel_overflow: from.counts.kernel_overflow,
            evicted: from.counts.evicted,
            rows: from.rows.iter().map(row).collect(),
        }
    }
}

fn row(from: &RangeRow) -> RowJson {
    let kernels = from.kernels.iter().take(KERNELS).map(|(name, of)| KernelJson {
        name: name.clone(),
        count: of.count(),
        total_ns: of.total(),
        median_ns: of.median(),
    });
    RowJson {
        domain: from.domain.clone(),
        message: from.message.clone(),
        style: style_name(from.style),
        host: spread(&from.host),
        projected: spread(&from.projected),
        operations: from.operations,
        mean_level: from.mean_level,
        mean_children: from.mean_children,
        device_ns: from.device_ns,
        idle: from.causes().into_iter().map(|(leaf, nanos)| (leaf.name(), nanos)).collect(),
        kernels: kernels.collect(),
        limits_ns: from.limits.as_ref().map(times),
    }
}

fn spread(from: &Spread) -> SpreadJson {
    let of = &from.durations;
    SpreadJson {
        count: of.count(),
        total_ns: of.total(),
        mean_ns: of.mean(),
        median_ns: of.median(),
        min_ns: of.min(),
        max_ns: of.max(),
        deviation_ns: from.deviation(),
    }
}
