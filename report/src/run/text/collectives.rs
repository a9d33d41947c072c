//! Table and sentences about the collectives of a run.

use std::fmt::Write;

use gpuwhy_trace::collective::{Algorithm, Function};
use profiler_core::collective::{Basis, CollectivesReport, NamedRow};

use crate::text_format::table::Table;
use crate::text_format::{Page, bytes, counted, duration, shortened, wrapped};

/// Rows in the table; the JSON lists all.
const SHOWN: usize = 20;
/// Maximum length of a communicator name in a row.
const NAME_WIDTH: usize = 40;

/// Appends the table of the long report.
pub(super) fn write(collectives: &CollectivesReport, out: &mut Page) {
    let mut table =
        Table::new("time:10|kernels:9|exposed:10|mean:10|mean size:10|alg GB/s:8|bus GB/s:8|rests on:11|operation");
    collectives.rows.iter().take(SHOWN).for_each(|named| row(&mut table, named));
    let _ = write!(out, "\n== collectives\n{table}");
    if let Some(rest) = collectives.rows.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let time = rest.iter().map(|named| named.row.time_ns).fold(0, u64::saturating_add);
        let _ = writeln!(out, "{:>10} in {}", duration(time), counted(rest.len() as u64, "more row"));
    }
    if collectives.rows.iter().any(|named| named.row.bytes > 0) {
        wrapped(
            out,
            "  - ",
            "Bandwidths are those of this rank alone. Waiting for other ranks is in the time, so they are lower bounds.",
        );
    }
    for sentence in sentences(collectives) {
        wrapped(out, "  - ", &sentence);
    }
}

/// Sentences that name missing information and the reason.
fn sentences(collectives: &CollectivesReport) -> Vec<String> {
    let missing = collectives.unjoined;
    let mut sentences = Vec::new();
    if collectives.communicators == 0 {
        sentences.push(
            "NCCL reported nothing through its profiler plugin: functions are known by the names of kernels, sizes are \
             not. It takes NCCL 2.27 and the variable NCCL_PROFILER_PLUGIN, which `gpuwhy run --nccl` sets."
                .to_owned(),
        );
    }
    if missing.captured > 0 {
        sentences.push(format!(
            "{} went into CUDA graphs. NCCL tells them once and not at each launch of the graph, so their kernels are \
             known by name.",
            counted(missing.captured, "operation")
        ));
    }
    let others = missing.kernels.saturating_sub(missing.graph_kernels);
    for (count, what, why) in [
        (missing.copy_engine, "operation", "done by copy engines: they are copies, and have no row here"),
        (missing.operations, "operation", "reported by NCCL matched no kernel"),
        (others, "communication kernel", "met no operation of NCCL: libraries other than NCCL, or lost events"),
        (missing.dropped, "event", "dropped, because too many waited to be joined"),
        (collectives.beyond, "kernel", "found no row in the table"),
    ] {
        if count > 0 {
            sentences.push(format!("{} {why}.", counted(count, what)));
        }
    }
    sentences
}

fn row(table: &mut Table, named: &NamedRow) {
    let row = &named.row;
    let dash = || "-".to_owned();
    let gigabytes = |rate: Option<f64>| rate.map_or_else(dash, |rate| format!("{:.1}", rate / 1e9));
    let per_kernel = |total: u64| total / row.kernels.max(1);
    let exposed = 100.0 * row.exposed_ns as f64 / row.time_ns.max(1) as f64;
    table.row(&[
        &duration(row.time_ns),
        &row.kernels,
        &format!("{exposed:.1} %"),
        &duration(per_kernel(row.time_ns)),
        &if row.bytes > 0 { bytes(per_kernel(row.bytes)) } else { dash() },
        &gigabytes(row.algorithm_bandwidth()),
        &gigabytes(row.bus_bandwidth()),
        &basis(row.bases),
        &operation(named),
    ]);
}

/// Basis on which most kernels of a row were identified.
fn basis(bases: [u64; Basis::ALL.len()]) -> &'static str {
    let most = Basis::ALL.into_iter().max_by_key(|&basis| (bases[basis as usize], std::cmp::Reverse(basis)));
    most.unwrap_or_default().name()
}

/// Function, algorithm, communicator, and operations per kernel.
fn operation(named: &NamedRow) -> String {
    let row = &named.row;
    let mut text = match row.function {
        Function::Unknown => "communication".to_owned(),
        function => function.name().to_owned(),
    };
    if row.algorithm != Algorithm::Unknown {
        let _ = write!(text, ", {}", row.algorithm.name());
    }
    if !named.name.is_empty() {
        let _ = write!(text, ", {}", shortened(&named.name, NAME_WIDTH));
    }
    if row.ranks == 0 && row.communicator != 0 {
        let _ = write!(text, ", {:016x}", row.communicator);
    }
    if row.ranks > 0 {
        let _ = write!(text, ", {}", counted(row.ranks.into(), "rank"));
    }
    if row.grouped > 0 {
        let _ = write!(text, ", {} in {}", counted(row.operations, "operation"), counted(row.kernels, "kernel"));
    }
    text
}
