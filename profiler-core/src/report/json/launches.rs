//! The sections of the JSON report about kernels by library and by line.

use serde::Serialize;

use crate::report::{KernelLines, LaunchSite, LibraryRow, SampledTime};

/// Rows that are listed, the largest.
const LINES: usize = 64;
const ROWS: usize = 128;

#[derive(Debug, Serialize)]
pub(super) struct LibraryJson {
    library: Option<String>,
    kernels: u64,
    count: u64,
    total_ns: u64,
    by_samples_ns: u64,
    share: f64,
    largest_kernel: String,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelLinesJson {
    basis: &'static str,
    samples: u64,
    samples_in_copies: u64,
    samples_elsewhere: u64,
    samples_without_record: u64,
    samples_without_row: u64,
    kernel_ns: u64,
    not_sampled_ns: u64,
    distinct_lines: u64,
    distinct_kernels: u64,
    lines: Vec<LineJson>,
    kernels: Vec<KernelJson>,
}

#[derive(Debug, Serialize)]
struct LineJson {
    #[serde(flatten)]
    place: PlaceJson,
    #[serde(flatten)]
    time: TimeJson,
    share: f64,
    kernels: u64,
    largest_kernel: String,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    kernel: String,
    graph: Option<u32>,
    library: Option<&'static str>,
    #[serde(flatten)]
    place: PlaceJson,
    #[serde(flatten)]
    time: TimeJson,
    kernel_samples: u64,
    kernel_ns: u64,
}

#[derive(Debug, Serialize)]
struct PlaceJson {
    file: String,
    line: u32,
    function: String,
    within: Option<WithinJson>,
    module: Option<String>,
    operator: Option<String>,
    binary: Option<String>,
}

#[derive(Debug, Serialize)]
struct WithinJson {
    file: String,
    function: String,
}

#[derive(Debug, Serialize)]
struct TimeJson {
    samples: u64,
    total_ns: u64,
    low_ns: u64,
    high_ns: u64,
}

pub(super) fn library(row: &LibraryRow) -> LibraryJson {
    LibraryJson {
        library: row.library.clone(),
        kernels: row.names,
        count: row.count,
        total_ns: row.total_ns,
        by_samples_ns: row.by_samples_ns,
        share: row.share,
        largest_kernel: row.largest.clone(),
    }
}

impl KernelLinesJson {
    pub(super) fn new(from: &KernelLines) -> Self {
        Self {
            basis: "estimate",
            samples: from.samples,
            samples_in_copies: from.counts.in_copies,
            samples_elsewhere: from.counts.elsewhere,
            samples_without_record: from.counts.without_record,
            samples_without_row: from.counts.overflow,
            kernel_ns: from.kernel_ns,
            not_sampled_ns: from.not_sampled_ns,
            distinct_lines: from.distinct_lines,
            distinct_kernels: from.distinct_rows,
            lines: from
                .lines
                .iter()
                .take(LINES)
                .map(|row| LineJson {
                    place: place(&row.place),
                    time: time(&row.time),
                    share: row.share,
                    kernels: row.kernels,
                    largest_kernel: row.largest.clone(),
                })
                .collect(),
            kernels: from
                .rows
                .iter()
                .take(ROWS)
                .map(|row| KernelJson {
                    kernel: row.kernel.clone(),
                    graph: row.graph,
                    library: row.library.map(crate::report::library::Library::name),
                    place: place(&row.place),
                    time: time(&row.time),
                    kernel_samples: row.kernel_samples,
                    kernel_ns: row.kernel_ns,
                })
                .collect(),
        }
    }
}

fn place(of: &LaunchSite) -> PlaceJson {
    PlaceJson {
        file: of.file.clone(),
        line: of.line,
        function: of.function.clone(),
        within: of.within.clone().map(|(function, file)| WithinJson { file, function }),
        module: of.module.clone(),
        operator: of.operator.clone(),
        binary: of.binary.clone(),
    }
}

fn time(of: &SampledTime) -> TimeJson {
    let whole = |nanos: f64| nanos.round() as u64;
    TimeJson { samples: of.samples, total_ns: whole(of.total_ns), low_ns: whole(of.low_ns), high_ns: whole(of.high_ns) }
}
