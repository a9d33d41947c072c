//! Tables in the format of `ncu --csv`, so that scripts for its output keep working.
//!
//! Column names, units row and metric names are those of Nsight Compute 2025.3 (`--page raw`, `--page
//! details`); columns without data in gpuwhy are empty. Values are plain numbers without thousands
//! separators.

use std::fmt::Write as _;

use super::metrics::{Chosen, all_metrics};
use super::{KernelView, KernelsReport};
use profiler_core::sorting::SortRows as _;

/// Selects one of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvKind {
    /// One row per kernel, one column per metric, and the units in the second row.
    Raw,
    /// One row per kernel and metric.
    Details,
}

/// Leading columns of both pages.
const COLUMNS: [&str; 11] = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
];

/// A cell: quoted, quotes doubled (RFC 4180).
fn cell(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", clean.replace('"', "\"\""))
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { "nan".to_owned() }
}

fn front(view: &KernelView, id: usize, process: (u32, &str, &str)) -> Vec<String> {
    let size = |of: [u32; 3]| format!("({}, {}, {})", of[0], of[1], of[2]);
    let (pid, program, host) = process;
    let [major, minor] = view.device.compute_capability;
    vec![
        id.to_string(),
        pid.to_string(),
        program.to_owned(),
        host.to_owned(),
        view.name.clone(),
        String::new(),
        String::new(),
        size(view.launch.block),
        size(view.launch.grid),
        view.device.id.0.to_string(),
        format!("{major}.{minor}"),
    ]
}

/// Returns the chosen metrics of a kernel sorted by name, like Nsight Compute.
fn metrics(view: &KernelView, is_chosen: Chosen<'_>) -> Vec<(String, &'static str, String)> {
    let all = all_metrics(view).into_iter().filter(|(name, ..)| is_chosen.is_none_or(|is_chosen| is_chosen(name)));
    all.map(|(name, unit, value)| (name.to_owned(), unit, number(value))).collect()
}

fn line(out: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().map(|text| cell(&text)).collect();
    let _ = writeln!(out, "{}", cells.join(","));
}

/// Formats the table of all measured kernels with the metrics that are chosen, or all; `process` is the process's id,
/// program and host.
pub fn csv(report: &KernelsReport, page: CsvKind, process: (u32, &str, &str), is_chosen: Chosen<'_>) -> String {
    let mut out = String::new();
    let measured = report.measured.iter().filter(|view| !view.profile.values.is_empty());
    let rows: Vec<_> = measured.map(|view| (view, metrics(view, is_chosen))).collect();
    let columns = COLUMNS.iter().map(|&column| column.to_owned());
    match page {
        CsvKind::Details => {
            let last = ["Section Name", "Metric Name", "Metric Unit", "Metric Value"];
            line(&mut out, columns.chain(last.map(str::to_owned)));
            for (id, (view, metrics)) in rows.iter().enumerate() {
                for (name, unit, value) in metrics {
                    let last =
                        ["Command line profiler metrics".to_owned(), name.clone(), (*unit).to_owned(), value.clone()];
                    line(&mut out, front(view, id, process).into_iter().chain(last));
                }
            }
        }
        CsvKind::Raw => {
            let mut names: Vec<_> =
                rows.iter().flat_map(|(_, metrics)| metrics.iter().map(|of| (&of.0, of.1))).collect();
            names.sort_rows_by(Ord::cmp);
            names.dedup();
            line(&mut out, columns.chain(names.iter().map(|(name, _)| (*name).clone())));
            let empty = COLUMNS.iter().map(|_| String::new());
            line(&mut out, empty.chain(names.iter().map(|(_, unit)| (*unit).to_owned())));
            for (id, (view, metrics)) in rows.iter().enumerate() {
                let value = |wanted: &String| {
                    metrics.iter().find(|(name, ..)| name == wanted).map(|of| of.2.clone()).unwrap_or_default()
                };
                line(&mut out, front(view, id, process).into_iter().chain(names.iter().map(|(name, _)| value(name))));
            }
        }
    }
    out
}
