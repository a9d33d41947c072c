//! Work of CUDA graphs by the line and the module that captured it.

use std::cmp::Reverse;
use std::fmt::Write;

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::{Attributor, GraphOriginCounts, GraphWork};
use rustc_hash::FxHashMap;

use super::launches::{rest, site};
use super::library::Library;
use super::{GraphModuleRow, GraphOriginRow, GraphOrigins, GraphThreadRow, Report, names};
use crate::text_format::names::short_names;
use crate::text_format::{Page, counted, duration, percent, shortened};

/// Maximum number of rows in a report.
const ROWS: usize = 1_024;
/// Least share of the time of kernels that graphs must take to be divided on the first screen, and the parts named.
const LEAST: f64 = 0.3;
const PARTS: usize = 3;
/// Rows of a table in the long report, and the maximum length of a kernel's name.
const SHOWN: usize = 10;
const KERNEL_WIDTH: usize = 44;

impl GraphOrigins {
    /// Builds the rows; `None` if no record names a node, or no node was reported.
    pub(super) fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let counts = attributor.graph_origin_counts(dictionary);
        let all = all(&counts);
        if counts.nodes == 0 || all.count == 0 {
            return None;
        }
        let mut rows: Vec<GraphOriginRow> = attributor
            .graph_origins()
            .map(|(kernel, place, count, total_ns)| GraphOriginRow {
                kernel: kernel.map(|id| names::kernel(dictionary, id)),
                library: kernel.and_then(|id| Library::of_kernel(dictionary.name(id))),
                place: site(place, dictionary),
                work: GraphWork { count, total_ns },
            })
            .collect();
        rows.sort_by(|a, b| {
            let by = |row: &GraphOriginRow| (Reverse(row.work.total_ns), row.kernel.clone(), row.place.text());
            by(a).cmp(&by(b))
        });
        let mut threads: Vec<GraphThreadRow> = attributor
            .graph_threads()
            .map(|(thread, count, total_ns)| GraphThreadRow {
                thread: thread.0,
                name: dictionary.thread_name(thread).map(str::to_owned),
                work: GraphWork { count, total_ns },
            })
            .collect();
        threads.sort_by_key(|row| (Reverse(row.work.total_ns), row.thread));
        let (modules, distinct_rows) = (modules(&rows, all.total_ns), rows.len() as u64);
        rows.truncate(ROWS);
        Some(Self { counts, modules, rows, distinct_rows, threads })
    }

    /// All operations of graphs.
    #[must_use]
    pub fn all(&self) -> GraphWork {
        all(&self.counts)
    }
}

fn all(counts: &GraphOriginCounts) -> GraphWork {
    let parts = [counts.with_place, counts.without_place, counts.unknown];
    GraphWork {
        count: parts.iter().map(|part| part.count).sum(),
        total_ns: parts.iter().fold(0, |sum, part| sum.saturating_add(part.total_ns)),
    }
}

/// Parent, module and operators.
type ModuleKey<'a> = (Option<&'a str>, Option<&'a str>, Option<String>);

fn modules(rows: &[GraphOriginRow], all_ns: u64) -> Vec<GraphModuleRow> {
    let mut sums: FxHashMap<ModuleKey<'_>, GraphWork> = FxHashMap::default();
    for row in rows {
        let operators = row.place.operator.as_deref().and_then(computing);
        let sum = sums.entry((row.place.parent.as_deref(), row.place.module.as_deref(), operators)).or_default();
        sum.count += row.work.count;
        sum.total_ns = sum.total_ns.saturating_add(row.work.total_ns);
    }
    let mut modules: Vec<GraphModuleRow> = sums
        .into_iter()
        .map(|((parent, module, operators), work)| GraphModuleRow {
            module: module.map(str::to_owned),
            parent: parent.map(str::to_owned),
            operators,
            work,
            share: work.total_ns as f64 / all_ns.max(1) as f64,
        })
        .collect();
    modules.sort_by(|a, b| {
        let by = |row: &GraphModuleRow| (Reverse(row.work.total_ns), row.name());
        by(a).cmp(&by(b))
    });
    modules
}

/// The operators of generated code that compute: `silu, mul, mm` of `aten.view, aten.silu, aten.mul, aten.mm [x, y]`.
fn computing(operators: &str) -> Option<String> {
    /// Operators that only change the view of a tensor.
    const VIEWS: [&str; 16] = [
        "_unsafe_view",
        "alias",
        "as_strided",
        "detach",
        "expand",
        "lift_fresh_copy",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
    ];
    let list = operators.starts_with("aten.").then(|| operators.split(" [").next().unwrap_or_default())?;
    let names = || list.split(", ").map(|name| name.strip_prefix("aten.").unwrap_or(name));
    let computing: Vec<&str> = names().filter(|name| !VIEWS.contains(name)).collect();
    Some(if computing.is_empty() { names().collect::<Vec<_>>().join(", ") } else { computing.join(", ") })
}

impl GraphModuleRow {
    /// Display text: `Attention > Linear`, `Decoder: silu, mul, mm`.
    pub(super) fn name(&self) -> String {
        let module = match (&self.parent, &self.module) {
            (Some(parent), Some(module)) => format!("{} > {}", shortened(parent, 40), shortened(module, 40)),
            (_, Some(module)) => shortened(module, 40),
            _ => "outside modules".to_owned(),
        };
        match &self.operators {
            Some(operators) => format!("{module}: {}", shortened(operators, 60)),
            None => module,
        }
    }
}

impl GraphThreadRow {
    /// Display text: `thread pt_autograd_0 (backward pass)`.
    fn text(&self) -> String {
        // PyTorch names the threads of its engine so (`torch/csrc/autograd/engine.cpp`).
        let is_backward = self.name.as_deref().is_some_and(|name| name.starts_with("pt_autograd"));
        let thread = self.name.clone().unwrap_or_else(|| self.thread.to_string());
        format!("thread {thread}{}", if is_backward { " (backward pass)" } else { "" })
    }
}

impl Report {
    /// The parts of CUDA graphs with the most time, if graphs take much of it.
    pub(super) fn graph_parts(&self) -> Option<String> {
        let origins = self.graph_origins.as_ref()?;
        let kernels: u64 = self.kernel_libraries.iter().map(|row| row.total_ns).sum();
        let all = origins.all().total_ns;
        if (all as f64) < LEAST * kernels as f64 {
            return None;
        }
        let modules = origins.modules.iter().filter(|row| row.module.is_some()).map(|row| (row.work, row.name()));
        let outside = origins.rows.iter().filter(|row| row.place.module.is_none());
        let lines = outside.map(|row| (row.work, row.place.text()));
        let threads = origins.threads.iter().map(|row| (row.work, row.text()));
        let mut parts: Vec<(GraphWork, String)> = modules.chain(lines).chain(threads).collect();
        parts.sort_by_key(|(work, _)| Reverse(work.total_ns));
        let part = |(work, name): &(GraphWork, String)| {
            format!("{name} {}", percent(work.total_ns as f64 / all.max(1) as f64))
        };
        let named: Vec<String> = parts.iter().take(PARTS).map(part).collect();
        (!named.is_empty()).then(|| format!("Work of CUDA graphs by where it was captured: {}.", named.join(", ")))
    }

    /// Appends what captured the work of CUDA graphs, by module and by line, to the long report.
    pub(super) fn write_graph_origins(&self, out: &mut Page) {
        let Some(origins) = &self.graph_origins else { return };
        let (all, counts) = (origins.all(), &origins.counts);
        let _ = writeln!(
            out,
            "\n== work of CUDA graphs by module (exact; {} of {} have a line)\n{:>10} {:>6} {:>9}  captured in",
            counts.with_place.count,
            counted(all.count, "operation"),
            "time",
            "%",
            "count"
        );
        let share_of = |nanos: u64| nanos as f64 / all.total_ns.max(1) as f64 * 100.0;
        let mut line = |work: GraphWork, name: String| {
            let share = share_of(work.total_ns);
            let _ = writeln!(out, "{:>10} {share:>6.2} {:>9}  {name}", duration(work.total_ns), work.count);
        };
        origins.modules.iter().take(SHOWN).for_each(|row| line(row.work, row.name()));
        for row in origins.threads.iter().take(SHOWN) {
            line(row.work, format!("{}, without a line", row.text()));
        }
        if counts.unknown.count > 0 {
            line(counts.unknown, "unknown: their nodes were not reported".to_owned());
        }
        rest(out, origins.modules.len() as u64, "more module", "more modules");
        if counts.updates > 0 {
            let calls = counted(counts.updates, "call");
            let _ = writeln!(
                out,
                "{calls} of cudaGraphExecUpdate put other nodes into graphs: lines are those of the first capture"
            );
        }
        let _ = writeln!(
            out,
            "\n== work of CUDA graphs by line (exact)\n{:>10} {:>6} {:>9}  captured at: kernel",
            "time", "%", "count"
        );
        let shown = &origins.rows[..origins.rows.len().min(SHOWN)];
        let kernels = short_names(shown.iter().map(|row| row.kernel.as_deref().unwrap_or("copies")), KERNEL_WIDTH);
        for (row, kernel) in shown.iter().zip(kernels) {
            let (time, share) = (duration(row.work.total_ns), share_of(row.work.total_ns));
            let _ = writeln!(out, "{time:>10} {share:>6.2} {:>9}  {}: {kernel}", row.work.count, row.place.text());
        }
        rest(out, origins.distinct_rows, "more row", "more rows");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fused_operators_those_that_compute_are_named() {
        let fused = "aten._unsafe_view, aten.silu, aten.mul, aten.view, aten.t, aten.mm [linear_2, silu]";
        assert_eq!(computing(fused).as_deref(), Some("silu, mul, mm"));
        assert_eq!(computing("aten.view, aten.t [x]").as_deref(), Some("view, t"));
        assert_eq!(computing("add_Tensor"), None);
    }
}
